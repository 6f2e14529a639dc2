// Package rota is the root of a library that runs scheduled jobs over a fleet of processes.
// A job is divided into shards, and every shard belongs to one process at a time. At each
// scheduled instant the owner of a shard claims its run, once, and executes it. If a process
// crashes, other processes repeat its unfinished runs. The processes agree through a
// registry: etcd, ZooKeeper, or memory within one process.
//
// This package has no code. A program imports executor and one registry. Read docs/guide.md
// first.
//
// # Packages
//
// An arrow points from a package to one that it imports. A test refuses imports in the other
// direction.
//
//	rotatest ──► executor ──► coordinator ──► registry ◄── registry/memory
//	                                              ▲
//	                                         conformance
//
// The packages:
//
//   - registry is the contract: a small ordered store with transactions, watches and
//     sessions, and tools built on those, such as locks.
//   - registry/memory is a registry within one process. A test can expire its sessions, cut
//     clients off and lose replies.
//   - conformance is the suite that every registry passes.
//   - coordinator elects a leader, assigns shards and fails them over. A program without
//     schedules uses it to own shards.
//   - executor has jobs, schedules, claims and runs. A program embeds it.
//   - handler has handlers that run programs, send requests and call jobs of other schedulers.
//   - rotatest runs a fleet on registry/memory in a test, in virtual time.
//
// # Words
//
// They have one meaning in code, documents and messages. docs/concepts.md shows them in
// records.
//
// An instance is a process of the fleet, with a name. Its session is its lease on the
// registry: while the process renews the session, the instance is alive. If the process
// cannot renew it in time, the session is lost to the process, and it expires in the store.
// An incarnation is an instance under one session. A process that lost its session joins
// again as another incarnation of the same name, and adopts no record of the former one.
//
// A group is a set of instances that share a leader. A member is an incarnation in a group.
// The leader is the member that plans, for a term: a number that each write of the leader
// carries. It writes a plan for each job: the owner of each shard, the shards that are about
// to move, and the runs that are to be made again.
//
// A job has a schedule, a handler and a number of shards. Its definition is all of that but
// the handler, as stored in the registry; its revision is a number that the programmer
// raises with each change. An epoch is a span of instants under one definition, and has a
// number. All runs of one fire have the same definition.
//
// A fire is one instant of the schedule. It is the same instant on every instance, whatever
// its clock. A run is one shard executed for one fire, or for a trigger, which asks for a run
// by hand. A run has an attempt: 1, or more if a crash or a shutdown ended the attempts
// before.
//
// A claim is the commit in the registry that entitles an instance to start runs: those of
// all its shards that are due. Each of them has the fence of the claim, a number greater
// than that of every earlier claim of the shard. The watermark of a shard is the last fire
// and attempt claimed for it. A shard is due when its watermark is behind its schedule, a
// trigger, or a run that is to be made again.
//
// A move changes the owner of a shard. The leader first freezes the shard, which stops
// claims of it, then makes a fresh read of the owner's claims, and changes the owner once
// the shard is idle. A member that shuts down drains: it claims nothing more, and hands back
// the runs that it cannot finish. To fail over is to reassign the shards of a member whose
// session has expired.
//
// An operator pauses a job, triggers it, or disables some of its shards, an instance or a
// host, from inside or outside the fleet.
//
// # Promises
//
//   - For a job, shard, fire and attempt, at most one claim is ever committed.
//   - A shard has at most one run whose session lives. A running shard does not move.
//   - Each fire is claimed, or it is skipped and counted: by the job's policy, because the
//     shard is disabled, or because no live instance has offered the job for an hour.
//   - A run that was under way when its session expired is claimed again with a higher fence,
//     or counted: as lost if the job does not want re-runs or has used up its attempts, as
//     unknown if the job tracks only claims.
//   - A write of a leader whose term is over has no effect.
//   - Members join, leave and crash without a pause for the shards that do not move.
//
// # Limits
//
// Not "exactly once". A handler may have finished its work just before its process crashed;
// then the work is done again. A handler that ignores its context continues after its session
// was lost, beside the run that replaced it. Its late writes have no effect through Run.Commit,
// which requires that the session lives, and in a database that compares fences.
//
// A fire is never early by the clock of the instance that claims it, but that clock may be
// skewed. In a fleet of three instances and more, one whose clock is too far from the median
// claims nothing. A fire that a skewed clock claimed ahead of its time is not claimed again:
// the shards concerned wait for that time, and the job's status names the problem, until an
// operator resets the job. After the reset such a fire may be claimed a second time.
//
// A fire may be late: by the time until a session expires, at most its TTL and a delay
// of the store, and by earlier work of the shard.
//
// If no version of the program in the fleet can compile a definition, and no live instance
// offers the job, its due fires are given up uncounted.
//
// A record that was edited, deleted or restored behind rota's back no longer supports the
// promises that rest on it. docs/protocol/record-edits.md has the consequences.
package rota
