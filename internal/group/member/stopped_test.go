package member_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/leader"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/operator"
)

func TestOperator_StopSchedule(t *testing.T) {
	trigger := func(g *membertest.Group, o *operator.Operator, job string) uint64 {
		g.T.Helper()
		n, err := o.Trigger(g.T.Context(), job, "by hand", nil)
		require.NoError(g.T, err)
		time.Sleep(time.Second)
		return n
	}
	for _, level := range []string{"runs", "claims"} {
		tracking := fmt.Sprintf(`,"tracking":%q`, level)
		membertest.RunBubble(t, "runs triggers and no fires of a job that tracks "+level, func(t *testing.T, g *membertest.Group) {
			a := g.Start("a", coordtest.Def("job", 0, 2, tracking))
			o, _ := g.NewOperator()
			membertest.SleepToMinute(1)
			require.Len(t, a.TakeRuns(), 2)
			require.NoError(t, o.StopSchedule(t.Context(), "job"))
			membertest.SleepToMinute(10)
			assert.Empty(t, a.TakeRuns())
			n := trigger(g, o, "job")
			runs := a.TakeRuns()
			assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(runs))
			for _, r := range runs {
				assert.Equal(t, n, r.Trigger)
				assert.Equal(t, "by hand", r.Param)
			}
			require.NoError(t, o.Resume(t.Context(), "job"))
			membertest.SleepToMinute(11)
			assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(a.TakeRuns()), "missed fires are not run")
		})
	}
	membertest.RunBubble(t, "lets a new job run by hand before its schedule starts", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, `,"start_paused":true`))
		o, _ := g.NewOperator()
		trigger(g, o, "job")
		assert.Empty(t, a.TakeRuns(), "the job is paused")
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		membertest.SleepToMinute(3)
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(a.TakeRuns()), "the triggered runs")
	})
	membertest.RunBubble(t, "replaces a pause, and a pause replaces it", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		states := func() []bool {
			time.Sleep(time.Second)
			st, err := o.Status(t.Context(), "job")
			require.NoError(t, err)
			return []bool{st.Intent.Paused, st.Intent.ScheduleStopped, st.Paused, st.ScheduleStopped}
		}
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		assert.Equal(t, []bool{false, true, false, true}, states())
		require.NoError(t, o.Pause(t.Context(), "job"))
		assert.Equal(t, []bool{true, false, true, false}, states())
		trigger(g, o, "job")
		assert.Empty(t, a.TakeRuns())
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		assert.Equal(t, []bool{false, true, false, true}, states())
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(a.TakeRuns()))
		require.NoError(t, o.Resume(t.Context(), "job"))
		assert.Equal(t, []bool{false, false, false, false}, states())
		membertest.SleepToMinute(2)
		assert.Equal(t, map[int]int{0: 2, 1: 2}, membertest.CountRuns(a.TakeRuns()))
	})
	membertest.RunBubble(t, "uses a new definition for triggers; its fires begin with the resume", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 1, 2, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		membertest.SleepToMinute(2)
		a.TakeRuns()
		a.Offer(membertest.DefinitionsByName(coordtest.Def("job", 2, 3, "")))
		time.Sleep(2 * time.Second)
		trigger(g, o, "job")
		runs := a.TakeRuns()
		assert.Equal(t, membertest.OncePerShard(3), membertest.CountRuns(runs))
		for _, r := range runs {
			assert.Equal(t, 3, r.Shards)
		}
		membertest.SleepToMinute(5)
		assert.Empty(t, a.TakeRuns())
		require.NoError(t, o.Resume(t.Context(), "job"))
		membertest.SleepToMinute(6)
		assert.Equal(t, membertest.OncePerShard(3), membertest.CountRuns(a.TakeRuns()))
		time.Sleep(2 * leader.RegularCheck)
		assert.Len(t, g.ReadPlan("job").Epochs, 1, "earlier epochs have been dropped")
	})
	membertest.RunBubble(t, "makes re-runs after a crash, and runs fires that were due before", func(t *testing.T, g *membertest.Group) {
		g.StartWorking("a", membertest.WorkFor(time.Hour), coordtest.Def("job", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		membertest.SleepToMinute(1)
		b.TakeRuns()
		require.NoError(t, b.StopSchedule(t.Context(), "job"))
		membertest.SleepToMinute(2)
		g.Server.Expire("a")
		time.Sleep(30 * time.Second)
		runs := b.TakeRuns()
		require.Len(t, runs, 1)
		assert.True(t, runs[0].Rerun)
		assert.Equal(t, 2, runs[0].Attempt)
		assert.Equal(t, coordtest.BubbleStart().Add(time.Minute), runs[0].Fire)
	})
	membertest.RunBubble(t, "survives a change of the leader", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		require.NoError(t, a.StopSchedule(t.Context(), "job"))
		time.Sleep(time.Second)
		a.Shutdown()
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		membertest.SleepToMinute(3)
		assert.Empty(t, b.TakeRuns())
		trigger(g, b.Operator, "job")
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(b.TakeRuns()))
	})
	membertest.RunBubble(t, "applies from the first plan on when the job has none yet", func(t *testing.T, g *membertest.Group) {
		g.PutRecord(g.Keys.Job("job"), coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		trigger(g, o, "job")
		membertest.SleepToMinute(2)
		runs := a.TakeRuns()
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(runs))
		for _, r := range runs {
			assert.NotZero(t, r.Trigger)
		}
	})
	membertest.RunBubble(t, "does not write the plan while nothing changes", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		time.Sleep(2 * leader.RegularCheck)
		before, _ := g.GetRecord(g.Keys.Plan("job"))
		time.Sleep(10 * leader.RegularCheck)
		after, _ := g.GetRecord(g.Keys.Plan("job"))
		assert.Equal(t, before.Modified, after.Modified)
	})
}
