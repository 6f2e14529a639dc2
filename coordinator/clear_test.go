package coordinator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_SmallerTotal(t *testing.T) {
	t.Run("leaves nothing in the plan of shards beyond it, though they were to move", func(t *testing.T) {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 4, 1, "")
		w.settle()
		w.v.now = at(2)
		w.define("job", 2, 2, "")
		w.settle()
		w.v.now = at(4)
		w.claim(a, "job", func(c *record.Claims) {
			c.Marks = c.Marks.Raise(shardset.Range(0, 4), record.Mark{Gen: 1, Fire: at(2), Attempt: 1})
			c.Marks = c.Marks.Raise(shardset.Range(0, 2), record.Mark{Gen: 2, Fire: at(4), Attempt: 1})
		})
		w.member("b", "job")
		w.v.tidy = true
		d := w.round()
		require.Len(t, d.changes, 1)
		assert.Contains(t, d.changes[0].why, "freeze 2-3")
		p := w.plan("job")
		assert.Len(t, p.Epochs, 1)
		assert.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
		assert.True(t, p.Frozen.IsZero(), "%s", p.Frozen)
		assert.Zero(t, p.Marks.Of(3))
	})
}
