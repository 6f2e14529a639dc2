package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_Triggers(t *testing.T) {
	triggered := func(t *testing.T, number uint64) *world {
		w := newWorld(t)
		w.member("a", "job")
		w.define("job", 2, 1, "")
		w.settle()
		w.intend("job", func(c *record.Control) {
			c.Triggers = []record.Trigger{{Number: number, At: w.v.now, Param: "hello"}}
		})
		return w
	}
	t.Run("stay in the plan while a re-run of them is pending, as the re-run takes its parameter from there", func(t *testing.T) {
		w := triggered(t, 7)
		w.settle()
		a := "a.a"
		w.running(a, "job", shardset.Range(0, 2), record.Ref{Gen: 1, Fire: w.v.now, Trigger: 7, Attempt: 1})
		w.kill(a)
		w.v.tidy = true
		w.settle()
		require.Equal(t, "0-1", w.plan("job").Reruns.Shards().String())
		require.Empty(t, w.plan("job").Owners)
		require.Len(t, w.plan("job").Triggers, 1)
		assert.Equal(t, "hello", w.plan("job").Triggers[0].Param)
	})
	t.Run("belong to the definition that is in force when they are added to the plan, not to one that has yet to begin", func(t *testing.T) {
		w := triggered(t, 7)
		w.define("job", 4, 2, "")
		control := w.v.control["job"]
		delete(w.v.control, "job")
		w.settle()
		next := w.plan("job").Last()
		require.Equal(t, 2, next.Gen)
		require.Greater(t, next.From, w.v.now)

		w.v.control["job"] = control
		w.settle()
		require.Len(t, w.plan("job").Triggers, 1)
		assert.Equal(t, 1, w.plan("job").Triggers[0].Gen)

		w.v.now = next.From
		w.intend("job", func(c *record.Control) { c.Triggers = []record.Trigger{{Number: 8, At: w.v.now}} })
		w.settle()
		require.Len(t, w.plan("job").Triggers, 2)
		assert.Equal(t, 2, w.plan("job").Triggers[1].Gen)
	})
}

func TestLead_TriggerOfACrashedInstance(t *testing.T) {
	bubble(t, "is run again with its parameter after minutes in which its shards had no owner", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(time.Hour), def("job", 0, 2, ""))
		b := g.start("b", def("other", 0, 1, ""))
		n, err := b.Trigger(t.Context(), "job", "hello", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, once(2), shards(a.began()))
		defer g.server.Partition("a")()
		time.Sleep(ttl + 4*selfDiagnosis)
		require.Empty(t, g.owners("job"))
		b.began()
		b.Offer(offering(def("job", 0, 2, "")))
		time.Sleep(time.Second)
		var again []Run
		for _, r := range b.began() {
			if r.Trigger == n {
				again = append(again, r)
			}
		}
		require.Equal(t, once(2), shards(again))
		for _, r := range again {
			assert.Equal(t, "hello", r.Param)
			assert.Equal(t, 2, r.Attempt)
			assert.True(t, r.Rerun)
		}
	})
}
