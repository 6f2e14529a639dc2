// Package member has the loops of a member of a group. Each loop reads the changes that feeds
// deliver, asks a package of decisions for the next step, and commits it:
//
//   - Member keeps a session and the member record, and joins again when the session is lost.
//   - Claimer claims the fires that are due (package claiming), starts their runs, and records the
//     ends of runs.
//   - Elector takes part in elections (package election) and runs a Leader during its term.
//   - Leader plans (package planning) and compares clocks (package skew).
//
// The loops are level-triggered: they act on the present state, so they may miss events.
package member
