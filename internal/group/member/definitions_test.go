package member_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/registry"
)

func TestMember_StoresDefinitions(t *testing.T) {
	membertest.RunBubble(t, "stores a definition that has been deleted, although plain reads still show it", func(t *testing.T, g *membertest.Group) {
		job := coordtest.Def("job", 0, 1, "")
		a := g.Start("a", coordtest.Def("other", 0, 1, ""))
		g.PutRecord(g.Keys.Job("job"), job)
		time.Sleep(time.Second)
		defer g.Server.Lag("a")()
		defer g.Server.HoldWatch("a")()
		g.RemoveRecord(g.Keys.Job("job"))
		old, err := a.Reg.Get(t.Context(), g.Keys.Job("job"), registry.ReadOptions{})
		require.NoError(t, err)
		require.JSONEq(t, job, string(old.Value))

		a.Offer(membertest.DefinitionsByName(job))
		time.Sleep(time.Second)
		_, ok := g.GetRecord(g.Keys.Job("job"))
		assert.True(t, ok)
	})
}
