package executor_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
)

func TestShutdown_SecondCall(t *testing.T) {
	bubble(t, "waits for the first one, and has its result", func(t *testing.T, f *fleet) {
		over := make(chan struct{})
		e := f.start("a", executor.Options{DrainTimeout: 10 * time.Second}, 1, func(context.Context, *executor.Run) error {
			<-over
			return nil
		})
		until(1)
		began := time.Now()
		results := make(chan error, 2)
		for range 2 {
			go func() { results <- e.Shutdown(context.Background()) }()
		}
		for range 2 {
			var abandoned *executor.AbandonedError
			assert.ErrorAs(t, <-results, &abandoned)
			assert.Equal(t, 15*time.Second, time.Since(began))
		}
		assert.Error(t, e.Shutdown(t.Context()), "a later call")
		close(over)
	})
	bubble(t, "ends with its own context", func(t *testing.T, f *fleet) {
		e := f.start("a", executor.Options{}, 1, takes(10*time.Second))
		until(1)
		first := make(chan error, 1)
		go func() { first <- e.Shutdown(context.Background()) }()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, e.Shutdown(ctx), context.DeadlineExceeded)
		assert.NoError(t, <-first)
		assert.NoError(t, e.Shutdown(t.Context()))
	})
	bubble(t, "by Run waits for that of a handler", func(t *testing.T, f *fleet) {
		var e *executor.Executor
		e = f.executor("a", executor.Options{}, 1, func(context.Context, *executor.Run) error {
			go e.Shutdown(context.Background())
			time.Sleep(10 * time.Second)
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- e.Run(ctx) }()
		until(1)
		began := time.Now()
		cancel()
		assert.NoError(t, <-ran)
		assert.GreaterOrEqual(t, time.Since(began), 8*time.Second)
	})
}

func isDone(e *executor.Executor) bool {
	synctest.Wait()
	select {
	case <-e.Done():
		return true
	default:
		return false
	}
}

func TestDone(t *testing.T) {
	bubble(t, "is closed after Shutdown, without an error", func(t *testing.T, f *fleet) {
		e := f.executor("a", executor.Options{}, 1, takes(0))
		assert.False(t, isDone(e))
		require.NoError(t, e.Start(t.Context()))
		assert.False(t, isDone(e))
		assert.NoError(t, e.Err())
		require.NoError(t, e.Shutdown(t.Context()))
		assert.True(t, isDone(e))
		assert.NoError(t, e.Err())
	})
	bubble(t, "is closed when the registry is, and Err says so", func(t *testing.T, f *fleet) {
		reg := f.server.Client("a")
		e, err := executor.New(reg, "test", executor.Options{Instance: "a", Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, e.Register(f.job(1, takes(0))))
		require.NoError(t, e.Start(t.Context()))
		require.NoError(t, reg.Close(t.Context()))
		assert.True(t, isDone(e))
		assert.ErrorIs(t, e.Err(), registry.ErrClosed)
		began := time.Now()
		_ = e.Shutdown(t.Context())
		assert.Less(t, time.Since(began), 30*time.Second)
	})
	bubble(t, "is closed when Start has failed", func(t *testing.T, f *fleet) {
		e := f.executor("a", executor.Options{}, 1, takes(0))
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		cancel(cause)
		require.ErrorIs(t, e.Start(ctx), cause)
		assert.True(t, isDone(e))
	})
}

func TestExecutor_WrongUse(t *testing.T) {
	t.Run("Start of a literal is an error", func(t *testing.T) {
		assert.ErrorContains(t, (&executor.Executor{}).Start(t.Context()), "New makes one")
		assert.ErrorContains(t, (&executor.Executor{}).Run(t.Context()), "New makes one")
	})
	bubble(t, "Register after Shutdown is an error", func(t *testing.T, f *fleet) {
		e := f.start("a", executor.Options{}, 1, takes(0))
		require.NoError(t, e.Shutdown(t.Context()))
		assert.ErrorContains(t, e.Register(f.job(1, takes(0))), "has been shut down")
	})
	bubble(t, "names that look like others are refused", func(t *testing.T, f *fleet) {
		e := f.executor("a", executor.Options{}, 1, takes(0))
		for _, name := range []string{" ", "a ", "\ta", "a\u202eb", "a\u200bb", "a\u00a0"} {
			job := f.job(1, takes(0))
			job.Name = name
			assert.ErrorIs(t, e.Register(job), executor.ErrInvalidJob, "%+q", name)
			_, err := executor.New(f.server.Client("b"), "test", executor.Options{Instance: name})
			assert.ErrorContains(t, err, "instance: ", "%+q", name)
		}
		for _, name := range []string{"a b", "日本", "é", "a/b"} {
			job := f.job(1, takes(0))
			job.Name = name
			assert.NoError(t, e.Register(job), name)
		}
	})
	bubble(t, "a SessionTTL without a unit is refused", func(t *testing.T, f *fleet) {
		_, err := executor.New(f.server.Client("b"), "test", executor.Options{SessionTTL: 10})
		assert.ErrorContains(t, err, "SessionTTL is 10ns, below 10ms")
	})
	bubble(t, "an invalid misfire policy is named as it was written", func(t *testing.T, f *fleet) {
		e := f.executor("a", executor.Options{}, 1, takes(0))
		job := f.job(1, takes(0))
		job.OnMisfire = -7
		assert.ErrorContains(t, e.Register(job), `the limit of "run all -5", which is MisfirePolicy(-7), is below 1`)
	})
}
