// Package executor holds what a user of this library writes: jobs, their schedules and
// policies, and the handlers that run them.
//
// # Jobs
//
// A Job is a struct literal whose zero fields are safe. It is validated as a whole: all
// its problems come back together, each an ErrInvalidJob.
//
// # Fires
//
// A Schedule is a set of instants, its fires. The set depends on the schedule's text
// alone, not on when a process started or where it runs, so every instance of a fleet
// names a fire by the same instant. Whoever asks for the fires after an instant gets the
// members of that one set.
//
// A cron schedule is in UTC unless it names a zone; the zone of the machine is never
// used. Zones are looked up on each machine as time.LoadLocation does. This package does
// not embed a copy: where the system has none, as in an image built from scratch, import
// time/tzdata in the program. Instances with zone data of different age may disagree on
// the fires after a change of law that only one of them knows.
//
// # Handlers
//
// A Handler gets a Run: plain data that says which shard of which job runs for which
// fire. A test of a handler writes one as a literal.
//
// # Bounds
//
// Job.MaxRunning bounds the runs of each job in this process, and Options.Workers those of
// all jobs, if set. Claimed runs beyond a bound wait for a worker; Executor.Waiting returns
// them. docs/sizing.md shows how to choose the bounds.
package executor
