package executor

import (
	"log/slog"
	"reflect"
	"time"

	"github.com/rota-dev/rota/internal/group/event"
)

// Observer is a set of callbacks for the events of one executor, for metrics, traces and
// history. Each callback is optional. Set it as Options.Observer, or add it with
// Executor.Observe.
//
// One goroutine calls all callbacks of all observers of an executor, in the order of the
// events. A callback delays neither runs nor claims; it delays the events after it. Up to
// 10,000 events wait. Further events are dropped, counted by Executor.DroppedEvents, and logged
// once a minute. Shutdown waits up to 1 s for the callbacks of the events before it; later ones
// are dropped. A panic in a callback is logged.
//
// Callbacks must not call Shutdown, and must not modify the slices of an event.
type Observer struct {
	RunClaimed func(RunClaimed)
	RunBegun   func(RunBegun)
	RunEnded   func(RunEnded)
	RunRetried func(RunRetried)
	// RunCrashed is called on the leader only.
	RunCrashed func(RunCrashed)
	// FiresSkipped is called on the owner of the shards, and on the leader for a job that no
	// instance offered.
	FiresSkipped func(FiresSkipped)
	// FireEnded is called on the leader only.
	FireEnded         func(FireEnded)
	ShardsChanged     func(ShardsChanged)
	SessionChanged    func(SessionChanged)
	LeadershipChanged func(LeadershipChanged)
	ClockChanged      func(ClockChanged)
	// RunLog returns a handler that receives the records of Run.Logger, which go to the log of the executor too, and the
	// output of handler.Cmd; nil to receive nothing. It is no event: each call of Run.Logger calls it, at once and in the
	// goroutine of that call, so it must be safe for concurrent use and return soon; so must the handler. The run may go on
	// logging after RunEnded. A panic in either drops the line.
	RunLog func(RunInfo) slog.Handler
}

// isZero reports whether o has no callback.
func (o *Observer) isZero() bool { return reflect.ValueOf(*o).IsZero() }

// RunClaimed reports a run that this instance has claimed. The run begins as soon as there is a
// worker, but not before its instant of Schedule.Spread. Each RunClaimed is followed by one RunEnded
// of the same run, unless the executor ends before or the event is dropped.
type RunClaimed struct {
	Run RunInfo
	At  time.Time
}

// RunBegun reports that the handler of a run is about to be called. Its Reason may be Queued
// where that of RunClaimed is Scheduled.
type RunBegun struct {
	Run RunInfo
	At  time.Time
}

// RunEnded reports the end of a run in this instance.
type RunEnded struct {
	Run RunInfo
	// Started is when the handler was called. It is zero if the handler was not called, because
	// the session was lost, or the process was shut down, while the run waited for a worker.
	Started time.Time
	Ended   time.Time
	Outcome Outcome
	// Err is why the handler was not called, or has the text of the error that it returned, as it was then.
	// errors.Is and errors.As find in Err what they find in that error, and a *PanicError if the handler panicked.
	// It is not equal (==) to the error of the handler, and errors.Unwrap returns nil.
	Err error
	// ItemsFetched and ItemsProcessed are the sums of Run.CountItems.
	ItemsFetched, ItemsProcessed int64
	// TraceID is that of Run.SetTraceID.
	TraceID string
}

// Outcome is how a run ended: a text, such as "timed out". The zero value is none. A history may have outcomes of later
// versions.
type Outcome string

const (
	// Succeeded means that the handler returned nil.
	Succeeded Outcome = "succeeded"
	// Failed means that the handler returned an error.
	Failed Outcome = "failed"
	// TimedOut means that the handler returned an error after Job.Timeout had passed.
	TimedOut Outcome = "timed out"
	// Panicked means that the handler panicked.
	Panicked Outcome = "panicked"
	// HandedBack means that this process shuts down and another instance makes the run again.
	HandedBack Outcome = "handed back"
	// LostSession means that the session was lost before the handler returned, with or without
	// an error. The run counts as crashed: Job.OnCrash decides whether another instance makes it
	// again.
	LostSession Outcome = "session lost"
	// Abandoned means that the handler had not returned when Shutdown did.
	Abandoned Outcome = "abandoned"
	// Cancelled means that an operator cancelled the run and the handler returned an error, or was not called. The
	// run counts as failed.
	Cancelled Outcome = "cancelled"
	// Crashed means that the leader found that the owner's session expired during the run. No RunEnded has it: the
	// event is RunCrashed, of which a history records this outcome.
	Crashed Outcome = "crashed"
)

// String returns the text of o.
func (o Outcome) String() string { return string(o) }

// IsFailure reports whether the run needs attention. Runs that succeeded or were handed back do not.
func (o Outcome) IsFailure() bool { return o != Succeeded && o != HandedBack }

// RunRetried reports that a failed run is to be made again, because of the job's retry policy.
type RunRetried struct {
	Run RunInfo // the attempt that failed
	Err error   // of that attempt
	// At is when the retry was decided. NotBefore is the earliest begin of the next attempt.
	At, NotBefore time.Time
}

// RunCrashed reports a run that crashed: the session of its owner ended before the end of the run
// was recorded. The run is lost unless Rerun. Jobs with TrackClaims have none, since their records do not show which runs had
// ended.
type RunCrashed struct {
	// Run has the ID, Key, Namespace, Group, Job, Kind, Created, Shard, FireTime, Attempt and Trigger of the run, and the
	// Instance that owned it. Its other fields are zero.
	Run RunInfo
	At  time.Time
	// Rerun reports whether the run is made again, as the next attempt. Otherwise it is lost, and counts in
	// Counts.Lost of the job's status.
	Rerun bool
}

// FiresSkipped reports fires that are due and will not run.
type FiresSkipped struct {
	Job    string
	Kind   string // of a defined job
	Reason SkipReason
	Shards []int // in ascending order
	Count  int   // the number of fires skipped for each of Shards
	// The skipped fires are neither before From nor after Through. From is the first fire that was due, or zero if that is
	// not known. Through is the last one; it may run.
	From, Through time.Time
	At            time.Time
}

// SkipReason is why fires are skipped. The zero value is none. String and MarshalText return a text, such as "misfire",
// which UnmarshalText reads.
type SkipReason = event.SkipReason

const (
	// SkipMisfire means that Job.OnMisfire skips the fires.
	SkipMisfire = event.Misfire
	// SkipDisabled means that the shards are disabled.
	SkipDisabled = event.Disabled
	// SkipUnoffered means that no live instance offered the job for coordinator.MaxUnoffered.
	SkipUnoffered = event.Unoffered
	// SkipExpired means that the fires were owed for longer than Job.CatchupWindow.
	SkipExpired = event.Expired
	// SkipOverlap means that the fires came due while a run of their shard lasted: Job.OnOverlap is
	// SkipOverlapping.
	SkipOverlap = event.Overlap
	// SkipUpstream means that a fire of a job that the job follows did not end as AfterJob wants it.
	SkipUpstream = event.Upstream
)

// FireEnded reports that all runs of a fire have ended, retries and re-runs included. The leader reports it for the jobs
// that another job follows (AfterJob): of these it records which fires have ended. Triggers count as fires; fires that
// all shards skipped are not reported. The fires of a job are reported in order.
//
// A fire is reported once. After a change of the leader, the new one reports the last fires of each job again. A fire may be missing if the process of the leader ends before its callback returns, or if events are dropped. A
// job with AfterJob(name).OnEnd runs for each fire in any case.
type FireEnded struct {
	Job      string
	Kind     string    // of a defined job
	FireTime time.Time // the instant of the fire or of the trigger
	Trigger  uint64    // the number of the trigger; 0 for a fire of the schedule
	// Shards is the number of shards that the fire is for. Failed is how many of them failed or were lost with their
	// last attempt, Skipped how many did not run it.
	Shards, Failed, Skipped int
	// Ended is when the leader recorded the end, by its clock.
	Ended time.Time
	// Repeated reports that the fire ended before this instance became leader: an earlier leader may have reported it.
	Repeated bool
}

// Succeeded reports whether all shards ran the fire and succeeded, so that AfterJob passes it on.
func (e FireEnded) Succeeded() bool { return e.Failed+e.Skipped == 0 }

// ShardsChanged reports a change of the shards of a job that this instance owns. If the session
// is lost, all shards are. Lists of shards are in ascending order.
type ShardsChanged struct {
	Job          string
	Kind         string // of a defined job
	Gained, Lost []int
	// Moving are the shards that are about to move to other instances and were not before. They
	// are claimed no more, and move when their runs have ended.
	Moving []int
	Owned  int // the number of shards that the instance owns now
	At     time.Time
}

// SessionChanged reports a change of the session of this instance.
type SessionChanged struct {
	State SessionState
	ID    string // of the session
	// SafeUntil is when a suspended session is lost unless the store answers. It is zero for the
	// other states.
	SafeUntil time.Time
	Err       error // why the session was lost; nil for the other states
	At        time.Time
}

// SessionState is the state of the session of an instance. The zero value is none. String and MarshalText return a text,
// such as "suspended", which UnmarshalText reads.
type SessionState = event.SessionState

const (
	// SessionJoined means that the instance is in the fleet, under a new session.
	SessionJoined = event.SessionJoined
	// SessionSuspended means that the store does not answer. No run begins.
	SessionSuspended = event.SessionSuspended
	// SessionResumed means that the store answers again, and the session was kept.
	SessionResumed = event.SessionResumed
	// SessionLost means that the contexts of all runs have ended, and other instances own the
	// shards.
	SessionLost = event.SessionLost
	// SessionLeft means that the instance has left the fleet by a shutdown.
	SessionLeft = event.SessionLeft
)

// LeadershipChanged reports that a term of this instance as leader of the group has begun or
// ended.
type LeadershipChanged struct {
	Leading bool
	Term    uint64
	Why     string // for people; the text is not stable across versions
	At      time.Time
}

// ClockChanged reports that the fleet has found the clock of this instance skewed, or right
// again. A skewed instance claims nothing.
type ClockChanged struct {
	Skewed bool
	Ahead  time.Duration // of the fleet's median; negative: behind; zero: not skewed
	At     time.Time
}
