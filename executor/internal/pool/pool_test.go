package pool

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// addTask queues one task.
func (p *Pool) addTask(t *Task) { p.Add(slices.Values([]*Task{t})) }

func TestPool(t *testing.T) {
	bubbled := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
	bubbled("runs 10,000 tasks of a job, as many at once as its bound", func(t *testing.T) {
		var p Pool
		p.SetBound(Lane{Name: "job"}, 16)
		var running, most, all atomic.Int32
		for i := range 10_000 {
			p.addTask(&Task{Job: "job", Shard: i, Do: func() {
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
		<-p.Idle()
		assert.Equal(t, 625*time.Second, time.Since(began))
		assert.EqualValues(t, 16, most.Load())
		assert.EqualValues(t, 10_000, all.Load())
	})
	bubbled("begins what waits when a bound is raised", func(t *testing.T) {
		var p Pool
		p.SetBound(Lane{Name: "job"}, 1)
		var running atomic.Int32
		end := make(chan struct{})
		for range 8 {
			p.addTask(&Task{Job: "job", Do: func() { running.Add(1); <-end }})
		}
		synctest.Wait()
		assert.EqualValues(t, 1, running.Load())
		p.SetBound(Lane{Name: "job"}, 5)
		synctest.Wait()
		assert.EqualValues(t, 5, running.Load())
		close(end)
		<-p.Idle()
		assert.EqualValues(t, 8, running.Load())
	})
	bubbled("is idle only when nothing waits either", func(t *testing.T) {
		p := Pool{queue: queue{bound: 1}}
		for range 3 {
			p.addTask(&Task{Job: "job", Do: func() { time.Sleep(time.Minute) }})
		}
		began := time.Now()
		<-p.Idle()
		assert.Equal(t, 3*time.Minute, time.Since(began))
		<-p.Idle()
	})
	bubbled("is not idle while tasks wait that have not started yet", func(t *testing.T) {
		var p Pool
		p.queue.add(&Task{Job: "job"})
		select {
		case <-p.Idle():
			t.Error("idle")
		default:
		}
	})
	bubbled("calls the alarm while tasks wait or a report is open, and when tasks wait again", func(t *testing.T) {
		calls := make(chan time.Duration, 100)
		began, number := time.Now(), 0
		p := New(Options{Bound: 1, LongWait: 10 * time.Second})
		p.Alarm = func() {
			number++
			calls <- time.Since(began)
			p.WatchAgain(20*time.Second, number == 2)
		}
		wait := func(d time.Duration) {
			p.addTask(&Task{Job: "job", Do: func() { time.Sleep(d) }})
			p.addTask(&Task{Job: "job", Do: func() {}})
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
		<-p.Idle()
		time.Sleep(10 * time.Minute)
	})
	bubbled("has no goroutine at rest", func(t *testing.T) {
		p := New(Options{Alarm: func() {}})
		for i := range 100 {
			p.addTask(&Task{Job: fmt.Sprint(i % 7), Do: func() { time.Sleep(time.Second) }})
		}
		<-p.Idle()
		synctest.Wait()
		// runtime.NumGoroutine may still count one that has ended.
		stacks := make([]byte, 1<<20)
		assert.NotContains(t, string(stacks[:runtime.Stack(stacks, true)]), "(*Pool)")
	})
}
