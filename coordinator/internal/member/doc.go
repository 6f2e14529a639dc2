// Package member has the loops of a member of a group. Each of them reads what the feeds have
// delivered, asks a package of decisions what that calls for, and commits it:
//
//   - Member keeps a session and the member record, and joins again when the session is lost.
//   - Claimer claims the runs that are due (package claiming), starts them, and records their ends.
//   - Elector takes part in elections (package election) and runs a Leader during its term.
//   - Leader plans (package planning) and compares clocks (package skew).
//
// The loops are level-triggered: they act on the present state and need no event.
package member
