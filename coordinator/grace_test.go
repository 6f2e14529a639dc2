package coordinator

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// absent has a leader see for so long that a member is away that asks for a minute.
func (w *world) absent(inc string, lasting time.Duration) {
	w.change(inc, func(m *record.Member) { m.RestartGrace = record.Duration(time.Minute) })
	if w.v.away == nil {
		w.v.away = map[string]time.Duration{}
	}
	w.v.away[inc] = lasting
}

func TestPlan_RestartGrace(t *testing.T) {
	const strange = `,"strategy":"average"`
	setUp := func(t *testing.T, more string) (w *world, a, b, c string) {
		w = newWorld(t)
		a, b, c = w.member("a", "job"), w.member("b", "job"), w.member("c", "job")
		w.define("job", 6, 0, more)
		w.settle()
		w.kill(b)
		w.absent(b, time.Second)
		return w, a, b, c
	}
	for _, more := range []string{"", strange} {
		t.Run("leaves the shards of one that died where they are, with what they run"+more, func(t *testing.T) {
			w, _, b, _ := setUp(t, more)
			w.running(b, "job", w.plan("job").Owners[b], fire(1, 1))
			before := w.owners("job")
			w.settle()
			assert.Equal(t, before, w.owners("job"))
			assert.NotEmpty(t, w.claims[b])
		})
		t.Run("gives them to one of its name that comes, and its runs, and moves no other"+more, func(t *testing.T) {
			w, a, b, c := setUp(t, more)
			had := w.owners("job")
			w.running(b, "job", w.plan("job").Owners[b], fire(1, 1))
			back := w.enter("b", "later", "job")
			d := w.round()
			require.Len(t, d.changes, 1)
			assert.Equal(t, map[string]string{a: had[a], back: had[b], c: had[c]}, w.owners("job"))
			assert.Equal(t, record.Runs(nil).With(w.plan("job").Owners[back], fire(1, 2)), w.plan("job").Reruns)
			w.settle()
			assert.Equal(t, map[string]string{a: had[a], back: had[b], c: had[c]}, w.owners("job"))
		})
		t.Run("over, they move as usual"+more, func(t *testing.T) {
			w, _, b, _ := setUp(t, more)
			w.running(b, "job", w.plan("job").Owners[b], fire(1, 1))
			lost := w.plan("job").Owners[b]
			w.absent(b, time.Minute)
			w.settle()
			assert.NotContains(t, w.owners("job"), b)
			assert.Len(t, w.owners("job"), 2)
			assert.Equal(t, lost, w.plan("job").Reruns.Shards())
			assert.NotContains(t, w.v.members, b, "it is buried")
		})
		t.Run("of one that drains keeps its idle shards"+more, func(t *testing.T) {
			w, a, b, _ := setUp(t, more)
			before := w.owners("job")
			w.change(a, func(m *record.Member) { m.Draining = true })
			w.absent(a, time.Second)
			w.settle()
			assert.Equal(t, before, w.owners("job"))
			w.absent(a, time.Minute)
			w.settle()
			assert.NotContains(t, w.owners("job"), a, "but not for ever")
			assert.Contains(t, w.owners("job"), b)
		})
	}
	t.Run("gives each its own when several come back at once", func(t *testing.T) {
		w := newWorld(t)
		w.define("job", 6, 0, "")
		for _, name := range []string{"c", "b", "a"} {
			w.member(name, "job")
			w.settle()
		}
		had := w.owners("job")
		require.Equal(t, "0-1", had["c.c"], "not what they would be dealt")
		later := map[string]string{}
		for inc, shards := range had {
			w.kill(inc)
			w.absent(inc, time.Second)
			later[w.enter(w.v.members[inc].Name, registry.SessionID("later"+inc[:1]), "job")] = shards
		}
		w.settle()
		assert.Equal(t, later, w.owners("job"))
	})
	t.Run("leaves one that is away what it has, and no more, whatever a strategy says", func(t *testing.T) {
		w, a, b, c := setUp(t, strange)
		w.v.live["b"] = true
		w.change(b, func(m *record.Member) { m.Draining = true })
		require.Equal(t, map[string]string{a: "4-5", b: "2-3", c: "0-1"}, w.owners("job"))
		w.member("aa", "job") // so that average wants 0,4 for c, 1,5 for b, 2 for aa and 3 for a
		w.settle()
		assert.Equal(t, map[string]string{a: "5", b: "2-3", c: "0-1,4"}, w.owners("job"))
	})
	t.Run("deals what is free among those who are there", func(t *testing.T) {
		w, a, b, c := setUp(t, "")
		d := w.member("d", "job")
		w.kill(c)
		w.settle()
		assert.Equal(t, map[string]string{a: "0-1", b: "2-3", d: "4-5"}, w.owners("job"))
		w.v.members[a] = memberItem{rev: w.rev(), Member: record.Member{Name: "a", Session: "a", Jobs: []string{"job", "new"}}}
		w.define("new", 2, 0, "")
		w.settle()
		assert.Equal(t, map[string]string{a: "0-1"}, w.owners("new"))
	})
	t.Run("evens out those who are there when another comes", func(t *testing.T) {
		w, a, b, c := setUp(t, "")
		d := w.member("d", "job")
		w.settle()
		assert.Equal(t, "2-3", w.owners("job")[b])
		shares := []int{}
		for _, inc := range []string{a, c, d} {
			shares = append(shares, w.plan("job").Owners[inc].Len())
		}
		assert.ElementsMatch(t, []int{1, 1, 2}, shares)
	})
	t.Run("keeps apart what is blocked while others wait", func(t *testing.T) {
		w, a, b, c := setUp(t, "")
		w.change(a, func(m *record.Member) { m.Blocked = map[string]shardset.Set{"job": shardset.Of(4)} })
		w.kill(c)
		w.settle()
		assert.Equal(t, map[string]string{a: "0-1,5", b: "2-3"}, w.owners("job"), "who may not have 4 is not given it")
	})
	t.Run("ends with a return of one that does not offer the job any more", func(t *testing.T) {
		w, _, b, _ := setUp(t, "")
		w.enter("b", "later", "other")
		w.settle()
		assert.NotContains(t, w.owners("job"), b)
		assert.Len(t, w.owners("job"), 2)
	})
	t.Run("lasts when the one that comes drains at once", func(t *testing.T) {
		w, _, b, _ := setUp(t, "")
		again := w.enter("b", "later", "job")
		w.change(again, func(m *record.Member) { m.Draining = true })
		before := w.owners("job")
		w.settle()
		assert.Equal(t, before, w.owners("job"))
		assert.Contains(t, before, b)
	})
	t.Run("says when to look again", func(t *testing.T) {
		w, a, _, _ := setUp(t, "")
		w.kill(a)
		w.absent(a, 50*time.Second)
		w.decide()
		assert.Equal(t, 10*time.Second, w.v.patience)
	})
	t.Run("of a record that asks for years is an hour", func(t *testing.T) {
		w, _, b, _ := setUp(t, "")
		w.change(b, func(m *record.Member) { m.RestartGrace = record.Duration(1e6 * time.Hour) })
		w.v.away[b] = time.Hour
		w.settle()
		assert.NotContains(t, w.owners("job"), b)
	})
}

// fiveOf starts five members of a job with 20 shards.
func (g *group) fiveOf() map[string]string {
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		g.start(name, def("job", 0, 20, ""))
	}
	g.server.Record()
	return g.owners("job")
}

// passed returns how often a shard went from an instance of one name to one of another,
// since the last call, given who had them.
func (g *group) passed(had map[string]string) (moves int) {
	owner := map[int]string{}
	for name, text := range had {
		var set shardset.Set
		require.NoError(g.t, set.UnmarshalText([]byte(text)))
		for s := range set.All() {
			owner[s] = name
		}
	}
	for _, c := range g.commits() {
		for _, op := range c.Then {
			if op.Key != g.keys.Plan("job") {
				continue
			}
			p, err := record.DecodePlan(op.Value)
			require.NoError(g.t, err)
			for inc, set := range p.Owners {
				name := inc[:1]
				for s := range set.All() {
					if owner[s] != name {
						owner[s] = name
						moves++
					}
				}
			}
		}
	}
	return moves
}

// roll restarts one member after another, each of which is away for five seconds, and
// checks that every shard runs every fire once.
func (g *group) roll() {
	all := map[string]map[int]int{} // by fire
	collect := func(w *worker) {
		for _, r := range w.began() {
			assert.Equal(g.t, 1, r.Attempt)
			if all[r.Fire.String()] == nil {
				all[r.Fire.String()] = map[int]int{}
			}
			all[r.Fire.String()][r.Shard]++
		}
	}
	for i, w := range append([]*worker(nil), g.members...) {
		time.Sleep(time.Until(bubbleBegan().Add(time.Duration(i+1)*time.Minute + 57*time.Second))) // a fire is due while it is away
		w.goes()
		collect(w)
		time.Sleep(5 * time.Second)
		g.startOn(fmt.Sprint(w.Instance(), " again"), w.Instance(), def("job", 0, 20, ""))
	}
	until(7)
	for _, w := range g.members {
		collect(w)
	}
	assert.Len(g.t, all, 7)
	for fire, ran := range all {
		assert.Equal(g.t, once(20), ran, fire)
	}
}

func TestMember_RestartGrace(t *testing.T) {
	bubble(t, "lets a rolling restart move no shard and lose no fire", func(t *testing.T, g *group) {
		g.grace = 30 * time.Second
		had := g.fiveOf()
		g.roll()
		assert.Equal(t, had, g.owners("job"))
		assert.Zero(t, g.passed(had))
	})
	bubble(t, "not asked for, a rolling restart moves the share of each member away and back", func(t *testing.T, g *group) {
		had := g.fiveOf()
		g.roll()
		assert.Equal(t, 5*2*20/5, g.passed(had))
	})
	bubble(t, "over, the shards of one that does not return move", func(t *testing.T, g *group) {
		g.grace = 30 * time.Second
		had := g.fiveOf()
		g.members[3].goes()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		assert.Equal(t, had, g.owners("job"))
		assert.Zero(t, g.passed(had))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Len(t, g.owners("job"), 4)
		assert.Equal(t, 20/5, g.passed(had))
	})
	bubble(t, "counts from the end of a drain", func(t *testing.T, g *group) {
		g.grace = 30 * time.Second
		g.start("a", def("job", 0, 4, ""))
		b := g.startWorking("b", takes(20*time.Second), def("job", 0, 4, ""))
		had := g.owners("job")
		until(1)
		b.goes()
		require.Equal(t, 80*time.Second, time.Since(bubbleBegan()), "it drained for 20 s")
		time.Sleep(25 * time.Second)
		synctest.Wait()
		assert.Equal(t, had, g.owners("job"))
	})
	bubble(t, "does not keep what is idle with one whose function does not return", func(t *testing.T, g *group) {
		g.grace = 30 * time.Second
		g.start("a", def("job", 0, 4, ""))
		b := g.startWorking("b", func(ctx context.Context, r Run) error {
			if r.Shard == 3 {
				return takes(10*time.Minute)(ctx, r)
			}
			return nil
		}, def("job", 0, 4, ""))
		until(1)
		require.NoError(t, b.Drain(t.Context()))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, map[string]string{"a": "0-2", "b": "3"}, g.owners("job"))
	})
	bubble(t, "brings back what a crash ended to the one that comes back", func(t *testing.T, g *group) {
		g.grace = 30 * time.Second
		a := g.startWorking("a", takes(20*time.Second), def("job", 0, 4, ""))
		b := g.startWorking("b", takes(20*time.Second), def("job", 0, 4, ""))
		had := g.owners("job")
		until(1)
		require.Len(t, a.began(), 2)
		require.Len(t, b.began(), 2)
		defer g.server.Partition("b")()
		back := g.startOn("b again", "b", def("job", 0, 4, ""))
		assert.Equal(t, had, g.owners("job"))
		for _, r := range back.began() {
			assert.Equal(t, 2, r.Attempt)
			assert.Contains(t, []int{2, 3}, r.Shard)
		}
		until(2)
		assert.Equal(t, map[int]int{2: 1, 3: 1}, shards(back.began()))
		assert.Equal(t, map[int]int{0: 1, 1: 1}, shards(a.began()))
	})
	bubble(t, "is counted anew by the next leader", func(t *testing.T, g *group) {
		g.grace = 30 * time.Second
		g.fiveOf()
		g.members[4].goes()
		time.Sleep(20 * time.Second)
		leader := g.members[0]
		require.Equal(t, leader.incarnation(), g.leader().Incarnation)
		leader.goes()
		g.startOn("a again", "a", def("job", 0, 20, ""))
		time.Sleep(27 * time.Second)
		synctest.Wait()
		assert.Len(t, g.owners("job"), 5)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Len(t, g.owners("job"), 4)
		assert.NotContains(t, g.owners("job"), "e")
	})
}

func TestNewMember_RestartGrace(t *testing.T) {
	for rule, o := range map[string]MemberOptions{
		"not between 0 and 1h0m0s": {Instance: "a", RestartGrace: -1},
		"is 1h0m1s, not between":   {Instance: "a", RestartGrace: time.Hour + time.Second},
		"without a name":           {RestartGrace: time.Second},
	} {
		o.Namespace = "test"
		_, err := NewMember(nil, o)
		assert.ErrorContains(t, err, rule)
	}
}
