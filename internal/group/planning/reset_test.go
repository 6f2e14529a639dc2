package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_Reset(t *testing.T) {
	// setUp returns a world in which a owns a job's two shards, one of which waits for minute 60.
	setUp := func(t *testing.T) (w *world, a string) {
		w = NewWorld(t)
		a = w.Join("a", "job")
		w.Define("job", 2, 0, "")
		w.Settle()
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(1), coordtest.Fire(60, 1).Watermark())
		})
		w.View.Now = coordtest.At(1)
		return w, a
	}
	reset := func(w *world) { w.editControl("job", func(c *record.Control) { c.Resets++ }) }
	t.Run("the epoch in force ends, and another begins by the same definition", func(t *testing.T) {
		w, _ := setUp(t)
		reset(w)
		w.round()
		p := w.Plan("job")
		require.Len(t, p.Epochs, 1)
		assert.Equal(t, coordtest.At(1).Add(w.View.Skew), p.Last().Until)
		assert.Zero(t, p.Resets, "the reset is not complete yet")
		w.Settle()
		p = w.Plan("job")
		require.Len(t, p.Epochs, 2)
		assert.Equal(t, coordtest.At(1).Add(w.View.Skew), p.Last().From)
		assert.Zero(t, p.Last().Until)
		assert.Equal(t, string(p.Epochs[0].Def), string(p.Last().Def))
		assert.EqualValues(t, 1, p.Resets)
	})
	t.Run("it is applied once", func(t *testing.T) {
		w, _ := setUp(t)
		reset(w)
		w.Settle()
		w.View.Now = coordtest.At(2)
		assert.Empty(t, w.round().Changes)
	})
	t.Run("several requests at once are one reset", func(t *testing.T) {
		w, _ := setUp(t)
		reset(w)
		reset(w)
		w.Settle()
		assert.Equal(t, 2, w.Plan("job").Last().Number)
		assert.EqualValues(t, 2, w.Plan("job").Resets)
	})
	t.Run("the newest definition begins", func(t *testing.T) {
		w, _ := setUp(t)
		reset(w)
		w.round()
		w.Define("job", 3, 1, "")
		w.Settle()
		p := w.Plan("job")
		assert.Equal(t, 2, p.Last().Number)
		assert.Equal(t, 3, p.Last().Job().Shards)
	})
	t.Run("fires that were claimed before the end of the epoch was committed belong to it", func(t *testing.T) {
		w, a := setUp(t)
		reset(w)
		w.round()
		w.View.Now = coordtest.At(2).Add(-w.View.Skew) // the commit took its time
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(0), coordtest.Fire(2, 1).Watermark())
		})
		w.Settle()
		p := w.Plan("job")
		assert.Equal(t, []record.Instant{coordtest.At(2) + 1, coordtest.At(2) + 1}, []record.Instant{p.Epochs[0].Until, p.Last().From})
	})
	t.Run("an epoch that begins ahead of all clocks ends before it has begun, and so do those before it", func(t *testing.T) {
		w, _ := setUp(t)
		w.View.Now = coordtest.At(30) // by a wrong clock
		w.Define("job", 2, 1, "")
		w.Settle()
		require.Len(t, w.Plan("job").Epochs, 2)
		w.View.Now = coordtest.At(1)
		reset(w)
		w.Settle()
		p := w.Plan("job")
		from := coordtest.At(1).Add(w.View.Skew)
		require.Equal(t, 3, p.Last().Number)
		assert.Equal(t, []record.Instant{from, from, 0}, []record.Instant{p.Epochs[0].Until, p.Epochs[1].Until, p.Last().Until})
		assert.Equal(t, from, p.Last().From)
	})
	t.Run("an epoch that has begun by then keeps its beginning", func(t *testing.T) {
		w, a := setUp(t)
		w.claim(a, "job", func(c *record.Claims) { c.Watermarks = nil })
		w.View.Plans["job"].Epochs[0].Until = coordtest.At(2)
		w.View.Plans["job"].Epochs = append(w.View.Plans["job"].Epochs, coordtest.Epoch(t, 2, coordtest.At(2), 2))
		w.View.Now = coordtest.At(2).Add(-w.View.Skew)
		reset(w)
		w.round()
		w.View.Now = coordtest.At(2)
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(0), record.Watermark{Epoch: 2, Fire: coordtest.At(2), Attempt: 1})
		})
		w.Settle()
		p := w.Plan("job")
		assert.Equal(t, []record.Instant{coordtest.At(2), coordtest.At(2) + 1}, []record.Instant{p.Epochs[0].Until, p.Epochs[1].Until})
		assert.Equal(t, coordtest.At(2)+1, p.Last().From)
	})
	t.Run("an end that a leader with a wrong clock wrote is brought forward", func(t *testing.T) {
		w, _ := setUp(t)
		w.View.Now = coordtest.At(30)
		reset(w)
		w.round()
		w.View.Now = coordtest.At(1)
		w.Settle()
		p := w.Plan("job")
		assert.Equal(t, coordtest.At(1).Add(w.View.Skew), p.Last().From)
		assert.Equal(t, p.Last().From, p.Epochs[0].Until)
	})
	t.Run("later definitions ignore the claims that the reset dropped", func(t *testing.T) {
		w, _ := setUp(t)
		reset(w)
		w.Settle()
		w.View.Now = coordtest.At(3)
		w.Define("job", 2, 1, "")
		w.Settle()
		assert.Equal(t, coordtest.At(3).Add(w.View.Skew), w.Plan("job").Last().From)
	})
	t.Run("pending re-runs and triggers stay", func(t *testing.T) {
		w, a := setUp(t)
		w.startRuns(a, "job", shardset.Of(0), coordtest.Fire(1, 1))
		w.expire(a)
		w.Join("b", "job")
		w.editControl("job", func(c *record.Control) { c.Triggers = []record.Trigger{{Number: 1, At: coordtest.At(1)}} })
		w.Settle()
		reset(w)
		w.Settle()
		p := w.Plan("job")
		assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 2)), p.Reruns)
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
			w.editControl("job", func(c *record.Control) { holds(c, true) })
			w.Settle()
			reset(w)
			assert.Empty(t, w.round().Changes)
			w.View.Now = coordtest.At(3)
			w.editControl("job", func(c *record.Control) { holds(c, false) })
			w.Settle()
			p := w.Plan("job")
			assert.Equal(t, 2, p.Last().Number)
			assert.Equal(t, coordtest.At(3).Add(w.View.Skew), p.Last().From)
			assert.EqualValues(t, 1, p.Resets)
		})
	}
	t.Run("a definition stored while the schedule is stopped leaves the reset to the resume", func(t *testing.T) {
		w, _ := setUp(t)
		w.View.Now = coordtest.At(30) // by a wrong clock
		w.editControl("job", func(c *record.Control) { c.Stopped = true })
		w.Settle()
		w.View.Now = coordtest.At(2)
		reset(w)
		w.Define("job", 2, 1, "")
		w.Settle()
		assert.Zero(t, w.Plan("job").Resets)
		w.View.Now = coordtest.At(3)
		w.editControl("job", func(c *record.Control) { c.Stopped = false })
		w.Settle()
		assert.EqualValues(t, 1, w.Plan("job").Resets)
		assert.Equal(t, coordtest.At(3).Add(w.View.Skew), w.Plan("job").Last().From)
	})
	t.Run("in a full plan the epoch ends at once, and the next begins when there is room", func(t *testing.T) {
		w, a := setUp(t)
		w.View.Now = coordtest.At(30)
		for n := 1; n < maxEpochs; n++ {
			w.Define("job", 2, n, "")
			w.Settle()
		}
		require.Len(t, w.Plan("job").Epochs, maxEpochs)
		w.View.Now = coordtest.At(2)
		reset(w)
		w.Settle()
		p := w.Plan("job")
		assert.Equal(t, coordtest.At(2).Add(w.View.Skew), p.Last().Until)
		assert.Contains(t, p.Problem, "waits until fires of earlier ones have been served")
		w.View.Now = coordtest.At(3)
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(0), coordtest.Fire(2, 1).Watermark())
		})
		w.Settle()
		assert.EqualValues(t, 1, w.Plan("job").Resets)
		assert.Empty(t, w.Plan("job").Problem)
	})
	t.Run("a plan that is deleted and created again is not reset again", func(t *testing.T) {
		w, _ := setUp(t)
		reset(w)
		w.Settle()
		delete(w.View.Plans, "job")
		w.Settle()
		assert.EqualValues(t, 1, w.Plan("job").Resets)
		assert.Equal(t, 2, w.Plan("job").Last().Number, "after the claimed fires")
	})
}
