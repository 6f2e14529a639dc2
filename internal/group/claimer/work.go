package claimer

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Causes of the end of the context of Config.Own. Other causes are registry.ErrSessionLost and
// the cause of the context given to Join.
var (
	// ErrMoving means that another instance is to own the shard.
	ErrMoving = errors.New("shard is to move")
	// ErrDisabled means that an Operator disabled the shard.
	ErrDisabled = errors.New("shard is disabled")
	// ErrPaused means that an Operator paused the job.
	ErrPaused = errors.New("job is paused")
	// ErrOverlap means that the shard's next fire is due, and the definition wants it to cancel the run.
	ErrOverlap = errors.New("next fire is due")
	// ErrCancelled means that an Operator cancelled the run.
	ErrCancelled = errors.New("run is cancelled")
	// ErrNewDefinition means that another definition of the job is in force.
	ErrNewDefinition = errors.New("job has a new definition")
)

// Work is what a Member does with the shards it owns. Its methods are called from the
// member's goroutines and must not block.
type Work interface {
	// Compile compiles a stored definition; see Compiler and RunChecker. It may be called from many goroutines
	// at once.
	Compile(def json.RawMessage) (due.Program, error)
	// Start starts runs whose claim is committed, each in a goroutine of its own: one for each of shards, at least one.
	// r describes them; its Shard is zero. ctx ends with the session, with a cause that wraps registry.ErrSessionLost.
	// done must be given exactly one end of each shard, when its function has returned: until then the shard neither moves
	// nor runs again in this process. Ends of one call are recorded together, and so are the claims that follow. An error that wraps ErrHandedBack hands the run back: it is pending as another
	// attempt, for the shard's next owner. A *RetryError, unwrapped, has a failed run made again.
	Start(ctx context.Context, r Run, shards iter.Seq[int], done Done)
	// Yield is called for a run that was started when its shard is to move (cause is ErrMoving) or
	// is disabled (ErrDisabled), when the job is paused (ErrPaused), when another definition comes
	// into force (ErrNewDefinition), and when a due fire (ErrOverlap) or an operator (ErrCancelled) cancels it. It may be called more than once for a run.
	Yield(job string, shard int, cause error)
}

// RunChecker is an optional interface of a Work that compiles definitions, as a leader must, whose jobs it cannot run.
type RunChecker interface {
	// CheckRunnable returns why this process cannot run jobs with a program of Compile, nil if it can. It is called when a
	// plan with the program assigns shards to this member, which does not offer the job while the result is an error. It may
	// be called from many goroutines at once.
	CheckRunnable(p due.Program) error
}

// Done records the end of a run that Work.Start has started, and of more of the same call of Start.
type Done func(shard int, err error, more ...End)

// End is the end of the run of a shard.
type End struct {
	Shard int
	Err   error
}

// ErrHandedBack is the error of a run that is to be made again as another attempt, because the
// process ended it or never called its function. It is no failure of the run, and does not count
// as one of the attempts that crashes may end. If the job's definition does not want runs made
// again after a crash, the run counts as failed.
var ErrHandedBack = errors.New("handed back")

// RetryError is the error of a run that failed and is to be made again as another attempt, by the
// owner that the shard has then. The attempt is pending until it is claimed, and newer fires of the
// shard wait for it. If the job's definition does not have ends recorded, the run counts as failed.
type RetryError struct {
	In  time.Duration // after the end of the run, at most 24 hours
	Err error
}

// Error returns the text of Err.
func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RetryError) Unwrap() error { return e.Err }

// The values of Run.Cause.
const (
	CauseRetry    = record.TriggerRetry
	CauseBackfill = record.TriggerBackfill
)

// Run is a claimed run, or several that differ in Shard only.
type Run struct {
	Job     string
	Program due.Program // of the run's epoch
	Shard   int
	Shards  int
	Targets int       // how many shards the fire or trigger runs, at most Shards
	Fire    time.Time // the scheduled instant, or the instant of the trigger; that which Operator.Retry and Backfill name
	Attempt int       // from 1
	Rerun   bool      // an earlier attempt crashed, was handed back or failed
	Retry   bool      // the attempt before this one failed
	Retries int       // how many earlier attempts failed
	Trigger uint64    // zero: a scheduled fire
	Param   string    // of the trigger
	Cause   string    // of the trigger: CauseRetry, CauseBackfill, or empty if it is by hand
	RunOf   record.RunOf
	Missed  bool   // claimed late by the misfire policy
	Fence   uint64 // greater than that of any earlier run of the shard; equal if neither run was claimed
	Session registry.SessionID
}
