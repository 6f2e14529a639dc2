package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_SmallerTotal(t *testing.T) {
	t.Run("removes all traces of dropped shards, frozen ones too", func(t *testing.T) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 4, 1, "")
		w.Settle()
		w.View.Now = coordtest.At(2)
		w.Define("job", 2, 2, "")
		w.Settle()
		w.View.Now = coordtest.At(4)
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 4), record.Watermark{Epoch: 1, Fire: coordtest.At(2), Attempt: 1})
			c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 2), record.Watermark{Epoch: 2, Fire: coordtest.At(4), Attempt: 1})
		})
		w.Join("b", "job")
		w.View.SlowTick = true
		d := w.round()
		require.Len(t, d.Changes, 1)
		assert.Contains(t, d.Changes[0].Why, "freeze 2-3")
		p := w.Plan("job")
		assert.Len(t, p.Epochs, 1)
		assert.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
		assert.True(t, p.Frozen.IsZero(), "%s", p.Frozen)
		assert.Zero(t, p.Watermarks.Of(3))
	})
}
