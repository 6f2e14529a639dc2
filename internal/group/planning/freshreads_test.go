package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
)

func TestPlan_ReadOfADrainingMember(t *testing.T) {
	setUp := func(t *testing.T) (w *world, a, b string, stale FreshRead) {
		w = NewWorld(t)
		a, b = w.Join("a", "job"), w.Join("b", "job")
		w.Define("job", 4, 0, "")
		w.Settle()
		w.readClaims(a)
		stale = w.View.Reads[a]
		w.editMember(a, func(m *record.Member) { m.Draining = true })
		require.Equal(t, stale.Seen+1, w.View.Members[a].Rev.Seq)
		return w, a, b, stale
	}
	t.Run("from one commit before the drain moves nothing: the member may have claimed since", func(t *testing.T) {
		w, a, _, stale := setUp(t)
		w.View.Reads[a] = stale
		d := w.decideOnce()
		assert.Equal(t, []string{a}, d.Reads)
		for _, c := range d.Changes {
			assert.Equal(t, "0-1", c.Plan.Owners[a].String())
		}
	})
	t.Run("from the commit of the drain on moves its idle shards", func(t *testing.T) {
		w, a, b, stale := setUp(t)
		stale.Seen++
		w.View.Reads[a] = stale
		d := w.decideOnce()
		assert.Empty(t, d.Reads)
		require.Len(t, d.Changes, 1)
		assert.Equal(t, "0-3", d.Changes[0].Plan.Owners[b].String())
	})
}
