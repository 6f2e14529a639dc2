package executor_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// gates are the gates of a store with transactions, as registry.Completer describes them.
type gates struct {
	mu    sync.Mutex
	fence map[string]uint64
	ended map[string]bool
	last  map[string]registry.RunEnd
	open  map[string]*gateTx
}

func newGates() *gates {
	return &gates{fence: map[string]uint64{}, ended: map[string]bool{}, last: map[string]registry.RunEnd{}, open: map[string]*gateTx{}}
}

// gateTx is a transaction that ends one run.
type gateTx struct {
	gates *gates
	end   registry.RunEnd
}

func (tx *gateTx) finish(commit bool) {
	g := tx.gates
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, tx.end.Shard)
	if commit {
		g.fence[tx.end.Shard], g.ended[tx.end.Work], g.last[tx.end.Shard] = tx.end.Fence, true, tx.end
	}
}

// gated is a registry with gates.
type gated struct {
	registry.Registry
	*gates
}

func (g gated) CompleteRun(_ context.Context, tx any, end registry.RunEnd) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.fence[end.Shard] > end.Fence:
		return registry.ErrFenced
	case g.ended[end.Work]:
		return registry.ErrRunEnded
	}
	tx.(*gateTx).end = end
	g.open[end.Shard] = tx.(*gateTx)
	return nil
}

func (g gated) FenceRun(_ context.Context, end registry.RunEnd) (registry.Completion, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended[end.Work] {
		answer := registry.Completion{Ended: true}
		if last := g.last[end.Shard]; last.Work == end.Work {
			answer.Checkpoint = last.Checkpoint
		}
		return answer, nil
	}
	if g.open[end.Shard] != nil {
		return registry.Completion{}, registry.ErrTxOpen
	}
	g.fence[end.Shard] = max(g.fence[end.Shard], end.Fence)
	return registry.Completion{}, nil
}

// completing starts a fleet of two instances with a job whose handler calls complete with a transaction that it has ended the run in.
func (f *fleet) completing(change func(*executor.Job), complete func(r *executor.Run, tx *gateTx) error) {
	f.gates = newGates()
	f.observe = executor.Observer{RunEnded: func(e executor.RunEnded) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ends = append(f.ends, e)
	}}
	for _, name := range []string{"a", "b"} {
		e := f.bare(name, executor.Options{})
		j := f.job(1, func(ctx context.Context, r *executor.Run) error {
			tx := &gateTx{gates: f.gates}
			if err := r.EndIn(ctx, tx, []byte(r.Key)); err != nil {
				return err
			}
			return complete(r, tx)
		})
		change(&j)
		require.NoError(f.t, e.Register(j))
		require.NoError(f.t, e.Start(f.t.Context()))
	}
	time.Sleep(time.Second)
}

func unchanged(*executor.Job) {}

// succeeded returns how many runs have succeeded.
func (f *fleet) succeeded() int {
	f.t.Helper()
	return int(f.status().Counts.Succeeded)
}

func TestEndIn(t *testing.T) {
	errCommit := errors.New("the answer to the commit was lost")

	for name, result := range map[string]error{"nil": nil, "an error": errCommit} {
		bubble(t, "a run has succeeded with the commit of its transaction, if its handler returns "+name, func(t *testing.T, f *fleet) {
			f.completing(unchanged, func(_ *executor.Run, tx *gateTx) error {
				tx.finish(true)
				return result
			})
			until(1)
			pass(time.Second)
			assert.Equal(t, 1, f.succeeded())
			assert.Len(t, f.began(1)[0], 1)
		})
	}
	bubble(t, "a run has succeeded with the commit of its transaction, if its handler panics", func(t *testing.T, f *fleet) {
		f.completing(unchanged, func(_ *executor.Run, tx *gateTx) error {
			tx.finish(true)
			panic("after the commit")
		})
		until(1)
		pass(time.Second)
		assert.Equal(t, 1, f.succeeded())
	})
	bubble(t, "its checkpoint reaches the next run", func(t *testing.T, f *fleet) {
		var seen []string
		f.completing(unchanged, func(r *executor.Run, tx *gateTx) error {
			data, err := r.Resume(t.Context())
			seen = append(seen, string(data))
			tx.finish(true)
			return err
		})
		until(2)
		assert.Equal(t, []string{"", f.runs[0].Key}, seen)
	})
	bubble(t, "nil without a commit is a failure, which is retried", func(t *testing.T, f *fleet) {
		f.completing(func(j *executor.Job) { j.Retry = executor.Retry{Max: 1, Initial: time.Second} }, func(r *executor.Run, tx *gateTx) error {
			tx.finish(r.Attempt == 2)
			return nil
		})
		until(1)
		pass(10 * time.Second)
		assert.Equal(t, 1, f.succeeded())
		assert.Len(t, f.began(1)[0], 2)
	})
	bubble(t, "a transaction that the handler has left open is a failure", func(t *testing.T, f *fleet) {
		var late *gateTx
		f.completing(unchanged, func(_ *executor.Run, tx *gateTx) error {
			late = tx
			return nil
		})
		until(1)
		pass(10 * time.Second)
		require.Len(t, f.ends, 1)
		assert.ErrorIs(t, f.ends[0].Err, executor.ErrNotCommitted)
		assert.ErrorIs(t, f.ends[0].Err, registry.ErrTxOpen)
		late.finish(false)
	})
	bubble(t, "a rollback and an error are an error", func(t *testing.T, f *fleet) {
		f.completing(unchanged, func(_ *executor.Run, tx *gateTx) error {
			tx.finish(false)
			return errCommit
		})
		until(1)
		pass(time.Second)
		require.Len(t, f.ends, 1)
		assert.ErrorIs(t, f.ends[0].Err, errCommit)
	})
	bubble(t, "is refused after the run", func(t *testing.T, f *fleet) {
		var old *executor.Run
		f.completing(unchanged, func(r *executor.Run, tx *gateTx) error {
			old = r
			tx.finish(true)
			return nil
		})
		until(1)
		require.ErrorIs(t, old.EndIn(t.Context(), &gateTx{gates: f.gates}, nil), executor.ErrRunOver)
	})
	bubble(t, "is refused if a later attempt has begun", func(t *testing.T, f *fleet) {
		var err error
		f.gates = newGates()
		f.start("a", executor.Options{}, 1, func(ctx context.Context, r *executor.Run) error {
			f.gates.fence[r.ShardKey()] = r.Fence + 1
			err = r.EndIn(ctx, &gateTx{gates: f.gates}, nil)
			return err
		})
		until(1)
		require.ErrorIs(t, err, executor.ErrRunOver)
		require.ErrorIs(t, err, registry.ErrFenced)
	})
	bubble(t, "needs a store with transactions", func(t *testing.T, f *fleet) {
		var err, large error
		f.start("a", executor.Options{}, 1, func(ctx context.Context, r *executor.Run) error {
			err = r.EndIn(ctx, nil, nil)
			large = r.EndIn(ctx, nil, make([]byte, 1<<20))
			return err
		})
		until(1)
		require.ErrorIs(t, err, registry.ErrNoCompleter)
		require.ErrorIs(t, large, registry.ErrTooLarge)
	})
	t.Run("keeps the checkpoint of a literal", func(t *testing.T) {
		r := &executor.Run{}
		require.NoError(t, r.EndIn(t.Context(), nil, []byte("x")))
		data, err := r.Resume(t.Context())
		require.NoError(t, err)
		require.Equal(t, "x", string(data))
	})
}

func TestEndIn_AndACrash(t *testing.T) {
	bubble(t, "the next attempt does not call the handler, and stores the checkpoint", func(t *testing.T, f *fleet) {
		heal := func() {}
		stop := make(chan struct{})
		var resumed string
		f.completing(unchanged, func(r *executor.Run, tx *gateTx) error {
			if r.FireTime.Equal(minute(1)) {
				tx.finish(true)
				heal = f.server.Partition(r.Instance)
				<-stop
				return nil
			}
			data, err := r.Resume(t.Context())
			resumed = string(data)
			tx.finish(true)
			return err
		})
		until(2)
		assert.Len(t, f.began(1)[0], 1)
		assert.Equal(t, 2, f.succeeded())
		assert.Equal(t, f.runs[0].Key, resumed)
		close(stop)
		heal()
	})
	for name, commit := range map[string]bool{"and then does not call the handler": true, "and then calls the handler": false} {
		bubble(t, "the next attempt waits for an open transaction, without a worker, "+name, func(t *testing.T, f *fleet) {
			heal := func() {}
			stop := make(chan struct{})
			var open *gateTx
			f.completing(func(j *executor.Job) { j.Shards, j.MaxRunning = 2, 1 }, func(r *executor.Run, tx *gateTx) error {
				if r.FireTime.Equal(minute(1)) && r.Shard == 0 && r.Attempt == 1 {
					open = tx
					heal = f.server.Partition(r.Instance)
					<-stop
					return nil
				}
				tx.finish(true)
				return nil
			})
			until(3)
			assert.Len(t, f.began(1)[0], 1)
			assert.Len(t, f.began(2)[1], 1, "the other shard goes on")
			assert.Len(t, f.began(3)[1], 1)
			assert.Empty(t, f.began(2)[0])
			open.finish(commit)
			pass(2 * time.Second)
			want := 2
			if commit {
				want = 1
			}
			assert.Len(t, f.began(1)[0], want)
			close(stop)
			heal()
		})
	}
	bubble(t, "an operator cancels a run that waits for an open transaction", func(t *testing.T, f *fleet) {
		heal := func() {}
		stop := make(chan struct{})
		var open *gateTx
		f.completing(unchanged, func(r *executor.Run, tx *gateTx) error {
			if r.FireTime.Equal(minute(1)) {
				open = tx
				heal = f.server.Partition(r.Instance)
				<-stop
			}
			tx.finish(true)
			return nil
		})
		until(2)
		before := f.status().Counts.Failed
		_, err := f.operator().Cancel(t.Context(), "job")
		require.NoError(t, err)
		pass(5 * time.Second)
		assert.Equal(t, before+1, f.status().Counts.Failed)
		open.finish(false)
		close(stop)
		heal()
	})
	bubble(t, "an operator's retry of a run that counts as lost finds its end", func(t *testing.T, f *fleet) {
		heal := func() {}
		stop := make(chan struct{})
		f.completing(func(j *executor.Job) { j.OnCrash = executor.CountAsFailed }, func(r *executor.Run, tx *gateTx) error {
			tx.finish(true)
			if r.FireTime.Equal(minute(1)) {
				heal = f.server.Partition(r.Instance)
				<-stop
			}
			return nil
		})
		until(2)
		before := f.succeeded()
		_, err := f.operator().Retry(t.Context(), "job", minute(1), operator.RetryOptions{})
		require.NoError(t, err)
		pass(2 * time.Second)
		assert.Equal(t, before+1, f.succeeded())
		assert.Len(t, f.began(1)[0], 1)
		_, err = f.operator().Retry(t.Context(), "job", minute(1), operator.RetryOptions{Again: true, Shards: []int{0}})
		require.NoError(t, err)
		pass(2 * time.Second)
		assert.Len(t, f.began(1)[0], 2, "new work is done")
		close(stop)
		heal()
	})
}
