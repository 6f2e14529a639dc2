package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// handBack turns an incarnation's runs of a job into pending re-runs of its claims record.
func (w *world) handBack(inc, job string) {
	w.claim(inc, job, func(c *record.Claims) {
		for _, g := range c.Running {
			c.Reruns = c.Reruns.With(g.Shards, g.Return())
		}
		c.Running = nil
	})
}

func TestPlan_RunsHandedBack(t *testing.T) {
	draining := func(m *record.Member) { m.Draining = true }
	returned := record.Ref{Epoch: 1, Fire: coordtest.At(1), Attempt: 2, HandedBack: 1}

	t.Run("go with their shards to the next owner", func(t *testing.T) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.startRuns(a, "job", shardset.Of(0, 1), coordtest.Fire(1, 1))
		b := w.Join("b", "job")
		w.editMember(a, draining)
		w.Settle()
		require.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
		w.handBack(a, "job")
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-1"}, w.owners("job"))
		assert.Equal(t, record.Runs{{Shards: shardset.Of(0, 1), Ref: returned}}, w.Plan("job").Reruns)
		assert.Zero(t, w.Plan("job").Counts)
	})
	t.Run("stay pending if the session expires before a leader has read them", func(t *testing.T) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 1, 1, "")
		w.Settle()
		w.startRuns(a, "job", shardset.Of(0), coordtest.Fire(1, 1))
		w.handBack(a, "job")
		w.expire(a)
		b := w.Join("b", "job")
		w.Settle()
		assert.Equal(t, map[string]string{b: "0"}, w.owners("job"))
		assert.Equal(t, record.Runs{{Shards: shardset.Of(0), Ref: returned}}, w.Plan("job").Reruns)
	})
	t.Run("are dropped once the next owner has claimed them", func(t *testing.T) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.startRuns(a, "job", shardset.Of(0, 1), coordtest.Fire(1, 1))
		w.handBack(a, "job")
		w.claim(a, "job", func(c *record.Claims) { c.Watermarks = c.Watermarks.Raise(shardset.Of(0), returned.Watermark()) })
		w.expire(a)
		w.Join("b", "job")
		w.Settle()
		assert.Equal(t, record.Runs{{Shards: shardset.Of(1), Ref: returned}}, w.Plan("job").Reruns)
	})
	t.Run("keep their trigger and their epoch in the plan while their owner is awaited", func(t *testing.T) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 1, 1, "")
		w.editControl("job", func(c *record.Control) { c.Triggers = []record.Trigger{{Number: 1, At: coordtest.At(1), Param: "x"}} })
		w.Settle()
		w.startRuns(a, "job", shardset.Of(0), record.Ref{Epoch: 1, Fire: coordtest.At(1), Trigger: 1, Attempt: 1})
		w.handBack(a, "job")
		w.Define("job", 1, 2, "")
		w.Settle()
		w.View.Now, w.View.SlowTick = coordtest.At(9), true
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(0), record.Watermark{Epoch: 2, Fire: coordtest.At(9), Attempt: 1})
		})
		w.Settle()
		assert.Len(t, w.Plan("job").Triggers, 1)
		assert.Len(t, w.Plan("job").Epochs, 2)
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(0), record.Watermark{Trigger: 1, TriggerAttempt: 2})
		})
		w.Settle()
		assert.Empty(t, w.Plan("job").Triggers)
		assert.Len(t, w.Plan("job").Epochs, 1)
	})
	t.Run("do not count as crashed attempts", func(t *testing.T) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 1, 1, `,"max_attempts":2`)
		w.Settle()
		w.startRuns(a, "job", shardset.Of(0), record.Ref{Epoch: 1, Fire: coordtest.At(1), Attempt: 8, HandedBack: 7})
		w.expire(a)
		b := w.Join("b", "job")
		w.Settle()
		next := record.Ref{Epoch: 1, Fire: coordtest.At(1), Attempt: 9, HandedBack: 7}
		require.Equal(t, record.Runs{{Shards: shardset.Of(0), Ref: next}}, w.Plan("job").Reruns)
		w.startRuns(b, "job", shardset.Of(0), next)
		w.expire(b)
		w.Join("c", "job")
		w.Settle()
		assert.Empty(t, w.Plan("job").Reruns)
		assert.EqualValues(t, 1, w.Plan("job").Counts.Lost)
	})
}
