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
	t.Run("a watermark ahead of all clocks is reported, with its generation", func(t *testing.T) {
		in := waiting(t, 60)
		out := in.claim()
		assert.Equal(t, record.Ahead{Gen: 1, At: at(60)}, out.ahead)
		assert.Equal(t, "0", out.starts.Shards().String(), "the other shard goes on")
	})
	t.Run("a watermark that the plan has is reported as well", func(t *testing.T) {
		in := waiting(t, 0)
		in.plan.Marks = in.plan.Marks.Raise(shardset.Of(0), fire(50, 1).Mark())
		assert.Equal(t, record.Ahead{Gen: 1, At: at(50)}, in.claim().ahead)
	})
	t.Run("an epoch that begins ahead of all clocks is reported", func(t *testing.T) {
		in := waiting(t, 0)
		in.plan.Epochs[0].From = at(90)
		assert.Equal(t, record.Ahead{Gen: 1, At: at(90)}, in.claim().ahead)
	})
	t.Run("a watermark that clocks within the limit can have written is not reported", func(t *testing.T) {
		in := waiting(t, 2)
		in.now = at(2).Add(-15 * time.Second)
		assert.Zero(t, in.claim().ahead)
		in.now--
		assert.Equal(t, record.Ahead{Gen: 1, At: at(2)}, in.claim().ahead)
	})
	t.Run("the report ends when the clock comes within the limit, though no fire is due", func(t *testing.T) {
		in := waiting(t, 60)
		in.plan.Owners[in.me] = shardset.Of(1)
		out := in.claim()
		assert.Equal(t, at(60).Add(-15*time.Second), out.wake)
		in.now = out.wake
		assert.Zero(t, in.claim().ahead)
	})
	t.Run("a shard that runs a trigger is still reported", func(t *testing.T) {
		in := waiting(t, 60)
		in.claims.Running = runs(shardset.Range(0, 2), record.Ref{Gen: 1, Fire: at(1), Trigger: 1, Attempt: 1})
		assert.Equal(t, record.Ahead{Gen: 1, At: at(60)}, in.claim().ahead)
	})
	t.Run("a shard of another owner is not reported", func(t *testing.T) {
		in := waiting(t, 60)
		in.plan.Owners[in.me] = shardset.Of(0)
		assert.Zero(t, in.claim().ahead)
		in.reported = record.Ahead{Gen: 1, At: at(60)}
		in.open, in.plan.Owners = false, nil
		assert.Zero(t, in.claim().ahead, "nor is it when this member owns nothing")
	})
	t.Run("nothing is reported where clocks are not compared", func(t *testing.T) {
		in := waiting(t, 60)
		in.skew = 0
		assert.Zero(t, in.claim().ahead)
	})
	t.Run("an epoch that has an end is not reported", func(t *testing.T) {
		in := waiting(t, 60)
		in.plan.Epochs[0].Until = at(70)
		assert.Zero(t, in.claim().ahead)
	})
	t.Run("a watermark of an earlier generation is not reported", func(t *testing.T) {
		in := waiting(t, 60)
		in.plan.Epochs[0].Until = at(1)
		in.plan.Epochs = append(in.plan.Epochs, epoch(t, 2, at(1), 2))
		assert.Zero(t, in.claim().ahead)
	})
	t.Run("a report stands while nothing may be claimed", func(t *testing.T) {
		in := waiting(t, 60)
		in.reported = in.claim().ahead
		in.open, in.now = false, at(80)
		assert.Equal(t, in.reported, in.claim().ahead)
		in.plan.Epochs[0].Gen = 2
		assert.Zero(t, in.claim().ahead, "it holds for its generation only")
	})
}

func TestPlan_AheadIsAProblem(t *testing.T) {
	reports := func(w *world, inc string, gen, minute int) {
		w.change(inc, func(m *record.Member) { m.Ahead = map[string]record.Ahead{"job": {Gen: gen, At: at(minute)}} })
	}
	// setUp returns a world in which a owns a job's two shards, one of which waits for minute 60.
	setUp := func(t *testing.T) (w *world, a string) {
		w = newWorld(t)
		a = w.member("a", "job")
		w.define("job", 2, 0, `,"strategy":"unknown"`)
		w.settle()
		w.claim(a, "job", func(c *record.Claims) { c.Marks = c.Marks.Raise(shardset.Of(1), fire(60, 1).Mark()) })
		reports(w, a, 1, 60)
		w.v.now = at(1)
		return w, a
	}
	text := `shards of instance "a" wait until ` + at(60).Time().Format(time.RFC3339)
	t.Run("the plan names instance, generation and instant, and nothing else changes", func(t *testing.T) {
		w, _ := setUp(t)
		w.settle()
		p := w.plan("job")
		assert.Contains(t, p.Problem, text)
		assert.Contains(t, p.Problem, "generation 1")
		require.Len(t, p.Epochs, 1)
		assert.Zero(t, p.Last().Until)
	})
	t.Run("it is written once, however long it lasts", func(t *testing.T) {
		w, _ := setUp(t)
		w.settle()
		w.v.now = at(40)
		assert.Empty(t, w.round().changes)
	})
	t.Run("of several reports the plan names the one that lasts longest", func(t *testing.T) {
		w, _ := setUp(t)
		b := w.member("b", "job")
		reports(w, b, 1, 50)
		w.settle()
		assert.Contains(t, w.plan("job").Problem, text)
		reports(w, b, 1, 70)
		w.settle()
		assert.Contains(t, w.plan("job").Problem, `shards of instance "b" wait until `)
	})
	t.Run("it ends with the report", func(t *testing.T) {
		w, a := setUp(t)
		w.settle()
		w.change(a, func(m *record.Member) { m.Ahead = nil })
		w.settle()
		assert.NotContains(t, w.plan("job").Problem, "wait until")
	})
	t.Run("it stands beside another problem", func(t *testing.T) {
		w, _ := setUp(t)
		w.settle()
		assert.Contains(t, w.plan("job").Problem, `not known on the leader; `+text)
	})
	for name, change := range map[string]func(w *world){
		"by an instance whose clock is off": func(w *world) { w.v.off = map[string]record.Duration{"a.a": record.Duration(time.Hour)} },
		"by an instance whose session has ended, and is awaited": func(w *world) {
			w.change("a.a", func(m *record.Member) { m.RestartGrace = record.Duration(time.Hour) })
			w.kill("a.a")
			w.v.away = map[string]time.Duration{"a.a": time.Second}
		},
		"of another generation": func(w *world) { reports(w, "a.a", 3, 60) },
		"of another job": func(w *world) {
			w.change("a.a", func(m *record.Member) { m.Ahead = map[string]record.Ahead{"j": {Gen: 1, At: at(60)}} })
		},
		"of a job that is paused": func(w *world) { w.intend("job", func(c *record.Control) { c.Paused = true }) },
	} {
		t.Run("a report is no problem "+name, func(t *testing.T) {
			w, _ := setUp(t)
			change(w)
			w.settle()
			assert.NotContains(t, w.plan("job").Problem, "wait until")
		})
	}
}

func TestPlan_NoFireHasTwoEpochs(t *testing.T) {
	// setUp returns a world in which a has claimed the fire of minute 60 by a clock that was wrong.
	setUp := func(t *testing.T) *world {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 2, 0, "")
		w.settle()
		w.claim(a, "job", func(c *record.Claims) { c.Marks = c.Marks.Raise(shardset.Of(1), fire(60, 1).Mark()) })
		w.v.now = at(1)
		return w
	}
	t.Run("a new definition counts from after what was claimed ahead of its time", func(t *testing.T) {
		w := setUp(t)
		w.define("job", 2, 1, "")
		w.settle()
		p := w.plan("job")
		require.Len(t, p.Epochs, 2)
		assert.Equal(t, []record.Instant{at(60) + 1, at(60) + 1}, []record.Instant{p.Epochs[0].Until, p.Last().From})
	})
	t.Run("so does a resume", func(t *testing.T) {
		w := setUp(t)
		w.intend("job", func(c *record.Control) { c.Paused = true })
		w.settle()
		w.v.now = at(3)
		w.intend("job", func(c *record.Control) { c.Paused = false })
		w.settle()
		assert.Equal(t, at(60)+1, w.plan("job").Last().From)
	})
	t.Run("nor is one forgotten with the shard that claimed it", func(t *testing.T) {
		w := setUp(t)
		w.define("job", 1, 1, "")
		w.settle()
		w.v.now, w.v.tidy = at(61), true // by a clock that is wrong
		w.claim("a.a", "job", func(c *record.Claims) {
			c.Marks = c.Marks.Raise(shardset.Of(0), fire(60, 1).Mark())
		})
		w.settle()
		p := w.plan("job")
		require.Len(t, p.Epochs, 1)
		require.Zero(t, p.Marks.Split(shardset.Of(1))[0].Mark, "shard 1 is forgotten")
		w.v.now, w.v.tidy = at(3), false
		w.claim("a.a", "job", func(c *record.Claims) { c.Marks = nil })
		w.intend("job", func(c *record.Control) { c.Paused = true })
		w.settle()
		w.intend("job", func(c *record.Control) { c.Paused = false })
		w.settle()
		assert.Equal(t, at(60)+1, w.plan("job").Last().From)
	})
	t.Run("a pause by a clock that was wrong ends with the resume", func(t *testing.T) {
		w := newWorld(t)
		w.member("a", "job")
		w.define("job", 2, 0, "")
		w.settle()
		w.v.now = at(50)
		w.intend("job", func(c *record.Control) { c.Paused = true })
		w.settle()
		w.v.now = at(3)
		w.intend("job", func(c *record.Control) { c.Paused = false })
		w.settle()
		p := w.plan("job")
		assert.Equal(t, at(3).Add(w.v.skew), p.Last().From)
		assert.Equal(t, p.Last().From, p.Epochs[0].Until)
	})
}

func TestPlan_ResumesAtOnce(t *testing.T) {
	w := newWorld(t)
	w.member("a", "job")
	w.define("job", 2, 0, "")
	w.settle()
	w.intend("job", func(c *record.Control) { c.Paused = true })
	w.settle()
	w.intend("job", func(c *record.Control) { c.Paused = false })
	w.round()
	assert.False(t, w.plan("job").Paused)
}

func TestAhead_IsOnRecord(t *testing.T) {
	bubble(t, "while it is so, and no longer", func(t *testing.T, g *group) {
		const hour = time.Hour
		g.sets("a", hour)
		a := g.start("a", def("job", 0, 2, ""))
		time.Sleep(90 * time.Second)
		b := g.start("b", def("job", 0, 2, ""))
		time.Sleep(10 * time.Second)
		ahead := func(w *worker) map[string]record.Ahead {
			e, ok := g.get(g.keys.Member(w.incarnation()))
			require.True(t, ok)
			m, err := record.Decode[record.Member](e.Value)
			require.NoError(t, err)
			return m.Ahead
		}
		require.Contains(t, ahead(b), "job")
		require.Empty(t, ahead(a), "its own clock is not behind")
		assert.Contains(t, g.plan("job").Problem, `shards of instance "b" wait until `)
		assert.Equal(t, 1, b.log.count("shards wait until this clock has reached what was claimed"))
		op, _ := g.operator()
		st, err := op.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, g.plan("job").Problem, st.Problem)

		g.sets("a", 0)
		time.Sleep(30 * time.Minute)
		assert.Contains(t, g.plan("job").Problem, "wait until ")
		assert.Equal(t, 1, b.log.count("shards wait until this clock has reached what was claimed"), "it is logged once")
		a.began()
		time.Sleep(hour - 30*time.Minute)
		assert.Empty(t, ahead(a))
		assert.Empty(t, ahead(b))
		assert.Empty(t, g.plan("job").Problem)
		assert.Equal(t, 1, g.plan("job").Last().Gen)
		a.began()
		b.began()
		time.Sleep(10 * time.Minute)
		assert.Len(t, a.began(), 10, "each shard goes on")
		assert.Len(t, b.began(), 10)
	})
}
