// Package coordinator distributes shards over a fleet of processes. It elects a leader for
// a group of instances, assigns the shards of the group's jobs to live instances, lets the
// owners claim due runs, and reassigns the shards of expired instances.
//
// Most programs use package executor, which adds schedules and handlers. Use this package
// directly for:
//
//   - [Join]: own shards without a schedule, such as partitions to consume. Each shard has a
//     saved state, from which the next owner continues.
//   - [Campaign]: leader election alone.
//
// Package operator pauses, triggers and disables jobs, and reads their state.
// Strategies, which choose the owner of each shard, are in package strategy.
//
// # How it works
//
// Decisions are pure functions: the leader computes the next plans from a view of the
// records, a member computes its next claims from a plan and the clock, and the elector
// decides whether to stand for election. Loops commit these decisions. The loops are
// level-triggered: they act on the present state of the records, not on single events, so
// lost, late or merged events do no harm.
//
// A view may be stale, and a process may stop at any instant. Each commit therefore has
// conditions. A plan requires the leader's term and the plan that it replaces; a claim
// requires the plan that names the owner, and the owner's live session. A late commit
// conflicts and changes nothing.
//
// # What is not promised
//
// Each attempt at a run is claimed at most once, and a shard has at most one run whose
// session is alive. This is not "exactly once": a process may crash after a function has
// done its work and before that is recorded, and a function that ignores the end of its
// context may overlap with the next attempt. A store that refuses smaller fences is safe
// from such functions.
package coordinator
