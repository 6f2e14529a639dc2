package executor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
)

// timed runs handle once, with a time-out of a second.
func timed(t *testing.T, f *fleet, handle executor.HandlerFunc) {
	t.Helper()
	e := f.executor("a", executor.Options{}, 1, handle)
	job := f.job(1, handle)
	job.Timeout = time.Second
	require.NoError(t, e.Register(job))
	require.NoError(t, e.Start(t.Context()))
	until(1)
	time.Sleep(30 * time.Second)
	synctest.Wait()
}

func TestTimeout(t *testing.T) {
	bubble(t, "ends the context of the run with ErrTimeout as its cause", func(t *testing.T, f *fleet) {
		var cause error
		var took time.Duration
		timed(t, f, func(ctx context.Context, r *executor.Run) error {
			<-ctx.Done()
			cause, took = context.Cause(ctx), time.Since(r.FireTime)
			assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
			return cause
		})
		require.ErrorIs(t, cause, executor.ErrTimeout)
		assert.Equal(t, time.Second, took)
	})
	bubble(t, "refuses later writes of a run that goes on, whatever context they are given", func(t *testing.T, f *fleet) {
		var errs []error
		timed(t, f, func(ctx context.Context, r *executor.Run) error {
			time.Sleep(2 * time.Second)
			for _, given := range []context.Context{ctx, context.WithoutCancel(ctx), context.Background()} {
				_, err := r.Commit(given, registry.Create("late", nil))
				errs = append(errs, err)
			}
			return nil
		})
		require.Len(t, errs, 3)
		for _, err := range errs {
			require.ErrorIs(t, err, executor.ErrRunOver)
			assert.ErrorIs(t, err, executor.ErrTimeout, "the error has the cause")
		}
		_, err := f.server.Client("b").Get(t.Context(), "late", registry.ReadOptions{})
		require.ErrorIs(t, err, registry.ErrNotFound)
	})
	bubble(t, "ends the wait for a write on its way, whose outcome is unknown", func(t *testing.T, f *fleet) {
		var err error
		var took time.Duration
		timed(t, f, func(ctx context.Context, r *executor.Run) error {
			f.server.Delay("a", 5*time.Second, 0)
			_, err = r.Commit(context.WithoutCancel(ctx), registry.Create("late", nil))
			took = time.Since(r.FireTime)
			f.server.Delay("a", 0, 0)
			return nil
		})
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		assert.Equal(t, time.Second, took)
	})
}
