package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_Backfills(t *testing.T) {
	fires := func(from, to int) (out []record.Instant) {
		for n := from; n < to; n++ {
			out = append(out, coordtest.At(n))
		}
		return out
	}
	setUp := func(t *testing.T, backfills ...record.Backfill) (w *world, a string) {
		w = NewWorld(t)
		w.View.Now = coordtest.At(50)
		a = w.Join("a", "job")
		w.Define("job", 1, 1, "")
		w.Settle()
		w.editControl("job", func(c *record.Control) {
			c.Backfills, c.LastTrigger, c.LastBackfill = backfills, 7, uint64(len(backfills))
		})
		return w, a
	}
	// inFlight returns the fires of the triggers in the plan, in minutes, by backfill.
	inFlight := func(w *world) map[uint64][]record.Instant {
		out := map[uint64][]record.Instant{}
		for _, tr := range w.Plan("job").Triggers {
			require.Equal(t, record.TriggerBackfill, tr.Reason)
			out[tr.Backfill] = append(out[tr.Backfill], tr.Fire)
		}
		return out
	}
	t.Run("become triggers, so many at a time, each when an earlier one is served", func(t *testing.T) {
		w, a := setUp(t, record.Backfill{Number: 1, Parallel: 2, Fires: fires(0, 5)})
		w.Settle()
		require.Equal(t, map[uint64][]record.Instant{1: fires(0, 2)}, inFlight(w))
		assert.EqualValues(t, 8, w.Plan("job").Triggers[0].Number, "numbers follow those of earlier triggers")
		assert.EqualValues(t, 9, w.View.Control["job"].LastTrigger)
		assert.Equal(t, fires(2, 5), w.View.Control["job"].Backfills[0].Fires)
		d := w.decide()
		assert.Empty(t, d.Changes)
		assert.Equal(t, []string{a}, d.Follow, "its next claim may make room")
		w.startRuns(a, "job", shardset.Of(0), record.Ref{Epoch: 1, Fire: coordtest.At(0), Trigger: 8, Attempt: 1})
		w.Settle()
		require.Len(t, inFlight(w)[1], 2, "the first one runs")
		w.claim(a, "job", func(c *record.Claims) { c.Running = nil })
		w.Settle()
		require.Equal(t, map[uint64][]record.Instant{1: fires(1, 3)}, inFlight(w))
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(0), record.Watermark{Trigger: 12, TriggerAttempt: 1})
		})
		w.Settle()
		w.View.SlowTick = true
		w.Settle()
		assert.Empty(t, w.Plan("job").Triggers)
		assert.Empty(t, w.View.Control["job"].Backfills)
	})
	t.Run("are apart from one another, and come after triggers by hand", func(t *testing.T) {
		w, _ := setUp(t, record.Backfill{Number: 1, Parallel: 1, Fires: fires(0, 2)}, record.Backfill{Number: 2, Parallel: 1, Fires: fires(5, 7)})
		w.editControl("job", func(c *record.Control) {
			c.Triggers, c.LastTrigger = []record.Trigger{{Number: 8, At: coordtest.At(50)}}, 8
		})
		w.Settle()
		triggers := w.Plan("job").Triggers
		require.Len(t, triggers, 3)
		assert.Equal(t, []uint64{8, 9, 10}, []uint64{triggers[0].Number, triggers[1].Number, triggers[2].Number})
		assert.Equal(t, []uint64{0, 1, 2}, []uint64{triggers[0].Backfill, triggers[1].Backfill, triggers[2].Backfill})
	})
	t.Run("wait while triggers by hand have no room, whose numbers are lower", func(t *testing.T) {
		w, _ := setUp(t)
		var full, more []record.Trigger
		for n := range record.MaxTriggers {
			full = append(full, record.Trigger{Number: uint64(n + 1), At: coordtest.At(50)})
			more = append(more, record.Trigger{Number: uint64(n + 1 + record.MaxTriggers), At: coordtest.At(50)})
		}
		w.editControl("job", func(c *record.Control) { c.Triggers, c.LastTrigger = full, record.MaxTriggers })
		w.Settle()
		w.editControl("job", func(c *record.Control) {
			c.Triggers, c.LastTrigger = more, 2*record.MaxTriggers
			c.Backfills, c.LastBackfill = []record.Backfill{{Number: 1, Parallel: 1, Fires: fires(0, 1)}}, 1
		})
		w.Settle()
		assert.Len(t, w.Plan("job").Triggers, record.MaxTriggers)
		assert.Len(t, w.View.Control["job"].Backfills, 1)
	})
	t.Run("never exceed the triggers that a plan may hold", func(t *testing.T) {
		w, _ := setUp(t, record.Backfill{Number: 1, Parallel: 100, Fires: fires(0, 40)}, record.Backfill{Number: 2, Parallel: 100, Fires: fires(0, 30)})
		w.Settle()
		assert.Len(t, w.Plan("job").Triggers, record.MaxTriggers)
		assert.Len(t, w.View.Control["job"].Backfills[0].Fires, 6)
	})
}
