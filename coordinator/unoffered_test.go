package coordinator

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_Unoffered(t *testing.T) {
	// setUp returns a world in which a owned a job's two shards, and no longer offers it: shard 0 has
	// claimed minute 1, and shard 1 nothing.
	setUp := func(t *testing.T, more string) (w *world, a string) {
		w = newWorld(t)
		a = w.member("a", "job", "other")
		w.define("job", 2, 0, more)
		w.settle()
		w.claim(a, "job", func(c *record.Claims) { c.Marks = c.Marks.Raise(shardset.Of(0), fire(1, 1).Mark()) })
		w.v.now = at(2)
		w.change(a, func(m *record.Member) { m.Jobs = []string{"other"} })
		w.settle()
		return w, a
	}
	offer := func(w *world, inc string) {
		w.change(inc, func(m *record.Member) { m.Jobs = []string{"job", "other"} })
		w.settle()
	}
	t.Run("the plan names the problem and the instant, and is written once", func(t *testing.T) {
		w, _ := setUp(t, "")
		p := w.plan("job")
		assert.Equal(t, notOffered, p.Problem)
		assert.Equal(t, at(2), p.Unoffered)
		assert.Empty(t, p.Owners)
		w.v.now = at(100)
		assert.Empty(t, w.round().changes)
	})
	t.Run("within the hour all is as it was", func(t *testing.T) {
		w, a := setUp(t, "")
		w.v.now = at(62) - 1
		offer(w, a)
		p := w.plan("job")
		assert.Empty(t, p.Problem)
		assert.Zero(t, p.Unoffered)
		assert.Len(t, p.Epochs, 1)
		assert.Zero(t, p.Last().Until)
		assert.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
	})
	t.Run("after it the job owes nothing, and what it owed is counted as skipped", func(t *testing.T) {
		w, a := setUp(t, "")
		w.v.now = at(62)
		offer(w, a)
		p := w.plan("job")
		assert.Empty(t, p.Problem)
		assert.Zero(t, p.Unoffered)
		require.Equal(t, 2, p.Last().Gen)
		assert.Equal(t, at(62).Add(w.v.skew), p.Last().From)
		assert.EqualValues(t, 60+61, p.Counts.Skipped)
		assert.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
		in := claiming{me: a, plan: p, programs: map[int]Program{1: minutely{}, 2: minutely{}}, now: at(62).Add(10 * time.Second), open: true}
		out := in.claim()
		assert.Empty(t, out.starts)
		assert.Zero(t, out.claims.Counts.Skipped)
		assert.Equal(t, at(63), out.wake)
	})
	t.Run("earlier epochs are cleared", func(t *testing.T) {
		w, a := setUp(t, "")
		w.v.now = at(62)
		offer(w, a)
		w.v.tidy = true
		w.settle()
		assert.Len(t, w.plan("job").Epochs, 1)
	})
	t.Run("pending re-runs are counted as lost, and triggers stay", func(t *testing.T) {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 2, 0, "")
		w.settle()
		w.running(a, "job", shardset.Of(0), fire(0, 1))
		w.running(a, "job", shardset.Of(1), record.Ref{Gen: 1, Fire: at(0), Trigger: 1, Attempt: 1})
		w.v.plans["job"].Triggers = []record.Trigger{{Number: 1, Gen: 1, At: at(0)}, {Number: 2, Gen: 1, At: at(0)}}
		b := w.member("b", "other")
		w.kill(a)
		w.settle()
		require.Equal(t, "0-1", w.plan("job").Reruns.Shards().String())
		require.NotZero(t, w.plan("job").Unoffered)
		w.v.now = w.plan("job").Unoffered.Add(time.Hour)
		offer(w, b)
		p := w.plan("job")
		assert.Empty(t, p.Reruns)
		assert.EqualValues(t, 2, p.Counts.Lost)
		assert.Len(t, p.Failures, 2)
		require.Len(t, p.Triggers, 2)
		in := claiming{me: b, plan: p, programs: map[int]Program{1: minutely{}, 2: minutely{}}, now: w.v.now, open: true}
		starts := in.claim().starts
		for shard, number := range []uint64{1, 2} {
			r, _ := starts.Of(shard)
			assert.Equal(t, record.Ref{Gen: 1, Fire: at(0), Trigger: number, Attempt: 1}, r)
		}
	})
	t.Run("the number is not known where the leader does not understand the definition", func(t *testing.T) {
		w, a := setUp(t, "")
		w.v.now = at(62)
		w.v.compile = func(json.RawMessage) (Program, error) { return nil, errors.New("not understood") }
		w.change(a, func(m *record.Member) { m.Jobs = []string{"job", "other"} })
		d := w.round()
		require.Len(t, d.changes, 1)
		assert.Contains(t, d.changes[0].why, "give up what generation 1 may owe: this leader does not understand its definition")
		assert.Zero(t, w.plan("job").Counts.Skipped)
	})
	t.Run("a job that is paused stays so, and owes nothing when it resumes", func(t *testing.T) {
		w, a := setUp(t, "")
		w.intend("job", func(c *record.Control) { c.Paused = true })
		w.settle()
		w.v.now = at(62)
		offer(w, a)
		p := w.plan("job")
		require.True(t, p.Paused)
		require.Len(t, p.Epochs, 1)
		assert.EqualValues(t, 0+1, p.Counts.Skipped, "minute 1 of shard 1; the pause began at minute 2")
		w.intend("job", func(c *record.Control) { c.Paused = false })
		w.settle()
		assert.Equal(t, at(62).Add(w.v.skew), w.plan("job").Last().From)
	})
	t.Run("a job whose schedule is stopped stays so", func(t *testing.T) {
		w, a := setUp(t, "")
		w.intend("job", func(c *record.Control) { c.Stopped = true })
		w.settle()
		w.v.now = at(62)
		offer(w, a)
		p := w.plan("job")
		require.True(t, p.Stopped)
		require.Len(t, p.Epochs, 1)
		assert.NotZero(t, p.Last().Until, "no fire is due before the resume")
		w.intend("job", func(c *record.Control) { c.Stopped = false })
		w.settle()
		assert.Equal(t, at(62).Add(w.v.skew), w.plan("job").Last().From)
	})
	t.Run("the newest definition begins", func(t *testing.T) {
		w, a := setUp(t, "")
		w.v.now = at(62)
		w.define("job", 3, 1, "")
		offer(w, a)
		assert.Equal(t, 3, w.plan("job").Last().Job().Shards)
		assert.Equal(t, 2, w.plan("job").Last().Gen)
	})
	t.Run("the hour begins when the last shard has lost its owner", func(t *testing.T) {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 2, 0, "")
		w.settle()
		w.running(a, "job", shardset.Of(0), fire(0, 1))
		w.change(a, func(m *record.Member) { m.Jobs = nil })
		w.settle()
		assert.Equal(t, notOffered, w.plan("job").Problem)
		assert.Zero(t, w.plan("job").Unoffered)
		w.v.now = at(90)
		w.claim(a, "job", func(c *record.Claims) { c.Running = nil })
		w.settle()
		assert.Equal(t, at(90), w.plan("job").Unoffered)
	})
	for name, change := range map[string]func(w *world){
		"is disabled": func(w *world) {
			w.intend("job", func(c *record.Control) { c.Instances = []string{"a"} })
		},
		"does not understand it": func(w *world) {
			w.change("a.a", func(m *record.Member) { m.Jobs, m.NotUnderstood = nil, []string{"job"} })
		},
		"drains": func(w *world) { w.change("a.a", func(m *record.Member) { m.Draining = true }) },
		"has a clock that is off": func(w *world) {
			w.v.off = map[string]record.Duration{"a.a": record.Duration(time.Hour)}
		},
		"is gone, and is awaited": func(w *world) {
			w.change("a.a", func(m *record.Member) { m.RestartGrace = record.Duration(time.Hour) })
			w.kill("a.a")
			w.v.away = map[string]time.Duration{"a.a": time.Second}
		},
	} {
		t.Run("a job is offered though the instance that has it "+name, func(t *testing.T) {
			w := newWorld(t)
			w.member("a", "job")
			w.define("job", 2, 0, "")
			w.settle()
			change(w)
			w.settle()
			assert.Zero(t, w.plan("job").Unoffered)
			assert.NotEqual(t, notOffered, w.plan("job").Problem)
		})
	}
}

func TestUnoffered(t *testing.T) {
	// removed returns the runs that are made in the first seconds and in the ten minutes after a job was
	// offered by a and b, withdrawn from both for some time, and offered again.
	removed := func(t *testing.T, g *group, away time.Duration, meanwhile func(a, b *worker)) (atOnce, later []Run) {
		job, other := def("job", 0, 2, ""), def("other", 0, 2, `,"start_paused":true`)
		a, b := g.start("a", job, other), g.start("b", job, other)
		time.Sleep(90 * time.Second)
		a.Withdraw("job")
		b.Withdraw("job")
		time.Sleep(10 * time.Second)
		assert.Equal(t, notOffered, g.plan("job").Problem)
		meanwhile(a, b)
		time.Sleep(away)
		all := func() (runs []Run) {
			for _, w := range g.members {
				for _, r := range w.began() {
					if r.Job == "job" {
						runs = append(runs, r)
					}
				}
			}
			return runs
		}
		all()
		last := g.members[len(g.members)-1]
		last.Offer(offering(job))
		time.Sleep(10 * time.Second)
		assert.Empty(t, g.plan("job").Problem)
		atOnce = all()
		time.Sleep(10 * time.Minute)
		return atOnce, all()
	}
	nothing := func(a, b *worker) {}
	bubble(t, "a job that is offered again after 30 days owes nothing", func(t *testing.T, g *group) {
		atOnce, later := removed(t, g, 30*24*time.Hour, nothing)
		assert.Empty(t, atOnce)
		assert.Len(t, later, 20)
		for _, r := range later {
			assert.False(t, r.Missed)
		}
	})
	bubble(t, "after 30 minutes its misfire policy holds", func(t *testing.T, g *group) {
		atOnce, later := removed(t, g, 30*time.Minute, nothing)
		assert.Len(t, atOnce, 2)
		assert.Len(t, later, 20)
	})
	bubble(t, "another leader goes on from the same instant", func(t *testing.T, g *group) {
		atOnce, _ := removed(t, g, 30*time.Minute, func(a, b *worker) {
			time.Sleep(40 * time.Minute)
			led := g.leader().Session
			for _, w := range []*worker{a, b} {
				if w.session() == led {
					w.goes()
				}
			}
		})
		assert.Empty(t, atOnce)
	})
	bubble(t, "a fleet that is down as a whole does not count as unoffered", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		time.Sleep(90 * time.Second)
		a.goes()
		time.Sleep(30 * 24 * time.Hour)
		b := g.start("b", def("job", 0, 2, ""))
		time.Sleep(10 * time.Second)
		assert.Len(t, b.began(), 2)
	})
}
