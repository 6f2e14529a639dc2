// Package judge holds what a fleet did against the promises of the library. It shares no
// code with what it judges: it reads the log of a registry's commits, in the records' stored
// form, and what the runs themselves said of their beginning and end. The promises are:
//
//  1. For a job, shard, fire and attempt one claim commits at most; a shard has at most one
//     run whose session lives, and functions overlap only if the earlier's context has ended.
//     A reset may have an attempt claimed again that a wrong clock had claimed before.
//  2. Each fire is claimed, or skipped as the job's policy says, or because its shard is
//     disabled, and counted. None is claimed before its time. Where a shard waits because a
//     wrong clock was ahead, the plan names a problem.
//  3. A run in flight when its session ends is claimed again, at the next attempt and with a
//     higher fence, before anything newer of its shard; or it is counted as lost, or as
//     unknown if the job tracks only claims.
//  4. A running shard keeps its owner while that one's session lives.
//  5. When a fleet has settled every shard has an owner that lives, of each job everybody has
//     its share by weight within one, and nothing is left of the dead.
//  6. Plans are written by the leader of the current term only, and fences grow.
//  7. A shard that nothing befalls is claimed when it is due.
//  8. All runs of a fire name one total and one generation of the definition, between two
//     resets.
//  9. A shard that the plan shows as disabled or frozen is not claimed. When a fleet has
//     settled, plans show what operators have disabled and how often they have reset the job,
//     and whom they have disabled owns nothing.
//  10. A shard is given to those only who have the labels that a definition wants which is as
//     new as the newest of the plan, or newer. When a fleet has settled only those own any
//     who have the labels of the newest.
package judge
