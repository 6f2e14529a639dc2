package member_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/operator"
)

func TestSupersededDefinitions(t *testing.T) {
	const newer = "stored definition has a higher revision"
	const differs = "stored definition of the same revision differs"
	members := func(g *membertest.Group) map[string]operator.MemberStatus {
		o, _ := g.NewOperator()
		st, err := o.Status(g.T.Context(), "job")
		require.NoError(g.T, err)
		out := map[string]operator.MemberStatus{}
		for _, m := range st.Members {
			out[m.Instance] = m
		}
		return out
	}
	membertest.RunBubble(t, "of a lower revision are logged, with the fields that differ", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 2, 3, `,"param":"x"`))
		b := g.Start("b", coordtest.Def("job", 1, 2, ""))
		assert.Equal(t, 1, b.Log.Count(newer))
		assert.Equal(t, 1, b.Log.Count(`job=job revision=1 stored=2 differences="[param: none here, \"x\" in force shards: 2 here, 3 in force]"`))
		assert.Zero(t, b.Log.Count(differs))
	})
	membertest.RunBubble(t, "of the same revision are logged, with the fields that differ", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 1, 3, ""))
		b := g.Start("b", coordtest.Def("job", 1, 2, ""))
		assert.Equal(t, 1, b.Log.Count(differs))
		assert.Equal(t, 1, b.Log.Count(`differences="[shards: 2 here, 3 in force]"`))
		assert.Zero(t, b.Log.Count(newer))
	})
	membertest.RunBubble(t, "are not logged if only the notation differs", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 1, 2, ""))
		b := g.Start("b", strings.ReplaceAll(coordtest.Def("job", 1, 2, ""), ":", ": "))
		assert.Zero(t, b.Log.Count(differs))
		assert.False(t, members(g)["b"].Differs)
	})
	membertest.RunBubble(t, "are logged once, not for each session or change", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 2, 3, ""))
		b := g.Start("b", coordtest.Def("job", 1, 2, ""))
		g.Server.Expire("b")
		time.Sleep(time.Minute)
		b.Offer(membertest.DefinitionsByName(coordtest.Def("other", 0, 1, "")))
		time.Sleep(time.Second)
		assert.Equal(t, 1, b.Log.Count(newer))
		b.Offer(membertest.DefinitionsByName(coordtest.Def("job", 0, 5, "")))
		time.Sleep(time.Second)
		assert.Equal(t, 2, b.Log.Count(newer), "it is another definition")
	})
	membertest.RunBubble(t, "of many jobs are logged in a few lines", func(t *testing.T, g *membertest.Group) {
		var high, low []string
		for i := range 40 {
			high = append(high, coordtest.Def(fmt.Sprint("job-", i), 2, 1, ""))
			low = append(low, coordtest.Def(fmt.Sprint("job-", i), 1, 1, ""))
		}
		g.Start("a", high...)
		b := g.Start("b", low...)
		assert.Equal(t, 5, b.Log.Count(newer))
		assert.Equal(t, 1, b.Log.Count(`more definitions of this process are not in force`))
		assert.Equal(t, 1, b.Log.Count(`count=35 `))
	})
	membertest.RunBubble(t, "of a stale file are logged first where the content differs", func(t *testing.T, g *membertest.Group) {
		var high, low []string
		for i := range 20 {
			high = append(high, coordtest.Def(fmt.Sprintf("job-%02d", i), 2, 1, ""))
			low = append(low, coordtest.Def(fmt.Sprintf("job-%02d", i), 1, 1+i/18, ""))
		}
		g.Start("a", high...)
		b := g.Start("b", low...)
		assert.Equal(t, 1, b.Log.Count(`job=job-18 revision=1 stored=2 differences="[shards: 2 here, 1 in force]"`))
		assert.Equal(t, 1, b.Log.Count(`job=job-19 revision=1 stored=2 differences="[shards: 2 here, 1 in force]"`))
		assert.Equal(t, 5, b.Log.Count(newer))
	})
	membertest.RunBubble(t, "are reported in the status of each member", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 1, 2, ""), coordtest.Def("other", 7, 1, ""))
		g.Start("b", coordtest.Def("job", 2, 2, ""))
		g.Start("c", coordtest.Def("job", 2, 3, ""))
		g.Start("d", coordtest.Def("job", 1, 2, ""))
		all := members(g)
		for name, want := range map[string]operator.MemberStatus{
			"a": {Revision: 1, Differs: true}, // its definition was stored first
			"b": {Revision: 2},
			"c": {Revision: 2, Differs: true},
			"d": {Revision: 1, Differs: true},
		} {
			assert.Equal(t, want, operator.MemberStatus{Revision: all[name].Revision, Differs: all[name].Differs}, name)
		}
	})
	membertest.RunBubble(t, "that a running member offers are in its member record", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 2, 2, ""))
		b := g.Start("b", coordtest.Def("other", 0, 1, ""))
		b.Offer(membertest.DefinitionsByName(coordtest.Def("job", 2, 3, "")))
		require.NoError(t, b.AwaitJoined(t.Context()))
		assert.True(t, members(g)["b"].Differs)
		b.Offer(membertest.DefinitionsByName(coordtest.Def("job", 3, 3, "")))
		require.NoError(t, b.AwaitJoined(t.Context()))
		all := members(g)
		assert.False(t, all["b"].Differs)
		assert.Equal(t, 3, all["b"].Revision)
		assert.True(t, all["a"].Differs)
	})
}
