package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_Requests(t *testing.T) {
	setUp := func(t *testing.T) (w *world, a string) {
		w = NewWorld(t)
		a = w.Join("a", "job")
		w.Define("job", 1, 1, "")
		w.Settle()
		return w, a
	}
	for _, c := range []struct {
		name string
		edit func(*record.Control)
		want string
	}{
		{"a pause", func(c *record.Control) { c.Paused = true }, "pause"},
		{"a stop of the schedule", func(c *record.Control) { c.Stopped = true }, "stop the schedule"},
	} {
		t.Run("the reasons name "+c.name, func(t *testing.T) {
			w, _ := setUp(t)
			w.editControl("job", c.edit)
			d := w.decide()
			require.Len(t, d.Changes, 1)
			assert.Equal(t, []string{c.want}, d.Changes[0].Why)
		})
	}
	triggers := func(from, to uint64) (out []record.Trigger) {
		for n := from; n <= to; n++ {
			out = append(out, record.Trigger{Number: n, At: coordtest.At(1)})
		}
		return out
	}
	t.Run("triggers that wait for room get it without the slow tick", func(t *testing.T) {
		w, a := setUp(t)
		w.editControl("job", func(c *record.Control) {
			c.Triggers, c.LastTrigger = triggers(1, record.MaxTriggers), record.MaxTriggers
		})
		w.Settle()
		w.editControl("job", func(c *record.Control) {
			c.Triggers, c.LastTrigger = triggers(record.MaxTriggers+1, record.MaxTriggers+2), record.MaxTriggers+2
			c.Disabled = shardset.Of(5)
		})
		d := w.decide()
		require.Len(t, d.Changes, 1)
		assert.Empty(t, d.Changes[0].ops, "the control record keeps them")
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(0), record.Watermark{Trigger: 2, TriggerAttempt: 1})
		})
		w.Settle()
		require.Len(t, w.Plan("job").Triggers, record.MaxTriggers)
		assert.EqualValues(t, 3, w.Plan("job").Triggers[0].Number)
	})
	t.Run("a trigger that the plan has is not added again", func(t *testing.T) {
		w, _ := setUp(t)
		w.editControl("job", func(c *record.Control) { c.Triggers, c.LastTrigger = triggers(1, 1), 1 })
		w.Settle()
		w.editControl("job", func(c *record.Control) { c.Triggers, c.LastTrigger = triggers(1, 2), 2 })
		w.Settle()
		w.editControl("job", func(c *record.Control) { c.Triggers, c.LastTrigger = triggers(1, 2), 2 })
		w.editControl("job", func(c *record.Control) { c.Disabled = shardset.Of(0) })
		w.Settle()
		require.Len(t, w.Plan("job").Triggers, 2)
	})
	t.Run("a backfill has numbers after the triggers in the plan, whatever the control record holds", func(t *testing.T) {
		w, _ := setUp(t)
		w.editControl("job", func(c *record.Control) { c.Triggers, c.LastTrigger = triggers(4, 5), 5 })
		w.Settle()
		w.editControl("job", func(c *record.Control) {
			c.LastTrigger, c.LastBackfill = 0, 1
			c.Backfills = []record.Backfill{{Number: 1, Parallel: 1, Fires: []record.Instant{coordtest.At(0)}}}
		})
		w.Settle()
		require.Len(t, w.Plan("job").Triggers, 3)
		assert.EqualValues(t, 6, w.Plan("job").Triggers[2].Number)
	})
	t.Run("a backfill waits for triggers by hand that do not fit, although it would", func(t *testing.T) {
		w, _ := setUp(t)
		w.editControl("job", func(c *record.Control) {
			c.Triggers, c.LastTrigger = triggers(1, record.MaxTriggers-1), record.MaxTriggers-1
		})
		w.Settle()
		w.editControl("job", func(c *record.Control) {
			c.Triggers, c.LastTrigger, c.LastBackfill = triggers(record.MaxTriggers, record.MaxTriggers+1), record.MaxTriggers+1, 1
			c.Backfills = []record.Backfill{{Number: 1, Parallel: 1, Fires: []record.Instant{coordtest.At(0)}}}
			c.Disabled = shardset.Of(5)
		})
		d := w.decide()
		require.Len(t, d.Changes, 1)
		assert.Len(t, d.Changes[0].Plan.Triggers, record.MaxTriggers-1)
		assert.Empty(t, d.Changes[0].ops, "the control record keeps them")
	})
	t.Run("a cancelled run that has ended goes while another stays", func(t *testing.T) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.startRuns(a, "job", shardset.Of(0), coordtest.Fire(1, 1))
		w.startRuns(a, "job", shardset.Of(1), coordtest.Fire(2, 1))
		w.editControl("job", func(c *record.Control) {
			c.Cancels = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1)).With(shardset.Of(1), coordtest.Fire(2, 1))
		})
		w.Settle()
		w.claim(a, "job", func(c *record.Claims) { c.Running = c.Running.Without(shardset.Of(0)) })
		w.View.SlowTick = true
		w.Settle()
		assert.Equal(t, coordtest.Runs(shardset.Of(1), coordtest.Fire(2, 1)), w.Plan("job").Cancels)
	})
	t.Run("a trigger before the first epoch belongs to it", func(t *testing.T) {
		w, _ := setUp(t)
		w.View.Now = w.Plan("job").Epochs[0].From - 1 // the clock of a new leader is behind
		w.editControl("job", func(c *record.Control) { c.Triggers, c.LastTrigger = triggers(1, 1), 1 })
		w.Settle()
		assert.Equal(t, 1, w.Plan("job").Triggers[0].Epoch)
	})
}
