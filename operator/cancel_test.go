package operator_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/leader"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
)

func TestOperator_Cancel(t *testing.T) {
	// untilCancelled runs for an hour, or until it is cancelled.
	untilCancelled := func(ctx context.Context, _ claimer.Run) error {
		select {
		case <-time.After(time.Hour):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	retries := func(ctx context.Context, r claimer.Run) error {
		return &claimer.RetryError{In: time.Minute, Err: untilCancelled(ctx, r)}
	}
	membertest.RunBubble(t, "ends the runs that it found, and no others", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", retries, coordtest.Def("job", 0, 3, ""))
		o, _ := g.NewOperator()
		_, err := o.Cancel(t.Context(), "job", 0, 2)
		require.ErrorIs(t, err, operator.ErrNotRunning)
		membertest.SleepToMinute(1)
		found, err := o.As("kim", "stuck").Cancel(t.Context(), "job", 0, 2)
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.Equal(t, []int{0, 2}, found[0].Shards)
		time.Sleep(time.Second)
		assert.EqualValues(t, 2, g.SumCounts("job").Failed)
		assert.Zero(t, g.SumCounts("job").Retried)
		a.TakeRuns()
		membertest.SleepToMinute(2)
		assert.Equal(t, map[int]int{0: 1, 2: 1}, membertest.CountRuns(a.TakeRuns()), "the next fire runs; shard 1 still runs the first")
		time.Sleep(2 * leader.RegularCheck)
		assert.Empty(t, g.ReadPlan("job").Cancels, "it is dropped when the runs have ended")
		assert.EqualValues(t, 2, g.SumCounts("job").Failed, "later runs are not cancelled")
		acts, err := o.Acts(t.Context(), "job")
		require.NoError(t, err)
		require.Len(t, acts, 1)
		assert.Equal(t, "cancel the runs of shards 0,2", acts[0].What)
	})
	membertest.RunBubble(t, "ends all runs of the job if no shard is named", func(t *testing.T, g *membertest.Group) {
		g.StartWorking("a", untilCancelled, coordtest.Def("job", 0, 3, ""))
		g.StartWorking("b", untilCancelled, coordtest.Def("job", 0, 3, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(1)
		found, err := o.Cancel(t.Context(), "job")
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.Equal(t, []int{0, 1, 2}, found[0].Shards)
		time.Sleep(time.Second)
		assert.EqualValues(t, 3, g.SumCounts("job").Failed)
	})
	membertest.RunBubble(t, "is durable: a leader that comes later completes it", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", untilCancelled, coordtest.Def("other", 0, 1, ""))
		b := g.StartWorking("b", untilCancelled, coordtest.Def("job", 0, 1, ""))
		require.Equal(t, a.Incarnation(), g.ReadLeader().Incarnation)
		membertest.SleepToMinute(1)
		heal := g.Server.Partition("a")
		o, _ := g.NewOperator()
		_, err := o.Cancel(t.Context(), "job")
		require.NoError(t, err)
		synctest.Wait()
		require.Zero(t, g.ReadStatusCounts("job").Failed)
		time.Sleep(30 * time.Second)
		require.Equal(t, b.Incarnation(), g.ReadLeader().Incarnation)
		assert.EqualValues(t, 1, g.ReadStatusCounts("job").Failed)
		heal()
	})
	membertest.RunBubble(t, "holds when the owner expires: the run is not made again", func(t *testing.T, g *membertest.Group) {
		ignores := func(context.Context, claimer.Run) error { time.Sleep(2 * time.Minute); return errors.New("late") }
		g.StartWorking("a", ignores, coordtest.Def("job", 0, 1, ""))
		b := g.Start("b", coordtest.Def("job", 0, 1, ""))
		membertest.SleepToMinute(1)
		o, _ := g.NewOperator()
		_, err := o.Cancel(t.Context(), "job")
		require.NoError(t, err)
		synctest.Wait()
		defer g.Server.Partition("a")()
		membertest.SleepToMinute(3)
		require.Equal(t, map[string]string{"b": "0"}, g.ReadOwners("job"))
		for _, r := range b.TakeRuns() {
			assert.Equal(t, 1, r.Attempt)
		}
		assert.Equal(t, operator.Counts{Claimed: 3, Succeeded: 2, Lost: 1}, g.ReadStatusCounts("job"))
		assert.Empty(t, g.ReadPlan("job").Reruns)
	})
	membertest.RunBubble(t, "drops a retry that waits for its time", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", func(_ context.Context, r claimer.Run) error {
			if r.Attempt == 1 {
				return &claimer.RetryError{In: time.Hour, Err: errors.New("no")}
			}
			return nil
		}, coordtest.Def("job", 0, 1, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(1)
		time.Sleep(10 * time.Second)
		found, err := o.Cancel(t.Context(), "job", 0)
		require.NoError(t, err)
		assert.Equal(t, 2, found[0].Attempt)
		time.Sleep(time.Second)
		assert.Equal(t, record.Counts{Claimed: 1, Failed: 1, Retried: 1}, g.SumCounts("job"))
		a.TakeRuns()
		membertest.SleepToMinute(2)
		runs := a.TakeRuns()
		require.Len(t, runs, 1, "newer fires no longer wait for it")
		assert.Equal(t, 1, runs[0].Attempt)
	})
	membertest.RunBubble(t, "does not end a handler that ignores its context", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", func(context.Context, claimer.Run) error { time.Sleep(90 * time.Second); return nil }, coordtest.Def("job", 0, 1, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(1)
		_, err := o.Cancel(t.Context(), "job")
		require.NoError(t, err)
		require.NoError(t, o.Pause(t.Context(), "job")) // or another run would begin
		time.Sleep(time.Minute)
		assert.Len(t, a.TakeRuns(), 1)
		time.Sleep(31 * time.Second)
		assert.EqualValues(t, 1, g.SumCounts("job").Succeeded, "it returned nil")
	})
	membertest.RunBubble(t, "refuses shards and jobs that do not exist", func(t *testing.T, g *membertest.Group) {
		g.StartWorking("a", untilCancelled, coordtest.Def("job", 0, 1, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(1)
		_, err := o.Cancel(t.Context(), "job", 1)
		assert.EqualError(t, err, `cancel "job": there is no shard 1 of 1`)
		_, err = o.Cancel(t.Context(), "nothing")
		assert.ErrorIs(t, err, operator.ErrUnknownJob)
	})
}
