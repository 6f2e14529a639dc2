package executor_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
)

func TestCancel(t *testing.T) {
	bubble(t, "ends the context of the run, which is not retried and has an outcome of its own", func(t *testing.T, f *fleet) {
		var ended []executor.RunEnded
		f.observe = executor.Observer{RunEnded: func(e executor.RunEnded) { ended = append(ended, e) }}
		var causes []error
		handle := func(ctx context.Context, r *executor.Run) error {
			if !r.FireTime.Equal(minute(1)) {
				return nil
			}
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			select {
			case <-r.Yield():
				t.Error("a cancelled run is not asked to yield")
			default:
			}
			return context.Cause(ctx)
		}
		var log strings.Builder // written from one goroutine at a time
		e := f.executor("a", executor.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, 1, handle)
		job := f.job(1, handle)
		job.Retry = executor.Retry{Max: 3}
		require.NoError(t, e.Register(job))
		require.NoError(t, e.Start(t.Context()))
		pass(time.Until(minute(1).Add(10 * time.Second)))
		_, err := e.Operator().As("kim", "stuck").Cancel(t.Context(), job.Name)
		require.NoError(t, err)
		pass(time.Until(minute(2).Add(time.Second)))
		require.Len(t, causes, 1)
		assert.ErrorIs(t, causes[0], executor.ErrCancelled)
		require.Len(t, ended, 2)
		assert.Equal(t, executor.Cancelled, ended[0].Outcome)
		assert.ErrorIs(t, ended[0].Err, executor.ErrCancelled)
		assert.Equal(t, executor.Succeeded, ended[1].Outcome, "the next fire runs")
		assert.EqualValues(t, 1, f.status().Counts.Failed)
		assert.Zero(t, f.status().Counts.Retried)
		assert.Contains(t, log.String(), "run cancelled by an operator")
	})
	bubble(t, "keeps a run that waits for a worker from beginning", func(t *testing.T, f *fleet) {
		var ran []int
		handle := func(ctx context.Context, r *executor.Run) error {
			ran = append(ran, r.Shard)
			time.Sleep(30 * time.Second)
			return nil
		}
		e := f.executor("a", executor.Options{Workers: 1}, 2, handle)
		require.NoError(t, e.Register(f.job(2, handle)))
		require.NoError(t, e.Start(t.Context()))
		pass(time.Until(minute(1).Add(10 * time.Second)))
		require.Len(t, ran, 1)
		_, err := e.Operator().Cancel(t.Context(), f.job(2, handle).Name, 1-ran[0])
		require.NoError(t, err)
		pass(time.Until(minute(1).Add(50 * time.Second)))
		assert.Len(t, ran, 1)
		assert.EqualValues(t, 1, f.status().Counts.Failed)
		assert.EqualValues(t, 1, f.status().Counts.Succeeded)
	})
}
