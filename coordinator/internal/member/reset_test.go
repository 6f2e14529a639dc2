package member_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/membertest"
	"github.com/rota-dev/rota/registry"
)

func TestOperator_Reset(t *testing.T) {
	membertest.Bubble(t, "a job that waits because a clock was wrong goes on, and no longer has that problem", func(t *testing.T, g *membertest.Group) {
		g.Sets("a", time.Hour)
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		time.Sleep(90 * time.Second)
		g.Sets("a", 0)
		time.Sleep(30 * time.Second)
		a.Began()
		time.Sleep(5 * time.Minute)
		require.Empty(t, a.Began())
		require.Contains(t, g.Plan("job").Problem, "Operator.Reset")
		op, _ := g.Operator()
		require.NoError(t, op.Reset(t.Context(), "job"))
		time.Sleep(10 * time.Minute)
		runs := a.Began()
		assert.Len(t, runs, 20)
		for _, r := range runs {
			assert.Equal(t, 1, r.Attempt)
		}
		assert.Empty(t, g.Plan("job").Problem)
	})
	membertest.Bubble(t, "a leader that crashes between the two commits leaves the second to the next", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		g.Start("b", coordtest.Def("job", 0, 2, ""))
		op, _ := g.Operator()
		ended := func() bool { return g.Plan("job").Last().Until != 0 }
		a.Reg.After(func(registry.Txn) {
			if ended() {
				g.Server.Partition("a")
			}
		})
		require.NoError(t, op.Reset(t.Context(), "job"))
		time.Sleep(time.Second)
		require.True(t, ended())
		a.Reg.After(nil)
		time.Sleep(4 * membertest.TTL)
		assert.Equal(t, 2, g.Plan("job").Last().Number)
		assert.EqualValues(t, 1, g.Plan("job").Resets)
		time.Sleep(time.Minute)
		assert.Equal(t, 2, g.Plan("job").Last().Number)
	})
	membertest.Bubble(t, "an older copy of the record of intent does not keep it from resetting", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		op, _ := g.Operator()
		for range 2 {
			require.NoError(t, op.Reset(t.Context(), "job"))
			time.Sleep(10 * time.Second)
		}
		g.Write(g.Keys.Control("job"), `{"job":"job"}`)
		require.NoError(t, op.Reset(t.Context(), "job"))
		time.Sleep(10 * time.Second)
		assert.Equal(t, 4, g.Plan("job").Last().Number)
	})
	membertest.Bubble(t, "a job that is not known is refused", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		op, _ := g.Operator()
		err := op.Reset(t.Context(), "other")
		require.ErrorIs(t, err, coordinator.ErrUnknownJob)
		assert.EqualError(t, err, `reset "other": unknown job`)
	})
}
