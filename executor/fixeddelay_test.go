package executor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// calls are calls of a handler: by instance, and when they began and ended, in seconds.
type calls struct {
	mu  sync.Mutex
	log []string
}

func (c *calls) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, fmt.Sprintf("%.1f ", time.Since(minute(0)).Seconds())+fmt.Sprintf(format, args...))
}

// all returns the calls so far.
func (c *calls) all() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.log)
}

// startScheduled starts an executor of a job with a schedule.
func (f *fleet) startScheduled(name string, s schedule.Schedule, handle executor.HandlerFunc) *executor.Executor {
	f.t.Helper()
	e := f.executor(name, executor.Options{}, 1, handle)
	job := f.job(1, handle)
	job.Schedule = s
	require.NoError(f.t, e.Register(job))
	require.NoError(f.t, e.Start(f.t.Context()))
	return e
}

func TestFixedDelay(t *testing.T) {
	// reports returns a handler that takes some time, and logs its calls.
	reports := func(c *calls, takes time.Duration, err error) executor.HandlerFunc {
		return func(ctx context.Context, r *executor.Run) error {
			c.add("%s begins %d", r.Instance, r.Attempt)
			select {
			case <-time.After(takes):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			c.add("%s ends", r.Instance)
			return err
		}
	}
	bubble(t, "runs a shard again when the delay has passed since the end of its last run", func(t *testing.T, f *fleet) {
		var c calls
		f.startScheduled("a", schedule.FixedDelay(5*time.Second), reports(&c, 3*time.Second, nil))
		time.Sleep(28 * time.Second)
		assert.Equal(t, []string{"5.0 a begins 1", "8.0 a ends", "13.0 a begins 1", "16.0 a ends", "21.0 a begins 1", "24.0 a ends"}, c.all())
		assert.Zero(t, f.status().Counts.Skipped)
	})
	bubble(t, "counts from the end also if the delay is shorter than the run, or much shorter", func(t *testing.T, f *fleet) {
		var c calls
		f.startScheduled("a", schedule.FixedDelay(200*time.Millisecond), reports(&c, 3*time.Second, nil))
		time.Sleep(9 * time.Second)
		assert.Equal(t, []string{"0.2 a begins 1", "3.2 a ends", "3.4 a begins 1", "6.4 a ends", "6.6 a begins 1"}, c.all())
	})
	bubble(t, "counts from the end of a failed run, and from the last retry", func(t *testing.T, f *fleet) {
		var c calls
		handle := reports(&c, time.Second, errors.New("out of order"))
		e := f.executor("a", executor.Options{}, 1, handle)
		job := f.job(1, handle)
		job.Schedule, job.Retry = schedule.FixedDelay(10*time.Second), executor.Retry{Max: 1, Initial: 2 * time.Second, Jitter: -1}
		require.NoError(t, e.Register(job))
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(24900 * time.Millisecond)
		require.Len(t, c.all(), 5)
		assert.Equal(t, []string{"10.0 a begins 1", "11.0 a ends"}, c.all()[:2])
		assert.Contains(t, c.all()[2], "a begins 2")
		assert.Regexp(t, `^24\.[01] a begins 1`, c.all()[4])
	})
	bubble(t, "keeps the delay when the shard moves in the middle of a run, and in the middle of the delay", func(t *testing.T, f *fleet) {
		var c calls
		a := f.startScheduled("a", schedule.FixedDelay(5*time.Second), reports(&c, 3*time.Second, nil))
		time.Sleep(6 * time.Second)
		f.startScheduled("b", schedule.FixedDelay(5*time.Second), reports(&c, 3*time.Second, nil))
		go a.Shutdown(context.Background())
		time.Sleep(16 * time.Second)
		assert.Equal(t, []string{"5.0 a begins 1", "8.0 a ends", "13.0 b begins 1", "16.0 b ends", "21.0 b begins 1"}, c.all())
	})
	bubble(t, "repeats a run that crashed, and counts from the end of the repetition", func(t *testing.T, f *fleet) {
		var c calls
		f.startScheduled("a", schedule.FixedDelay(5*time.Second), reports(&c, 3*time.Second, nil))
		time.Sleep(6 * time.Second)
		f.startScheduled("b", schedule.FixedDelay(5*time.Second), reports(&c, 3*time.Second, nil))
		defer f.server.Partition("a")()
		time.Sleep(30 * time.Second)
		require.GreaterOrEqual(t, len(c.all()), 4)
		var begun []string
		for _, l := range c.all() {
			if len(l) > 0 && l[len(l)-1] != 's' {
				begun = append(begun, l)
			}
		}
		assert.Contains(t, begun[1], "b begins 2")
		var second, third float64
		fmt.Sscanf(begun[1], "%f", &second)
		fmt.Sscanf(begun[2], "%f", &third)
		assert.InDelta(t, second+8, third, 0.11)
	})
	bubble(t, "counts one skipped fire for each delay while the shard is disabled", func(t *testing.T, f *fleet) {
		var c calls
		e := f.startScheduled("a", schedule.FixedDelay(5*time.Second), reports(&c, time.Second, nil))
		time.Sleep(time.Second)
		s := operator.Scope{Job: "job", Shards: []int{0}}
		require.NoError(t, e.Operator().Disable(t.Context(), s))
		time.Sleep(20 * time.Second)
		require.NoError(t, e.Operator().Enable(t.Context(), s))
		time.Sleep(6 * time.Second)
		assert.InDelta(t, 4, float64(f.status().Counts.Skipped), 1)
		assert.NotEmpty(t, c.all())
	})
}

func TestAlways(t *testing.T) {
	daemon := func(c *calls, failing func(r *executor.Run) error) executor.HandlerFunc {
		return func(ctx context.Context, r *executor.Run) error {
			c.add("%s begins", r.Instance)
			if err := failing(r); err != nil {
				return err
			}
			<-ctx.Done()
			c.add("%s ends", r.Instance)
			return context.Cause(ctx)
		}
	}
	never := func(*executor.Run) error { return nil }
	bubble(t, "keeps one run going", func(t *testing.T, f *fleet) {
		var c calls
		f.startScheduled("a", schedule.Always(), daemon(&c, never))
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"1.0 a begins"}, c.all())
	})
	bubble(t, "hands the run over at once when the shard moves, and when its instance drains", func(t *testing.T, f *fleet) {
		var c calls
		a := f.startScheduled("a", schedule.Always(), daemon(&c, never))
		time.Sleep(10 * time.Second)
		f.startScheduled("b", schedule.Always(), daemon(&c, never))
		time.Sleep(10 * time.Second)
		require.NoError(t, a.Shutdown(t.Context()))
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"1.0 a begins", "20.0 a ends", "20.0 b begins"}, c.all())
		s := f.status()
		assert.Zero(t, s.Counts.Failed)
		assert.Zero(t, s.Counts.Lost)
	})
	bubble(t, "begins the run again after each crash, and never counts it as lost", func(t *testing.T, f *fleet) {
		var c calls
		f.startScheduled("a", schedule.Always(), daemon(&c, never))
		f.startScheduled("b", schedule.Always(), daemon(&c, never))
		for range 5 {
			time.Sleep(time.Hour)
			var owner string
			for _, m := range f.status().Members {
				if len(m.Running) > 0 {
					owner = m.Instance
				}
			}
			heal := f.server.Partition(owner)
			time.Sleep(time.Minute)
			heal()
		}
		s := f.status()
		require.Len(t, s.PerShard, 1)
		assert.True(t, s.PerShard[0].Running)
		assert.Equal(t, 6, s.PerShard[0].Attempt, "of one fire")
		assert.Zero(t, s.Counts.Lost)
		assert.Empty(t, s.Failures)
	})
	bubble(t, "begins the run again after growing delays if it fails", func(t *testing.T, f *fleet) {
		var c calls
		f.startScheduled("a", schedule.Always(), daemon(&c, func(r *executor.Run) error {
			if r.Retries < 3 {
				return errors.New("out of order")
			}
			return nil
		}))
		time.Sleep(time.Minute)
		require.Len(t, c.all(), 4)
		for i, want := range []float64{1, 2, 4, 8} {
			var at float64
			fmt.Sscanf(c.all()[i], "%f", &at)
			assert.InDelta(t, want, at, 0.35*want)
		}
	})
	bubble(t, "begins the run again a second after it returned", func(t *testing.T, f *fleet) {
		var c calls
		f.startScheduled("a", schedule.Always(), func(context.Context, *executor.Run) error {
			c.add("called")
			return nil
		})
		time.Sleep(3500 * time.Millisecond)
		assert.Equal(t, []string{"1.0 called", "2.0 called", "3.0 called"}, c.all())
	})
	for name, act := range map[string]func(e *executor.Executor, f *fleet) error{
		"a pause": func(e *executor.Executor, f *fleet) error { return e.Operator().Pause(f.t.Context(), "job") },
		"a new definition": func(e *executor.Executor, f *fleet) error {
			job := f.job(1, func(context.Context, *executor.Run) error { return nil })
			job.Schedule, job.Revision = schedule.OnTrigger(), 1
			return e.Register(job)
		},
	} {
		bubble(t, "ends the run for good on "+name, func(t *testing.T, f *fleet) {
			var c calls
			e := f.startScheduled("a", schedule.Always(), daemon(&c, never))
			time.Sleep(10 * time.Second)
			require.NoError(t, act(e, f))
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, "1.0 a begins", c.all()[0])
			require.Len(t, c.all(), 2)
			assert.Contains(t, c.all()[1], "a ends")
			assert.Zero(t, f.status().Counts.Failed)
		})
	}
	bubble(t, "goes on until a new definition is in force, and begins once by that", func(t *testing.T, f *fleet) {
		var c calls
		e := f.startScheduled("a", schedule.Always(), daemon(&c, never))
		time.Sleep(10 * time.Second)
		job := f.job(1, daemon(&c, never))
		job.Schedule, job.Revision, job.Param = schedule.Always(), 1, "new"
		require.NoError(t, e.Register(job))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, c.all(), 3)
		var ended, begun float64
		fmt.Sscanf(c.all()[1], "%f", &ended)
		fmt.Sscanf(c.all()[2], "%f", &begun)
		assert.Greater(t, ended, 14.0, "not before the definition is in force")
		assert.LessOrEqual(t, begun-ended, 1.1)
		assert.EqualValues(t, 1, f.status().Counts.Succeeded)
	})
	bubble(t, "begins the run again after a pause and after the crash of its owner", func(t *testing.T, f *fleet) {
		var c calls
		e := f.startScheduled("a", schedule.Always(), daemon(&c, never))
		time.Sleep(10 * time.Second)
		require.NoError(t, e.Operator().Pause(t.Context(), "job"))
		time.Sleep(10 * time.Second)
		require.NoError(t, e.Operator().Resume(t.Context(), "job"))
		time.Sleep(20 * time.Second)
		require.Len(t, c.all(), 3)
		assert.Contains(t, c.all()[2], "a begins")
		f.startScheduled("b", schedule.Always(), daemon(&c, never))
		defer f.server.Partition("a")()
		time.Sleep(30 * time.Second)
		require.Len(t, c.all(), 5)
		assert.Contains(t, c.all()[4], "b begins")
	})
}

func TestFixedDelay_IsChecked(t *testing.T) {
	for _, s := range []schedule.Schedule{schedule.FixedDelay(time.Second), schedule.Always()} {
		err := registerJob(t, executor.Job{
			Name: "job", Handler: takes(0), Schedule: s, Shards: 2000, Tracking: executor.TrackClaims,
			OnMisfire: executor.SkipMissed, OnOverlap: executor.CancelRunning, CatchupWindow: time.Hour,
		})
		for _, field := range []string{"Tracking: must be TrackRuns", "Shards: must be at most 1000", "OnMisfire: does not apply", "OnOverlap: does not apply", "CatchupWindow: does not apply"} {
			assert.ErrorContains(t, err, field)
		}
		assert.ErrorContains(t, registerJob(t, executor.Job{Name: "job", Handler: takes(0), Schedule: s.Spread(time.Second)}), "cannot be spread")
		parsed, err := schedule.Parse(s.String())
		require.NoError(t, err)
		assert.Equal(t, s, parsed)
	}
	_, err := schedule.Parse("always now")
	assert.Error(t, err)
	_, err = schedule.Parse("fixed delay 1us")
	assert.ErrorContains(t, err, "below")
}

func TestStats_OfJobsThatCountFromEnds(t *testing.T) {
	status := func(t *testing.T, e *executor.Executor) operator.Status {
		st, err := e.Operator().Status(t.Context(), "job")
		require.NoError(t, err)
		return st
	}
	for name, schedule := range map[string]schedule.Schedule{
		"a daemon": schedule.Always(), "a fixed delay": schedule.FixedDelay(5 * time.Second),
	} {
		bubble(t, name+" that has run for ten hours is not late, and has no next fire", func(t *testing.T, f *fleet) {
			e := f.startScheduled("a", schedule, takes(12*time.Hour))
			time.Sleep(10 * time.Hour)
			stats := e.Stats().Jobs["job"]
			require.Equal(t, 1, stats.Running)
			assert.Zero(t, stats.Overdue, "stats")
			assert.Zero(t, stats.NextFire, "stats")
			st := status(t, e)
			assert.Zero(t, st.Overdue, "status")
			assert.Zero(t, st.NextFire, "status")
		})
		bubble(t, name+" whose owner crashed is late only from when it could be made again", func(t *testing.T, f *fleet) {
			e := f.startScheduled("a", schedule, takes(12*time.Hour))
			b := f.startScheduled("b", schedule, takes(12*time.Hour))
			time.Sleep(10 * time.Hour)
			owner, other := "a", b
			if e.Stats().Jobs["job"].Owned == 0 {
				owner, other = "b", e
			}
			defer f.server.Partition(owner)()
			for range 60 * 5 {
				time.Sleep(200 * time.Millisecond)
				stats := other.Stats().Jobs["job"]
				require.Less(t, max(stats.Overdue, stats.UnownedOverdue), 2*time.Second, "stats")
				if st := status(t, other); !st.Overdue.IsZero() {
					require.Less(t, time.Since(st.Overdue), 2*time.Second, "status")
				}
			}
			assert.Equal(t, 1, other.Stats().Jobs["job"].Running)
		})
		bubble(t, name+" that no instance may run is late from its first fire on", func(t *testing.T, f *fleet) {
			job := f.job(1, takes(time.Hour))
			job.Schedule, job.RunOn = schedule, map[string]string{"gpu": "yes"}
			e := f.executor("a", executor.Options{}, 1, takes(time.Hour))
			require.NoError(t, e.Register(job))
			require.NoError(t, e.Start(t.Context()))
			time.Sleep(10 * time.Minute)
			first := time.Second
			if name == "a fixed delay" {
				first = 5 * time.Second
			}
			want := 10*time.Minute - first
			assert.InDelta(t, want, e.Stats().Jobs["job"].UnownedOverdue, float64(time.Second), "stats")
			assert.InDelta(t, want, time.Since(status(t, e).Overdue), float64(time.Second), "status")
		})
	}
}
