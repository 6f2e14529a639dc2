package planning

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

func TestPlan_Cancels(t *testing.T) {
	fire := coordtest.Fire(1, 1)
	cancels := coordtest.Runs(shardset.Of(1), fire)
	// setUp returns a world in which a runs shards 0 and 1 of a job, and the run of shard 1 is cancelled.
	setUp := func(t *testing.T) (w *world, a string) {
		w = NewWorld(t)
		a = w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.startRuns(a, "job", shardset.Range(0, 2), fire)
		w.editControl("job", func(c *record.Control) { c.Cancels = cancels })
		w.Settle()
		return w, a
	}
	t.Run("move from the control record into the plan in one transaction", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.editControl("job", func(c *record.Control) {
			c.Cancels, c.Triggers, c.LastTrigger = cancels, []record.Trigger{{Number: 1}}, 1
		})
		d := w.decide()
		require.Len(t, d.Changes, 1)
		share, err := d.Changes[0].EncodeShare(w.View.Keys)
		require.NoError(t, err)
		require.Len(t, share.Ops, 2, "the control record once, and the plan")
		assert.Equal(t, registry.OpSet, share.Ops[0].Kind)
		rest, err := record.DecodeControl(share.Ops[0].Value)
		require.NoError(t, err)
		assert.Empty(t, rest.Cancels)
		assert.Empty(t, rest.Triggers)
		assert.Equal(t, cancels, d.Changes[0].Plan.Cancels)
		assert.Len(t, d.Changes[0].Plan.Triggers, 1)
	})
	t.Run("stay until the run has ended", func(t *testing.T) {
		w, a := setUp(t)
		require.Equal(t, cancels, w.Plan("job").Cancels)
		w.View.SlowTick = true
		w.Settle()
		require.Equal(t, cancels, w.Plan("job").Cancels, "the run goes on")
		w.claim(a, "job", func(c *record.Claims) { c.Running = c.Running.Without(shardset.Of(1)) })
		w.View.SlowTick = true
		w.Settle()
		assert.Empty(t, w.Plan("job").Cancels)
	})
	t.Run("stay while the run is pending", func(t *testing.T) {
		w, a := setUp(t)
		w.claim(a, "job", func(c *record.Claims) {
			c.Running = c.Running.Without(shardset.Of(1))
			c.Reruns = c.Reruns.With(shardset.Of(1), fire.Return())
		})
		w.View.SlowTick = true
		w.Settle()
		require.Equal(t, cancels, w.Plan("job").Cancels)
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(1), fire.Return().Watermark())
		})
		w.View.SlowTick = true
		w.Settle()
		assert.Empty(t, w.Plan("job").Cancels)
	})
	t.Run("keep a run that crashes from being made again", func(t *testing.T) {
		w, a := setUp(t)
		w.expire(a)
		b := w.Join("b", "job")
		w.Settle()
		p := w.Plan("job")
		require.Equal(t, map[string]string{b: "0-1"}, w.owners("job"))
		assert.Equal(t, coordtest.Runs(shardset.Of(0), fire.AfterCrash()), p.Reruns)
		assert.EqualValues(t, 1, p.Counts.Lost)
		require.Len(t, p.Failures, 1)
		assert.Equal(t, "1", p.Failures[0].Shards.String())
		w.View.SlowTick = true
		w.View.Now = w.View.Now.Add(time.Minute)
		w.Settle()
		assert.Empty(t, w.Plan("job").Cancels)
	})
}
