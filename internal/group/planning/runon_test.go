package planning

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// joinWithZone adds a live member with a label zone.
func (w *world) joinWithZone(name, zone string, jobs ...string) string {
	inc := w.Join(name, jobs...)
	w.editMember(inc, func(m *record.Member) { m.Labels = map[string]string{"zone": zone, "disk": "ssd"} })
	return inc
}

// storeAndServe stores a new definition, begins it, and serves the fires that were due before.
func (w *world) storeAndServe(job string, shards, revision int, more string) {
	w.t.Helper()
	w.Define(job, shards, revision, more)
	w.Settle()
	require.Equal(w.t, revision, w.Plan(job).Last().Job().Revision)
}

func TestPlan_RunOn(t *testing.T) {
	const east = `,"run_on":{"zone":"east"}`
	for name, strategy := range map[string]string{"sticky": "", "average": `,"strategy":"average"`, "single": `,"strategy":"single"`} {
		t.Run("assigns shards only to members with the labels, by "+name, func(t *testing.T) {
			w := NewWorld(t)
			w.joinWithZone("a", "west", "job")
			b, c := w.joinWithZone("b", "east", "job"), w.joinWithZone("c", "east", "job")
			w.Join("d", "job")
			w.Define("job", 6, 1, east+strategy)
			w.Settle()
			owned := shardset.Set{}
			for inc, set := range w.Plan("job").Owners {
				assert.Contains(t, []string{b, c}, inc)
				owned = owned.Union(set)
			}
			assert.Equal(t, "0-5", owned.String())
			assert.Empty(t, w.Plan("job").Problem)
		})
	}
	t.Run("requires all pairs", func(t *testing.T) {
		w := NewWorld(t)
		w.joinWithZone("a", "east", "job")
		b := w.joinWithZone("b", "east", "job")
		w.editMember(b, func(m *record.Member) { m.Labels = map[string]string{"zone": "east", "disk": "hdd"} })
		w.Define("job", 4, 1, `,"run_on":{"zone":"east","disk":"hdd"}`)
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
	})
	t.Run("passes a strategy only members with the labels", func(t *testing.T) {
		var asked []string
		w := NewWorld(t)
		w.View.Strategies["asks about the east"] = func(in strategy.Input) (strategy.Assignment, error) {
			for _, m := range in.Members {
				asked = append(asked, m.Name)
			}
			return strategy.Average(in)
		}
		w.joinWithZone("a", "west", "job")
		w.joinWithZone("b", "east", "job")
		gone, gone2 := w.joinWithZone("c", "west", "job"), w.joinWithZone("d", "east", "job")
		w.expire(gone)
		w.expire(gone2)
		w.setAbsent(gone, time.Second)
		w.setAbsent(gone2, time.Second)
		w.Define("job", 4, 1, east+`,"strategy":"asks about the east"`)
		w.decide()
		assert.Equal(t, []string{"b", "d"}, asked[:2], "d as if it were live: it is awaited")
	})
	t.Run("of a new definition moves idle shards at once, and running ones after their runs", func(t *testing.T) {
		w := NewWorld(t)
		a, b := w.joinWithZone("a", "west", "job"), w.joinWithZone("b", "east", "job")
		w.Define("job", 4, 1, "")
		w.Settle()
		require.Equal(t, map[string]string{a: "0-1", b: "2-3"}, w.owners("job"))
		w.startRuns(a, "job", shardset.Of(0), coordtest.Fire(1, 1))
		w.storeAndServe("job", 4, 2, east)
		assert.Equal(t, map[string]string{a: "0", b: "1-3"}, w.owners("job"))
		assert.Equal(t, "0", w.Plan("job").Frozen.String())
		assert.Equal(t, []string{a}, w.round().Follow)
		w.claim(a, "job", func(c *record.Claims) { c.Running = nil })
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
	})
	t.Run("of a new definition applies at once, also to due fires of the definition before", func(t *testing.T) {
		w := NewWorld(t)
		a, b := w.joinWithZone("a", "west", "job"), w.joinWithZone("b", "east", "job")
		w.Define("job", 4, 1, "")
		w.Settle()
		require.Contains(t, w.owners("job"), a)
		w.Define("job", 4, 2, east)
		w.round()
		assert.Equal(t, w.Plan("job").Owners[a], w.Plan("job").Frozen)
		require.Equal(t, 1, w.Plan("job").Last().Job().Revision, "its own epoch begins later")
		w.round()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		assert.Len(t, w.Plan("job").Epochs, 2)
	})
	t.Run("of an older definition is not applied again", func(t *testing.T) {
		w := NewWorld(t)
		w.joinWithZone("a", "west", "job")
		b := w.joinWithZone("b", "east", "job")
		w.Define("job", 4, 2, east)
		w.Settle()
		w.Define("job", 4, 1, "")
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		delete(w.View.Jobs, "job")
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"), "nor with the record deleted")
	})
	t.Run("that no live member has leaves the shards unowned, and the plan names the labels", func(t *testing.T) {
		w := NewWorld(t)
		a, b := w.joinWithZone("a", "west", "job", "other"), w.joinWithZone("b", "west", "job", "other")
		w.Define("job", 4, 1, `,"run_on":{"zone":"east","rack":""}`)
		w.Define("other", 4, 1, "")
		w.Settle()
		require.Empty(t, w.owners("job"), "but there is a plan: fires become due")
		assert.Equal(t, "no live instance that offers the job has the labels rack=, zone=east", w.Plan("job").Problem)
		assert.Equal(t, map[string]string{a: "0-1", b: "2-3"}, w.owners("other"))
		w.storeAndServe("job", 4, 2, east)
		assert.Equal(t, "no live instance that offers the job has the labels zone=east", w.Plan("job").Problem)
		c := w.joinWithZone("c", "east", "job")
		w.Settle()
		assert.Equal(t, map[string]string{c: "0-3"}, w.owners("job"))
		assert.Empty(t, w.Plan("job").Problem)
		w.expire(c)
		w.Settle()
		assert.Empty(t, w.owners("job"))
		assert.NotEmpty(t, w.Plan("job").Problem)
	})
	t.Run("names disabled members that have the labels as disabled", func(t *testing.T) {
		w := NewWorld(t)
		w.joinWithZone("a", "west", "job", "other")
		w.joinWithZone("b", "east", "job", "other")
		w.Define("job", 4, 1, east)
		w.Define("other", 4, 1, east+`,"strategy":"average"`)
		w.Settle()
		w.editControl("job", func(c *record.Control) { c.Instances = []string{"b"} })
		w.Settle()
		const want = "every live instance that offers the job is disabled or lacks the labels zone=east"
		assert.Equal(t, want, w.Plan("job").Problem)
		assert.NotEmpty(t, w.owners("other"))
		w.View.GroupExclusion.Instances = []string{"b"}
		w.Settle()
		assert.Equal(t, want, w.Plan("other").Problem)
		assert.Empty(t, w.owners("other"))
	})
	t.Run("awaits no member that lacks the labels", func(t *testing.T) {
		w := NewWorld(t)
		a, b := w.joinWithZone("a", "west", "job"), w.joinWithZone("b", "east", "job")
		w.Define("job", 4, 1, "")
		w.Settle()
		w.expire(a)
		w.setAbsent(a, time.Second)
		w.Settle()
		require.Equal(t, map[string]string{a: "0-1", b: "2-3"}, w.owners("job"))
		w.storeAndServe("job", 4, 2, east)
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
	})
	t.Run("assigns an instance that returned with other labels none of its shards", func(t *testing.T) {
		w := NewWorld(t)
		a, b := w.joinWithZone("a", "east", "job"), w.joinWithZone("b", "east", "job")
		w.Define("job", 4, 1, east)
		w.Settle()
		w.expire(a)
		w.setAbsent(a, time.Second)
		w.Settle()
		require.Contains(t, w.owners("job"), a)
		w.joinAs("a", "later", "job")
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
	})
	t.Run("applies while the job is paused", func(t *testing.T) {
		w := NewWorld(t)
		w.joinWithZone("a", "west", "job")
		b := w.joinWithZone("b", "east", "job")
		w.Define("job", 4, 1, "")
		w.Settle()
		w.editControl("job", func(c *record.Control) { c.Paused = true })
		w.Define("job", 4, 2, east)
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
	})
	t.Run("of a definition that waits for room applies, so that members may serve the earlier ones", func(t *testing.T) {
		w := NewWorld(t)
		w.View.SlowTick = true
		a := w.joinWithZone("a", "west", "job")
		w.Define("job", 4, 0, east)
		w.Settle()
		for n := range maxEpochs + 3 {
			w.View.Now = coordtest.At(10 + n)
			w.Define("job", 4, 1+n, east)
			w.Settle()
		}
		require.Len(t, w.Plan("job").Epochs, maxEpochs)
		require.Empty(t, w.owners("job"))
		w.Define("job", 4, 100, `,"run_on":{"zone":"west"}`)
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
		for n := range maxEpochs + 2 {
			w.View.Now = coordtest.At(30 + n)
			for _, e := range w.Plan("job").Epochs {
				w.claim(a, "job", func(c *record.Claims) {
					c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 4), record.Watermark{Epoch: e.Number, Fire: max(e.From, w.View.Now)})
				})
			}
			w.Settle()
		}
		assert.Equal(t, 100, w.Plan("job").Last().Job().Revision)
		assert.Empty(t, w.Plan("job").Problem)
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
	})
	t.Run("settles, whatever labels are required and whichever members are live", func(t *testing.T) {
		w := NewWorld(t)
		w.joinWithZone("a", "west", "one", "two", "three")
		w.joinWithZone("b", "east", "one", "two")
		w.joinWithZone("c", "north", "one", "three")
		w.Define("one", 5, 1, "")
		w.Define("two", 5, 1, east)
		w.Define("three", 5, 1, `,"run_on":{"zone":"north"}`)
		w.Settle()
		before := map[string]map[string]string{}
		for _, job := range []string{"one", "two", "three"} {
			before[job] = maps.Clone(w.owners(job))
		}
		require.Empty(t, w.decide().Changes)
		for job, owners := range before {
			assert.Equal(t, owners, w.owners(job))
		}
	})
}
