package executor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

func TestBackfill(t *testing.T) {
	bubble(t, "runs with the fire's instant and a reason of its own", func(t *testing.T, f *fleet) {
		e := f.start("a", executor.Options{}, 2, func(context.Context, *executor.Run) error { return nil })
		require.NoError(t, e.Operator().Pause(t.Context(), "job"))
		pass(time.Until(minute(10)))
		require.NoError(t, e.Operator().Resume(t.Context(), "job"))
		fires, err := e.Operator().Backfill(t.Context(), "job", minute(2), minute(4), 2)
		require.NoError(t, err)
		assert.Equal(t, []time.Time{minute(2), minute(3)}, fires)
		pass(10 * time.Second)
		for _, n := range []int{2, 3} {
			assert.Equal(t, map[int][]string{0: {"a1"}, 1: {"a1"}}, f.began(n))
		}
		for _, r := range f.runs {
			assert.Equal(t, executor.Backfill, r.Reason)
			assert.NotZero(t, r.Trigger)
		}
		assert.Equal(t, "backfill", executor.Backfill.String())
	})
	bubble(t, "retries the failed shards of a fire", func(t *testing.T, f *fleet) {
		e := f.start("a", executor.Options{}, 2, func(_ context.Context, r *executor.Run) error {
			if r.Shard == 1 && r.Trigger == 0 {
				return errors.New("no")
			}
			return nil
		})
		pass(time.Until(minute(1).Add(10 * time.Second)))
		again, err := e.Operator().Retry(t.Context(), "job", minute(1), operator.RetryOptions{})
		require.NoError(t, err)
		assert.Equal(t, []int{1}, again.Shards)
		pass(time.Second)
		last := f.runs[len(f.runs)-1]
		assert.Equal(t, executor.Retried, last.Reason)
		assert.Equal(t, minute(1), last.FireTime)
		assert.Equal(t, 1, last.Attempt)
	})
	bubble(t, "needs fires that are known in advance", func(t *testing.T, f *fleet) {
		handle := executor.HandlerFunc(func(ctx context.Context, _ *executor.Run) error { <-ctx.Done(); return nil })
		e := f.executor("a", executor.Options{}, 1, handle)
		for name, s := range map[string]schedule.Schedule{"delay": schedule.FixedDelay(time.Minute), "daemon": schedule.Always(), "none": schedule.OnTrigger()} {
			require.NoError(t, e.Register(executor.Job{Name: name, Schedule: s, Handler: handle}))
		}
		require.NoError(t, e.Start(t.Context()))
		pass(time.Until(minute(5)))
		for name, want := range map[string]string{
			"delay": "its fires count from the ends of runs", "daemon": "its fires count from the ends of runs", "none": "the schedule has no fire",
		} {
			_, err := e.Operator().Backfill(t.Context(), name, minute(1), minute(3), 1)
			assert.ErrorContains(t, err, want, name)
		}
	})
}
