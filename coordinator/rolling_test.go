package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// lunar is in definitions that only later versions can compile.
const lunar = `,"schedule":"lunar 3"`

// startOld starts a member of an older version, that knows no lunar schedules.
func (g *group) startOld(name string, defs ...string) *worker {
	g.t.Helper()
	w := g.worker(name, nil, defs...)
	w.dialect = "lunar"
	return g.joined(w)
}

// ran returns the shards of a job that were begun since the last call by any of them.
func ran(job string, workers ...*worker) map[int]int {
	out := map[int]int{}
	for _, w := range workers {
		for _, r := range w.began() {
			if r.Job == job {
				out[r.Shard]++
			}
		}
	}
	return out
}

// Binaries of several versions are in one group, as while a fleet is deployed anew.

func TestRolling_Jobs(t *testing.T) {
	bubble(t, "that are new run where they are offered, though an old binary leads; also after a crash", func(t *testing.T, g *group) {
		old := g.start("old", def("job", 0, 4, ""))
		a := g.start("a", def("job", 0, 4, ""), def("new", 0, 4, ""))
		b := g.start("b", def("job", 0, 4, ""), def("new", 0, 4, ""))
		require.Equal(t, old.incarnation(), g.leader().Incarnation)
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.owners("new"))
		until(1)
		assert.Equal(t, once(4), ran("new", a, b))
		assert.Empty(t, ran("new", old))
		g.server.Partition("a")
		until(2)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.owners("new"))
		assert.Len(t, g.owners("job"), 2)
		g.server.Partition("b")
		until(3)
		assert.Empty(t, g.owners("new"))
		assert.Equal(t, map[string]string{"old": "0-3"}, g.owners("job"))
	})
	bubble(t, "that are dropped run while somebody offers them, then wait, and nothing of them is forgotten", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""), def("old", 0, 2, ""))
		b := g.start("b", def("job", 0, 2, ""), def("old", 0, 2, ""))
		until(1)
		a.goes()
		g.start("a", def("job", 0, 2, ""))
		assert.Equal(t, map[string]string{"b": "0-1"}, g.owners("old"))
		b.began()
		until(2)
		assert.Equal(t, once(2), ran("old", b))
		b.goes()
		g.start("b", def("job", 0, 2, ""))
		assert.Empty(t, g.owners("old"))
		until(5)
		c := g.start("c", def("old", 0, 2, ""))
		assert.Equal(t, once(2), ran("old", c), "the latest of what it owes")
		assert.Equal(t, Counts{Claimed: 6, Succeeded: 6, Skipped: 4}, g.onRecord("old"))
	})
	bubble(t, "of two revisions run by the higher on all, whoever starts later or crashes", func(t *testing.T, g *group) {
		old := g.start("old", def("job", 1, 2, ""))
		until(1)
		a := g.start("a", def("job", 2, 4, ""))
		until(2)
		ran("job", old, a)
		until(3)
		assert.Equal(t, once(4), ran("job", old, a))
		again := g.start("again", def("job", 1, 2, ""))
		until(4)
		for _, r := range append(old.began(), again.began()...) {
			assert.Equal(t, 4, r.Shards)
		}
		a.began()
		g.server.Partition("a")
		until(6)
		assert.Equal(t, 2, g.plan("job").Last().Job().Revision, "who brought it is gone")
		assert.Equal(t, 4, g.plan("job").Shards())
		ran("job", old, again)
		until(7)
		assert.Equal(t, once(4), ran("job", old, again))
	})
}

// onRecord returns the sums of a job, whoever has counted.
func (g *group) onRecord(job string) Counts {
	g.t.Helper()
	o, _ := g.operator()
	st, err := o.Status(g.t.Context(), job)
	require.NoError(g.t, err)
	return st.Counts
}

func TestRolling_Definitions(t *testing.T) {
	bubble(t, "that a member cannot compile take its shards to those who can, and it says so", func(t *testing.T, g *group) {
		old := g.startOld("old", def("job", 1, 4, ""), def("other", 0, 1, ""))
		a := g.start("a", def("job", 1, 4, ""))
		until(1)
		assert.Equal(t, once(4), merged(ran("job", a), ran("job", old)))
		a.Offer(offering(def("job", 2, 4, lunar)))
		until(3)
		assert.Equal(t, map[string]string{"a": "0-3"}, g.owners("job"))
		assert.Contains(t, old.log.String(), "definition not understood")
		st, err := a.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, []bool{false, true}, []bool{st.Members[0].NotUnderstood, st.Members[1].NotUnderstood})
		assert.Empty(t, st.Problem)
		ran("job", a, old)
		until(4)
		assert.Equal(t, once(4), ran("job", a))
		assert.NotEmpty(t, ran("other", old))
	})
	bubble(t, "that it can compile again bring shards back", func(t *testing.T, g *group) {
		old := g.startOld("old", def("job", 1, 4, ""))
		a := g.start("a", def("job", 2, 4, lunar))
		until(2)
		require.Equal(t, map[string]string{"a": "0-3"}, g.owners("job"))
		a.Offer(offering(def("job", 3, 4, "")))
		until(5)
		assert.Len(t, g.plan("job").Epochs, 1)
		assert.Equal(t, map[string]int{"a": 2, "old": 2}, g.shares("job"))
		ran("job", a, old)
		until(6)
		assert.Equal(t, once(4), ran("job", a, old))
	})
	bubble(t, "that nobody can compile leave the shards to nobody: the plan says why, and fires wait for who can", func(t *testing.T, g *group) {
		old := g.startOld("old", def("job", 1, 2, ""), def("other", 0, 1, ""))
		until(1)
		g.put(g.keys.Job("job"), def("job", 2, 2, lunar))
		until(3)
		assert.Empty(t, g.owners("job"))
		assert.Equal(t, notUnderstood, g.plan("job").Problem)
		ran("", old)
		until(5)
		runs := old.began()
		assert.Equal(t, 2, len(runs), "of the other job")
		a := g.start("a", def("job", 2, 2, lunar))
		assert.Equal(t, map[string]string{"a": "0-1"}, g.owners("job"))
		assert.Empty(t, g.plan("job").Problem)
		runs = a.began()
		require.Len(t, runs, 2)
		assert.Equal(t, bubbleBegan().Add(5*time.Minute), runs[0].Fire.UTC())
		assert.EqualValues(t, 2*3, g.onRecord("job").Skipped, "minutes 2 to 4")
	})
	bubble(t, "with a strategy that the leader does not have leave shards where they are, and the plan says so", func(t *testing.T, g *group) {
		old := g.startOld("old", def("job", 1, 4, ""))
		a := g.start("a", def("job", 1, 4, ""))
		a.Offer(offering(def("job", 2, 4, `,"strategy":"of a later version"`)))
		until(1)
		assert.Equal(t, map[string]int{"old": 2, "a": 2}, g.shares("job"))
		assert.Contains(t, g.plan("job").Problem, "of a later version")
		g.start("b", def("job", 2, 4, `,"strategy":"of a later version"`))
		assert.Equal(t, map[string]int{"old": 2, "a": 2}, g.shares("job"))
		old.goes()
		assert.Equal(t, map[string]int{"a": 2, "b": 2}, g.shares("job"))
	})
	bubble(t, "that the leader cannot plan by are left alone, and those in force go on", func(t *testing.T, g *group) {
		old := g.startOld("old", def("job", 1, 2, ""))
		text := def("job", 2, 2, `,"on_crash":"think about it"`)
		g.put(g.keys.Job("job"), text)
		old.Offer(offering(def("other", 0, 1, "")))
		ran("", old)
		until(2)
		assert.Equal(t, 4, len(of("job", old.began())))
		assert.Equal(t, text, g.text(g.keys.Job("job")))
		assert.Contains(t, old.log.String(), string(g.keys.Job("job")))
		assert.Equal(t, map[string]string{"old": "0"}, g.owners("other"))
	})
}

func TestPlan_ClearsEpochsThatTheLeaderCannotCompile(t *testing.T) {
	setUp := func(t *testing.T) (*world, string) {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 2, 1, lunar)
		w.settle()
		w.v.compile = func(def json.RawMessage) (Program, error) {
			if strings.Contains(string(def), "lunar") {
				return nil, errors.New("a word that it does not know")
			}
			return minutely{}, nil
		}
		w.define("job", 2, 2, "")
		w.settle()
		require.Len(t, w.plan("job").Epochs, 2)
		w.v.now, w.v.tidy = at(10), true
		return w, a
	}
	t.Run("not while somebody offers the job, who serves what they owe", func(t *testing.T) {
		w, _ := setUp(t)
		w.settle()
		assert.Len(t, w.plan("job").Epochs, 2)
	})
	t.Run("when all shards have claimed fires of a later one", func(t *testing.T) {
		w, a := setUp(t)
		w.claim(a, "job", func(c *record.Claims) {
			c.Marks = c.Marks.Raise(shardset.Of(0), record.Mark{Gen: 2, Fire: at(9), Attempt: 1})
		})
		w.settle()
		require.Len(t, w.plan("job").Epochs, 2)
		w.claim(a, "job", func(c *record.Claims) {
			c.Marks = c.Marks.Raise(shardset.Of(1), record.Mark{Gen: 2, Fire: at(9), Attempt: 1})
		})
		w.settle()
		assert.Len(t, w.plan("job").Epochs, 1)
	})
	t.Run("when nobody who is there offers the job, and says what is given up", func(t *testing.T) {
		w, a := setUp(t)
		w.change(a, func(m *record.Member) { m.Jobs, m.NotUnderstood = nil, []string{"job"} })
		var why []string
		for range 5 {
			for _, c := range w.round().changes {
				why = append(why, c.why...)
			}
		}
		assert.Empty(t, w.owners("job"))
		assert.Len(t, w.plan("job").Epochs, 1)
		assert.Contains(t, why, "give up what generation 1 may owe: nobody who is there understands its definition")
	})
	t.Run("never while a re-run of theirs waits", func(t *testing.T) {
		w, a := setUp(t)
		w.running(a, "job", shardset.Of(1), fire(0, 1))
		w.kill(a)
		w.settle()
		assert.Len(t, w.plan("job").Epochs, 2)
		assert.Len(t, w.plan("job").Reruns, 1)
	})
}

func TestRolling_Records(t *testing.T) {
	more := func(g *group, key registry.Key) {
		g.t.Helper()
		g.put(key, strings.TrimSuffix(g.text(key), "}")+`,"later":{"a":[1,"é"]}}`)
	}
	const kept = `"later":{"a":[1,"é"]}`

	bubble(t, "keep what a later version has added, when an older one writes them", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 1, 2, `,"later":7`))
		require.NoError(t, a.Disable(t.Context(), Scope{Job: "job", Shards: []int{0}}))
		require.NoError(t, a.Disable(t.Context(), Scope{Hosts: []string{"x"}}))
		a.goes() // while an instance leads, nobody else writes plans
		for _, key := range []registry.Key{g.keys.Plan("job"), g.keys.Control("job"), g.keys.GroupControl()} {
			more(g, key)
		}
		a = g.start("a", def("job", 1, 2, ""))
		b := g.start("b", def("job", 1, 2, "")) // of the same revision: what is stored stays
		_, err := b.Trigger(t.Context(), "job", "", []int{1})
		require.NoError(t, err)
		require.NoError(t, b.Pause(t.Context(), "job"))
		require.NoError(t, b.Enable(t.Context(), Scope{Job: "job", Shards: []int{0}}))
		require.NoError(t, b.Disable(t.Context(), Scope{Hosts: []string{"y"}}))
		time.Sleep(time.Second)
		a.goes()
		p := g.plan("job")
		assert.True(t, p.Paused)
		assert.True(t, p.Disabled.IsZero())
		assert.Equal(t, map[string]string{"b": "0-1"}, g.owners("job"))
		assert.Contains(t, g.text(g.keys.Plan("job")), kept)
		assert.Contains(t, g.text(g.keys.Control("job")), kept)
		assert.Contains(t, g.text(g.keys.GroupControl()), kept)
		assert.Contains(t, string(p.Last().Def), `"later":7`)
	})
	bubble(t, "of a store of a newer format are refused by name, and nothing is written", func(t *testing.T, g *group) {
		g.put(g.keys.Meta(), fmt.Sprintf(`{"format":%d}`, record.Format+1))
		before := g.server.Dump()
		a := g.begin(g.worker("a", nil, def("job", 0, 1, "")))
		err := a.AwaitJoined(t.Context())
		require.ErrorIs(t, err, ErrNewerFormat)
		assert.ErrorContains(t, err, string(g.keys.Meta()))
		<-a.done
		assert.ErrorIs(t, a.err, ErrNewerFormat)
		a.err = nil
		assert.Equal(t, before, g.server.Dump())
	})
	bubble(t, "of a job whose plan has a newer format are left alone, and other jobs go on", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""), def("other", 0, 2, ""))
		b := g.start("b", def("job", 0, 2, ""), def("other", 0, 2, ""))
		until(1)
		ran("", a, b)
		key := g.keys.Plan("job")
		readable := g.text(key)
		g.put(key, strings.Replace(readable, `"format":1`, fmt.Sprintf(`"format":%d,"later":1`, record.Format+1), 1))
		newer := g.text(key)
		dead := b.incarnation()
		g.server.Partition("b")
		until(3)
		runs := a.began()
		assert.Empty(t, of("job", runs))
		assert.NotEmpty(t, of("other", runs))
		assert.Equal(t, map[string]string{"a": "0-1"}, g.owners("other"))
		assert.Equal(t, newer, g.text(key))
		assert.Contains(t, a.log.String(), string(key))
		assert.Contains(t, a.log.String(), ErrNewerFormat.Error())
		_, found := g.get(g.keys.Claims(dead, "job"))
		assert.True(t, found, "who can read the plan has to take it in")
		g.put(key, readable)
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0-1"}, g.owners("job"))
		assert.Equal(t, once(2), ran("job", a))
	})
}

// of returns those of runs that are of a job.
func of(job string, runs []Run) (out []Run) {
	for _, r := range runs {
		if r.Job == job {
			out = append(out, r)
		}
	}
	return out
}

// shares returns how many shards of a job each instance owns.
func (g *group) shares(job string) map[string]int {
	g.t.Helper()
	out := map[string]int{}
	for inc, shards := range g.plan(job).Owners {
		name, _, _ := strings.Cut(inc, ".")
		out[name] = shards.Len()
	}
	return out
}
