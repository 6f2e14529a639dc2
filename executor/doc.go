// Package executor runs scheduled, sharded jobs on a fleet of processes that share a
// registry.
//
// Each process makes an [Executor] with [New], registers its jobs, and calls [Executor.Run].
// The fleet assigns every shard of every job to one process. At each fire of the job's
// schedule, the owner of a shard calls the job's [Handler]. If a process crashes, others own
// its shards and repeat its unfinished runs.
//
// # Jobs
//
// A [Job] is a struct literal; only Name and Handler are required. Register validates all
// jobs and reports all problems together, each as an ErrInvalidJob.
//
// # Kinds
//
// A [Kind] is code for jobs that are defined as data, such as a report for each customer: each
// defined job names its kind, and has a schedule and parameters of its own. RegisterKind offers all
// jobs of a kind, present and future.
//
// # Fires
//
// Job.Schedule determines the fires of a job: the instants at which its shards run. Package
// schedule has the kinds of schedules.
//
// # Handlers
//
// A Handler receives a [Run]: plain data that identifies the job, the shard and the fire. In a
// test of a handler, make one as a literal. Package rotatest runs whole fleets in a test.
// Package handler has handlers that run programs and send requests, and [Together] passes all shards of a fire that a process
// owns to one call. A [Middleware] adds work
// before and after each run.
//
// # Policies
//
// Job.Retry has failed runs made again, and Job.OnCrash those of crashed processes. Job.OnOverlap
// applies to fires that come due during a run, Job.OnMisfire to those that came due while the shard
// could not run, and Job.CatchupWindow bounds how old they may be. [Run.Checkpoint] stores the state
// of a shard for its next attempts and fires, and [Run.Yield] asks a long run to end early.
//
// # Bounds
//
// Job.MaxRunning bounds the concurrent runs of one job in this process, Kind.MaxRunning those of
// all defined jobs of a kind, and Options.Workers those of all its jobs. Claimed runs beyond a bound wait for a worker; Executor.Waiting
// returns them. See docs/sizing.md.
//
// # Events and metrics
//
// An [Observer] receives events: the begin and end of each run, crashed runs, skipped fires, and
// changes of shards, session, leadership and clock. Executor.Stats returns the numbers of owned
// shards and of runs, and how long due fires have been unclaimed. The modules rotaprom and
// rotaotel export metrics and traces.
//
// # What is not promised
//
// A run may happen more than once: a process can crash after the handler's work and before
// the end of the run is recorded. Two runs of a shard can overlap if a handler ignores the end
// of its context after the session was lost. Use Run.Key to make work idempotent, and
// Run.Fence or Run.Commit to refuse late writes.
package executor
