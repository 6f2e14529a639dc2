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
)

// bankError is an error whose text needs a field.
type bankError struct{ code int }

func (e *bankError) Error() string { return fmt.Sprint("code ", e.code) }

func TestHandler_ReturnsAnErrorThatPanics(t *testing.T) {
	bubble(t, "fails as by a panic, with a text that names the type", func(t *testing.T, f *fleet) {
		var ended executor.RunEnded
		e := f.executor("a", executor.Options{}, 1, func(context.Context, *executor.Run) error {
			var err *bankError
			return err
		})
		e.Observe(executor.Observer{RunEnded: func(e executor.RunEnded) { ended = e }})
		require.NoError(t, e.Start(t.Context()))
		until(1)
		synctest.Wait()
		assert.Equal(t, executor.Panicked, ended.Outcome)
		assert.EqualError(t, ended.Err, "handler returned a nil pointer as an error of type *executor_test.bankError, which panics: "+
			"runtime error: invalid memory address or nil pointer dereference")
		var panicked *executor.PanicError
		require.ErrorAs(t, ended.Err, &panicked)
		assert.Contains(t, string(panicked.Stack), "bankError")
		status := f.status()
		assert.EqualValues(t, 1, status.Counts.Failed)
	})
	bubble(t, "and other errors keep their chain, not their identity", func(t *testing.T, f *fleet) {
		var ended executor.RunEnded
		cause := &bankError{7}
		e := f.executor("a", executor.Options{}, 1, func(context.Context, *executor.Run) error { return fmt.Errorf("pay: %w", cause) })
		e.Observe(executor.Observer{RunEnded: func(e executor.RunEnded) { ended = e }})
		require.NoError(t, e.Start(t.Context()))
		until(1)
		synctest.Wait()
		var found *bankError
		require.ErrorAs(t, ended.Err, &found)
		assert.Same(t, cause, found)
		assert.EqualError(t, ended.Err, "pay: code 7")
	})
}

// TestHandler_ChangesItsRun has a handler overwrite each exported field of its Run: retries, logs, events and
// records do not depend on them.
func TestHandler_ChangesItsRun(t *testing.T) {
	bubble(t, "and the retries stay bounded, and the events true", func(t *testing.T, f *fleet) {
		var begun, ended []executor.RunInfo
		e := f.executor("a", executor.Options{}, 1, takes(0))
		e.Observe(executor.Observer{
			RunBegun: func(e executor.RunBegun) { begun = append(begun, e.Run) },
			RunEnded: func(e executor.RunEnded) { ended = append(ended, e.Run) },
		})
		handle := func(_ context.Context, r *executor.Run) error {
			*r = executor.Run{RunInfo: executor.RunInfo{ID: "x", Key: "x", Job: "x", Shard: 7, Attempt: 9}}
			return errors.New("broken")
		}
		require.NoError(t, e.Register(executor.Job{Name: "pay", Handler: executor.HandlerFunc(handle), Retry: executor.Retry{Max: 2}}))
		require.NoError(t, e.Start(t.Context()))
		_, err := e.Trigger(t.Context(), "pay", executor.Trigger{})
		require.NoError(t, err)
		time.Sleep(50 * time.Second)
		synctest.Wait()
		require.Len(t, ended, 3)
		assert.Equal(t, begun, ended)
		for i, run := range ended {
			assert.Equal(t, i, run.Retries)
			assert.Equal(t, fmt.Sprintf("%s/%d", run.Key, i+1), run.ID)
			assert.Regexp(t, "^test/default/pay/0/#1-", run.Key)
		}
	})
	bubble(t, "and an abandoned run has its own name", func(t *testing.T, f *fleet) {
		over := make(chan struct{})
		e := f.start("a", executor.Options{DrainTimeout: time.Second}, 1, func(_ context.Context, r *executor.Run) error {
			r.ID = "x"
			<-over
			return nil
		})
		until(1)
		var abandoned *executor.AbandonedError
		require.ErrorAs(t, e.Shutdown(t.Context()), &abandoned)
		assert.Equal(t, []string{"test/default/job/0/2000-01-01T00:01:00Z/1"}, abandoned.Runs)
		close(over)
	})
}
