package member_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/member"
	"github.com/rota-dev/rota/coordinator/internal/membertest"
	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// ran returns the shards of a job that were begun since the last call by any of them.
func ran(job string, workers ...*membertest.Worker) map[int]int {
	out := map[int]int{}
	for _, w := range workers {
		for _, r := range w.Began() {
			if r.Job == job {
				out[r.Shard]++
			}
		}
	}
	return out
}

// Binaries of several versions are in one group, as while a fleet is deployed anew.

func TestRolling_Jobs(t *testing.T) {
	membertest.Bubble(t, "that are new run where they are offered, though an old binary leads; also after a crash", func(t *testing.T, g *membertest.Group) {
		old := g.Start("old", coordtest.Def("job", 0, 4, ""))
		a := g.Start("a", coordtest.Def("job", 0, 4, ""), coordtest.Def("new", 0, 4, ""))
		b := g.Start("b", coordtest.Def("job", 0, 4, ""), coordtest.Def("new", 0, 4, ""))
		require.Equal(t, old.Incarnation(), g.Leader().Incarnation)
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.Owners("new"))
		membertest.Until(1)
		assert.Equal(t, membertest.Once(4), ran("new", a, b))
		assert.Empty(t, ran("new", old))
		g.Server.Partition("a")
		membertest.Until(2)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.Owners("new"))
		assert.Len(t, g.Owners("job"), 2)
		g.Server.Partition("b")
		membertest.Until(3)
		assert.Empty(t, g.Owners("new"))
		assert.Equal(t, map[string]string{"old": "0-3"}, g.Owners("job"))
	})
	membertest.Bubble(t, "that are dropped run while somebody offers them, then wait, and nothing of them is forgotten", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""), coordtest.Def("old", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""), coordtest.Def("old", 0, 2, ""))
		membertest.Until(1)
		a.Shutdown()
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		assert.Equal(t, map[string]string{"b": "0-1"}, g.Owners("old"))
		b.Began()
		membertest.Until(2)
		assert.Equal(t, membertest.Once(2), ran("old", b))
		b.Shutdown()
		g.Start("b", coordtest.Def("job", 0, 2, ""))
		assert.Empty(t, g.Owners("old"))
		membertest.Until(5)
		c := g.Start("c", coordtest.Def("old", 0, 2, ""))
		assert.Equal(t, membertest.Once(2), ran("old", c), "the latest of what it owes")
		assert.Equal(t, coordinator.Counts{Claimed: 6, Succeeded: 6, Skipped: 4}, g.OnRecord("old"))
	})
	membertest.Bubble(t, "of two revisions run by the higher on all, whoever starts later or crashes", func(t *testing.T, g *membertest.Group) {
		old := g.Start("old", coordtest.Def("job", 1, 2, ""))
		membertest.Until(1)
		a := g.Start("a", coordtest.Def("job", 2, 4, ""))
		membertest.Until(2)
		ran("job", old, a)
		membertest.Until(3)
		assert.Equal(t, membertest.Once(4), ran("job", old, a))
		again := g.Start("again", coordtest.Def("job", 1, 2, ""))
		membertest.Until(4)
		for _, r := range append(old.Began(), again.Began()...) {
			assert.Equal(t, 4, r.Shards)
		}
		a.Began()
		g.Server.Partition("a")
		membertest.Until(6)
		assert.Equal(t, 2, g.Plan("job").Last().Job().Revision, "who brought it is gone")
		assert.Equal(t, 4, g.Plan("job").Shards())
		ran("job", old, again)
		membertest.Until(7)
		assert.Equal(t, membertest.Once(4), ran("job", old, again))
	})
}

func TestRolling_Definitions(t *testing.T) {
	membertest.Bubble(t, "that a member cannot compile take its shards to those who can, and it says so", func(t *testing.T, g *membertest.Group) {
		old := g.StartOld("old", coordtest.Def("job", 1, 4, ""), coordtest.Def("other", 0, 1, ""))
		a := g.Start("a", coordtest.Def("job", 1, 4, ""))
		membertest.Until(1)
		assert.Equal(t, membertest.Once(4), membertest.Merged(ran("job", a), ran("job", old)))
		a.Offer(membertest.Offering(coordtest.Def("job", 2, 4, coordtest.Lunar)))
		membertest.Until(3)
		assert.Equal(t, map[string]string{"a": "0-3"}, g.Owners("job"))
		assert.Contains(t, old.Log.String(), "definition not understood")
		st, err := a.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, []bool{false, true}, []bool{st.Members[0].Unsupported, st.Members[1].Unsupported})
		assert.Empty(t, st.Problem)
		ran("job", a, old)
		membertest.Until(4)
		assert.Equal(t, membertest.Once(4), ran("job", a))
		assert.NotEmpty(t, ran("other", old))
	})
	membertest.Bubble(t, "that it can compile again bring shards back", func(t *testing.T, g *membertest.Group) {
		old := g.StartOld("old", coordtest.Def("job", 1, 4, ""))
		a := g.Start("a", coordtest.Def("job", 2, 4, coordtest.Lunar))
		membertest.Until(2)
		require.Equal(t, map[string]string{"a": "0-3"}, g.Owners("job"))
		a.Offer(membertest.Offering(coordtest.Def("job", 3, 4, "")))
		membertest.Until(5)
		assert.Len(t, g.Plan("job").Epochs, 1)
		assert.Equal(t, map[string]int{"a": 2, "old": 2}, g.Shares("job"))
		ran("job", a, old)
		membertest.Until(6)
		assert.Equal(t, membertest.Once(4), ran("job", a, old))
	})
	membertest.Bubble(t, "that nobody can compile leave the shards to nobody: the plan says why, and fires wait for who can", func(t *testing.T, g *membertest.Group) {
		old := g.StartOld("old", coordtest.Def("job", 1, 2, ""), coordtest.Def("other", 0, 1, ""))
		membertest.Until(1)
		g.Put(g.Keys.Job("job"), coordtest.Def("job", 2, 2, coordtest.Lunar))
		membertest.Until(3)
		assert.Empty(t, g.Owners("job"))
		assert.Equal(t, planning.NotUnderstood, g.Plan("job").Problem)
		ran("", old)
		membertest.Until(5)
		runs := old.Began()
		assert.Equal(t, 2, len(runs), "of the other job")
		a := g.Start("a", coordtest.Def("job", 2, 2, coordtest.Lunar))
		assert.Equal(t, map[string]string{"a": "0-1"}, g.Owners("job"))
		assert.Empty(t, g.Plan("job").Problem)
		runs = a.Began()
		require.Len(t, runs, 2)
		assert.Equal(t, coordtest.BubbleBegan().Add(5*time.Minute), runs[0].Fire.UTC())
		assert.EqualValues(t, 2*3, g.OnRecord("job").Skipped, "minutes 2 to 4")
	})
	membertest.Bubble(t, "with a strategy that the leader does not have leave shards where they are, and the plan says so", func(t *testing.T, g *membertest.Group) {
		old := g.StartOld("old", coordtest.Def("job", 1, 4, ""))
		a := g.Start("a", coordtest.Def("job", 1, 4, ""))
		a.Offer(membertest.Offering(coordtest.Def("job", 2, 4, `,"strategy":"of a later version"`)))
		membertest.Until(1)
		assert.Equal(t, map[string]int{"old": 2, "a": 2}, g.Shares("job"))
		assert.Contains(t, g.Plan("job").Problem, "of a later version")
		g.Start("b", coordtest.Def("job", 2, 4, `,"strategy":"of a later version"`))
		assert.Equal(t, map[string]int{"old": 2, "a": 2}, g.Shares("job"))
		old.Shutdown()
		assert.Equal(t, map[string]int{"a": 2, "b": 2}, g.Shares("job"))
	})
	membertest.Bubble(t, "that the leader cannot plan by are left alone, and those in force go on", func(t *testing.T, g *membertest.Group) {
		old := g.StartOld("old", coordtest.Def("job", 1, 2, ""))
		text := coordtest.Def("job", 2, 2, `,"on_crash":"think about it"`)
		g.Put(g.Keys.Job("job"), text)
		old.Offer(membertest.Offering(coordtest.Def("other", 0, 1, "")))
		ran("", old)
		membertest.Until(2)
		assert.Equal(t, 4, len(of("job", old.Began())))
		assert.Equal(t, text, g.Text(g.Keys.Job("job")))
		assert.Contains(t, old.Log.String(), string(g.Keys.Job("job")))
		assert.Equal(t, map[string]string{"old": "0"}, g.Owners("other"))
	})
}

func TestRolling_Records(t *testing.T) {
	more := func(g *membertest.Group, key registry.Key) {
		g.T.Helper()
		g.Put(key, strings.TrimSuffix(g.Text(key), "}")+`,"later":{"a":[1,"é"]}}`)
	}
	const kept = `"later":{"a":[1,"é"]}`

	membertest.Bubble(t, "keep what a later version has added, when an older one writes them", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 1, 2, `,"later":7`))
		require.NoError(t, a.Disable(t.Context(), coordinator.Scope{Job: "job", Shards: []int{0}}))
		require.NoError(t, a.Disable(t.Context(), coordinator.Scope{Hosts: []string{"x"}}))
		a.Shutdown() // while an instance leads, nobody else writes plans
		for _, key := range []registry.Key{g.Keys.Plan("job"), g.Keys.Control("job"), g.Keys.GroupControl()} {
			more(g, key)
		}
		a = g.Start("a", coordtest.Def("job", 1, 2, ""))
		b := g.Start("b", coordtest.Def("job", 1, 2, "")) // of the same revision: what is stored stays
		_, err := b.Trigger(t.Context(), "job", "", []int{1})
		require.NoError(t, err)
		require.NoError(t, b.Pause(t.Context(), "job"))
		require.NoError(t, b.Enable(t.Context(), coordinator.Scope{Job: "job", Shards: []int{0}}))
		require.NoError(t, b.Disable(t.Context(), coordinator.Scope{Hosts: []string{"y"}}))
		time.Sleep(time.Second)
		a.Shutdown()
		p := g.Plan("job")
		assert.True(t, p.Paused)
		assert.True(t, p.Disabled.IsZero())
		assert.Equal(t, map[string]string{"b": "0-1"}, g.Owners("job"))
		assert.Contains(t, g.Text(g.Keys.Plan("job")), kept)
		assert.Contains(t, g.Text(g.Keys.Control("job")), kept)
		assert.Contains(t, g.Text(g.Keys.GroupControl()), kept)
		assert.Contains(t, string(p.Last().Def), `"later":7`)
	})
	membertest.Bubble(t, "of a store of a newer format are refused by name, and nothing is written", func(t *testing.T, g *membertest.Group) {
		g.Put(g.Keys.Meta(), fmt.Sprintf(`{"format":%d}`, record.Format+1))
		before := g.Server.Dump()
		a := g.Begin(g.Worker("a", nil, coordtest.Def("job", 0, 1, "")))
		err := a.AwaitJoined(t.Context())
		require.ErrorIs(t, err, coordinator.ErrNewerFormat)
		assert.ErrorContains(t, err, string(g.Keys.Meta()))
		<-a.Done
		assert.ErrorIs(t, a.Err, coordinator.ErrNewerFormat)
		a.Err = nil
		assert.Equal(t, before, g.Server.Dump())
	})
	membertest.Bubble(t, "of a job whose plan has a newer format are left alone, and other jobs go on", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 2, ""))
		membertest.Until(1)
		ran("", a, b)
		key := g.Keys.Plan("job")
		readable := g.Text(key)
		g.Put(key, strings.Replace(readable, `"format":1`, fmt.Sprintf(`"format":%d,"later":1`, record.Format+1), 1))
		newer := g.Text(key)
		dead := b.Incarnation()
		g.Server.Partition("b")
		membertest.Until(3)
		runs := a.Began()
		assert.Empty(t, of("job", runs))
		assert.NotEmpty(t, of("other", runs))
		assert.Equal(t, map[string]string{"a": "0-1"}, g.Owners("other"))
		assert.Equal(t, newer, g.Text(key))
		assert.Contains(t, a.Log.String(), string(key))
		assert.Contains(t, a.Log.String(), coordinator.ErrNewerFormat.Error())
		_, found := g.Get(g.Keys.Claims(dead, "job"))
		assert.True(t, found, "who can read the plan has to take it in")
		g.Put(key, readable)
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0-1"}, g.Owners("job"))
		assert.Equal(t, membertest.Once(2), ran("job", a))
	})
}

// of returns those of runs that are of a job.
func of(job string, runs []member.Run) (out []member.Run) {
	for _, r := range runs {
		if r.Job == job {
			out = append(out, r)
		}
	}
	return out
}
