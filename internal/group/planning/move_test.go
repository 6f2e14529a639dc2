package planning

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
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

func TestPlan_MovesOfManyJobs(t *testing.T) {
	w := NewWorld(t)
	w.uncompared, w.View.ListByKey = true, true
	const jobs = 5 * maxFreezes
	var names []string
	for i := range jobs {
		names = append(names, fmt.Sprintf("job-%04d", i))
		w.Define(names[i], 1, 1, "")
	}
	a := w.Join("a", names...)
	w.Settle()
	b := w.Join("b", names...)
	isFrozen := func() (frozen []string) {
		for _, job := range names {
			if !w.Plan(job).Frozen.IsZero() {
				frozen = append(frozen, job)
			}
		}
		return frozen
	}
	t.Run("freeze no more than a round can move", func(t *testing.T) {
		w.round()
		require.Len(t, isFrozen(), maxFreezes)
	})
	t.Run("need the claims of the frozen jobs only", func(t *testing.T) {
		d := w.decideOnce()
		require.Equal(t, map[string][]string{a: isFrozen()}, d.Parts)
		w.readClaims(a)
		part := w.View.Reads[a]
		clear(w.View.Reads)
		part.Only = map[string]bool{}
		for _, job := range d.Parts[a] {
			part.Only[job] = true
		}
		w.View.PartReads = map[string]FreshRead{a: part}
		d = w.decideOnce()
		require.Empty(t, d.Reads)
		require.Len(t, d.Changes, 2*maxFreezes, "those moves, and the next freezes")
		clear(w.View.PartReads)
	})
	t.Run("leave the shards of other jobs to their owner meanwhile, and end", func(t *testing.T) {
		for range jobs / maxFreezes {
			w.round()
			require.LessOrEqual(t, len(isFrozen()), maxFreezes)
		}
		w.Settle()
		require.Empty(t, isFrozen())
		owned := 0
		for _, job := range names {
			owned += w.Plan(job).Owners[b].Len()
		}
		require.Equal(t, jobs/2, owned)
	})
	t.Run("go on beside shards that run for long", func(t *testing.T) {
		c := w.Join("c", names...)
		w.round()
		for _, job := range isFrozen() {
			w.startRuns(slices.Collect(maps.Keys(w.Plan(job).Owners))[0], job, shardset.Of(0), record.Ref{Epoch: 1, Fire: coordtest.Start, Attempt: 1})
		}
		w.round()
		require.Greater(t, len(isFrozen()), maxFreezes)
		w.round()
		w.round()
		owned := 0
		for _, job := range names {
			owned += w.Plan(job).Owners[c].Len()
		}
		require.Positive(t, owned)
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
