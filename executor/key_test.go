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
	"github.com/rota-dev/rota/registry/memory"
)

func TestRun_Key(t *testing.T) {
	succeed := func(context.Context, *executor.Run) error { return nil }
	bubble(t, "of a trigger never comes again", func(t *testing.T, f *fleet) {
		trigger := func(e *executor.Executor) executor.Run {
			number, err := e.Trigger(t.Context(), "job", executor.Trigger{})
			require.NoError(t, err)
			assert.EqualValues(t, 1, number)
			pass(time.Second)
			return f.runs[len(f.runs)-1]
		}
		seen := map[string]bool{}
		remember := func(r executor.Run) {
			assert.Regexp(t, `^test/default/job/0/#1-[a-z2-7]{13}$`, r.Key)
			assert.False(t, seen[r.Key], "%s again", r.Key)
			assert.Equal(t, r.Key+"/1", r.ID)
			seen[r.Key] = true
		}
		a := f.start("a", executor.Options{}, 1, succeed)
		remember(trigger(a))
		require.NoError(t, a.Shutdown(t.Context()))
		pass(time.Minute) // so that nothing is left of the expired owner
		require.NoError(t, f.operator().Forget(t.Context(), "job"))
		b := f.start("b", executor.Options{}, 1, succeed)
		remember(trigger(b))
		require.NoError(t, b.Shutdown(t.Context()))
		f.server = memory.New()
		remember(trigger(f.start("a", executor.Options{}, 1, succeed)))
	})
	bubble(t, "is that of the fire for retries, reruns and backfills, and fences grow", func(t *testing.T, f *fleet) {
		fail := true
		e := f.start("a", executor.Options{}, 1, func(context.Context, *executor.Run) error {
			if fail {
				return errors.New("no")
			}
			return nil
		})
		pass(time.Until(minute(1).Add(10 * time.Second)))
		fail = false
		_, err := e.Operator().Retry(t.Context(), "job", minute(1), operator.RetryOptions{})
		require.NoError(t, err)
		pass(time.Second)
		_, err = e.Operator().Backfill(t.Context(), "job", minute(1), minute(1).Add(time.Second), 1)
		require.NoError(t, err)
		pass(time.Second)
		require.Len(t, f.runs, 3)
		key, ids := "test/default/job/0/"+minute(1).Format(time.RFC3339), map[string]bool{}
		for i, r := range f.runs {
			assert.Equal(t, key, r.Key)
			assert.Equal(t, minute(1), r.FireTime)
			assert.False(t, ids[r.ID], r.ID)
			ids[r.ID] = true
			if i > 0 {
				assert.Greater(t, r.Fence, f.runs[i-1].Fence)
				assert.Regexp(t, `/#\d-[a-z2-7]{13}/1$`, r.ID)
			}
		}
	})
	bubble(t, "of a trigger with a parameter is retried with a parameter only", func(t *testing.T, f *fleet) {
		fail := true
		e := f.start("a", executor.Options{}, 1, func(context.Context, *executor.Run) error {
			if fail {
				return errors.New("no")
			}
			return nil
		})
		_, err := e.Trigger(t.Context(), "job", executor.Trigger{Param: "tenant-7"})
		require.NoError(t, err)
		pass(time.Second)
		require.Len(t, f.runs, 1)
		fire, op := f.runs[0].FireTime, e.Operator()
		for _, again := range []bool{false, true} {
			_, err = op.Retry(t.Context(), "job", fire, operator.RetryOptions{Again: again})
			require.ErrorIs(t, err, operator.ErrRetryRefused)
			require.ErrorContains(t, err, "trigger #1 had a parameter of its own")
		}
		_, err = op.Retry(t.Context(), "job", fire, operator.RetryOptions{Param: "tenant-7"})
		require.NoError(t, err)
		pass(time.Second)
		require.Len(t, f.runs, 2)
		assert.Equal(t, "tenant-7", f.runs[1].Param)
		assert.Equal(t, f.runs[0].Key, f.runs[1].Key)
		_, err = op.Retry(t.Context(), "job", fire, operator.RetryOptions{})
		require.ErrorContains(t, err, "parameter of its own", "also once the retry has failed")
		fail = false
		_, err = op.Retry(t.Context(), "job", fire, operator.RetryOptions{Param: "tenant-7"})
		require.NoError(t, err)
		_, err = op.Retry(t.Context(), "job", fire, operator.RetryOptions{Param: "\xff"})
		require.ErrorIs(t, err, operator.ErrInvalidArgument)
	})
	bubble(t, "differs between namespaces and groups", func(t *testing.T, f *fleet) {
		f.start("a", executor.Options{}, 1, succeed)
		f.start("b", executor.Options{Group: "blue"}, 1, succeed)
		pass(time.Until(minute(1).Add(10 * time.Second)))
		require.Len(t, f.runs, 2)
		assert.NotEqual(t, f.runs[0].Key, f.runs[1].Key)
		assert.NotEqual(t, f.runs[0].ShardKey(), f.runs[1].ShardKey())
	})
}
