package executor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

// overlapping runs a job that fires each second of the first minute, whose run of the first fire takes 3.5 s and
// whose other runs take 0.1 s. It returns the fires of all runs, in seconds.
func overlapping(t *testing.T, f *fleet, change func(*executor.Job), long func(ctx context.Context) error) (ran []int) {
	t.Helper()
	handle := func(ctx context.Context, r *executor.Run) error {
		n := int(r.FireTime.Sub(minute(0)) / time.Second)
		ran = append(ran, n)
		if n == 2 {
			return long(ctx)
		}
		time.Sleep(100 * time.Millisecond)
		return nil
	}
	e := f.executor("a", executor.Options{}, 1, handle)
	job := f.job(1, handle)
	job.Schedule = schedule.Every(time.Second)
	change(&job)
	require.NoError(t, e.Register(job))
	require.NoError(t, e.Start(t.Context()))
	time.Sleep(time.Until(minute(0).Add(8500 * time.Millisecond)))
	synctest.Wait()
	return ran
}

func TestOverlap(t *testing.T) {
	long := func(ctx context.Context) error {
		select {
		case <-time.After(3500 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	bubble(t, "has the fires wait by default: all run with RunAll, the latest with RunOnce", func(t *testing.T, f *fleet) {
		assert.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8}, overlapping(t, f, func(j *executor.Job) { j.OnMisfire = executor.RunAll(10) }, long))
	})
	bubble(t, "has the fires wait by default: the latest runs with RunOnce", func(t *testing.T, f *fleet) {
		assert.Equal(t, []int{1, 2, 5, 6, 7, 8}, overlapping(t, f, func(*executor.Job) {}, long))
	})
	bubble(t, "skips and counts fires that come due during a run, whatever the misfire policy", func(t *testing.T, f *fleet) {
		var skipped []executor.FiresSkipped
		f.observe = executor.Observer{FiresSkipped: func(e executor.FiresSkipped) { skipped = append(skipped, e) }}
		ran := overlapping(t, f, func(j *executor.Job) { j.OnOverlap, j.OnMisfire = executor.SkipOverlapping, executor.RunAll(10) }, long)
		assert.Equal(t, []int{1, 2, 6, 7, 8}, ran)
		assert.EqualValues(t, 3, f.status().Counts.Skipped)
		require.Len(t, skipped, 1)
		assert.Equal(t, executor.SkipOverlap, skipped[0].Reason)
		assert.Equal(t, 3, skipped[0].Count)
		assert.Equal(t, 2*time.Second, skipped[0].Through.Sub(skipped[0].From), "from the first to the third")
	})
	bubble(t, "skips no fire that comes due after the run, however late its end is recorded", func(t *testing.T, f *fleet) {
		ran := overlapping(t, f, func(j *executor.Job) { j.OnOverlap = executor.SkipOverlapping },
			func(context.Context) error { time.Sleep(950 * time.Millisecond); return nil })
		assert.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8}, ran)
	})
	bubble(t, "cancels the run when the next fire is due, and runs that fire at once", func(t *testing.T, f *fleet) {
		var cause error
		ran := overlapping(t, f, func(j *executor.Job) {
			j.OnOverlap, j.Retry = executor.CancelRunning, executor.Retry{Max: 3}
		}, func(ctx context.Context) error {
			err := long(ctx)
			cause = err
			return err
		})
		assert.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8}, ran)
		assert.ErrorIs(t, cause, executor.ErrOverlap)
		assert.EqualValues(t, 1, f.status().Counts.Failed)
		assert.Zero(t, f.status().Counts.Retried)
	})
	bubble(t, "cancels no run that ignores its context: the fire waits", func(t *testing.T, f *fleet) {
		ran := overlapping(t, f, func(j *executor.Job) { j.OnOverlap = executor.CancelRunning },
			func(context.Context) error { time.Sleep(3500 * time.Millisecond); return nil })
		assert.Equal(t, []int{1, 2, 5, 6, 7, 8}, ran)
	})
	bubble(t, "leaves the retries of a run alone, and skips what came due until the last one", func(t *testing.T, f *fleet) {
		failures := 0
		ran := overlapping(t, f, func(j *executor.Job) {
			j.OnOverlap, j.Retry = executor.SkipOverlapping, executor.Retry{Max: 2, Initial: 500 * time.Millisecond, Jitter: -1}
		}, func(context.Context) error {
			failures++
			time.Sleep(1200 * time.Millisecond)
			return errors.New("out of order")
		})
		assert.Equal(t, 3, failures)
		assert.Equal(t, []int{1, 2, 2, 2, 8}, ran)
	})
}

func TestOverlap_IsChecked(t *testing.T) {
	assert.ErrorContains(t, registerJob(t, executor.Job{Name: "job", Handler: takes(0), OnOverlap: 7}), "OnOverlap: unknown overlap policy 7")
}

// TestOverlap_OfOlderFires tests fires that were due before a run was claimed: they overlap with nothing.
func TestOverlap_OfOlderFires(t *testing.T) {
	// run runs a job that fires each second, and acts at 3.4 s. Its runs of 3 s take 0.3 s and others 0.1 s; those of shard 1 take other. It
	// returns the fires that shard 0 ran until 10 s, in seconds, and the causes with which contexts of its runs ended.
	run := func(t *testing.T, f *fleet, other time.Duration, change func(*executor.Job), act func(e *executor.Executor)) (ran []int, causes []error) {
		t.Helper()
		handle := func(ctx context.Context, r *executor.Run) error {
			if r.Shard == 1 {
				time.Sleep(other) // its end has the owner decide while shard 0 runs
				return nil
			}
			n := int(r.FireTime.Sub(minute(0)) / time.Second)
			ran = append(ran, n)
			length := 100 * time.Millisecond
			if n == 3 {
				length = 300 * time.Millisecond
			}
			select {
			case <-time.After(length):
			case <-ctx.Done():
				causes = append(causes, context.Cause(ctx))
			}
			if n == 4 && r.Attempt == 1 && r.Trigger == 0 {
				return errors.New("out of order")
			}
			return nil
		}
		e := f.executor("a", executor.Options{}, 2, handle)
		job := f.job(2, handle)
		job.Schedule = schedule.Every(time.Second)
		change(&job)
		require.NoError(t, e.Register(job))
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(time.Until(minute(0).Add(3400 * time.Millisecond)))
		act(e)
		time.Sleep(time.Until(minute(0).Add(9500 * time.Millisecond)))
		synctest.Wait()
		return ran, causes
	}
	trigger := func(t *testing.T, after time.Duration) func(*executor.Executor) {
		return func(e *executor.Executor) {
			time.Sleep(after)
			_, err := e.Trigger(t.Context(), "job", executor.Trigger{})
			require.NoError(t, err)
		}
	}
	bubble(t, "cancels no run of a trigger before the next fire is due", func(t *testing.T, f *fleet) {
		ran, causes := run(t, f, 50*time.Millisecond, func(j *executor.Job) { j.OnOverlap = executor.CancelRunning }, trigger(t, 0))
		assert.Equal(t, []int{1, 2, 3, 3, 4, 5, 6, 7, 8, 9}, ran)
		assert.Empty(t, causes)
	})
	bubble(t, "cancels a run of a trigger when the next fire is due", func(t *testing.T, f *fleet) {
		ran, causes := run(t, f, 50*time.Millisecond, func(j *executor.Job) { j.OnOverlap = executor.CancelRunning }, trigger(t, 400*time.Millisecond))
		assert.Equal(t, []int{1, 2, 3, 3, 4, 5, 6, 7, 8, 9}, ran)
		assert.Equal(t, []error{executor.ErrOverlap}, causes)
	})
	bubble(t, "cancels no retry before the next fire is due", func(t *testing.T, f *fleet) {
		ran, causes := run(t, f, 300*time.Millisecond, func(j *executor.Job) {
			j.OnOverlap, j.Retry = executor.CancelRunning, executor.Retry{Max: 1, Initial: 2 * time.Second, Jitter: -1}
		}, func(*executor.Executor) {})
		assert.Equal(t, []int{1, 2, 3, 4, 4, 6, 7, 8, 9}, ran)
		assert.Empty(t, causes)
	})
	unreachable := func(f *fleet) func(*executor.Executor) {
		return func(*executor.Executor) {
			defer f.server.Partition("a")()
			time.Sleep(3100 * time.Millisecond)
		}
	}
	for name, policy := range map[string]executor.OverlapPolicy{"cancels": executor.CancelRunning, "skips": executor.SkipOverlapping} {
		bubble(t, name+" none of the fires that came due while the shard could not run", func(t *testing.T, f *fleet) {
			ran, causes := run(t, f, 50*time.Millisecond, func(j *executor.Job) { j.OnOverlap, j.OnMisfire = policy, executor.RunAll(10) }, unreachable(f))
			assert.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, ran)
			assert.Empty(t, causes)
		})
	}
}

func TestCatchupWindow(t *testing.T) {
	bubble(t, "skips and counts fires that were due for longer", func(t *testing.T, f *fleet) {
		var skipped []executor.FiresSkipped
		f.observe = executor.Observer{FiresSkipped: func(e executor.FiresSkipped) { skipped = append(skipped, e) }}
		ran := overlapping(t, f, func(j *executor.Job) { j.OnMisfire, j.CatchupWindow = executor.RunAll(10), 1500*time.Millisecond },
			func(context.Context) error { time.Sleep(3500 * time.Millisecond); return nil })
		assert.Equal(t, []int{1, 2, 4, 5, 6, 7, 8}, ran, "at 5.5 s, the fire of 3 s is 2.5 s late")
		require.Len(t, skipped, 1)
		assert.Equal(t, executor.SkipExpired, skipped[0].Reason)
		assert.EqualValues(t, 1, f.status().Counts.Skipped)
	})
	bubble(t, "skips no fire that is on time, however short it is", func(t *testing.T, f *fleet) {
		ran := overlapping(t, f, func(j *executor.Job) { j.CatchupWindow = 1 }, func(context.Context) error { time.Sleep(1005 * time.Millisecond); return nil })
		assert.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8}, ran)
	})
	t.Run("is not negative", func(t *testing.T) {
		assert.ErrorContains(t, registerJob(t, executor.Job{Name: "job", Handler: takes(0), CatchupWindow: -1}), "CatchupWindow: -1ns is negative")
	})
}
