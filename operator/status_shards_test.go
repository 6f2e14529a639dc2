package operator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/operator"
)

func TestOperator_StatusOfShards(t *testing.T) {
	status := func(g *membertest.Group) operator.Status {
		g.T.Helper()
		o, _ := g.NewOperator()
		st, err := o.Status(g.T.Context(), "job")
		require.NoError(g.T, err)
		return st
	}
	minute := func(n int) time.Time { return coordtest.BubbleStart().Add(time.Duration(n) * time.Minute) }

	membertest.RunBubble(t, "shows owner, last fire, last trigger and whether it runs, by plan and claims", func(t *testing.T, g *membertest.Group) {
		long := func(ctx context.Context, r claimer.Run) error {
			if r.Shard == 3 && r.Trigger == 0 {
				return membertest.WorkFor(time.Hour)(ctx, r)
			}
			return nil
		}
		a := g.StartWorking("a", long, coordtest.Def("job", 0, 4, ""))
		b := g.StartWorking("b", long, coordtest.Def("job", 0, 4, ""))
		membertest.SleepToMinute(1)
		assert.Zero(t, status(g).Triggers)
		n, err := a.Trigger(t.Context(), "job", "", []int{1, 3})
		require.NoError(t, err)
		require.NoError(t, b.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}}))
		membertest.SleepToMinute(2)
		assert.Equal(t, []operator.ShardStatus{
			{Shard: 0, Owner: "a", LastFire: minute(2), Attempt: 0},
			{Shard: 1, Owner: "a", LastFire: minute(2), Attempt: 1, LastTrigger: n},
			{Shard: 2, Owner: "b", LastFire: minute(2), Attempt: 1},
			{Shard: 3, Owner: "b", LastFire: minute(1), Attempt: 1, Running: true},
		}, status(g).PerShard)
		b.Abandon()
		<-b.Done
		time.Sleep(time.Second)
		assert.Equal(t, operator.ShardStatus{Shard: 3, Owner: "a", LastFire: minute(1), Attempt: 2, Running: true}, status(g).PerShard[3])
	})
	membertest.RunBubble(t, "leaves out triggers and re-runs that are done, and keeps those that wait or run", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", func(ctx context.Context, r claimer.Run) error {
			if r.Param == "long" || r.Fire.Equal(minute(1)) && r.Attempt == 1 {
				return membertest.WorkFor(10*time.Second)(ctx, r)
			}
			return nil
		}, coordtest.Def("job", 0, 2, ""))
		trigger := func(param string, shards []int) uint64 {
			n, err := a.Trigger(t.Context(), "job", param, shards)
			require.NoError(t, err)
			time.Sleep(time.Second)
			return n
		}
		done := trigger("", nil)
		runs := trigger("long", []int{1})
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}}))
		waits := trigger("", nil)
		require.Len(t, g.ReadPlan("job").Triggers, 3, "no leader has cleared them yet")
		assert.NotContains(t, status(g).Triggers, done)
		assert.Equal(t, []uint64{runs, waits}, status(g).Triggers)
		time.Sleep(12 * time.Second)
		assert.Equal(t, []uint64{waits}, status(g).Triggers)
		require.NoError(t, a.Enable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}}))
		time.Sleep(time.Second)
		assert.Empty(t, status(g).Triggers)
	})
	membertest.RunBubble(t, "leaves out re-runs that have been claimed", func(t *testing.T, g *membertest.Group) {
		g.StartWorking("a", membertest.WorkFor(time.Hour), coordtest.Def("job", 0, 1, ""))
		b := g.Start("b", coordtest.Def("job", 0, 1, ""))
		membertest.SleepToMinute(1)
		g.Server.Expire("a")
		time.Sleep(100 * time.Millisecond)
		require.NotEmpty(t, g.ReadPlan("job").Reruns, "no leader has cleared it yet")
		require.NotEmpty(t, b.TakeRuns())
		assert.Empty(t, status(g).Reruns)
	})
	membertest.RunBubble(t, "names the leader and its term, and none where there is none", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		g.Start("b", coordtest.Def("job", 0, 1, ""))
		first := status(g).Leader
		assert.Equal(t, "a", first.Instance)
		e, _ := g.GetRecord(g.Keys.Leader())
		assert.Equal(t, e.Modified.Seq, first.Term)
		a.Shutdown()
		second := status(g).Leader
		assert.Equal(t, "b", second.Instance)
		assert.Greater(t, second.Term, first.Term)
		g.Members[0].Shutdown()
		assert.Zero(t, status(g).Leader)
	})
	membertest.RunBubble(t, "has the schedule in force, and the next fire if it knows the schedules", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 1, 1, `,"schedule":"every 1m"`))
		st := status(g)
		assert.Equal(t, "every 1m", st.Schedule)
		assert.Zero(t, st.NextFire)
		st, err := a.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, minute(1), st.NextFire)
		o, _ := g.NewOperator()
		st, err = o.WithCompiler(a.Compile).Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, minute(1), st.NextFire)
		require.NoError(t, a.Pause(t.Context(), "job"))
		time.Sleep(time.Second)
		st, err = a.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Zero(t, st.NextFire, "it is paused")
		require.NoError(t, a.Resume(t.Context(), "job"))
		time.Sleep(58*time.Second - time.Since(coordtest.BubbleStart()))
		st, err = a.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, minute(1), st.NextFire)
	})
}
