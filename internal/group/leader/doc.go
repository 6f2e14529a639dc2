// Package leader has the loop that leads a group for one term: it plans (package planning), commits
// the plans, restores records that another writer changed, and compares clocks (package skew). The
// loop is level-triggered: it acts on the present state, so it may miss events.
package leader
