package executor_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

func TestStats(t *testing.T) {
	minutely := func(shards int, handle executor.HandlerFunc) executor.Job {
		return executor.Job{Name: "job", Schedule: schedule.Every(time.Minute), Shards: shards, Handler: handle}
	}
	t.Run("of an executor that was not started", func(t *testing.T) {
		e, err := executor.New(memory.New().Client("a"), "test", executor.Options{Instance: "a", Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		assert.Equal(t, executor.Stats{Namespace: "test", Group: "default", Instance: "a", Jobs: map[string]executor.JobStats{}}, e.Stats())
	})
	t.Run("of runs that skip the fires that they overlap are not overdue", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			job := minutely(1, takes(10*time.Minute))
			job.OnOverlap = executor.SkipOverlapping
			e := f.Start("a", job)
			f.NextFire("job")
			f.Sleep(5*time.Minute + 30*time.Second)
			assert.Equal(t, 1, e.Stats().Jobs["job"].Running)
			assert.Zero(t, e.Stats().Jobs["job"].Overdue)
			st, err := e.Operator().Status(t.Context(), "job")
			require.NoError(t, err)
			assert.Zero(t, st.Overdue)
			f.Sleep(6 * time.Minute)
			assert.Equal(t, 1, e.Stats().Jobs["job"].Running, "the next one")
			st, err = e.Operator().Status(t.Context(), "job")
			require.NoError(t, err)
			assert.NotZero(t, st.Counts.Skipped)
		})
	})
	t.Run("of runs that take longer than their period", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			f.Options.Workers = 3
			e := f.Start("a", minutely(4, takes(150*time.Second)))
			f.Sleep(time.Second)
			first := time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
			f.SleepUntil(first.Add(-time.Second))
			s := e.Stats()
			assert.True(t, s.Leading)
			assert.InDelta(t, 10*time.Second, time.Until(s.SafeUntil), float64(5*time.Second))
			assert.Equal(t, map[string]executor.JobStats{"job": {Owned: 4, NextFire: first}}, s.Jobs)
			f.SleepUntil(first.Add(100 * time.Second))
			s = e.Stats()
			assert.Equal(t, 3, s.Running)
			assert.Equal(t, 1, s.Waiting)
			assert.Equal(t, map[string]executor.JobStats{"job": {
				Owned: 4, Running: 3, Waiting: 1, Overdue: 40 * time.Second, NextFire: first.Add(2 * time.Minute),
			}}, s.Jobs, "the fire after the first is due")
		})
	})
	t.Run("of fires that will be skipped", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			job := minutely(1, takes(150*time.Second))
			job.OnMisfire = executor.SkipMissed
			e := f.Start("a", job)
			f.SleepUntil(f.NextFire("job").Add(100 * time.Second))
			assert.Zero(t, e.Stats().Jobs["job"].Overdue)
		})
	})
	t.Run("of an instance that cannot reach the store", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			e := f.Start("a", minutely(2, takes(0)))
			f.Sleep(time.Second)
			first := time.Now().Truncate(time.Minute).Add(time.Minute)
			f.SleepUntil(first.Add(-time.Second))
			heal := f.Partition("a")
			f.SleepUntil(first.Add(4 * time.Second))
			assert.Equal(t, 4*time.Second, e.Stats().Jobs["job"].Overdue, "the claim is not committed")
			f.Sleep(10 * time.Second)
			s := e.Stats()
			assert.Zero(t, s.SafeUntil, "the session is lost")
			assert.Empty(t, s.Jobs)
			heal()
		})
	})
	bubble(t, "of shards without an owner, on the leader", func(t *testing.T, f *fleet) {
		job := minutely(2, takes(0))
		job.Name = "gpu"
		job.RunOn = map[string]string{"gpu": "yes"}
		a := f.start("a", executor.Options{}, 1, takes(0))
		b := f.start("b", executor.Options{}, 1, takes(0))
		for _, e := range []*executor.Executor{a, b} {
			require.NoError(t, e.Register(job))
		}
		time.Sleep(11*time.Minute - 2*time.Second)
		assert.Equal(t, executor.JobStats{Unowned: 2, UnownedOverdue: 10 * time.Minute}, a.Stats().Jobs["gpu"])
		assert.Zero(t, b.Stats().Jobs["gpu"])
		require.NoError(t, a.Operator().Pause(t.Context(), "gpu"))
		time.Sleep(time.Minute)
		assert.Equal(t, executor.JobStats{Unowned: 2, Paused: true}, a.Stats().Jobs["gpu"])
		require.NoError(t, a.Operator().Resume(t.Context(), "gpu"))
		require.NoError(t, a.Operator().Disable(t.Context(), operator.Scope{Job: "gpu", Shards: []int{0, 1}}))
		time.Sleep(2 * time.Minute)
		assert.NotContains(t, a.Stats().Jobs, "gpu", "disabled shards need no owner")
	})
	t.Run("of re-runs that no instance may make", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			job := executor.Job{Name: "job", Schedule: schedule.Every(time.Hour), RunOn: map[string]string{"gpu": "yes"}, Handler: executor.HandlerFunc(takes(time.Minute))}
			a := f.Start("a", job)
			f.Options.Labels = map[string]string{"gpu": "yes"}
			f.Start("b", job)
			fire := f.NextFire("job")
			f.SleepUntil(fire.Add(time.Second))
			f.Crash("b")
			f.SleepUntil(fire.Add(10 * time.Minute))
			assert.Equal(t, map[string]executor.JobStats{"job": {Unowned: 1, UnownedOverdue: 10 * time.Minute}}, a.Stats().Jobs)
			f.Start("b", job)
		})
	})
	t.Run("of a job that no instance offers", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			f.Start("a", minutely(2, takes(0)))
			f.Settle()
			f.Stop("a")
			b := f.Start("b", executor.Job{Name: "other", Handler: executor.HandlerFunc(takes(0))})
			f.Sleep(30 * time.Minute)
			j := b.Stats().Jobs["job"]
			assert.Equal(t, 2, j.Unowned)
			assert.InDelta(t, 30*time.Minute, j.UnownedOverdue, float64(time.Minute))
			f.Sleep(coordinator.MaxUnoffered - 29*time.Minute)
			assert.Equal(t, map[string]executor.JobStats{"other": {Owned: 1}}, b.Stats().Jobs)
		})
	})
	t.Run("of a retired job whose last run has not ended", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			b := f.Start("b", executor.Job{Name: "other", Handler: executor.HandlerFunc(takes(0))})
			f.Settle()
			a := f.Start("a", minutely(2, func(_ context.Context, r *executor.Run) error {
				if r.Shard == 0 {
					time.Sleep(20 * time.Minute)
				}
				return nil
			}))
			f.SleepUntil(f.NextFire("job").Add(time.Second))
			op, err := operator.New(f.Server().Client("op"), rotatest.Namespace, "")
			require.NoError(f.T(), err)
			require.NoError(f.T(), op.Retire(f.T().Context(), "job"))
			f.Sleep(time.Second)
			require.NoError(f.T(), a.Withdraw(f.T().Context(), "job"))
			f.Sleep(10 * time.Minute)
			st, err := op.Status(f.T().Context(), "job")
			require.NoError(f.T(), err)
			require.Equal(f.T(), []int{1}, st.Unowned)
			for _, e := range []*executor.Executor{a, b} {
				j := e.Stats().Jobs["job"]
				assert.Zero(t, j.Unowned)
				assert.Zero(t, j.UnownedOverdue)
			}
			f.Sleep(10 * time.Minute)
			_, err = op.Status(f.T().Context(), "job")
			assert.ErrorIs(t, err, operator.ErrUnknownJob)
		})
	})
	t.Run("of shards that a handler of an earlier session blocks", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			release := make(chan struct{})
			stuck := func(context.Context, *executor.Run) error { <-release; return nil }
			e := f.Start("a", minutely(1, stuck))
			f.SleepUntil(f.NextFire("job").Add(time.Second))
			heal := f.Partition("a")
			f.Sleep(20 * time.Second)
			heal()
			f.Sleep(20 * time.Second)
			j := e.Stats().Jobs["job"]
			assert.Equal(t, 1, j.Blocked)
			assert.Equal(t, 1, j.Running)
			close(release)
			f.Settle()
		})
	})
}
