// Package simulate runs whole fleets on the in-memory registry in virtual time, with faults
// drawn from a seed, and judges them.
//
// The judge, Observer, shares no code with what it judges. It reads the server's log of
// commits, in the records' stored form, and what the runs themselves said of their
// beginning and end, and it holds both against the promises of the library:
//
//  1. For a job, shard, fire and attempt one claim commits at most; a shard has at most one
//     run whose session lives, and functions overlap only if the earlier's context has ended.
//  2. Each fire is claimed, or skipped as the job's policy says and counted. None is claimed
//     before its time.
//  3. A run in flight when its session ends is claimed again, at the next attempt and with a
//     higher fence, before anything newer of its shard; or it is counted as lost.
//  4. A running shard keeps its owner while that one's session lives.
//  5. When a fleet has settled every shard has an owner that lives, evenly within one, and
//     nothing is left of the dead.
//  6. Plans are written by the leader of the current term only, and fences grow.
//  7. A shard that nothing befalls is claimed when it is due.
//  8. All runs of a fire name one total and one generation of the definition.
//
// A seed decides which faults strike whom and when. It does not decide how the goroutines
// of a moment take turns, nor what production code draws at random, so a failure may need
// a few tries to come back.
package simulate
