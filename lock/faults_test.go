package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/registrytest"
	"github.com/rota-dev/rota/lock"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// TestLock_KeepsItsPromisesUnderFaults makes a fleet increment a counter under a lock while
// its clients and the store fail at random. The seed determines the faults; goroutines that
// run at the same instant may still run in another order each time.
func TestLock_KeepsItsPromisesUnderFaults(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runFaults(t, seed) })
		})
	}
}

func runFaults(t *testing.T, seed uint64) {
	const fleet, span = 6, 20 * time.Minute
	s := memory.New()
	s.Record()
	registrytest.Commit(t, registrytest.Client(t, s, "setup"), registry.Create("counter", []byte("0")))

	ctx, stop := context.WithTimeout(t.Context(), span)
	defer stop()
	var (
		all     sync.WaitGroup
		workers []*faultyWorker
	)
	for i := range fleet {
		w := &faultyWorker{
			contender: newContender(t, s, nameOf(i)),
			rng:       rand.New(rand.NewPCG(seed, uint64(i))),
		}
		workers = append(workers, w)
		all.Go(func() { w.run(ctx) })
	}
	faults := injectFaults(ctx, s, rand.New(rand.NewPCG(seed, fleet)), fleet)
	all.Wait()
	synctest.Wait()

	// All faults are undone and the queue is empty: expired sessions and acquirers that gave
	// up have left no place.
	time.Sleep(2 * lockTTL)
	for _, w := range workers {
		require.NoError(t, w.session.Close(context.Background()))
	}
	assert.Empty(t, placesOf(s))
	last := newContender(t, s, "last")
	last.acquire()

	counted, maybe := 0, 0 // increments that were applied, and that may have been
	for _, w := range workers {
		counted += w.counted
		maybe += w.maybe
	}
	n, err := strconv.Atoi(string(registrytest.Get(t, last.reg, "counter").Value))
	require.NoError(t, err)
	assert.GreaterOrEqual(t, n, counted)
	assert.LessOrEqual(t, n, counted+maybe)

	holds := judgeLog(t, s.Log())
	for i := 1; i < len(holds); i++ {
		assert.Greater(t, holds[i].since, holds[i-1].since)
	}
	assert.Greater(t, counted, 50)
	t.Logf("%d faults, %d holds, %d increments, %d of unknown outcome", faults, len(holds), counted, maybe)
}

// injectFaults causes faults until ctx ends, then undoes them all. It returns their number.
func injectFaults(ctx context.Context, s *memory.Server, rng *rand.Rand, fleet int) int {
	n := 0
	var undo []func()
	for {
		timer := time.NewTimer(draw(rng, 10*time.Second))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			for _, f := range undo {
				f()
			}
			for i := range fleet {
				s.Delay(nameOf(i), 0, 0)
			}
			return n
		}
		n++
		name := nameOf(rng.IntN(fleet))
		lasting := func(undone func()) {
			undo = append(undo, undone)
			time.AfterFunc(draw(rng, 2*lockTTL), undone)
		}
		switch rng.IntN(11) {
		case 0:
			s.Expire(name)
		case 1:
			lasting(s.Partition(name))
		case 2:
			lasting(s.PartitionOneWay(name, memory.Requests))
		case 3:
			lasting(s.PartitionOneWay(name, memory.Replies))
		case 4:
			s.LoseReply(name, 1+rng.IntN(3))
		case 5:
			s.LoseRequest(name, 1+rng.IntN(3))
		case 6:
			lasting(s.HoldCommit(name))
		case 7:
			lasting(s.HoldWatch(name))
		case 8:
			lasting(s.Pause())
		case 9:
			s.Restart()
		case 10:
			s.Delay(name, draw(rng, time.Second), draw(rng, time.Second))
		}
	}
}

// faultyWorker increments the counter under the lock, through a client with faults.
type faultyWorker struct {
	*contender
	rng            *rand.Rand
	counted, maybe int
}

func (w *faultyWorker) run(ctx context.Context) {
	for ctx.Err() == nil {
		if w.session.Err() != nil {
			s, err := w.reg.OpenSession(ctx, registry.SessionOptions{TTL: lockTTL})
			if err != nil {
				continue
			}
			w.session = s
		}
		acquiring, cancel := context.WithTimeout(ctx, draw(w.rng, time.Minute))
		h, err := w.lock.Acquire(acquiring, w.session)
		cancel()
		if err != nil {
			known := errors.Is(err, registry.ErrSessionLost) || errors.Is(err, context.DeadlineExceeded)
			assert.True(w.t, known, "%v", err)
			time.Sleep(draw(w.rng, time.Second))
			continue
		}
		time.Sleep(draw(w.rng, 2*time.Second))
		w.count(h)
		w.release(h)
	}
}

func (w *faultyWorker) count(h *lock.Held) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	e, err := w.reg.Get(ctx, "counter", registry.ReadOptions{Fresh: true})
	if err != nil {
		return
	}
	time.Sleep(draw(w.rng, time.Second))
	n, err := strconv.Atoi(string(e.Value))
	assert.NoError(w.t, err)
	_, err = registry.Apply(ctx, w.reg, registry.Txn{
		If:   []registry.Cond{h.Guard()},
		Then: []registry.Op{registry.Set("counter", e.Modified, []byte(strconv.Itoa(n+1)))},
	})
	switch {
	case err == nil:
		w.counted++
	case errors.Is(err, registry.ErrUnknownOutcome):
		w.maybe++
	case errors.Is(err, registry.ErrConflict):
		// The write fails only if the lock is no longer held: no other worker writes the
		// counter meanwhile.
		_, err := registry.Apply(context.Background(), w.reg, registry.Txn{If: []registry.Cond{h.Guard()}})
		assert.ErrorIs(w.t, err, registry.ErrConflict)
	}
}

// release tries a few times to release the lock, and then closes the session.
func (w *faultyWorker) release(h *lock.Held) {
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), draw(w.rng, 10*time.Second))
		err := h.Release(ctx)
		cancel()
		if err == nil || errors.Is(err, registry.ErrSessionLost) {
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.session.Close(ctx)
}

// draw returns a duration below limit.
func draw(rng *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(limit)))
}
