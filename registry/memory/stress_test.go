package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// TestManyClientsUnderFaults runs in real time, for the race detector: under random faults,
// clients increment the same few keys, watch them, and open and close sessions.
func TestManyClientsUnderFaults(t *testing.T) {
	const clients, rounds, counters = 4, 400, 3
	s := memory.New()
	s.Record()
	seed := connect(t, s, "seed")
	for i := range counters {
		create(t, seed, counterKey(i), "0")
	}

	var applied, doubtful atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var workers, others sync.WaitGroup
	others.Go(func() { injectFaults(ctx, s, clients) })
	handles := make([]*memory.Client, clients)
	for i := range clients {
		c := connect(t, s, fmt.Sprint(i))
		handles[i] = c
		w := watch(t, c, "counters")
		others.Go(func() { followUp(ctx, t, w) })
		workers.Go(func() {
			for n := range rounds {
				countUp(ctx, c, counterKey(n%counters), &applied, &doubtful)
				if x, err := c.OpenSession(ctx, registry.SessionOptions{TTL: 20 * time.Millisecond}); err == nil {
					x.State()
					if n%2 == 0 {
						x.Close(ctx)
					}
				}
			}
		})
	}
	workers.Wait()
	cancel()
	others.Wait()
	for _, c := range handles {
		require.NoError(t, c.Close(context.Background()))
	}
	// Sessions whose grant was lost expire.
	require.Eventually(t, func() bool { return s.Counts("").Sessions == 0 }, 5*time.Second, time.Millisecond)
	require.Zero(t, s.Counts("").Watches)

	var sum, commits int64
	for i := range counters {
		n, err := strconv.ParseInt(get(t, seed, counterKey(i)), 10, 64)
		require.NoError(t, err)
		sum += n
	}
	last := uint64(0)
	for _, c := range s.Log() {
		if c.Changed() {
			require.Greater(t, c.Rev.Seq, last)
			last = c.Rev.Seq
		}
		if c.Changed() && len(c.Then) > 0 && c.Then[0].Kind == registry.OpSet {
			commits++
		}
	}
	assert.Equal(t, commits, sum, "each commit counted once")
	assert.GreaterOrEqual(t, sum, applied.Load())
	assert.LessOrEqual(t, sum, applied.Load()+doubtful.Load())
}

func counterKey(i int) registry.Key { return registry.Join("counters", fmt.Sprint(i)) }

// countUp adds 1 to key, once if the outcome is known.
func countUp(ctx context.Context, c *memory.Client, key registry.Key, applied, doubtful *atomic.Int64) {
	for ctx.Err() == nil {
		e, err := c.Get(ctx, key, registry.ReadOptions{})
		if err != nil {
			continue
		}
		n, _ := strconv.Atoi(string(e.Value))
		_, err = c.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Set(key, e.Modified, []byte(strconv.Itoa(n+1)))}})
		switch {
		case err == nil:
			applied.Add(1)
			return
		case errors.Is(err, registry.ErrUnknownOutcome):
			doubtful.Add(1)
			return
		}
	}
}

// followUp checks that no counter decreases.
func followUp(ctx context.Context, t *testing.T, w registry.Watcher) {
	seen := make(map[registry.Key]registry.Rev)
	for {
		b, err := w.Next(ctx)
		if err != nil {
			return
		}
		for _, e := range b.Puts {
			assert.LessOrEqual(t, e.Modified.Seq, b.Rev.Seq)
			if b.Kind == registry.Delta {
				assert.Greater(t, e.Modified.Seq, seen[e.Key].Seq)
			} else {
				assert.GreaterOrEqual(t, e.Modified.Seq, seen[e.Key].Seq)
			}
			seen[e.Key] = e.Modified
		}
	}
}

func injectFaults(ctx context.Context, s *memory.Server, clients int) {
	for ctx.Err() == nil {
		name := fmt.Sprint(rand.IntN(clients))
		undo := func() {}
		switch rand.IntN(10) {
		case 0:
			undo = s.Partition(name)
		case 1:
			undo = s.PartitionOneWay(name, memory.Direction(1+rand.IntN(2)))
		case 2:
			undo = s.Pause()
		case 3:
			undo = s.Starve(name)
		case 4:
			undo = s.HoldWatch(name)
		case 5:
			undo = s.HoldCommit(name)
		case 6:
			s.Delay(name, rand.N(100*time.Microsecond), rand.N(100*time.Microsecond))
			undo = func() { s.Delay(name, 0, 0) }
		case 7:
			s.LoseReply(name, 1)
			s.LoseRequest(name, 1)
		case 8:
			s.Restart()
		case 9:
			s.Expire(name)
		}
		time.Sleep(rand.N(time.Millisecond))
		undo()
		s.Counts(name)
		s.Dump()
	}
}
