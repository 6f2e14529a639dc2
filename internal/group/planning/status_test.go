package planning_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/leader"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

func TestDecisions(t *testing.T) {
	membertest.RunBubble(t, "alone do not cause a write", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		g.Start("b", coordtest.Def("job", 0, 2, ""))
		before, _ := g.GetRecord(g.Keys.Plan("job"))
		time.Sleep(10 * leader.RegularCheck)
		after, _ := g.GetRecord(g.Keys.Plan("job"))
		assert.Equal(t, before.Modified, after.Modified)
	})
	membertest.RunBubble(t, "leave out routine steps", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		before := g.ReadPlan("job").Decisions
		for range 20 {
			_, err := a.Trigger(t.Context(), "job", "", nil)
			require.NoError(t, err)
			time.Sleep(2 * leader.RegularCheck)
		}
		assert.Empty(t, g.ReadPlan("job").Triggers, "it was cleared")
		assert.Equal(t, before, g.ReadPlan("job").Decisions)
	})
	t.Run("are dropped if the plan is too large with them", func(t *testing.T) {
		w := planning.NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 4, 0, "")
		w.Settle()
		p := w.Plan("job").Clone()
		rng := rand.New(rand.NewPCG(1, 1))
		letters := make([]byte, 2*registry.PortableLimits.ValueBytes) // which cannot be deflated much
		for i := range letters {
			letters[i] = byte('a' + rng.IntN(26))
		}
		var bare []byte
		const enough = 500 // below the limit
		for n, lacks := len(letters)/2, 0; bare == nil || lacks > enough; n += max(500, lacks/2) {
			p.Problem = string(letters[:n])
			var err error
			bare, err = record.Encode(p)
			require.NoError(t, err)
			lacks = registry.PortableLimits.ValueBytes - len(bare)
		}
		for i := range 8 {
			p.Note(record.Decision{What: p.Problem[1000*i:]})
		}
		c := planning.Change{Segment: "job", Plan: p}
		pc, err := c.EncodeShare(w.View.Keys)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(bare, pc.Ops[0].Value))
	})
}
