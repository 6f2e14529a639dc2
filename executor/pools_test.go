package executor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

// counter counts, outside of the fleet, the runs that run at once.
type counter struct {
	mu      sync.Mutex
	running int
	most    int
	freed   time.Time // when a run last ended
	slowest time.Duration
	ran     map[string]int // by job and fire
	order   []string       // the instances that ran, in order
}

// run is a handler that counts, and takes so long.
func (c *counter) run(takes time.Duration) executor.HandlerFunc {
	return func(ctx context.Context, r *executor.Run) error {
		c.mu.Lock()
		c.running++
		c.most = max(c.most, c.running)
		if ready := later(c.freed, r.FireTime); c.running == 1 {
			c.slowest = max(c.slowest, time.Since(ready))
		}
		if c.ran == nil {
			c.ran = map[string]int{}
		}
		c.ran[r.Job+" "+r.FireTime.Format(time.TimeOnly)]++
		c.order = append(c.order, r.Instance)
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.running--
			c.freed = time.Now()
		}()
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// mostSoFar returns the most runs at once since the last reset.
func (c *counter) mostSoFar() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// reset returns the counts since the last call.
func (c *counter) reset() (most int, ran map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most, ran = c.most, c.ran
	c.most, c.ran, c.order = c.running, nil, nil
	return most, ran
}

// pooled starts an instance with a job of pool "db" that fires each minute.
func (f *fleet) pooled(name string, jobs ...executor.Job) *executor.Executor {
	f.t.Helper()
	e := f.bare(name, executor.Options{})
	for _, j := range jobs {
		if j.Pool == "" {
			j.Pool = "db"
		}
		if j.Schedule == (schedule.Schedule{}) {
			j.Schedule = schedule.Every(time.Minute)
		}
		j.MaxRunning = 1000
		require.NoError(f.t, e.Register(j))
	}
	require.NoError(f.t, e.Start(f.t.Context()))
	return e
}

// writes returns the commits of the log that wrote keys below a directory.
func (f *fleet) writes(dir string) (n int) {
	for _, c := range f.server.Log() {
		if c.Err != nil {
			continue
		}
		for _, o := range c.Then {
			if strings.Contains(string(o.Key), "/"+dir+"/") {
				n++
				break
			}
		}
	}
	return n
}

func TestPool(t *testing.T) {
	bubble(t, "bounds the runs of the fleet, and all that are due run", func(t *testing.T, f *fleet) {
		c := &counter{}
		require.NoError(t, f.operator().SetPool(t.Context(), "db", 3))
		for _, name := range []string{"a", "b", "c"} {
			f.pooled(name, executor.Job{Name: "wide", Shards: 12, Handler: c.run(2 * time.Second)}, executor.Job{Name: "narrow", Handler: c.run(time.Second)})
		}
		until(1)
		time.Sleep(40 * time.Second)
		most, ran := c.reset()
		assert.Equal(t, 3, most)
		assert.Equal(t, map[string]int{"wide 00:01:00": 12, "narrow 00:01:00": 1}, ran)
	})
	bubble(t, "bounds nothing else", func(t *testing.T, f *fleet) {
		c, other := &counter{}, &counter{}
		require.NoError(t, f.operator().SetPool(t.Context(), "db", 1))
		f.pooled("a", executor.Job{Name: "pooled", Shards: 2, Handler: c.run(time.Second)}, executor.Job{Name: "other", Shards: 5, Pool: "licence", Handler: other.run(time.Second)})
		require.NoError(t, f.operator().SetPool(t.Context(), "licence", 5))
		until(1)
		time.Sleep(10 * time.Second)
		most, _ := other.reset()
		assert.Equal(t, 5, most)
	})
	bubble(t, "without a size has no slots, until it gets one", func(t *testing.T, f *fleet) {
		c := &counter{}
		f.pooled("a", executor.Job{Name: "job", Shards: 2, Handler: c.run(time.Second)})
		until(1)
		time.Sleep(5 * time.Second)
		_, ran := c.reset()
		assert.Empty(t, ran)
		require.NoError(t, f.operator().SetPool(t.Context(), "db", 2))
		time.Sleep(2 * time.Second)
		_, ran = c.reset()
		assert.Equal(t, map[string]int{"job 00:01:00": 2}, ran)
	})
	bubble(t, "gives turns: with one slot and twenty instances a run waits for the runs before it, and no 2 s beyond", func(t *testing.T, f *fleet) {
		c := &counter{}
		require.NoError(t, f.operator().SetPool(t.Context(), "db", 1))
		for i := range 20 {
			f.pooled(fmt.Sprintf("i%02d", i), executor.Job{Name: "job", Shards: 20, Schedule: schedule.Every(10 * time.Minute), Handler: c.run(3 * time.Second)})
		}
		until(10)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		assert.Less(t, c.slowest, 2*time.Second)
		assert.Equal(t, 1, c.most)
		assert.Len(t, c.order, 20)
	})
	bubble(t, "an instance with many due runs does not keep the slot from others", func(t *testing.T, f *fleet) {
		c := &counter{}
		require.NoError(t, f.operator().SetPool(t.Context(), "db", 1))
		f.pooled("a", executor.Job{Name: "many", Shards: 50, Schedule: schedule.Every(10 * time.Minute), Handler: c.run(100 * time.Millisecond)})
		time.Sleep(time.Second)
		f.pooled("b", executor.Job{Name: "few", Schedule: schedule.Every(10 * time.Minute), Handler: c.run(100 * time.Millisecond)})
		until(10)
		time.Sleep(5 * time.Second)
		_, ran := c.reset()
		assert.Equal(t, 1, ran["few 00:10:00"])
		assert.Greater(t, ran["many 00:10:00"], 25, "short runs share a turn")
	})
	bubble(t, "the slots of a crashed instance are dealt again when its session has ended", func(t *testing.T, f *fleet) {
		c := &counter{}
		require.NoError(t, f.operator().SetPool(t.Context(), "db", 2))
		f.pooled("a", executor.Job{Name: "one", Shards: 2, Handler: c.run(40 * time.Second)})
		time.Sleep(time.Second)
		f.pooled("b", executor.Job{Name: "two", Shards: 2, Handler: c.run(time.Second)})
		until(1)
		heal := f.server.Partition("a")
		time.Sleep(25 * time.Second)
		most, ran := c.reset()
		assert.Equal(t, 2, most)
		assert.Equal(t, 2, ran["two 00:01:00"])
		heal()
		time.Sleep(time.Minute)
		most, _ = c.reset()
		assert.Equal(t, 2, most)
	})
	bubble(t, "an instance that leaves hands its slots over", func(t *testing.T, f *fleet) {
		c := &counter{}
		require.NoError(t, f.operator().SetPool(t.Context(), "db", 2))
		a := f.pooled("a", executor.Job{Name: "job", Shards: 4, Handler: c.run(time.Second)})
		f.pooled("b", executor.Job{Name: "job", Shards: 4, Handler: c.run(time.Second)})
		until(1)
		require.NoError(t, a.Shutdown(t.Context()))
		until(2)
		time.Sleep(10 * time.Second)
		most, ran := c.reset()
		assert.Equal(t, 2, most)
		assert.Equal(t, 4, ran["job 00:02:00"])
	})
	bubble(t, "a new size is in force when runs have ended", func(t *testing.T, f *fleet) {
		c := &counter{}
		op := f.operator()
		require.NoError(t, op.SetPool(t.Context(), "db", 6))
		for _, name := range []string{"a", "b", "c"} {
			f.pooled(name, executor.Job{Name: "job", Shards: 90, Schedule: schedule.Every(10 * time.Minute), Handler: c.run(2 * time.Second)})
		}
		until(10)
		time.Sleep(3 * time.Second)
		most, _ := c.reset()
		assert.Equal(t, 6, most)
		require.NoError(t, op.SetPool(t.Context(), "db", 2))
		time.Sleep(6 * time.Second)
		c.reset()
		time.Sleep(6 * time.Second)
		most, _ = c.reset()
		assert.Equal(t, 2, most)
		require.NoError(t, op.SetPool(t.Context(), "db", 9))
		time.Sleep(8 * time.Second)
		most, _ = c.reset()
		assert.Greater(t, most, 5)
		require.NoError(t, op.SetPool(t.Context(), "db", 0))
		time.Sleep(5 * time.Second)
		c.reset()
		time.Sleep(5 * time.Second)
		most, _ = c.reset()
		assert.Zero(t, most)
	})
	bubble(t, "bounds the jobs of a kind whose defaults name it", func(t *testing.T, f *fleet) {
		c := &counter{}
		a := f.bare("a", executor.Options{})
		require.NoError(t, a.RegisterKind(executor.Kind{Name: "mail", Handler: c.run(time.Second), Defaults: executor.Job{Pool: "db"}}))
		require.NoError(t, a.Start(t.Context()))
		op := a.Operator()
		require.NoError(t, op.SetPool(t.Context(), "db", 2))
		for i := range 6 {
			_, err := op.Define(t.Context(), operator.Definition{Name: fmt.Sprint("mail ", i), Kind: "mail", Schedule: schedule.Every(time.Minute)})
			require.NoError(t, err)
		}
		until(2)
		time.Sleep(10 * time.Second)
		most, ran := c.reset()
		assert.Equal(t, 2, most)
		assert.GreaterOrEqual(t, len(ran), 6)
	})
	bubble(t, "costs no commit of its own while demand does not change", func(t *testing.T, f *fleet) {
		c := &counter{}
		require.NoError(t, f.operator().SetPool(t.Context(), "db", 8))
		for _, name := range []string{"a", "b"} {
			f.pooled(name, executor.Job{Name: "job", Shards: 8, Handler: c.run(time.Second)})
		}
		until(2)
		f.server.Record()
		f.server.Log()
		until(12)
		assert.Zero(t, f.writes("pools"))
		until(22)
		assert.Zero(t, f.writes("demand"))
		_, ran := c.reset()
		assert.Len(t, ran, 22)
	})
	bubble(t, "costs at most a commit a second of the leader while demand changes", func(t *testing.T, f *fleet) {
		c := &counter{}
		require.NoError(t, f.operator().SetPool(t.Context(), "db", 2))
		for i := range 8 {
			f.pooled(fmt.Sprintf("i%d", i), executor.Job{Name: "job", Shards: 80, Schedule: schedule.Every(10 * time.Minute), Handler: c.run(50 * time.Millisecond)})
		}
		until(10)
		f.server.Record()
		f.server.Log()
		time.Sleep(30 * time.Second)
		assert.LessOrEqual(t, f.writes("pools"), 31)
		_, ran := c.reset()
		assert.Equal(t, 80, ran["job 00:10:00"])
	})
}

// The bound holds under partitions, late watches, lost replies and restarts, and due runs run in the end.
func TestPool_UnderFaults(t *testing.T) {
	for seed := range uint64(6) {
		bubble(t, fmt.Sprint("seed ", seed), func(t *testing.T, f *fleet) {
			rng := rand.New(rand.NewPCG(seed, 7))
			c := &counter{}
			size := 1 + rng.IntN(4)
			require.NoError(t, f.operator().SetPool(t.Context(), "db", size))
			job := func() executor.Job {
				return executor.Job{Name: "job", Shards: 10, Schedule: schedule.Every(20 * time.Second), Handler: c.run(3 * time.Second)}
			}
			names := []string{"a", "b", "c", "d"}
			running := map[string]*executor.Executor{}
			for _, name := range names {
				running[name] = f.pooled(name, job())
			}
			for range 25 {
				name := names[rng.IntN(len(names))]
				switch rng.IntN(5) {
				case 0:
					heal := f.server.Partition(name)
					time.Sleep(time.Duration(rng.IntN(30)) * time.Second)
					heal()
				case 1:
					release := f.server.HoldWatch(name)
					time.Sleep(time.Duration(rng.IntN(10)) * time.Second)
					release()
				case 2:
					f.server.LoseReply(name, 1+rng.IntN(2))
				case 3:
					require.NoError(t, running[name].Shutdown(t.Context()))
					running[name] = f.pooled(name, job())
				case 4:
					time.Sleep(time.Duration(rng.IntN(20)) * time.Second)
				}
				require.LessOrEqual(t, c.mostSoFar(), size)
			}
			time.Sleep(2 * time.Minute)
			c.reset()
			time.Sleep(2 * time.Minute)
			most, ran := c.reset()
			assert.LessOrEqual(t, most, size)
			assert.NotEmpty(t, ran)
		})
	}
}

// Records that another writer damages or deletes are restored, and take no other job down.
func TestPool_HostileRecords(t *testing.T) {
	for name, edit := range map[string]func(e registry.Entry) registry.Op{
		"deleted": func(e registry.Entry) registry.Op { return registry.Delete(e.Key, e.Modified) },
		"damaged": func(e registry.Entry) registry.Op { return registry.Set(e.Key, e.Modified, []byte("{")) },
		"of another pool or instance": func(e registry.Entry) registry.Op {
			return registry.Set(e.Key, e.Modified, []byte(`{"pool":"other","incarnation":"x.y"}`))
		},
		"with huge numbers": func(e registry.Entry) registry.Op {
			return registry.Set(e.Key, e.Modified, []byte(`{"pool":"db","deal":4611686018427387904,"grants":{"a.x":{"slots":10000,"deal":4611686018427387904,"keep":0}}}`))
		},
	} {
		bubble(t, name, func(t *testing.T, f *fleet) {
			c, other := &counter{}, &counter{}
			require.NoError(t, f.operator().SetPool(t.Context(), "db", 2))
			require.NoError(t, f.operator().SetPool(t.Context(), "free", 100))
			for _, name := range []string{"a", "b"} {
				f.pooled(name, executor.Job{Name: "job", Shards: 8, Handler: c.run(2 * time.Second)}, executor.Job{Name: "other", Pool: "free", Shards: 4, Handler: other.run(time.Second)})
			}
			until(1)
			time.Sleep(3 * time.Second)
			hand := f.server.Client("hand")
			for _, dir := range []registry.Key{"test/groups/default/pools", "test/groups/default/demand"} {
				listing, err := hand.List(t.Context(), dir, registry.ReadOptions{Fresh: true})
				require.NoError(t, err)
				require.NotEmpty(t, listing.Entries)
				for _, e := range listing.Entries {
					if e.Key.Name() == "free" {
						continue
					}
					_, err := hand.Txn(t.Context(), registry.Txn{Then: []registry.Op{edit(e)}})
					for errors.Is(err, registry.ErrConflict) { // an instance has reacted to the edit before
						e, err = hand.Get(t.Context(), e.Key, registry.ReadOptions{Fresh: true})
						require.NoError(t, err)
						_, err = hand.Txn(t.Context(), registry.Txn{Then: []registry.Op{edit(e)}})
					}
					require.NoError(t, err)
				}
			}
			until(3)
			c.reset()
			other.reset()
			until(5)
			time.Sleep(30 * time.Second)
			most, ran := c.reset()
			assert.LessOrEqual(t, most, 2)
			assert.Equal(t, 8, ran["job 00:05:00"], ran)
			_, ran = other.reset()
			assert.Equal(t, 4, ran["other 00:05:00"])
		})
	}
}

func TestPool_Status(t *testing.T) {
	bubble(t, "shows sizes, holders and those that wait", func(t *testing.T, f *fleet) {
		c := &counter{}
		op := f.operator()
		require.NoError(t, op.SetPool(t.Context(), "db", 2))
		f.pooled("a", executor.Job{Name: "job", Shards: 5, Handler: c.run(20 * time.Second)})
		until(1)
		time.Sleep(2 * time.Second)
		assert.Equal(t, map[string]executor.PoolStats{"db": {Slots: 2, Running: 2, Waiting: 3, Size: 2, Sized: true}}, f.members[0].Stats().Pools)
		pools, err := op.Pools(t.Context())
		require.NoError(t, err)
		require.Len(t, pools, 1)
		p := pools[0]
		require.Len(t, p.Instances, 1)
		p.Instances[0].Incarnation = ""
		assert.Equal(t, operator.PoolStatus{
			Pool: "db", Size: 2, Sized: true, Taken: 2, Waiting: 3, Instances: []operator.PoolInstance{{Instance: "a", Slots: 2, Wants: 5, Alive: true}},
		}, p)
	})
	bubble(t, "explains what a run waits for", func(t *testing.T, f *fleet) {
		c := &counter{}
		f.pooled("a", executor.Job{Name: "job", Shards: 5, Handler: c.run(20 * time.Second)})
		until(1)
		op := f.members[0].Operator()
		why := func() operator.Answer {
			e, err := op.Explain(t.Context(), "job", 4, time.Time{})
			require.NoError(t, err)
			return e.Answers[0]
		}
		assert.Contains(t, why().Summary, "has not run: the run waits for a slot of pool db, which has no size")
		assert.Equal(t, "set its size: rota set-pool db N", why().Do)
		require.NoError(t, op.SetPool(t.Context(), "db", 2))
		time.Sleep(2 * time.Second)
		assert.Contains(t, why().Summary, "has not run: the run waits for pool db: 2 of 2 slots taken by a (2)")
		require.NoError(t, op.SetPool(t.Context(), "db", 5))
		time.Sleep(2 * time.Second)
		assert.False(t, why().Stops)
	})
	bubble(t, "an act on a pool is recorded, and one that changes nothing is not", func(t *testing.T, f *fleet) {
		op := f.operator().As("kim", "migration")
		require.NoError(t, op.SetPool(t.Context(), "db", 2))
		require.NoError(t, op.SetPool(t.Context(), "db", 2))
		require.NoError(t, op.DeletePool(t.Context(), "db"))
		require.NoError(t, op.DeletePool(t.Context(), "db"))
		acts, err := op.Acts(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, acts, 2)
		assert.Equal(t, "set pool db to 2", acts[0].What)
		assert.Equal(t, "delete pool db", acts[1].What)
		require.ErrorIs(t, op.SetPool(t.Context(), "a/b", 2), operator.ErrInvalidArgument)
		require.ErrorIs(t, op.SetPool(t.Context(), "db", -1), operator.ErrInvalidArgument)
		require.ErrorIs(t, op.ReportingUnchanged().DeletePool(t.Context(), "db"), operator.ErrUnchanged)
	})
}
