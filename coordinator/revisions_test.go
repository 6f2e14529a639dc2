package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSupersededDefinitions(t *testing.T) {
	const newer = "definition in force is newer than the one of this process"
	const differs = "definition differs from the stored one of the same revision"
	members := func(g *group) map[string]MemberStatus {
		o, _ := g.operator()
		st, err := o.Status(g.t.Context(), "job")
		require.NoError(g.t, err)
		out := map[string]MemberStatus{}
		for _, m := range st.Members {
			out[m.Instance] = m
		}
		return out
	}
	bubble(t, "of a lower revision are logged, with the fields that differ", func(t *testing.T, g *group) {
		g.start("a", def("job", 2, 3, `,"param":"x"`))
		b := g.start("b", def("job", 1, 2, ""))
		assert.Equal(t, 1, b.log.count(newer))
		assert.Equal(t, 1, b.log.count(`job=job revision=1 stored=2 differences="[param: none here, \"x\" in force shards: 2 here, 3 in force]"`))
		assert.Zero(t, b.log.count(differs))
	})
	bubble(t, "of the same revision are logged, with the fields that differ", func(t *testing.T, g *group) {
		g.start("a", def("job", 1, 3, ""))
		b := g.start("b", def("job", 1, 2, ""))
		assert.Equal(t, 1, b.log.count(differs))
		assert.Equal(t, 1, b.log.count(`differences="[shards: 2 here, 3 in force]"`))
		assert.Zero(t, b.log.count(newer))
	})
	bubble(t, "are not logged where equal ones are only written in another way", func(t *testing.T, g *group) {
		g.start("a", def("job", 1, 2, ""))
		b := g.start("b", strings.ReplaceAll(def("job", 1, 2, ""), ":", ": "))
		assert.Zero(t, b.log.count(differs))
		assert.False(t, members(g)["b"].Differs)
	})
	bubble(t, "are logged once, not again with each session or change", func(t *testing.T, g *group) {
		g.start("a", def("job", 2, 3, ""))
		b := g.start("b", def("job", 1, 2, ""))
		g.server.Expire("b")
		time.Sleep(time.Minute)
		b.Offer(offering(def("other", 0, 1, "")))
		time.Sleep(time.Second)
		assert.Equal(t, 1, b.log.count(newer))
		b.Offer(offering(def("job", 0, 5, "")))
		time.Sleep(time.Second)
		assert.Equal(t, 2, b.log.count(newer), "it is another definition")
	})
	bubble(t, "of many jobs are some lines", func(t *testing.T, g *group) {
		var high, low []string
		for i := range 40 {
			high = append(high, def(fmt.Sprint("job-", i), 2, 1, ""))
			low = append(low, def(fmt.Sprint("job-", i), 1, 1, ""))
		}
		g.start("a", high...)
		b := g.start("b", low...)
		assert.Equal(t, 5, b.log.count(newer))
		assert.Equal(t, 1, b.log.count(`more definitions of this process are not in force`))
		assert.Equal(t, 1, b.log.count(`count=35 `))
	})
	bubble(t, "stand in the status of each member", func(t *testing.T, g *group) {
		g.start("a", def("job", 1, 2, ""), def("other", 7, 1, ""))
		g.start("b", def("job", 2, 2, ""))
		g.start("c", def("job", 2, 3, ""))
		g.start("d", def("job", 1, 2, ""))
		all := members(g)
		for name, want := range map[string]MemberStatus{
			"a": {Revision: 1, Differs: true}, // it was there before
			"b": {Revision: 2},
			"c": {Revision: 2, Differs: true},
			"d": {Revision: 1, Differs: true},
		} {
			assert.Equal(t, want, MemberStatus{Revision: all[name].Revision, Differs: all[name].Differs}, name)
		}
	})
	bubble(t, "of a running member are in its record when it offers them later", func(t *testing.T, g *group) {
		g.start("a", def("job", 2, 2, ""))
		b := g.start("b", def("other", 0, 1, ""))
		b.Offer(offering(def("job", 2, 3, "")))
		require.NoError(t, b.AwaitJoined(t.Context()))
		assert.True(t, members(g)["b"].Differs)
		b.Offer(offering(def("job", 3, 3, "")))
		require.NoError(t, b.AwaitJoined(t.Context()))
		all := members(g)
		assert.False(t, all["b"].Differs)
		assert.Equal(t, 3, all["b"].Revision)
		assert.True(t, all["a"].Differs)
	})
}
