package member

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/registry"
)

// Why the context of Config.Own ended. Other causes are registry.ErrSessionLost and that of
// the end of the context given to Join.
var (
	// ErrMoving means that another is to own the shard.
	ErrMoving = errors.New("shard is to move")
	// ErrDisabled means that an Operator wants nobody to own the shard.
	ErrDisabled = errors.New("shard is disabled")
)

// Work is what a Member does with the shards it owns. Its methods are called from the
// member's goroutines and must not block.
type Work interface {
	// Compile makes a program of a definition as stored; see Compiler. It may be called from
	// many goroutines at once.
	Compile(def json.RawMessage) (due.Program, error)
	// Start begins a run whose claim has been committed, in a goroutine of the callee's.
	// ctx ends when the session does, with a cause that wraps registry.ErrSessionLost. done
	// must be called exactly once, when the function has returned: until then the shard
	// neither moves nor runs again in this process. An error that wraps ErrHandedBack hands
	// the run back: it is pending as another attempt, for the shard's next owner.
	Start(ctx context.Context, r Run, done func(error))
	// Yield says that a run that was started is in the way, and of what: a move waits for it
	// (ErrMoving), or its shard is disabled (ErrDisabled). It may be said more than once.
	Yield(job string, shard int, cause error)
}

// ErrHandedBack is the error of a run that is to be made again as another attempt: the
// process ended it, or never called its function. It is no failure of the run and does not
// count against the attempts that crashes may end. Of a job that does not want runs made
// again after a crash the run counts as failed.
var ErrHandedBack = errors.New("handed back")

// Run is a claimed run.
type Run struct {
	Job     string
	Program due.Program // of the definition that holds for this run
	Shard   int
	Shards  int
	Fire    time.Time // the scheduled instant, or that of the trigger
	Attempt int       // from 1
	Rerun   bool      // an earlier attempt ended in a crash or was handed back
	Trigger uint64    // zero for a scheduled fire
	Param   string    // of the trigger
	Missed  bool      // claimed late by the misfire policy
	Fence   uint64    // greater than that of any earlier run of the shard, or equal if neither was claimed
	Session registry.SessionID
}
