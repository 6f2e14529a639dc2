package member_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
)

func TestAhead_IsPublished(t *testing.T) {
	membertest.RunBubble(t, "while claims are ahead, and no longer", func(t *testing.T, g *membertest.Group) {
		const hour = time.Hour
		g.SetClock("a", hour)
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		time.Sleep(90 * time.Second)
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		time.Sleep(10 * time.Second)
		ahead := func(w *membertest.Worker) map[string]record.Ahead {
			e, ok := g.GetRecord(g.Keys.Member(w.Incarnation()))
			require.True(t, ok)
			m, err := record.Decode[record.Member](e.Value)
			require.NoError(t, err)
			return m.Ahead
		}
		require.Contains(t, ahead(b), "job")
		require.Empty(t, ahead(a), "its own clock is not behind")
		assert.Contains(t, g.ReadPlan("job").Problem, `shards of instance "b" wait until `)
		assert.Equal(t, 1, b.Log.Count("claims are ahead of this clock"))
		op, _ := g.NewOperator()
		st, err := op.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, g.ReadPlan("job").Problem, st.Problem)

		g.SetClock("a", 0)
		time.Sleep(30 * time.Minute)
		assert.Contains(t, g.ReadPlan("job").Problem, "wait until ")
		assert.Equal(t, 1, b.Log.Count("claims are ahead of this clock"), "it is logged once")
		a.TakeRuns()
		time.Sleep(hour - 30*time.Minute)
		assert.Empty(t, ahead(a))
		assert.Empty(t, ahead(b))
		assert.Empty(t, g.ReadPlan("job").Problem)
		assert.Equal(t, 1, g.ReadPlan("job").Last().Number)
		a.TakeRuns()
		b.TakeRuns()
		time.Sleep(10 * time.Minute)
		assert.Len(t, a.TakeRuns(), 10, "each shard runs again")
		assert.Len(t, b.TakeRuns(), 10)
	})
}
