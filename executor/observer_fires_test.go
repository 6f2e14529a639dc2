package executor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

func TestObserver_FireEnded(t *testing.T) {
	bubble(t, "reports each fire and trigger of a followed job once all its shards have ended, with their outcome", func(t *testing.T, f *fleet) {
		l := &eventLog{}
		e := f.executor("a", executor.Options{Observer: l.observer("a")}, 2, func(_ context.Context, r *executor.Run) error {
			time.Sleep(time.Duration(1+9*r.Shard) * time.Second)
			if r.Shard == 1 && r.FireTime.Equal(minute(2)) {
				return errBroken
			}
			return nil
		})
		child := f.job(1, takes(0))
		child.Name, child.Schedule = "child", schedule.AfterJob("job")
		require.NoError(t, e.Register(child))
		require.NoError(t, e.Start(t.Context()))
		pass(150 * time.Second)
		_, err := e.Trigger(t.Context(), "job", executor.Trigger{Shards: []int{0}})
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.Len(t, l.with("a fire "), 2, "the trigger runs")
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{
			"a fire 01:00 #0 of job ended: succeeded true, 2 shards, 0 failed, 0 skipped, repeated false, at 01:10",
			"a fire 02:00 #0 of job ended: succeeded false, 2 shards, 1 failed, 0 skipped, repeated false, at 02:10",
			"a fire 02:30 #1 of job ended: succeeded true, 1 shards, 0 failed, 0 skipped, repeated false, at 02:31",
		}, l.with("a fire "), "and none of child, which no job follows")
	})
	t.Run("a new leader repeats the last fire, and reports the later ones", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			l := &eventLog{}
			jobs := []executor.Job{
				{Name: "job", Schedule: schedule.Every(time.Minute), Shards: 2, Handler: executor.HandlerFunc(takes(time.Second))},
				{Name: "child", Schedule: schedule.AfterJob("job").OnEnd(), Handler: executor.HandlerFunc(takes(0))},
			}
			for _, name := range []string{"a", "b"} {
				f.Options.Observer = l.observer(name)
				f.Start(name, jobs...)
				f.Settle()
			}
			first := f.NextFire("job")
			f.SleepUntil(first.Add(70 * time.Second))
			require.Len(t, l.with("a fire "), 2)
			require.Empty(t, l.with("b fire "), "only the leader reports fires")
			f.Crash("a")
			f.SleepUntil(first.Add(150 * time.Second))
			reported := l.with("b fire ")
			require.Len(t, reported, 2)
			at := func(minutes time.Duration) string { return first.Add(minutes * time.Minute).Format("04:05") }
			assert.Contains(t, reported[0], "b fire "+at(1)+" #0 of job ended: succeeded true, 2 shards, 0 failed, 0 skipped, repeated true")
			assert.Contains(t, reported[1], "b fire "+at(2)+" #0 of job ended: succeeded true, 2 shards, 0 failed, 0 skipped, repeated false")
		})
	})
}
