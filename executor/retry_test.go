package executor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
)

// attempt is a call of a handler.
type attempt struct {
	instance string
	after    time.Duration // from the fire
	attempt  int
	retries  int
	reason   executor.Reason
}

// registerJob registers a job at an executor of its own.
func registerJob(t *testing.T, j executor.Job) error {
	t.Helper()
	e, err := executor.New(memory.New().Client("a"), "test", executor.Options{})
	require.NoError(t, err)
	return e.Register(j)
}

// retried runs a job with retries for the time of a fire, and returns the attempts at it. The handler
// returns what result returns.
func retried(t *testing.T, f *fleet, retry executor.Retry, result func(r *executor.Run) error) (attempts []attempt) {
	t.Helper()
	handle := func(_ context.Context, r *executor.Run) error {
		if r.FireTime.Equal(minute(1)) {
			attempts = append(attempts, attempt{r.Instance, time.Since(r.FireTime).Truncate(time.Millisecond), r.Attempt, r.Retries, r.Reason})
			return result(r)
		}
		return nil
	}
	e := f.executor("a", executor.Options{}, 1, handle)
	job := f.job(1, handle)
	job.Retry = retry
	require.NoError(t, e.Register(job))
	require.NoError(t, e.Start(t.Context()))
	until(2)
	synctest.Wait()
	return attempts
}

func TestRetry(t *testing.T) {
	failing := func(*executor.Run) error { return errors.New("out of order") }
	exactly := executor.Retry{Max: 3, Initial: time.Second, MaxInterval: 3 * time.Second, Jitter: -1}
	bubble(t, "makes a failed run again after growing delays, up to Max times", func(t *testing.T, f *fleet) {
		got := retried(t, f, exactly, failing)
		require.Len(t, got, 4)
		for i, a := range got {
			assert.Equal(t, i+1, a.attempt)
			assert.Equal(t, i, a.retries)
			want := []time.Duration{0, time.Second, 3 * time.Second, 6 * time.Second}[i]
			assert.InDelta(t, want.Seconds(), a.after.Seconds(), 0.2*float64(i)+0.02)
			assert.GreaterOrEqual(t, a.after, want)
		}
		assert.Equal(t, executor.Scheduled, got[0].reason)
		assert.Equal(t, executor.Retried, got[1].reason)
		s := f.status()
		assert.EqualValues(t, 1, s.Counts.Failed)
		assert.EqualValues(t, 3, s.Counts.Retried)
	})
	bubble(t, "ends with the first attempt that succeeds", func(t *testing.T, f *fleet) {
		got := retried(t, f, exactly, func(r *executor.Run) error {
			if r.Retries == 1 {
				return nil
			}
			return errors.New("out of order")
		})
		assert.Len(t, got, 2)
		assert.Zero(t, f.status().Counts.Failed)
	})
	bubble(t, "is reported to observers after each end", func(t *testing.T, f *fleet) {
		var events []string
		observer := executor.Observer{
			RunEnded:   func(e executor.RunEnded) { events = append(events, fmt.Sprint(e.Outcome, " ", e.Err)) },
			RunRetried: func(e executor.RunRetried) { events = append(events, fmt.Sprint("retried ", e.NotBefore.Sub(e.At))) },
		}
		handle := func(_ context.Context, r *executor.Run) error {
			if r.Retries == 0 {
				return errors.New("out of order")
			}
			return nil
		}
		e := f.executor("a", executor.Options{Observer: observer}, 1, handle)
		job := f.job(1, handle)
		job.Retry = exactly
		require.NoError(t, e.Register(job))
		require.NoError(t, e.Start(t.Context()))
		until(1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"failed out of order", "retried 1s", "succeeded <nil>"}, events)
	})
	bubble(t, "retries a panic", func(t *testing.T, f *fleet) {
		got := retried(t, f, exactly, func(r *executor.Run) error {
			if r.Attempt == 1 {
				panic("out of order")
			}
			return nil
		})
		assert.Len(t, got, 2)
	})
	bubble(t, "does not retry a Permanent error", func(t *testing.T, f *fleet) {
		got := retried(t, f, exactly, func(*executor.Run) error {
			return fmt.Errorf("run: %w", executor.Permanent(errors.New("no such account")))
		})
		assert.Len(t, got, 1)
		assert.EqualValues(t, 1, f.status().Counts.Failed)
	})
	bubble(t, "waits as long as RetryAfter says, if that is longer", func(t *testing.T, f *fleet) {
		got := retried(t, f, executor.Retry{Max: 1, Jitter: -1}, func(*executor.Run) error {
			return executor.RetryAfter(4*time.Second, errors.New("busy"))
		})
		require.Len(t, got, 2)
		assert.GreaterOrEqual(t, got[1].after, 4*time.Second)
		assert.Less(t, got[1].after, 4500*time.Millisecond)
	})
	bubble(t, "waits for a RetryAfter of an hour, and is in Status with its time", func(t *testing.T, f *fleet) {
		got := retried(t, f, executor.Retry{Max: 1}, func(*executor.Run) error {
			return executor.RetryAfter(time.Hour, errors.New("busy"))
		})
		assert.Len(t, got, 1)
		pending := f.status().Reruns
		require.Len(t, pending, 1)
		assert.Equal(t, 2, pending[0].Attempt)
		assert.False(t, pending[0].NotBefore.Before(minute(61)))
		assert.True(t, pending[0].NotBefore.Before(minute(65)))
	})
	bubble(t, "makes no retry unless asked to", func(t *testing.T, f *fleet) {
		assert.Len(t, retried(t, f, executor.Retry{}, failing), 1)
	})
	bubble(t, "survives the crash of the owner: the next owner makes the attempt in its time", func(t *testing.T, f *fleet) {
		var got []attempt
		handle := func(_ context.Context, r *executor.Run) error {
			if r.FireTime.Equal(minute(1)) {
				got = append(got, attempt{r.Instance, time.Since(r.FireTime), r.Attempt, r.Retries, r.Reason})
				if r.Attempt == 1 {
					return errors.New("out of order")
				}
			}
			return nil
		}
		job := f.job(1, handle)
		job.Retry = executor.Retry{Max: 1, Initial: 20 * time.Second, Jitter: -1}
		for _, name := range []string{"a", "b"} {
			e := f.executor(name, executor.Options{}, 1, handle)
			require.NoError(t, e.Register(job))
			require.NoError(t, e.Start(t.Context()))
			synctest.Wait()
			time.Sleep(time.Second)
		}
		until(1)
		time.Sleep(time.Second)
		require.Len(t, got, 1)
		heal := f.server.Partition(got[0].instance)
		time.Sleep(40 * time.Second)
		heal()
		require.Len(t, got, 2)
		assert.NotEqual(t, got[0].instance, got[1].instance)
		assert.GreaterOrEqual(t, got[1].after, 20*time.Second)
		assert.Less(t, got[1].after, 25*time.Second)
		assert.Equal(t, executor.Retried, got[1].reason)
	})
}

func TestRetry_IsChecked(t *testing.T) {
	for want, retry := range map[string]executor.Retry{
		"Retry: has Max 0, so its other fields have no effect": {Initial: time.Second},
		"Retry: has a negative Initial of -1s":                 {Max: 1, Initial: -time.Second},
		"Retry: has a MaxInterval of 1s, below Initial 2s":     {Max: 1, Initial: 2 * time.Second, MaxInterval: time.Second},
		"Retry: has a MaxInterval of 25h0m0s, above 24h0m0s":   {Max: 1, MaxInterval: 25 * time.Hour},
		"Retry: has a Factor of 0.5, not at least 1":           {Max: 1, Factor: 0.5},
		"Retry: has a Jitter of 1.5, above 1":                  {Max: 1, Jitter: 1.5},
	} {
		t.Run(want, func(t *testing.T) {
			assert.ErrorContains(t, registerJob(t, executor.Job{Name: "job", Handler: takes(0), Retry: retry}), want)
		})
	}
	t.Run("needs TrackRuns", func(t *testing.T) {
		assert.ErrorContains(t, registerJob(t, executor.Job{Name: "job", Handler: takes(0), Tracking: executor.TrackClaims, Retry: executor.Retry{Max: 1}}), "Retry: needs TrackRuns")
	})
	t.Run("takes a negative Max as no bound, and Max alone with defaults", func(t *testing.T) {
		assert.NoError(t, registerJob(t, executor.Job{Name: "job", Handler: takes(0), Retry: executor.Retry{Max: -1}}))
	})
}
