package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

func TestPlan_Reset(t *testing.T) {
	// setUp returns a world in which a owns a job's two shards, one of which waits for minute 60.
	setUp := func(t *testing.T) (w *world, a string) {
		w = newWorld(t)
		a = w.member("a", "job")
		w.define("job", 2, 0, "")
		w.settle()
		w.claim(a, "job", func(c *record.Claims) { c.Marks = c.Marks.Raise(shardset.Of(1), fire(60, 1).Mark()) })
		w.v.now = at(1)
		return w, a
	}
	reset := func(w *world) { w.intend("job", func(c *record.Control) { c.Resets++ }) }
	t.Run("the epoch in force ends, and another begins by the same definition", func(t *testing.T) {
		w, _ := setUp(t)
		reset(w)
		w.round()
		p := w.plan("job")
		require.Len(t, p.Epochs, 1)
		assert.Equal(t, at(1).Add(w.v.skew), p.Last().Until)
		assert.Zero(t, p.Resets, "it is not done yet")
		w.settle()
		p = w.plan("job")
		require.Len(t, p.Epochs, 2)
		assert.Equal(t, at(1).Add(w.v.skew), p.Last().From)
		assert.Zero(t, p.Last().Until)
		assert.Equal(t, string(p.Epochs[0].Def), string(p.Last().Def))
		assert.EqualValues(t, 1, p.Resets)
	})
	t.Run("it is done once", func(t *testing.T) {
		w, _ := setUp(t)
		reset(w)
		w.settle()
		w.v.now = at(2)
		assert.Empty(t, w.round().changes)
	})
	t.Run("several that come together are one", func(t *testing.T) {
		w, _ := setUp(t)
		reset(w)
		reset(w)
		w.settle()
		assert.Equal(t, 2, w.plan("job").Last().Gen)
		assert.EqualValues(t, 2, w.plan("job").Resets)
	})
	t.Run("the newest definition begins", func(t *testing.T) {
		w, _ := setUp(t)
		reset(w)
		w.round()
		w.define("job", 3, 1, "")
		w.settle()
		p := w.plan("job")
		assert.Equal(t, 2, p.Last().Gen)
		assert.Equal(t, 3, p.Last().Job().Shards)
	})
	t.Run("fires that were claimed before the end of the epoch was committed belong to it", func(t *testing.T) {
		w, a := setUp(t)
		reset(w)
		w.round()
		w.v.now = at(2).Add(-w.v.skew) // the commit took its time
		w.claim(a, "job", func(c *record.Claims) { c.Marks = c.Marks.Raise(shardset.Of(0), fire(2, 1).Mark()) })
		w.settle()
		p := w.plan("job")
		assert.Equal(t, []record.Instant{at(2) + 1, at(2) + 1}, []record.Instant{p.Epochs[0].Until, p.Last().From})
	})
	t.Run("an epoch that begins ahead of all clocks ends before it has begun, and so do those before it", func(t *testing.T) {
		w, _ := setUp(t)
		w.v.now = at(30) // by a clock that is wrong
		w.define("job", 2, 1, "")
		w.settle()
		require.Len(t, w.plan("job").Epochs, 2)
		w.v.now = at(1)
		reset(w)
		w.settle()
		p := w.plan("job")
		from := at(1).Add(w.v.skew)
		require.Equal(t, 3, p.Last().Gen)
		assert.Equal(t, []record.Instant{from, from, 0}, []record.Instant{p.Epochs[0].Until, p.Epochs[1].Until, p.Last().Until})
		assert.Equal(t, from, p.Last().From)
	})
	t.Run("an epoch that has begun by then keeps its begin", func(t *testing.T) {
		w, a := setUp(t)
		w.claim(a, "job", func(c *record.Claims) { c.Marks = nil })
		w.v.plans["job"].Epochs[0].Until = at(2)
		w.v.plans["job"].Epochs = append(w.v.plans["job"].Epochs, epoch(t, 2, at(2), 2))
		w.v.now = at(2).Add(-w.v.skew)
		reset(w)
		w.round()
		w.v.now = at(2)
		w.claim(a, "job", func(c *record.Claims) {
			c.Marks = c.Marks.Raise(shardset.Of(0), record.Mark{Gen: 2, Fire: at(2), Attempt: 1})
		})
		w.settle()
		p := w.plan("job")
		assert.Equal(t, []record.Instant{at(2), at(2) + 1}, []record.Instant{p.Epochs[0].Until, p.Epochs[1].Until})
		assert.Equal(t, at(2)+1, p.Last().From)
	})
	t.Run("an end that a leader with a wrong clock gave it is brought forward", func(t *testing.T) {
		w, _ := setUp(t)
		w.v.now = at(30)
		reset(w)
		w.round()
		w.v.now = at(1)
		w.settle()
		p := w.plan("job")
		assert.Equal(t, at(1).Add(w.v.skew), p.Last().From)
		assert.Equal(t, p.Last().From, p.Epochs[0].Until)
	})
	t.Run("later definitions begin without regard to what it has forgotten", func(t *testing.T) {
		w, _ := setUp(t)
		reset(w)
		w.settle()
		w.v.now = at(3)
		w.define("job", 2, 1, "")
		w.settle()
		assert.Equal(t, at(3).Add(w.v.skew), w.plan("job").Last().From)
	})
	t.Run("pending re-runs and triggers stay", func(t *testing.T) {
		w, a := setUp(t)
		w.running(a, "job", shardset.Of(0), fire(1, 1))
		w.kill(a)
		w.member("b", "job")
		w.intend("job", func(c *record.Control) { c.Triggers = []record.Trigger{{Number: 1, At: at(1)}} })
		w.settle()
		reset(w)
		w.settle()
		p := w.plan("job")
		assert.Equal(t, runs(shardset.Of(0), fire(1, 2)), p.Reruns)
		assert.Len(t, p.Triggers, 1)
		assert.Len(t, p.Epochs, 2)
		assert.Zero(t, p.Counts.Lost)
	})
	for name, holds := range map[string]func(c *record.Control, is bool){
		"that is paused":            func(c *record.Control, is bool) { c.Paused = is },
		"whose schedule is stopped": func(c *record.Control, is bool) { c.Stopped = is },
	} {
		t.Run("a job "+name+" is reset when it resumes", func(t *testing.T) {
			w, _ := setUp(t)
			w.intend("job", func(c *record.Control) { holds(c, true) })
			w.settle()
			reset(w)
			assert.Empty(t, w.round().changes)
			w.v.now = at(3)
			w.intend("job", func(c *record.Control) { holds(c, false) })
			w.settle()
			p := w.plan("job")
			assert.Equal(t, 2, p.Last().Gen)
			assert.Equal(t, at(3).Add(w.v.skew), p.Last().From)
			assert.EqualValues(t, 1, p.Resets)
		})
	}
	t.Run("a definition that comes while the schedule is stopped leaves it to the resume", func(t *testing.T) {
		w, _ := setUp(t)
		w.v.now = at(30) // by a clock that is wrong
		w.intend("job", func(c *record.Control) { c.Stopped = true })
		w.settle()
		w.v.now = at(2)
		reset(w)
		w.define("job", 2, 1, "")
		w.settle()
		assert.Zero(t, w.plan("job").Resets)
		w.v.now = at(3)
		w.intend("job", func(c *record.Control) { c.Stopped = false })
		w.settle()
		assert.EqualValues(t, 1, w.plan("job").Resets)
		assert.Equal(t, at(3).Add(w.v.skew), w.plan("job").Last().From)
	})
	t.Run("a plan that is full ends at once, and begins when there is room", func(t *testing.T) {
		w, a := setUp(t)
		w.v.now = at(30)
		for n := 1; n < maxEpochs; n++ {
			w.define("job", 2, n, "")
			w.settle()
		}
		require.Len(t, w.plan("job").Epochs, maxEpochs)
		w.v.now = at(2)
		reset(w)
		w.settle()
		p := w.plan("job")
		assert.Equal(t, at(2).Add(w.v.skew), p.Last().Until)
		assert.Contains(t, p.Problem, "waits until fires of earlier ones have been served")
		w.v.now = at(3)
		w.claim(a, "job", func(c *record.Claims) { c.Marks = c.Marks.Raise(shardset.Of(0), fire(2, 1).Mark()) })
		w.settle()
		assert.EqualValues(t, 1, w.plan("job").Resets)
		assert.Empty(t, w.plan("job").Problem)
	})
	t.Run("a plan that is deleted and made again is not reset again", func(t *testing.T) {
		w, _ := setUp(t)
		reset(w)
		w.settle()
		delete(w.v.plans, "job")
		w.settle()
		assert.EqualValues(t, 1, w.plan("job").Resets)
		assert.Equal(t, 2, w.plan("job").Last().Gen, "after what was claimed")
	})
}

func TestOperator_Reset(t *testing.T) {
	bubble(t, "a job that waits because a clock was wrong goes on, and no longer has that problem", func(t *testing.T, g *group) {
		g.sets("a", time.Hour)
		a := g.start("a", def("job", 0, 2, ""))
		time.Sleep(90 * time.Second)
		g.sets("a", 0)
		time.Sleep(30 * time.Second)
		a.began()
		time.Sleep(5 * time.Minute)
		require.Empty(t, a.began())
		require.Contains(t, g.plan("job").Problem, "Operator.Reset")
		op, _ := g.operator()
		require.NoError(t, op.Reset(t.Context(), "job"))
		time.Sleep(10 * time.Minute)
		runs := a.began()
		assert.Len(t, runs, 20)
		for _, r := range runs {
			assert.Equal(t, 1, r.Attempt)
		}
		assert.Empty(t, g.plan("job").Problem)
	})
	bubble(t, "a leader that crashes between the two commits leaves the second to the next", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		g.start("b", def("job", 0, 2, ""))
		op, _ := g.operator()
		ended := func() bool { return g.plan("job").Last().Until != 0 }
		a.reg.after(func(registry.Txn) {
			if ended() {
				g.server.Partition("a")
			}
		})
		require.NoError(t, op.Reset(t.Context(), "job"))
		time.Sleep(time.Second)
		require.True(t, ended())
		a.reg.after(nil)
		time.Sleep(4 * ttl)
		assert.Equal(t, 2, g.plan("job").Last().Gen)
		assert.EqualValues(t, 1, g.plan("job").Resets)
		time.Sleep(time.Minute)
		assert.Equal(t, 2, g.plan("job").Last().Gen)
	})
	bubble(t, "an older copy of the record of intent does not keep it from resetting", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 2, ""))
		op, _ := g.operator()
		for range 2 {
			require.NoError(t, op.Reset(t.Context(), "job"))
			time.Sleep(10 * time.Second)
		}
		g.write(g.keys.Control("job"), `{"job":"job"}`)
		require.NoError(t, op.Reset(t.Context(), "job"))
		time.Sleep(10 * time.Second)
		assert.Equal(t, 4, g.plan("job").Last().Gen)
	})
	bubble(t, "a job that is not known is refused", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 2, ""))
		op, _ := g.operator()
		err := op.Reset(t.Context(), "other")
		require.ErrorIs(t, err, ErrUnknownJob)
		assert.EqualError(t, err, `reset "other": unknown job`)
	})
}
