package executor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// addTask queues one task.
func (p *pool) addTask(t *task) { p.add(slices.Values([]*task{t})) }

func TestPool(t *testing.T) {
	bubbled := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
	bubbled("runs 10,000 tasks of a job, as many at once as its bound", func(t *testing.T) {
		var p pool
		p.setBound("job", 16)
		var running, most, all atomic.Int32
		for i := range 10_000 {
			p.addTask(&task{job: "job", shard: i, do: func() {
				n := running.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Second)
				running.Add(-1)
				all.Add(1)
			}})
		}
		synctest.Wait()
		assert.EqualValues(t, 16, running.Load())
		began := time.Now()
		<-p.idle()
		assert.Equal(t, 625*time.Second, time.Since(began))
		assert.EqualValues(t, 16, most.Load())
		assert.EqualValues(t, 10_000, all.Load())
	})
	bubbled("begins what waits when a bound is raised", func(t *testing.T) {
		var p pool
		p.setBound("job", 1)
		var running atomic.Int32
		end := make(chan struct{})
		for range 8 {
			p.addTask(&task{job: "job", do: func() { running.Add(1); <-end }})
		}
		synctest.Wait()
		assert.EqualValues(t, 1, running.Load())
		p.setBound("job", 5)
		synctest.Wait()
		assert.EqualValues(t, 5, running.Load())
		close(end)
		<-p.idle()
		assert.EqualValues(t, 8, running.Load())
	})
	bubbled("is idle only when nothing waits either", func(t *testing.T) {
		p := pool{queue: queue{bound: 1}}
		for range 3 {
			p.addTask(&task{job: "job", do: func() { time.Sleep(time.Minute) }})
		}
		began := time.Now()
		<-p.idle()
		assert.Equal(t, 3*time.Minute, time.Since(began))
		<-p.idle()
	})
	bubbled("is not idle while tasks wait that have not started yet", func(t *testing.T) {
		var p pool
		p.queue.add(&task{job: "job"})
		select {
		case <-p.idle():
			t.Error("idle")
		default:
		}
	})
	bubbled("calls the alarm while tasks wait or a report is open, and when tasks wait again", func(t *testing.T) {
		calls := make(chan time.Duration, 100)
		began, number := time.Now(), 0
		p := pool{queue: queue{bound: 1}}
		p.alarm = func() {
			number++
			calls <- time.Since(began)
			p.watchAgain(20*time.Second, number == 2)
		}
		wait := func(d time.Duration) {
			p.addTask(&task{job: "job", do: func() { time.Sleep(d) }})
			p.addTask(&task{job: "job", do: func() {}})
		}
		wait(15 * time.Second)
		assert.Equal(t, 10*time.Second, <-calls, "a task waits")
		assert.Equal(t, 30*time.Second, <-calls)
		assert.Equal(t, 50*time.Second, <-calls, "a report was open")
		time.Sleep(10 * time.Minute)
		assert.Empty(t, calls)
		wait(time.Minute)
		again := time.Since(began)
		assert.Equal(t, again+10*time.Second, <-calls, "a task waits again")
		<-p.idle()
		time.Sleep(10 * time.Minute)
	})
	bubbled("has no goroutine at rest", func(t *testing.T) {
		p := pool{alarm: func() {}}
		for i := range 100 {
			p.addTask(&task{job: fmt.Sprint(i % 7), do: func() { time.Sleep(time.Second) }})
		}
		<-p.idle()
		synctest.Wait()
		// runtime.NumGoroutine may still count one that has ended.
		stacks := make([]byte, 1<<20)
		assert.NotContains(t, string(stacks[:runtime.Stack(stacks, true)]), "(*pool)")
	})
}

// TestPool_UnderStress has handlers return, panic and call Goexit while bounds change.
func TestPool_UnderStress(t *testing.T) {
	const tasks, adders = 300, 4
	for seed := range uint64(10) {
		p := pool{queue: queue{bound: int(seed % 4)}}
		var concluded sync.Map
		var running atomic.Int32
		var all sync.WaitGroup
		for adder := range adders {
			rng := rand.New(rand.NewPCG(seed, uint64(adder)))
			all.Go(func() {
				for i := range tasks {
					job, how := fmt.Sprint("job-", rng.IntN(5)), rng.IntN(4)
					if rng.IntN(20) == 0 {
						p.setBound(job, rng.IntN(4))
					}
					h := HandlerFunc(func(context.Context, *Run) error {
						runtime.Gosched()
						switch how {
						case 0:
							panic("stress")
						case 1:
							runtime.Goexit()
						}
						return nil
					})
					p.addTask(&task{job: job, fire: at(rng.IntN(10)), do: func() {
						if n := running.Add(1); p.queue.bound > 0 {
							assert.LessOrEqual(t, int(n), p.queue.bound, "seed %d", seed)
						}
						reportResult(func() error { return callHandler(t.Context(), h, &Run{}) }, func(err error) {
							running.Add(-1)
							_, twice := concluded.LoadOrStore(fmt.Sprint(adder, "/", i), err)
							assert.False(t, twice)
							switch how {
							case 0:
								assert.ErrorAs(t, err, new(*PanicError))
							case 1:
								assert.True(t, errors.Is(err, errGoexit))
							default:
								assert.NoError(t, err)
							}
						})
					}})
				}
			})
		}
		all.Wait()
		<-p.idle()
		n := 0
		concluded.Range(func(any, any) bool { n++; return true })
		require.Equal(t, tasks*adders, n, "seed %d", seed)
		p.mu.Lock()
		require.Zero(t, p.queue.running)
		require.Zero(t, p.queue.waiting)
		require.Empty(t, p.queue.ready)
		for _, j := range p.queue.jobs {
			require.Zero(t, j.running)
		}
		p.mu.Unlock()
	}
}
