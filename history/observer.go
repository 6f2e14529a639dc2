package history

import (
	"errors"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/contain"
)

// Observer returns the callbacks by which the Recorder records the runs of an executor: set it as
// executor.Options.Observer, or pass it to Executor.Observe. Several executors of one namespace and group may have it.
// Shut down the Recorder after the executor.
//
// The instance that leads the group also records the runs that crashed with other instances, and the ends of fires.
func (r *Recorder) Observer() executor.Observer {
	o := executor.Observer{
		RunEnded: func(e executor.RunEnded) {
			run := newRun(e)
			if r.o.Logs.Skip != nil && r.o.Logs.skips(run.Job) {
				run.Output = ""
			}
			defer func() { r.Add(run) }() // also if Annotate panics, which the executor logs
			if r.logs != nil {
				r.logs.end(e)
			}
			if r.o.Annotate != nil {
				r.o.Annotate(e, &run)
			}
		},
		RunCrashed:   func(e executor.RunCrashed) { r.Add(newCrashedRun(e)) },
		FiresSkipped: func(e executor.FiresSkipped) { r.AddSkipped(newSkippedFire(e, r.o.Instance)) },
		FireEnded:    func(e executor.FireEnded) { r.AddEnded(newEndedFire(e, r.o.Instance)) },
	}
	if r.logs != nil {
		o.RunLog = r.logs.handlerFor
	}
	return o
}

// newRun returns the record of a run. The exit code and output are those of an error with methods for them, such as
// *exec.ExitError. A method that panics adds nothing.
func newRun(e executor.RunEnded) Run {
	run := runOfInfo(e.Run)
	run.Reason, run.Fence, run.Shards, run.Targets = e.Run.Reason.String(), e.Run.Fence, e.Run.Shards, e.Run.Targets
	run.Started, run.Ended, run.Outcome = e.Started, e.Ended, e.Outcome
	run.ItemsFetched, run.ItemsProcessed, run.TraceID = e.ItemsFetched, e.ItemsProcessed, e.TraceID
	if e.Err == nil {
		return run
	}
	run.Error = e.Err.Error()
	var exit interface{ ExitCode() int }
	if errors.As(e.Err, &exit) {
		_ = contain.Call("ExitCode", func() error {
			if code := exit.ExitCode(); code >= 0 { // -1 is a signal
				run.ExitCode = &code
			}
			return nil
		})
	}
	var output interface{ OutputTail() string }
	var panicked *executor.PanicError
	switch {
	case errors.As(e.Err, &output):
		_ = contain.Call("OutputTail", func() error { run.Output = output.OutputTail(); return nil })
	case errors.As(e.Err, &panicked):
		run.Output = cleanHead(string(panicked.Stack), MaxOutput)
	}
	return run
}

// newCrashedRun returns the record of a run that crashed with its instance.
func newCrashedRun(e executor.RunCrashed) Run {
	run := runOfInfo(e.Run)
	run.Ended, run.Outcome, run.Error = e.At, Crashed, "the session of the instance ended before the run did"
	if e.Rerun {
		run.Error += "; the run is made again"
	}
	return run
}

func runOfInfo(i executor.RunInfo) Run {
	return Run{Namespace: i.Namespace, Group: i.Group, ID: i.ID, Job: i.Job, Kind: i.Kind, Fire: i.FireTime, Trigger: i.Trigger, Shard: i.Shard, Attempt: i.Attempt, Instance: i.Instance}
}

// newSkippedFire returns a record of skipped fires. It is that of the last one, since the event does not list them.
func newSkippedFire(e executor.FiresSkipped, instance string) Fire {
	at := e.Through
	if at.IsZero() {
		at = e.At.Truncate(time.Second)
	}
	f := Fire{Job: e.Job, Fire: at, Instance: instance, Skipped: int64(e.Count) * int64(len(e.Shards))}
	f.SkippedBy = newSkips(e.Reason, f.Skipped)
	if e.From.Before(at) {
		f.SkippedFrom = e.From
	}
	return f
}

func newEndedFire(e executor.FireEnded, instance string) Fire {
	return Fire{
		Job: e.Job, Fire: e.FireTime, Trigger: e.Trigger, Instance: instance,
		Shards: e.Shards, Ended: e.Ended, FailedShards: e.Failed, SkippedShards: e.Skipped,
	}
}
