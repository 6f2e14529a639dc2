// Package rota is the root of a library that runs scheduled jobs over a fleet of
// processes. A job is cut into shards; every shard belongs to one process at a time; at
// each scheduled instant the owner claims the shard's run, once, and makes it; and what a
// dead process was running is claimed again by a living one. The processes agree on this
// through a registry: etcd, ZooKeeper, or memory within one process.
//
// This package has no code. A user imports executor and one registry.
//
// # Packages
//
// Arrows point to what is imported. What lies ahead along them may be used, what lies
// behind may not; a test says so.
//
//	rotatest ──► executor ──► coordinator ──► registry ◄── registry/memory
//	                                              ▲
//	                                         conformance
//
// What each is for:
//
//   - registry is the contract: a small ordered store with transactions, watches and
//     sessions, and what can be built once on those, such as locks.
//   - registry/memory is a registry within one process, whose sessions can be expired,
//     whose clients can be cut off and whose replies can be lost: for tests, yours too.
//   - conformance is the suite that every registry passes.
//   - coordinator elects, plans and fails over. It can be used by itself to own shards of
//     something that has no schedule.
//   - executor has jobs, schedules, claims and runs: what a program embeds.
//   - rotatest puts a fleet on registry/memory into a test, in virtual time.
//
// # Words
//
// They mean the same in code, documents and messages.
//
// An instance is a process of the fleet, with a name. Its session is its lease on the
// registry: as long as the process renews it, the instance counts as alive. An
// incarnation is the pair of both; a process that lost its session comes back under the
// same name as another incarnation, and nothing of the old one is taken over unseen.
//
// A job has a schedule, a handler and a number of shards. A fire is one instant of the
// schedule; it is the same instant on every instance, whatever their clocks say. A run is
// one shard executed for one fire. It has an attempt, which is 1 unless an earlier one
// failed or its instance died.
//
// A claim is the commit in the registry that entitles an instance to start runs. Its
// fence is a number greater than that of every earlier claim of the shard: whoever is
// handed a smaller one than it has seen is talking to the past. The watermark of a shard
// says up to which fire and attempt it has been claimed; a shard is due when that lies
// behind its schedule.
//
// A group is a set of instances that share a leader, one of them, for a term: a number
// that every write of a leader carries. The leader writes a plan for each job: who owns
// which shard, which shards are about to move, and which runs are to be made again. All
// else follows from comparing the plan with the watermarks.
//
// An operator is whoever says what is to run and what not, from inside the fleet or from
// outside: pauses a job, triggers it by hand, or disables some of its shards, an instance
// or a host.
//
// # What is promised
//
//   - For a job, shard, fire and attempt, at most one claim is ever committed.
//   - A shard has at most one run whose session lives. A running shard does not move.
//   - Each fire is claimed, or skipped, as the job's policy says or because an operator has
//     disabled the shard, and then counted.
//   - A run that was under way when its session ended is claimed again with a higher
//     fence, or counted: as lost if the job does not want re-runs or has used up its
//     attempts, as unknown if the job tracks only claims.
//   - A write by a leader whose term is over does not take effect.
//   - Members join, leave and crash without a pause for the shards that do not move.
//
// # What is not promised
//
// Not "exactly once". A function may have finished its work just before its process died,
// and then the work is done again. A function that ignores its context goes on after
// its session is lost, beside the run that replaced it. What such a function writes is
// kept out by comparing fences where it is written: the library does so for what goes
// through the run's own methods, a database does so if it is told the fence.
//
// A fire is never early by the clock of the instance that claims it, but that clock may
// be wrong; of three instances and more, one whose clock is found to be too far from the
// others' claims nothing. A fire that a wrong clock claimed before its time is not claimed
// again: when the clock is right, the shards concerned wait for that time, and the job's
// status names that as its problem, until an operator resets the job. A fire may be late: by
// the time it takes to notice a death, which is the session's TTL and the store's business,
// and by the time that earlier work of the shard takes.
package rota
