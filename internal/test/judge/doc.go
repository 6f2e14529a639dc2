// Package judge compares the behaviour of a fleet with the promises of the library. It shares no code with the
// library: it reads the log of a registry's commits, with the records in their stored form, and the begin
// and end of each call as the handlers report them. The promises are:
//
//  1. At most one claim commits for a job, shard, fire and attempt. A shard has at most one run whose
//     session is alive, and calls overlap only if the context of the earlier one has ended. After a reset
//     an attempt that was claimed by a wrong clock may be claimed again.
//  2. Each fire is claimed, or it is skipped and counted, by the job's policy or because its shard is
//     disabled. No fire is claimed before its time. If a shard waits because a wrong clock was ahead,
//     the plan names a problem.
//  3. A run in flight when its session ends is claimed again, as the next attempt and with a higher fence,
//     before anything newer of its shard; or it is counted as lost, or as unknown if the job tracks only
//     claims.
//  4. A running shard keeps its owner while the owner's session is alive.
//  5. In a settled fleet each shard has an owner that is alive, each eligible member owns its share of each
//     job by weight within one, and no record of an expired incarnation is left.
//  6. Only the leader of the current term writes plans, and fences grow.
//  7. A shard that no fault disturbs is claimed when it is due.
//  8. All runs of a fire have one total and one epoch, between two resets.
//  9. A shard that the plan shows as disabled or frozen is not claimed. In a settled fleet, plans show the
//     disabled shards and the number of resets that operators asked for, and disabled instances own no
//     shards.
//  10. A shard is assigned only to members that have the labels of the plan's newest definition or of a newer
//     one. In a settled fleet, only members with the labels of the newest definition own shards.
//  11. A run that the plan names as cancelled is not claimed again, and the context of its call ends at once
//     unless a fault disturbs its instance.
//  12. Runs of a trigger, and their calls, have the fire that the trigger names. A trigger that retries a fire
//     is of shards whose last run of it has failed. Each fire of a backfill becomes one trigger, in order, and a
//     plan has no more of them than the backfill allows.
//  13. The definition of an epoch is a stored one, with the fields of the operators' override. In a settled
//     fleet both are the newest ones.
//  14. All records of a job are deleted at once, and only if no live member owns shards of it. In a settled
//     fleet, each job that a live member offers has a plan.
//  15. A defined job rests and wakes, is changed and deleted without a fire that is lost or run twice: each life continues
//     where the rest before it left off, and a change keeps what is owed. Once a Delete has returned, no run of a creation from
//     before its call is claimed. A creation never comes again, and its works have keys of their own. In a settled fleet
//     nothing of a deleted job is left but a tombstone, for five minutes.
//  16. Of the jobs with a pool, at most as many runs as its size run at once, without those whose context has ended and those of
//     a suspended process whose session the store has ended. A due run that waits for a slot only is claimed within 2 s
//     after one is free.
package judge
