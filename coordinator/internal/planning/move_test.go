package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

func TestPlan_OwnersWithoutBothRecords(t *testing.T) {
	w := NewWorld(t)
	a := w.Join("a", "job")
	w.Define("job", 2, 1, "")
	w.Settle()
	w.Join("b", "job")
	w.round()
	require.Equal(t, "1", w.Plan("job").Frozen.String())
	m := w.View.Members[a]
	delete(w.View.Members, a)
	t.Run("keep their shards, frozen or not, while the member record is not delivered", func(t *testing.T) {
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
		assert.Equal(t, "1", w.Plan("job").Frozen.String())
	})
	t.Run("lose them as usual after it is", func(t *testing.T) {
		w.View.Members[a] = m
		w.Settle()
		assert.Equal(t, "0", w.owners("job")[a])
	})
}

func TestPlan_ReleaseOfShards(t *testing.T) {
	// setUp returns a world in which a is to lose both shards of a job to b.
	setUp := func(t *testing.T, leave func(m *record.Member)) (w *world, a, b string) {
		w = NewWorld(t)
		a = w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		b = w.Join("b", "job")
		w.editMember(a, leave)
		return w, a, b
	}
	drain := func(m *record.Member) { m.Draining = true }
	t.Run("waits while the owner's record cannot be read, and the plan names it", func(t *testing.T) {
		w, a, _ := setUp(t, drain)
		w.readClaims(a)
		w.View.Reads[a].Unreadable["job"] = true
		d := w.decideOnce()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, map[string]shardset.Set{a: shardset.Range(0, 2)}, d.Changes[0].Plan.Owners)
		assert.Equal(t, "0-1", d.Changes[0].Plan.Frozen.String())
		assert.Equal(t, string(w.View.Keys.Claims(a, "job"))+" cannot be read", d.Changes[0].Plan.Problem)
	})
	t.Run("of a draining owner with its last shard deletes its record, if there is one", func(t *testing.T) {
		w, a, _ := setUp(t, drain)
		d := w.decide()
		require.Len(t, d.Changes, 1)
		require.Empty(t, d.Changes[0].ops)
		w.claim(a, "job", func(c *record.Claims) { c.Counts.Claimed = 7 })
		clear(w.View.Reads)
		d = w.decide()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, []registry.Op{registry.Delete(w.View.Keys.Claims(a, "job"), w.claims[a]["job"].Rev)}, d.Changes[0].ops)
		assert.EqualValues(t, 7, d.Changes[0].Plan.Counts.Claimed)
	})
	t.Run("of an owner that stays keeps its record", func(t *testing.T) {
		w, a, b := setUp(t, func(m *record.Member) { m.Jobs = nil })
		w.claim(a, "job", func(c *record.Claims) { c.Counts.Claimed = 7 })
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-1"}, w.owners("job"))
		assert.Contains(t, w.claims[a], "job")
		assert.Zero(t, w.Plan("job").Counts.Claimed)
	})
}
