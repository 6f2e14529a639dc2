package planning

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
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

func TestPlan_SmallerTotal_OwnersOfDroppedShards(t *testing.T) {
	w := NewWorld(t)
	a, b := w.Join("a", "job"), w.Join("b", "job")
	w.Define("job", 2, 1, "")
	w.Settle()
	w.View.Now = coordtest.At(2)
	w.Define("job", 1, 2, "")
	w.Settle()
	w.View.Now = coordtest.At(4)
	w.claim(a, "job", func(c *record.Claims) {
		c.Watermarks = c.Watermarks.Raise(shardset.Of(0), record.Watermark{Epoch: 2, Fire: coordtest.At(4), Attempt: 1})
	})
	w.claim(b, "job", func(c *record.Claims) {
		c.Watermarks = c.Watermarks.Raise(shardset.Of(1), record.Watermark{Epoch: 1, Fire: coordtest.At(2), Attempt: 1})
	})
	w.editPlan("job", func(p *record.Plan) {
		p.Watermarks = p.Watermarks.Raise(shardset.Of(1), record.Watermark{Epoch: 1, Fire: coordtest.At(1), Attempt: 1})
	})
	w.View.SlowTick = true
	d := w.decide()
	require.Len(t, d.Changes, 1)
	t.Run("leaves no owner without shards, and no watermark of a dropped shard", func(t *testing.T) {
		assert.Equal(t, map[string]shardset.Set{a: shardset.Of(0)}, d.Changes[0].Plan.Owners)
		assert.Zero(t, d.Changes[0].Plan.Watermarks.Of(1))
	})
}

func TestPlan_Clears(t *testing.T) {
	// setUp returns a world with a plan of two epochs; the owner a has claimed all fires of the first.
	setUp := func(t *testing.T) (w *world, a string) {
		w = NewWorld(t)
		a = w.Join("a", "job", "other")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.View.Now = coordtest.At(2)
		w.Define("job", 2, 2, "")
		w.Settle()
		w.View.Now = coordtest.At(4)
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 2), record.Watermark{Epoch: 1, Fire: coordtest.At(2), Attempt: 1})
		})
		w.View.SlowTick = true
		return w, a
	}
	track := func(open ...record.FireRun) func(*record.Plan) {
		return func(p *record.Plan) { p.Fires = &record.Fires{From: coordtest.At(0), Open: open} }
	}
	follow := func(w *world) { w.Define("child", 1, 1, `,"schedule":"after job"`) }
	run := record.FireRun{Epoch: 1, At: coordtest.At(2), Ran: shardset.Of(0)}
	for _, c := range []struct {
		name   string
		edit   func(w *world, a string)
		epochs int
	}{
		{"an epoch in which nothing is due", func(*world, string) {}, 1},
		{"not an epoch with an open fire of shards that have moved", func(w *world, _ string) {
			follow(w)
			w.editPlan("job", track(run))
		}, 2},
		{"not an epoch with an open fire that an owner has claimed", func(w *world, a string) {
			follow(w)
			w.editPlan("job", track())
			w.claim(a, "job", func(c *record.Claims) { c.Fires = c.Fires.With(run) })
		}, 2},
		{"an epoch of which the claimed fires have ended", func(w *world, a string) {
			follow(w)
			w.editPlan("job", func(p *record.Plan) { p.Fires = &record.Fires{From: coordtest.At(0), Through: coordtest.At(2)} })
			w.claim(a, "job", func(c *record.Claims) { c.Fires = c.Fires.With(run) })
		}, 1},
		{"not an epoch with fires due, although no member offers the job", func(w *world, a string) {
			w.claim(a, "job", func(c *record.Claims) { c.Watermarks = nil })
			w.editMember(a, func(m *record.Member) { m.Jobs = []string{"other"} })
		}, 2},
		{"an epoch that all shards have passed, under a definition that the leader does not support", func(w *world, a string) {
			w.View.Compile = func(json.RawMessage) (due.Program, error) { return nil, assert.AnError }
			w.claim(a, "job", func(c *record.Claims) {
				c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 2), record.Watermark{Epoch: 2, Fire: coordtest.At(4), Attempt: 1})
			})
		}, 1},
		{"not an epoch that a shard has not passed, under a definition that the leader does not support", func(w *world, _ string) {
			w.View.Compile = func(json.RawMessage) (due.Program, error) { return nil, assert.AnError }
		}, 2},
	} {
		t.Run("a slow tick clears "+c.name, func(t *testing.T) {
			w, a := setUp(t)
			c.edit(w, a)
			w.Settle()
			assert.Len(t, w.Plan("job").Epochs, c.epochs)
		})
	}
	t.Run("a slow tick follows no claims, unless something waits for room", func(t *testing.T) {
		w, a := setUp(t)
		w.claim(a, "job", func(c *record.Claims) { c.Watermarks = nil })
		require.Empty(t, w.decide().Follow)
		w.editControl("job", func(c *record.Control) {
			c.Backfills, c.LastBackfill = []record.Backfill{{Number: 1, Parallel: 1, Fires: []record.Instant{coordtest.At(0), coordtest.At(1)}}}, 1
		})
		w.Settle()
		require.Equal(t, []string{a}, w.round().Follow)
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 2), record.Watermark{Epoch: 1, Fire: coordtest.At(2), Attempt: 1})
		})
		d := w.decide()
		require.Len(t, d.Changes, 1)
		assert.Empty(t, d.Follow, "a part was cleared, so the next decision may find room")
	})
	t.Run("a trigger of a past fire goes once it is served, although its instant is open", func(t *testing.T) {
		w, a := setUp(t)
		follow(w)
		w.editPlan("job", func(p *record.Plan) {
			track()(p)
			p.Triggers = []record.Trigger{{Number: 1, At: coordtest.At(4), Epoch: 1, Fire: coordtest.At(1)}}
		})
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 2), record.Watermark{Trigger: 1, TriggerAttempt: 1})
		})
		w.Settle()
		assert.Empty(t, w.Plan("job").Triggers)
	})
}
