package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestClaim_Ahead(t *testing.T) {
	waiting := func(t *testing.T, minute int) *claiming {
		in := claimant(t, 2)
		in.now, in.skew = at(1), 5*time.Second
		in.claims.Marks = in.claims.Marks.Raise(shardset.Of(1), fire(minute, 1).Mark())
		return in
	}
	t.Run("a watermark ahead of all clocks is told, with the generation that it is of", func(t *testing.T) {
		in := waiting(t, 60)
		out := in.claim()
		assert.Equal(t, record.Ahead{Gen: 1, At: at(60)}, out.ahead)
		assert.Equal(t, "0", out.starts.Shards().String(), "the other shard goes on")
	})
	t.Run("so is a generation that is to begin only then", func(t *testing.T) {
		in := waiting(t, 0)
		in.plan.Epochs[0].From = at(90)
		assert.Equal(t, record.Ahead{Gen: 1, At: at(90)}, in.claim().ahead)
	})
	t.Run("what clocks within the limit may have written is not", func(t *testing.T) {
		in := waiting(t, 2)
		in.now = at(2).Add(-15 * time.Second)
		assert.Zero(t, in.claim().ahead)
		in.now--
		assert.Equal(t, record.Ahead{Gen: 1, At: at(2)}, in.claim().ahead)
	})
	t.Run("nothing is told where clocks are not compared", func(t *testing.T) {
		in := waiting(t, 60)
		in.skew = 0
		assert.Zero(t, in.claim().ahead)
	})
	t.Run("nor of a generation that has an end", func(t *testing.T) {
		in := waiting(t, 60)
		in.plan.Epochs[0].Until = at(70)
		assert.Zero(t, in.claim().ahead)
	})
	t.Run("nor of the one before", func(t *testing.T) {
		in := waiting(t, 60)
		in.plan.Epochs[0].Until = at(1)
		in.plan.Epochs = append(in.plan.Epochs, epoch(t, 2, at(1), 2))
		assert.Zero(t, in.claim().ahead)
	})
	t.Run("what was told stands while there is nothing to look at", func(t *testing.T) {
		in := waiting(t, 60)
		in.said = in.claim().ahead
		in.open = false
		assert.Equal(t, in.said, in.claim().ahead)
		in.plan.Epochs[0].Gen = 2
		assert.Zero(t, in.claim().ahead, "of another generation it says nothing")
	})
	t.Run("fires that may have been claimed before begin with another attempt", func(t *testing.T) {
		in := claimant(t, 1)
		in.plan.Epochs[0].Again, in.plan.Epochs[0].Attempt = at(2), 4
		for n, first := range map[int]int{1: 4, 2: 4, 3: 1} {
			in.now = at(n)
			assert.Equal(t, runs(shardset.Of(0), fire(n, first)), in.claim().starts)
		}
	})
}

func TestPlan_Ahead(t *testing.T) {
	// setUp returns a world in which a is the owner of a job's two shards, one of which waits for
	// minute 60.
	setUp := func(t *testing.T, more string) (w *world, a string) {
		w = newWorld(t)
		w.v.sure = true
		a = w.member("a", "job")
		w.define("job", 2, 0, more)
		w.settle()
		w.claim(a, "job", func(c *record.Claims) { c.Marks = c.Marks.Raise(shardset.Of(1), fire(60, 1).Mark()) })
		w.change(a, func(m *record.Member) { m.Ahead = map[string]record.Ahead{"job": {Gen: 1, At: at(60)}} })
		w.v.now = at(1)
		return w, a
	}
	t.Run("a generation that is ahead of all clocks ends, and another begins by the same definition", func(t *testing.T) {
		w, _ := setUp(t, "")
		w.round()
		require.Len(t, w.plan("job").Epochs, 1)
		assert.Equal(t, at(1).Add(w.v.skew), w.plan("job").Last().Until)
		w.settle()
		p := w.plan("job")
		require.Len(t, p.Epochs, 2)
		assert.Equal(t, at(1).Add(w.v.skew), p.Last().From)
		assert.Zero(t, p.Last().Until)
		assert.Equal(t, string(p.Epochs[0].Def), string(p.Last().Def))
	})
	t.Run("the fires that may have been claimed are in it with attempts that they have not had", func(t *testing.T) {
		w, _ := setUp(t, `,"max_attempts":7`)
		w.settle()
		last := w.plan("job").Last()
		assert.Equal(t, at(60), last.Again)
		assert.Equal(t, 8, last.First(at(60)))
		assert.Equal(t, 1, last.First(at(61)))
	})
	t.Run("which the generations after it know of, too", func(t *testing.T) {
		w, _ := setUp(t, "")
		w.settle()
		w.define("job", 2, 1, "")
		w.settle()
		p := w.plan("job")
		require.Equal(t, 3, p.Last().Gen)
		assert.Equal(t, at(60), p.Last().Again)
		assert.Equal(t, 7, p.Last().Attempt)
		w.v.now = at(70)
		w.define("job", 2, 2, "")
		w.settle()
		assert.Zero(t, w.plan("job").Last().Again, "when their time has come nothing is left of it")
	})
	t.Run("a run may be begun as often as any other then", func(t *testing.T) {
		w, a := setUp(t, `,"max_attempts":2`)
		w.settle()
		w.v.now = at(2)
		again := record.Ref{Gen: 2, Fire: at(2), Attempt: 3}
		w.running(a, "job", shardset.Of(0), again)
		b := w.member("b", "job")
		w.kill(a)
		w.settle()
		again.Attempt++
		assert.Equal(t, runs(shardset.Of(0), again), w.plan("job").Reruns)
		w.running(b, "job", shardset.Of(0), again)
		w.kill(b)
		w.settle()
		assert.Empty(t, w.plan("job").Reruns)
		assert.EqualValues(t, 1, w.plan("job").Counts.Lost)
	})
	t.Run("one that begins ahead of all clocks ends before it has begun, and what comes before it then", func(t *testing.T) {
		w, _ := setUp(t, "")
		w.v.now = at(30) // by a clock that is wrong
		w.define("job", 2, 1, "")
		w.change("a.a", func(m *record.Member) { m.Ahead = nil })
		w.settle()
		require.Len(t, w.plan("job").Epochs, 2)
		w.v.now = at(1)
		w.change("a.a", func(m *record.Member) {
			m.Ahead = map[string]record.Ahead{"job": {Gen: 2, At: at(30).Add(w.v.skew)}}
		})
		w.settle()
		p := w.plan("job")
		require.Equal(t, 3, p.Last().Gen)
		from := at(1).Add(w.v.skew)
		assert.Equal(t, []record.Instant{from, from, 0}, []record.Instant{p.Epochs[0].Until, p.Epochs[1].Until, p.Last().Until})
		assert.Equal(t, from, p.Last().From)
		assert.Equal(t, at(60), p.Last().Again)
	})
	t.Run("what was claimed when the end of a generation was committed still belongs to what it ends", func(t *testing.T) {
		w, a := setUp(t, "")
		w.round()
		w.v.now = at(2).Add(-w.v.skew) // the commit took its time
		w.claim(a, "job", func(c *record.Claims) { c.Marks = c.Marks.Raise(shardset.Of(0), fire(2, 1).Mark()) })
		w.settle()
		p := w.plan("job")
		assert.Equal(t, at(2)+1, p.Epochs[0].Until)
		assert.Equal(t, at(2)+1, p.Last().From)
	})
	t.Run("also where that is not the latest", func(t *testing.T) {
		w, a := setUp(t, "")
		w.v.plans["job"].Epochs[0].Until = at(30)
		w.v.plans["job"].Epochs = append(w.v.plans["job"].Epochs, epoch(t, 2, at(30), 2))
		w.change(a, func(m *record.Member) { m.Ahead = map[string]record.Ahead{"job": {Gen: 2, At: at(30)}} })
		w.round()
		w.v.now = at(2).Add(-w.v.skew)
		w.claim(a, "job", func(c *record.Claims) { c.Marks = c.Marks.Raise(shardset.Of(0), fire(2, 1).Mark()) })
		w.settle()
		p := w.plan("job")
		require.Equal(t, 3, p.Last().Gen)
		assert.Equal(t, []record.Instant{at(2) + 1, at(2) + 1}, []record.Instant{p.Epochs[0].Until, p.Last().From})
	})
	t.Run("attempts go on after those of every generation that may have claimed", func(t *testing.T) {
		w, a := setUp(t, `,"max_attempts":7`)
		w.v.plans["job"].Epochs[0].Until = at(90)
		w.v.plans["job"].Epochs = append(w.v.plans["job"].Epochs, epoch(t, 2, at(90), 2))
		w.change(a, func(m *record.Member) { m.Ahead = map[string]record.Ahead{"job": {Gen: 2, At: at(90)}} })
		w.settle()
		assert.Equal(t, 8, w.plan("job").Last().First(at(60)))
	})
	t.Run("what may have been claimed is known when no watermark tells of it any more", func(t *testing.T) {
		w, a := setUp(t, "")
		w.settle()
		w.v.now = at(3)
		w.claim(a, "job", func(c *record.Claims) {
			c.Marks = c.Marks.Raise(shardset.Range(0, 2), record.Mark{Gen: 2, Fire: at(3), Attempt: 4})
		})
		w.define("job", 2, 1, "")
		w.settle()
		assert.Equal(t, at(60), w.plan("job").Last().Again)
	})
	t.Run("a pause by a clock that was wrong ends with the resume", func(t *testing.T) {
		w, _ := setUp(t, "")
		w.v.now = at(50)
		w.intend("job", func(c *record.Control) { c.Paused = true })
		w.settle()
		w.v.now = at(3)
		w.intend("job", func(c *record.Control) { c.Paused = false })
		w.settle()
		p := w.plan("job")
		assert.Equal(t, p.Last().From, p.Epochs[0].Until)
	})
	for name, change := range map[string]func(w *world){
		"this clock has not been compared":    func(w *world) { w.v.sure = false },
		"it is not ahead of this clock":       func(w *world) { w.v.now = at(60).Add(-15 * time.Second) },
		"who says so has a clock that is off": func(w *world) { w.v.off = map[string]record.Duration{"a.a": record.Duration(time.Hour)} },
		"it is said of another generation": func(w *world) {
			w.change("a.a", func(m *record.Member) { m.Ahead["job"] = record.Ahead{Gen: 3, At: at(60)} })
		},
		"it is said of another job": func(w *world) {
			w.change("a.a", func(m *record.Member) { m.Ahead = map[string]record.Ahead{"j": {Gen: 1, At: at(60)}} })
		},
		"the generation that is ahead has its end": func(w *world) { w.plan("job").Last().Until = at(70) },
	} {
		t.Run("nothing is cut back where "+name, func(t *testing.T) {
			w, _ := setUp(t, "")
			change(w)
			for _, c := range w.round().changes {
				assert.NotContains(t, c.why[0], "ahead of all clocks")
			}
		})
	}
	t.Run("nothing is cut back where the job is paused, and the resume leaves it behind", func(t *testing.T) {
		w, _ := setUp(t, "")
		w.intend("job", func(c *record.Control) { c.Paused = true })
		w.settle()
		require.Len(t, w.plan("job").Epochs, 1)
		w.v.now = at(3)
		w.intend("job", func(c *record.Control) { c.Paused = false })
		w.settle()
		p := w.plan("job")
		require.Len(t, p.Epochs, 2)
		assert.Equal(t, at(3).Add(w.v.skew), p.Last().From)
		assert.Equal(t, at(60), p.Last().Again)
	})
}

func TestPlan_ResumeLooks(t *testing.T) {
	t.Run("a job that tracks nothing resumes when its owners have heard of the pause", func(t *testing.T) {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 2, 0, `,"tracking":"nothing"`)
		w.settle()
		w.intend("job", func(c *record.Control) { c.Paused = true })
		w.settle()
		w.intend("job", func(c *record.Control) { c.Paused = false })
		d := w.round()
		assert.True(t, w.plan("job").Paused)
		assert.Equal(t, []string{a}, d.pending, "its claims are followed")
		w.claim(a, "job", func(c *record.Claims) { c.Plan = w.v.plans["job"].rev.Seq })
		w.settle()
		assert.False(t, w.plan("job").Paused)
		assert.Equal(t, 2, w.plan("job").Last().Gen)
	})
	t.Run("any other resumes at once", func(t *testing.T) {
		w := newWorld(t)
		w.member("a", "job")
		w.define("job", 2, 0, "")
		w.settle()
		w.intend("job", func(c *record.Control) { c.Paused = true })
		w.settle()
		w.intend("job", func(c *record.Control) { c.Paused = false })
		w.round()
		assert.False(t, w.plan("job").Paused)
	})
}

func TestClocksAgree(t *testing.T) {
	compared := func() *leader {
		return &leader{m: &Member{clocks: true}, me: "a.a", view: view{off: map[string]record.Duration{"b.b": 1}}}
	}
	assert.True(t, compared().clocksAgree(), "though another's is off")
	for name, change := range map[string]func(l *leader){
		"where nobody looks":                     func(l *leader) { l.m.clocks = false },
		"before a reading is told":               func(l *leader) { l.telling = true },
		"while answers may be on their way":      func(l *leader) { l.judging = time.Now().Add(answering) },
		"while two differ":                       func(l *leader) { l.differ = true },
		"while the leader's own is known as off": func(l *leader) { l.view.off["a.a"] = 1 },
	} {
		t.Run("not "+name, func(t *testing.T) {
			l := compared()
			change(l)
			assert.False(t, l.clocksAgree())
		})
	}
}

func TestAhead_IsOnRecord(t *testing.T) {
	bubble(t, "while it is so, and no longer", func(t *testing.T, g *group) {
		g.sets("a", time.Hour)
		g.start("a", def("job", 0, 2, ""))
		time.Sleep(90 * time.Second)
		b := g.start("b", def("job", 0, 2, ""))
		time.Sleep(10 * time.Second)
		ahead := func() map[string]record.Ahead {
			e, ok := g.get(g.keys.Member(b.incarnation()))
			require.True(t, ok)
			m, err := record.Decode[record.Member](e.Value)
			require.NoError(t, err)
			return m.Ahead
		}
		require.Contains(t, ahead(), "job")
		g.sets("a", 0)
		time.Sleep(30 * time.Second)
		assert.Empty(t, ahead())
		assert.Equal(t, 2, g.plan("job").Last().Gen)
	})
}
