// Package coordinator decides who does what in a fleet: it elects a leader for a group of
// instances, deals the shards of the group's jobs to those that live, has them claim what
// is due, and hands a dead instance's shards to the living.
//
// Most programs use package executor, which runs scheduled jobs on it. Join shares out
// shards without schedules, for a process that owns things rather than runs them, such as
// partitions to consume; a shard has a state, in which each owner finds where the last one
// stopped. Campaign is leadership alone. Package strategy has the ways to assign shards.
// Operator says what a group is to run and what not, and tells what is on record of a job,
// without being in it. Member is what executor and Join are made of.
//
// # How it works
//
// Decisions are pure functions: decide makes the next plans from a view of the records,
// claim makes a member's next record from a plan and the clock, office.step tells what to
// do about the leader's office. Loops act on them: a leader while it is in office, a ledger
// for each incarnation of a member. They are level-triggered. They look at what there is,
// never at what has changed, so that no lost, late or merged event matters.
//
// Views may be stale and processes may pause anywhere, so each decision is committed with
// what it rests on as conditions: the leader's with its term and the plan that it replaces,
// a claim with the plan that gives the shard and the life of the session. Whoever comes
// late conflicts and changes nothing.
//
// # What is not promised
//
// A run is claimed at most once for each attempt, and a shard has at most one run whose
// session lives. That is not "exactly once": a function may have done its work before its
// process died, and one that ignores the end of its context may overlap the next attempt.
// The fence is there for that.
package coordinator
