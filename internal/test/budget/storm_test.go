package budget_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/onecpu"
	"github.com/rota-dev/rota/schedule"
)

// Jobs of one shard that fire together each second, with a handler that returns at once.
func TestBudget_ManyJobsDueTogether(t *testing.T) {
	defer onecpu.Hold()()
	const fires = 10
	table := "\njobs  fires  transactions per fire  bytes per fire\n"
	for _, n := range []int{20, 200, 2000} {
		synctest.Test(t, func(t *testing.T) {
			s := newMemory()
			runs := &runCounter{}
			f := newFleet(t, s)
			defer f.stop()
			f.start("a", jobs(n, executor.Job{Name: "job", Shards: 1, Schedule: schedule.Every(time.Second), Handler: runs})...)
			f.awaitAssigned(n)
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(5*time.Second + 500*time.Millisecond)))
			s.count(t)
			runs.reset()
			time.Sleep(fires * time.Second)
			c := s.count(t)

			assert.Equal(t, n*fires, runs.count(), "runs")
			assert.Zero(t, runs.latest(), "a commit takes no time here, and no fire waits for another")
			assert.Zero(t, c.reads)
			bytes := 0
			for _, one := range c.commits {
				bytes += bytesOf(one)
			}
			all := float64(n * fires)
			assert.LessOrEqual(t, float64(c.txns)/all, max(0.02, 1/float64(n)), "transactions per fire")
			assert.LessOrEqual(t, float64(bytes)/all, 400., "bytes per fire")
			table += fmt.Sprintf("%4d  %5d  %21.3f  %14.0f\n", n, n*fires, float64(c.txns)/all, float64(bytes)/all)
		})
	}
	t.Log(table)
}

// A run of an hour must not make the ends of other runs wait for company while a fire is due.
func TestBudget_ShortIntervalBesideALongRun(t *testing.T) {
	defer onecpu.Hold()()
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		runs := &runCounter{}
		long := executor.HandlerFunc(func(ctx context.Context, _ *executor.Run) error {
			<-ctx.Done()
			return ctx.Err()
		})
		f := newFleet(t, s)
		defer f.stop()
		f.start("a",
			executor.Job{Name: "long", Shards: 1, Schedule: schedule.Every(time.Second), Handler: long},
			executor.Job{Name: "short", Shards: 1, Schedule: schedule.Every(20 * time.Millisecond), Handler: runs})
		f.awaitAssigned(2)
		time.Sleep(5*time.Second + 10*time.Millisecond)
		s.count(t)
		runs.reset()
		time.Sleep(10 * time.Second)
		assert.Equal(t, 500, runs.count())
		assert.Zero(t, runs.latest())
		assert.Equal(t, 500, s.count(t).txns, "each claim records the end before it")
	})
}

// runCounter is a handler that counts its runs.
type runCounter struct {
	mu   sync.Mutex
	runs int
	late time.Duration
}

func (c *runCounter) Handle(_ context.Context, r *executor.Run) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	c.late = max(c.late, time.Since(r.FireTime))
	return nil
}

func (c *runCounter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs, c.late = 0, 0
}

func (c *runCounter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs
}

// latest returns the greatest lateness of a run.
func (c *runCounter) latest() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}
