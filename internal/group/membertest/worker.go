package membertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// Worker is a member and its Work.
type Worker struct {
	*member.Member
	*operator.Operator // on the same client handle
	g                  *Group
	Log                *coordtest.Logbook
	Reg                *hooked
	Done               chan struct{} // closed when Run has returned
	Err                error         // the error of Run

	// work handles a run; nil returns at once. It is set before runs begin.
	work func(context.Context, claimer.Run) error

	mu      sync.Mutex
	runs    []claimer.Run
	yielded []int // shards
	cancels map[shardOf]context.CancelCauseFunc

	Compiler        due.Compiler // nil: all jobs fire each minute
	unsupportedWord string       // definitions that contain it cannot be compiled; "": all can
}

// shardOf names a shard of a job.
type shardOf struct {
	job   string
	shard int
}

// Abandon makes Run return without waiting for runs or shards.
func (w *Worker) Abandon() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	w.Leave(ended)
}

// Drain is that of the member; the operator has one of the same name.
func (w *Worker) Drain(ctx context.Context) error { return w.Member.Drain(ctx) }

// Shutdown drains a member and waits until it has left.
func (w *Worker) Shutdown() {
	w.g.T.Helper()
	require.NoError(w.g.T, w.Drain(w.g.T.Context()))
	require.NoError(w.g.T, w.Leave(w.g.T.Context()))
	<-w.Done
	require.NoError(w.g.T, w.Err)
	w.g.Members = slices.DeleteFunc(w.g.Members, func(o *Worker) bool { return o == w })
	synctest.Wait()
}

// Compile implements claimer.Work.
func (w *Worker) Compile(def json.RawMessage) (due.Program, error) {
	if w.unsupportedWord != "" && bytes.Contains(def, []byte(w.unsupportedWord)) {
		return nil, fmt.Errorf("%s does not support a word of the definition", w.Instance())
	}
	if w.Compiler != nil {
		return w.Compiler(def)
	}
	return coordtest.Minutely{}, nil
}

// Start implements claimer.Work.
func (w *Worker) Start(ctx context.Context, r claimer.Run, shards iter.Seq[int], done func(int, error)) {
	for shard := range shards {
		r.Shard = shard
		w.start(ctx, r, done)
	}
}

// start starts one run.
func (w *Worker) start(ctx context.Context, r claimer.Run, done func(int, error)) {
	w.mu.Lock()
	w.runs = append(w.runs, r)
	ctx, end := context.WithCancelCause(ctx)
	if w.cancels == nil {
		w.cancels = map[shardOf]context.CancelCauseFunc{}
	}
	w.cancels[shardOf{r.Job, r.Shard}] = end
	w.mu.Unlock()
	go func() {
		defer end(nil)
		var err error
		if w.work != nil {
			err = w.work(ctx, r)
		}
		done(r.Shard, err)
	}()
}

// Yield implements claimer.Work.
func (w *Worker) Yield(job string, shard int, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end := w.cancels[shardOf{job, shard}]; end != nil && errors.Is(cause, claimer.ErrCancelled) {
		end(cause)
	}
	if errors.Is(cause, claimer.ErrMoving) {
		w.yielded = append(w.yielded, shard)
	}
}

// YieldedShards returns the shards whose runs were asked to yield to a move.
func (w *Worker) YieldedShards() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.yielded)
}

// TakeRuns returns the runs that have started since the last call.
func (w *Worker) TakeRuns() []claimer.Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	runs := w.runs
	w.runs = nil
	return runs
}

// Incarnation returns the ID of the present incarnation. The member must be in the group.
func (w *Worker) Incarnation() string {
	w.g.T.Helper()
	id := w.Member.Incarnation()
	require.NotEmpty(w.g.T, id, "%s is not in the group", w.Instance())
	return id
}

// Session returns the ID of the present session.
func (w *Worker) Session() registry.SessionID { return record.SessionOf(w.Incarnation()) }

// WorkFor returns a handler that returns after d, or when its context ends.
func WorkFor(d time.Duration) func(context.Context, claimer.Run) error {
	return func(ctx context.Context, _ claimer.Run) error {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return nil
	}
}
