package member_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

func TestOperator_Reset(t *testing.T) {
	membertest.RunBubble(t, "starts a job again whose shards wait for a clock, and ends the problem", func(t *testing.T, g *membertest.Group) {
		g.SetClock("a", time.Hour)
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		time.Sleep(90 * time.Second)
		g.SetClock("a", 0)
		time.Sleep(30 * time.Second)
		a.TakeRuns()
		time.Sleep(5 * time.Minute)
		require.Empty(t, a.TakeRuns())
		require.Contains(t, g.ReadPlan("job").Problem, "a reset starts the job afresh")
		op, _ := g.NewOperator()
		require.NoError(t, op.Reset(t.Context(), "job"))
		time.Sleep(10 * time.Minute)
		runs := a.TakeRuns()
		assert.Len(t, runs, 20)
		for _, r := range runs {
			assert.Equal(t, 1, r.Attempt)
		}
		assert.Empty(t, g.ReadPlan("job").Problem)
	})
	membertest.RunBubble(t, "is completed by the next leader if the leader crashes between the two commits", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		g.Start("b", coordtest.Def("job", 0, 2, ""))
		op, _ := g.NewOperator()
		ended := func() bool { return g.ReadPlan("job").Last().Until != 0 }
		a.Reg.AfterTxn(func(registry.Txn) {
			if ended() {
				g.Server.Partition("a")
			}
		})
		require.NoError(t, op.Reset(t.Context(), "job"))
		time.Sleep(time.Second)
		require.True(t, ended())
		a.Reg.AfterTxn(nil)
		time.Sleep(4 * membertest.TTL)
		assert.Equal(t, 2, g.ReadPlan("job").Last().Number)
		assert.EqualValues(t, 1, g.ReadPlan("job").Resets)
		time.Sleep(time.Minute)
		assert.Equal(t, 2, g.ReadPlan("job").Last().Number)
	})
	membertest.RunBubble(t, "works after an older control record was restored", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		op, _ := g.NewOperator()
		for range 2 {
			require.NoError(t, op.Reset(t.Context(), "job"))
			time.Sleep(10 * time.Second)
		}
		g.WriteRecord(g.Keys.Control("job"), `{"job":"job"}`)
		require.NoError(t, op.Reset(t.Context(), "job"))
		time.Sleep(10 * time.Second)
		assert.Equal(t, 4, g.ReadPlan("job").Last().Number)
	})
	membertest.RunBubble(t, "refuses an unknown job", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		op, _ := g.NewOperator()
		err := op.Reset(t.Context(), "other")
		require.ErrorIs(t, err, operator.ErrUnknownJob)
		assert.EqualError(t, err, `reset "other": unknown job`)
	})
}
