// Package leader has the loops that lead a group: an Elector takes part in elections (package
// election) and runs a Leader during its term, which plans (package planning) and compares clocks
// (package skew). The loops are level-triggered: they act on the present state, so they may miss
// events.
package leader
