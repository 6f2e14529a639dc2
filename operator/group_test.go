package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/operator"
)

func TestOperator_PauseGroup(t *testing.T) {
	membertest.RunBubble(t, "pauses present and future jobs, and leaves the own pause of a job in force", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""), coordtest.Def("own", 0, 2, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.Pause(t.Context(), "own"))
		require.NoError(t, o.As("kim", "deploy").PauseGroup(t.Context()))
		time.Sleep(time.Second)
		b := g.Start("b", coordtest.Def("new", 0, 2, ""))
		membertest.SleepToMinute(3)
		assert.Empty(t, a.TakeRuns())
		assert.Empty(t, b.TakeRuns())
		st, err := o.Status(t.Context(), "new")
		require.NoError(t, err)
		assert.True(t, st.GroupPaused)
		assert.True(t, st.Paused)
		assert.False(t, st.Intent.Paused)
		in, err := o.Intent(t.Context(), "")
		require.NoError(t, err)
		assert.True(t, in.Paused)
		assert.Equal(t, "kim", in.HeldBy.By)
		all, err := o.Group(t.Context())
		require.NoError(t, err)
		assert.True(t, all.Paused)
		assert.Equal(t, in.HeldBy, all.HeldBy)
		for _, j := range all.Jobs {
			assert.True(t, j.GroupPaused, j.Job)
			assert.Equal(t, j.Job == "own", j.HeldBy.What == "pause", j.Job)
		}
		require.NoError(t, o.ResumeGroup(t.Context()))
		membertest.SleepToMinute(4)
		time.Sleep(time.Second)
		byJob := map[string]int{}
		for _, r := range append(a.TakeRuns(), b.TakeRuns()...) {
			byJob[r.Job]++
		}
		assert.Equal(t, map[string]int{"job": 2, "new": 2}, byJob)
		st, err = o.Status(t.Context(), "own")
		require.NoError(t, err)
		assert.True(t, st.Paused)
		assert.False(t, st.GroupPaused)
	})
	membertest.RunBubble(t, "keeps the own pause of a job without a control record", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, `,"start_paused":true`))
		o, _ := g.NewOperator()
		require.NoError(t, o.PauseGroup(t.Context()))
		time.Sleep(time.Second)
		in, err := o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.True(t, in.Paused)
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}})) // creates one
		require.NoError(t, o.ResumeGroup(t.Context()))
		time.Sleep(time.Second)
		assert.True(t, g.ReadPlan("job").Paused)
	})
	membertest.RunBubble(t, "ends by itself at its time", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		require.ErrorContains(t, o.PauseGroupUntil(t.Context(), time.Now()), "is not in the future")
		require.NoError(t, o.PauseGroupUntil(t.Context(), time.Now().Add(10*time.Minute)))
		time.Sleep(10*time.Minute - time.Second)
		require.True(t, g.ReadPlan("job").Paused)
		time.Sleep(2 * time.Second)
		assert.False(t, g.ReadPlan("job").Paused)
		in, err := o.Intent(t.Context(), "")
		require.NoError(t, err)
		assert.Zero(t, in)
		acts, err := o.Acts(t.Context(), "")
		require.NoError(t, err)
		assert.Len(t, acts, 2)
	})
	membertest.RunBubble(t, "outlives a restart of the fleet", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.PauseGroup(t.Context()))
		time.Sleep(time.Second)
		a.Shutdown()
		b := g.Start("b", coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 2, ""))
		membertest.SleepToMinute(2)
		assert.Empty(t, b.TakeRuns())
	})
	membertest.RunBubble(t, "lets runs that have begun go on, and drops no trigger", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(90*time.Second), coordtest.Def("job", 0, 1, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(1)
		require.NoError(t, o.PauseGroup(t.Context()))
		n, err := o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		membertest.SleepToMinute(5)
		require.Len(t, a.TakeRuns(), 1)
		assert.EqualValues(t, 1, g.SumCounts("job").Succeeded)
		require.NoError(t, o.ResumeGroup(t.Context()))
		time.Sleep(time.Second)
		runs := a.TakeRuns()
		require.Len(t, runs, 1)
		assert.Equal(t, n, runs[0].Trigger)
	})
	membertest.RunBubble(t, "stays as it is while its record cannot be read", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.PauseGroup(t.Context()))
		time.Sleep(time.Second)
		g.PutRecord(g.Keys.GroupControl(), "spoilt")
		time.Sleep(time.Minute)
		assert.True(t, g.ReadPlan("job").Paused)
		g.RemoveRecord(g.Keys.GroupControl())
		time.Sleep(time.Second)
		assert.False(t, g.ReadPlan("job").Paused)
	})
}
