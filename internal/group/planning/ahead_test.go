package planning

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_AheadIsAProblem(t *testing.T) {
	reports := func(w *world, inc string, gen, minute int) {
		w.editMember(inc, func(m *record.Member) {
			m.Ahead = map[string]record.Ahead{"job": {Epoch: gen, At: coordtest.At(minute)}}
		})
	}
	// setUp returns a world in which a owns a job's two shards, one of which waits for minute 60.
	setUp := func(t *testing.T) (w *world, a string) {
		w = NewWorld(t)
		a = w.Join("a", "job")
		w.Define("job", 2, 0, `,"strategy":"unknown"`)
		w.Settle()
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(1), coordtest.Fire(60, 1).Watermark())
		})
		reports(w, a, 1, 60)
		w.View.Now = coordtest.At(1)
		return w, a
	}
	text := `a wrong clock claimed fires ahead of their time: shards of instance "a" wait until ` + coordtest.At(60).Time().Format(time.RFC3339)
	t.Run("the plan names instance, epoch and instant, and nothing else changes", func(t *testing.T) {
		w, _ := setUp(t)
		w.Settle()
		p := w.Plan("job")
		assert.Contains(t, p.Problem, text)
		assert.Contains(t, p.Problem, "epoch 1")
		require.Len(t, p.Epochs, 1)
		assert.Zero(t, p.Last().Until)
	})
	t.Run("it is written once, however long it lasts", func(t *testing.T) {
		w, _ := setUp(t)
		w.Settle()
		w.View.Now = coordtest.At(40)
		assert.Empty(t, w.round().Changes)
	})
	t.Run("of several reports the plan names the latest instant", func(t *testing.T) {
		w, _ := setUp(t)
		b := w.Join("b", "job")
		reports(w, b, 1, 50)
		w.Settle()
		assert.Contains(t, w.Plan("job").Problem, text)
		reports(w, b, 1, 70)
		w.Settle()
		assert.Contains(t, w.Plan("job").Problem, `shards of instance "b" wait until `)
	})
	t.Run("it ends with the report", func(t *testing.T) {
		w, a := setUp(t)
		w.Settle()
		w.editMember(a, func(m *record.Member) { m.Ahead = nil })
		w.Settle()
		assert.NotContains(t, w.Plan("job").Problem, "wait until")
	})
	t.Run("it is added to another problem", func(t *testing.T) {
		w, _ := setUp(t)
		w.Settle()
		assert.Contains(t, w.Plan("job").Problem, `not known on the leader; `+text)
	})
	for name, change := range map[string]func(w *world){
		"by an instance whose clock is skewed": func(w *world) { w.View.Skewed = map[string]record.Duration{"a.a": record.Duration(time.Hour)} },
		"by an expired instance that is awaited": func(w *world) {
			w.editMember("a.a", func(m *record.Member) { m.RestartGrace = record.Duration(time.Hour) })
			w.expire("a.a")
			w.View.Absences = map[string]time.Duration{"a.a": time.Second}
		},
		"of another epoch": func(w *world) { reports(w, "a.a", 3, 60) },
		"of another job": func(w *world) {
			w.editMember("a.a", func(m *record.Member) { m.Ahead = map[string]record.Ahead{"j": {Epoch: 1, At: coordtest.At(60)}} })
		},
		"of a job that is paused": func(w *world) { w.editControl("job", func(c *record.Control) { c.Paused = true }) },
	} {
		t.Run("a report is no problem "+name, func(t *testing.T) {
			w, _ := setUp(t)
			change(w)
			w.Settle()
			assert.NotContains(t, w.Plan("job").Problem, "wait until")
		})
	}
}

func TestPlan_NoFireHasTwoEpochs(t *testing.T) {
	// setUp returns a world in which a has claimed the fire of minute 60 by a wrong clock.
	setUp := func(t *testing.T) *world {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 2, 0, "")
		w.Settle()
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(1), coordtest.Fire(60, 1).Watermark())
		})
		w.View.Now = coordtest.At(1)
		return w
	}
	t.Run("a new definition begins after the fires that were claimed ahead of time", func(t *testing.T) {
		w := setUp(t)
		w.Define("job", 2, 1, "")
		w.Settle()
		p := w.Plan("job")
		require.Len(t, p.Epochs, 2)
		assert.Equal(t, []record.Instant{coordtest.At(60) + 1, coordtest.At(60) + 1}, []record.Instant{p.Epochs[0].Until, p.Last().From})
	})
	t.Run("so does a resume", func(t *testing.T) {
		w := setUp(t)
		w.editControl("job", func(c *record.Control) { c.Paused = true })
		w.Settle()
		w.View.Now = coordtest.At(3)
		w.editControl("job", func(c *record.Control) { c.Paused = false })
		w.Settle()
		assert.Equal(t, coordtest.At(60)+1, w.Plan("job").Last().From)
	})
	t.Run("a claimed fire is remembered after its shard was dropped", func(t *testing.T) {
		w := setUp(t)
		w.Define("job", 1, 1, "")
		w.Settle()
		w.View.Now, w.View.SlowTick = coordtest.At(61), true // by a wrong clock
		w.claim("a.a", "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(0), coordtest.Fire(60, 1).Watermark())
		})
		w.Settle()
		p := w.Plan("job")
		require.Len(t, p.Epochs, 1)
		require.Zero(t, p.Watermarks.Split(shardset.Of(1))[0].Watermark, "shard 1 is dropped")
		w.View.Now, w.View.SlowTick = coordtest.At(3), false
		w.claim("a.a", "job", func(c *record.Claims) { c.Watermarks = nil })
		w.editControl("job", func(c *record.Control) { c.Paused = true })
		w.Settle()
		w.editControl("job", func(c *record.Control) { c.Paused = false })
		w.Settle()
		assert.Equal(t, coordtest.At(60)+1, w.Plan("job").Last().From)
	})
	t.Run("a pause by a wrong clock ends with the resume", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 0, "")
		w.Settle()
		w.View.Now = coordtest.At(50)
		w.editControl("job", func(c *record.Control) { c.Paused = true })
		w.Settle()
		w.View.Now = coordtest.At(3)
		w.editControl("job", func(c *record.Control) { c.Paused = false })
		w.Settle()
		p := w.Plan("job")
		assert.Equal(t, coordtest.At(3).Add(w.View.Skew), p.Last().From)
		assert.Equal(t, p.Last().From, p.Epochs[0].Until)
	})
}

func TestPlan_ResumesAtOnce(t *testing.T) {
	w := NewWorld(t)
	w.Join("a", "job")
	w.Define("job", 2, 0, "")
	w.Settle()
	w.editControl("job", func(c *record.Control) { c.Paused = true })
	w.Settle()
	w.editControl("job", func(c *record.Control) { c.Paused = false })
	w.round()
	assert.False(t, w.Plan("job").Paused)
}
