package member

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/internal/shardset"
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

// BlockedShards is the shards of a process whose function has not returned, across
// incarnations. Those of an earlier incarnation must not start again here before it has.
type BlockedShards struct {
	mu          sync.Mutex
	Running     map[string]shardset.Set // by job: of any incarnation
	Old         map[string]shardset.Set // by job: of earlier ones. The sets are values: each change makes another
	OnUnblocked func()                  // after a removal from old. Must not block
}

// beginIncarnation begins a new incarnation: what runs is old from now on.
func (b *BlockedShards) beginIncarnation() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Old = map[string]shardset.Set{}
	for job, shards := range b.Running {
		b.Old[job] = shards.Clone()
	}
}

func (b *BlockedShards) addRunning(job string, shard int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Running == nil {
		b.Running = map[string]shardset.Set{}
	}
	shards := b.Running[job]
	shards.Add(shard)
	b.Running[job] = shards
}

func (b *BlockedShards) removeRunning(job string, shard int) {
	b.mu.Lock()
	shards := b.Running[job]
	if shards.Remove(shard); shards.IsZero() {
		delete(b.Running, job)
	} else {
		b.Running[job] = shards
	}
	freed := b.Old[job].Has(shard)
	if freed {
		b.Old[job] = b.Old[job].Minus(shardset.Of(shard))
		if b.Old[job].IsZero() {
			delete(b.Old, job)
		}
	}
	b.mu.Unlock()
	if freed {
		b.OnUnblocked()
	}
}

// getBlocked returns the shards of a job that must not start here.
func (b *BlockedShards) getBlocked(job string) shardset.Set {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Old[job]
}

// copyBlocked returns the shards that must not start here, by job; nil for none.
func (b *BlockedShards) copyBlocked() map[string]shardset.Set {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.Old) == 0 {
		return nil
	}
	return maps.Clone(b.Old)
}
