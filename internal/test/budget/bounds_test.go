package budget_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/onecpu"
	"github.com/rota-dev/rota/schedule"
)

// A MaxRunning for each of 2,000 jobs needs no goroutine, timer or request while nothing is due.
func TestBudget_BoundsCostNothingAtRest(t *testing.T) {
	defer onecpu.Hold()()
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 1 // to find every timer
	defer func() { runtime.MemProfileRate = rate }()
	atRest := func(n int) (goroutines, timers int) {
		synctest.Test(t, func(t *testing.T) {
			s := newMemory()
			f := newFleet(t, s)
			defer f.stop()
			job := idle(1)
			job.Schedule, job.MaxRunning = schedule.Every(time.Hour), 1
			f.startWith("a", executor.Options{Workers: 100}, jobs(n, job)...)
			f.awaitAssigned(n)
			time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + time.Minute))) // each job has run
			s.count(t)
			time.Sleep(30 * time.Minute)
			c := s.count(t)
			assert.Zero(t, c.txns, "transactions at rest")
			assert.Zero(t, c.reads, "reads at rest")
			assert.Zero(t, c.events, "events at rest")
			goroutines, timers = runtime.NumGoroutine(), liveTimers(t)
		})
		return goroutines, timers
	}
	few, fewTimers := atRest(10)
	many, manyTimers := atRest(2_000)
	t.Logf("10 jobs: %d goroutines, %d timers; 2,000 jobs: %d and %d", few, fewTimers, many, manyTimers)
	assert.LessOrEqual(t, many-few, 5)
	assert.Positive(t, fewTimers, "at least that of the next fire")
	assert.LessOrEqual(t, manyTimers-fewTimers, 5)
}

// liveTimers returns how many timers of this process are reachable.
func liveTimers(t *testing.T) int {
	t.Helper()
	runtime.GC()
	runtime.GC() // the profile is as of the last collection but one
	n, _ := runtime.MemProfile(nil, false)
	for {
		all := make([]runtime.MemProfileRecord, n+100)
		var ok bool
		if n, ok = runtime.MemProfile(all, false); !ok {
			continue
		}
		timers := 0
		for _, r := range all[:n] {
			frames := runtime.CallersFrames(r.Stack())
			for {
				f, more := frames.Next()
				if f.Function == "time.newTimer" || f.Function == "time.NewTimer" || f.Function == "time.AfterFunc" {
					timers += int(r.InUseObjects())
					break
				}
				if !more {
					break
				}
			}
		}
		return timers
	}
}

// Without Workers, bounds of single jobs delay nothing.
func TestBudget_BoundedJobsStartTogether(t *testing.T) {
	defer onecpu.Hold()()
	synctest.Test(t, func(t *testing.T) {
		const all = 5_000
		starts := &startLog{takes: time.Second}
		f := newFleet(t, newMemory())
		defer f.stop()
		f.startWith("a", executor.Options{}, jobs(all, executor.Job{
			Name: "job", MaxRunning: 1, Schedule: schedule.Every(time.Minute), Handler: starts,
		})...)
		f.awaitAssigned(all)
		sleepUntilHalf(time.Minute)
		starts.reset()
		time.Sleep(3 * time.Minute)
		latest := time.Duration(0)
		for _, s := range starts.all() {
			latest = max(latest, s.at.Sub(s.fire))
		}
		assert.Equal(t, 3*all, len(starts.all()))
		assert.Zero(t, latest)
	})
}

// Small jobs share workers with a job that could occupy half of them.
func TestBudget_BoundedJobsStartInOrder(t *testing.T) {
	defer onecpu.Hold()()
	const small, shards, workers = 2_000, 400, 50
	const takes = 97 * time.Millisecond
	const round = (small + shards) * takes / workers // for one run of every shard
	for _, c := range []struct{ every, latest time.Duration }{
		{time.Minute, small * takes / workers},                   // each small job goes before a second run of the large one
		{2500 * time.Millisecond, round + 2500*time.Millisecond}, // almost twice as much is due as the workers can do
	} {
		t.Run("every "+c.every.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts := &startLog{takes: takes}
				f := newFleet(t, newMemory())
				defer f.stop()
				like := executor.Job{Name: "job", MaxRunning: 1, Schedule: schedule.Every(c.every), Handler: starts}
				large := like
				large.Name, large.Shards, large.MaxRunning = "large", shards, workers/2
				f.startWith("a", executor.Options{Workers: workers}, append(jobs(small, like), large)...)
				f.awaitAssigned(small + 1)
				time.Sleep(time.Until(time.Now().Truncate(c.every).Add(4*c.every - time.Millisecond)))
				starts.reset()
				time.Sleep(max(c.every, 10*round))
				checkOrder(t, starts.all(), small, c.latest)
			})
		})
	}
}

// checkOrder checks that runs of the small jobs start in the order of their fires, equally often,
// and not too late.
func checkOrder(t *testing.T, starts []start, small int, within time.Duration) {
	runs, latest := map[string]int{}, time.Duration(0)
	var before, now start // those with the latest fires, at an earlier instant and at this one
	for _, s := range starts {
		if !strings.HasPrefix(s.job, "job-") {
			continue
		}
		runs[s.job]++
		latest = max(latest, s.at.Sub(s.fire))
		if s.at.After(now.at) {
			before = now
		}
		require.False(t, s.fire.Before(before.fire), "%v started after %v", s, before)
		if s.at.After(now.at) || s.fire.After(now.fire) {
			now = s
		}
	}
	require.Equal(t, small, len(runs), "jobs that ran")
	fewest, most := len(starts), 0
	for _, n := range runs {
		fewest, most = min(fewest, n), max(most, n)
	}
	t.Logf("%d runs, of each small job %d to %d, the latest %v after its fire", len(starts), fewest, most, latest)
	assert.LessOrEqual(t, most-fewest, 1, "runs of the jobs")
	assert.LessOrEqual(t, latest, within)
}

// start is the start of a run.
type start struct {
	job      string
	fire, at time.Time
}

// startLog is a handler that records starts.
type startLog struct {
	takes time.Duration // by each run

	mu     sync.Mutex
	starts []start
}

func (l *startLog) Handle(ctx context.Context, r *executor.Run) error {
	l.mu.Lock()
	l.starts = append(l.starts, start{r.Job, r.FireTime, time.Now()})
	l.mu.Unlock()
	select {
	case <-time.After(l.takes):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *startLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts = nil
}

// all returns the starts since the last reset, in order.
func (l *startLog) all() []start {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.starts)
}
