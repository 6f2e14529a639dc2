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

func TestAfterJob_Operators(t *testing.T) {
	bubble(t, "a cancelled run counts as failed for the jobs that follow", func(t *testing.T, f *fleet) {
		var fires []time.Time
		e := f.startChain("a", schedule.AfterJob("job").OnFailure(), func(ctx context.Context, r *executor.Run) error {
			if r.Shard == 0 || !r.FireTime.Equal(minute(1)) {
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, func(_ context.Context, r *executor.Run) error {
			fires = append(fires, r.FireTime)
			return nil
		})
		pass(time.Until(minute(1).Add(10 * time.Second)))
		require.Empty(t, fires)
		_, err := e.Operator().Cancel(t.Context(), "job")
		require.NoError(t, err)
		pass(10 * time.Second)
		assert.Equal(t, []time.Time{minute(1)}, fires)
	})
	bubble(t, "a retry that is cancelled while it waits ends the fire", func(t *testing.T, f *fleet) {
		var fires []time.Time
		e := f.executor("a", executor.Options{}, 1, nil)
		parent := f.job(1, func(_ context.Context, r *executor.Run) error {
			if r.FireTime.Equal(minute(1)) {
				return errors.New("no")
			}
			return nil
		})
		parent.Retry = executor.Retry{Max: 1, Initial: time.Hour}
		child := f.job(1, func(_ context.Context, r *executor.Run) error {
			fires = append(fires, r.FireTime)
			return nil
		})
		child.Name, child.Schedule = "child", schedule.AfterJob("job").OnFailure()
		require.NoError(t, e.Register(parent))
		require.NoError(t, e.Register(child))
		require.NoError(t, e.Start(t.Context()))
		pass(time.Until(minute(1).Add(10 * time.Second)))
		_, err := e.Operator().Cancel(t.Context(), "job")
		require.NoError(t, err)
		pass(10 * time.Second)
		assert.Equal(t, []time.Time{minute(1)}, fires)
	})
	// follow starts a parent of two shards, and a child that follows it. It returns when the child fired, by fire.
	follow := func(f *fleet, child schedule.Schedule, parent executor.HandlerFunc) (e *executor.Executor, at map[time.Time]time.Time) {
		at = map[time.Time]time.Time{}
		e = f.startChain("a", child, parent, func(_ context.Context, r *executor.Run) error {
			if _, again := at[r.FireTime]; again {
				t.Errorf("the child fires again for %v", r.FireTime)
			}
			at[r.FireTime] = time.Now().UTC().Truncate(time.Second)
			return nil
		})
		return e, at
	}
	bubble(t, "backfilled fires do not fire the jobs that follow, and do not wait for their schedule", func(t *testing.T, f *fleet) {
		e, at := follow(f, schedule.AfterJob("job").OnEnd(), func(context.Context, *executor.Run) error { return nil })
		pass(time.Until(minute(1).Add(10 * time.Second)))
		require.NoError(t, e.Operator().StopSchedule(t.Context(), "job"))
		_, err := e.Operator().Backfill(t.Context(), "job", minute(-5), minute(-2), 1)
		require.NoError(t, err)
		pass(time.Minute)
		for n := -5; n < -2; n++ {
			assert.Len(t, f.began(n), 2, n)
		}
		assert.Equal(t, map[time.Time]time.Time{minute(1): minute(1)}, at)
		assert.Empty(t, f.status().Triggers)
	})
	bubble(t, "a retry of a fire that has not ended does not make up for the failure", func(t *testing.T, f *fleet) {
		e, at := follow(f, schedule.AfterJob("job"), func(_ context.Context, r *executor.Run) error {
			switch {
			case !r.FireTime.Equal(minute(2)) || r.Trigger > 0:
			case r.Shard == 0:
				return errors.New("no")
			default:
				time.Sleep(30 * time.Second)
			}
			return nil
		})
		pass(time.Until(minute(2).Add(10 * time.Second)))
		again, err := e.Operator().Retry(t.Context(), "job", minute(2), operator.RetryOptions{})
		require.NoError(t, err)
		require.Equal(t, []int{0}, again.Shards)
		pass(time.Until(minute(3).Add(10 * time.Second)))
		assert.Len(t, f.began(2)[0], 2)
		assert.Equal(t, map[time.Time]time.Time{minute(1): minute(1), minute(3): minute(3)}, at)
	})
	bubble(t, "a backfilled run in progress does not hold up the end of a fire", func(t *testing.T, f *fleet) {
		e, at := follow(f, schedule.AfterJob("job"), func(_ context.Context, r *executor.Run) error {
			if r.Reason == executor.Backfill && r.Shard == 1 {
				time.Sleep(45 * time.Second)
			} else if r.FireTime.Equal(minute(2)) && r.Shard == 0 {
				time.Sleep(20 * time.Second)
			}
			return nil
		})
		pass(time.Until(minute(2).Add(2 * time.Second)))
		_, err := e.Operator().Backfill(t.Context(), "job", minute(-5), minute(-4), 1)
		require.NoError(t, err)
		pass(time.Until(minute(3)))
		assert.Equal(t, minute(2).Add(20*time.Second), at[minute(2)])
	})
	bubble(t, "a backfill that waits for a disabled shard does not hold up the end of later fires", func(t *testing.T, f *fleet) {
		e, at := follow(f, schedule.AfterJob("job").OnEnd(), func(context.Context, *executor.Run) error { return nil })
		pass(time.Until(minute(1).Add(10 * time.Second)))
		require.NoError(t, e.Operator().Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{1}}))
		_, err := e.Operator().Backfill(t.Context(), "job", minute(-5), minute(-4), 1)
		require.NoError(t, err)
		pass(time.Until(minute(3).Add(10 * time.Second)))
		assert.Contains(t, at, minute(2))
		assert.Contains(t, at, minute(3))
	})
}
