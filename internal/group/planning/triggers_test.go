package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_Triggers(t *testing.T) {
	triggered := func(t *testing.T, number uint64) *world {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.editControl("job", func(c *record.Control) {
			c.Triggers = []record.Trigger{{Number: number, At: w.View.Now, Param: "hello"}}
		})
		return w
	}
	t.Run("stay in the plan while a re-run of them is pending, as the re-run takes its parameter from there", func(t *testing.T) {
		w := triggered(t, 7)
		w.Settle()
		a := "a.a"
		w.startRuns(a, "job", shardset.Range(0, 2), record.Ref{Epoch: 1, Fire: w.View.Now, Trigger: 7, Attempt: 1})
		w.expire(a)
		w.View.SlowTick = true
		w.Settle()
		require.Equal(t, "0-1", w.Plan("job").Reruns.Shards().String())
		require.Empty(t, w.Plan("job").Owners)
		require.Len(t, w.Plan("job").Triggers, 1)
		assert.Equal(t, "hello", w.Plan("job").Triggers[0].Param)
	})
	t.Run("belong to the definition in force when they enter the plan, not to one that begins later", func(t *testing.T) {
		w := triggered(t, 7)
		w.Define("job", 4, 2, "")
		control := w.View.Control["job"]
		delete(w.View.Control, "job")
		w.Settle()
		next := w.Plan("job").Last()
		require.Equal(t, 2, next.Number)
		require.Greater(t, next.From, w.View.Now)

		w.View.Control["job"] = control
		w.Settle()
		require.Len(t, w.Plan("job").Triggers, 1)
		assert.Equal(t, 1, w.Plan("job").Triggers[0].Epoch)

		w.View.Now = next.From
		w.editControl("job", func(c *record.Control) { c.Triggers = []record.Trigger{{Number: 8, At: w.View.Now}} })
		w.Settle()
		require.Len(t, w.Plan("job").Triggers, 2)
		assert.Equal(t, 2, w.Plan("job").Triggers[1].Epoch)
	})
	// moved returns a world in which a owns shard 0, which b handed back. As long as b claims nothing, b's record
	// lists that re-run, which a has made meanwhile.
	moved := func(t *testing.T) (w *world, a string) {
		w = triggered(t, 1)
		a, b := "a.a", w.Join("b", "job")
		w.Settle()
		require.Equal(t, map[string]string{a: "0", b: "1"}, w.owners("job"))
		first := record.Ref{Epoch: 1, Fire: w.View.Now, Trigger: 1, Attempt: 1}
		w.startRuns(b, "job", shardset.Of(0, 1), first)
		w.handBack(b, "job")
		w.claim(b, "job", func(c *record.Claims) { c.Reruns = c.Reruns.Without(shardset.Of(1)) })
		w.startRuns(a, "job", shardset.Of(0), first.Return())
		w.claim(a, "job", func(c *record.Claims) { c.Running = nil })
		return w, a
	}
	t.Run("end with the re-run on a new owner, whatever the earlier owner's record lists", func(t *testing.T) {
		w, _ := moved(t)
		w.View.SlowTick = true
		w.Settle()
		assert.Empty(t, w.Plan("job").Triggers)
	})
	t.Run("stay while they run on a new owner, whatever the earlier owner's record lists", func(t *testing.T) {
		w, a := moved(t)
		one := shardset.Of(0)
		w.editControl("job", func(c *record.Control) {
			c.Triggers = []record.Trigger{{Number: 2, At: w.View.Now, Shards: &one}}
		})
		w.Settle()
		w.startRuns(a, "job", shardset.Of(0), record.Ref{Epoch: 1, Fire: w.View.Now, Trigger: 2, Attempt: 1})
		w.View.SlowTick = true
		w.Settle()
		require.Len(t, w.Plan("job").Triggers, 1)
		assert.EqualValues(t, 2, w.Plan("job").Triggers[0].Number)
	})
}
