package coordinator

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// handsBack moves what an incarnation runs of a job to its pending re-runs.
func (w *world) handsBack(inc, job string) {
	w.claim(inc, job, func(c *record.Claims) {
		for _, g := range c.Running {
			c.Reruns = c.Reruns.With(g.Shards, g.Return())
		}
		c.Running = nil
	})
}

func TestPlan_RunsHandedBack(t *testing.T) {
	draining := func(m *record.Member) { m.Draining = true }
	returned := record.Ref{Gen: 1, Fire: at(1), Attempt: 2, HandedBack: 1}

	t.Run("go with their shards to the next owner", func(t *testing.T) {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 2, 1, "")
		w.settle()
		w.running(a, "job", shardset.Of(0, 1), fire(1, 1))
		b := w.member("b", "job")
		w.change(a, draining)
		w.settle()
		require.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
		w.handsBack(a, "job")
		w.settle()
		assert.Equal(t, map[string]string{b: "0-1"}, w.owners("job"))
		assert.Equal(t, record.Runs{{Shards: shardset.Of(0, 1), Ref: returned}}, w.plan("job").Reruns)
		assert.Zero(t, w.plan("job").Counts)
	})
	t.Run("stay pending if the session ends before a leader has looked", func(t *testing.T) {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 1, 1, "")
		w.settle()
		w.running(a, "job", shardset.Of(0), fire(1, 1))
		w.handsBack(a, "job")
		w.kill(a)
		b := w.member("b", "job")
		w.settle()
		assert.Equal(t, map[string]string{b: "0"}, w.owners("job"))
		assert.Equal(t, record.Runs{{Shards: shardset.Of(0), Ref: returned}}, w.plan("job").Reruns)
	})
	t.Run("are forgotten once the next owner has claimed them", func(t *testing.T) {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 2, 1, "")
		w.settle()
		w.running(a, "job", shardset.Of(0, 1), fire(1, 1))
		w.handsBack(a, "job")
		w.claim(a, "job", func(c *record.Claims) { c.Marks = c.Marks.Raise(shardset.Of(0), returned.Mark()) })
		w.kill(a)
		w.member("b", "job")
		w.settle()
		assert.Equal(t, record.Runs{{Shards: shardset.Of(1), Ref: returned}}, w.plan("job").Reruns)
	})
	t.Run("keep their trigger and their generation in the plan while their owner is awaited", func(t *testing.T) {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 1, 1, "")
		w.intend("job", func(c *record.Control) { c.Triggers = []record.Trigger{{Number: 1, At: at(1), Param: "x"}} })
		w.settle()
		w.running(a, "job", shardset.Of(0), record.Ref{Gen: 1, Fire: at(1), Trigger: 1, Attempt: 1})
		w.handsBack(a, "job")
		w.define("job", 1, 2, "")
		w.settle()
		w.v.now, w.v.tidy = at(9), true
		w.claim(a, "job", func(c *record.Claims) {
			c.Marks = c.Marks.Raise(shardset.Of(0), record.Mark{Gen: 2, Fire: at(9), Attempt: 1})
		})
		w.settle()
		assert.Len(t, w.plan("job").Triggers, 1)
		assert.Len(t, w.plan("job").Epochs, 2)
		w.claim(a, "job", func(c *record.Claims) {
			c.Marks = c.Marks.Raise(shardset.Of(0), record.Mark{Trigger: 1, TriggerAttempt: 2})
		})
		w.settle()
		assert.Empty(t, w.plan("job").Triggers)
		assert.Len(t, w.plan("job").Epochs, 1)
	})
	t.Run("do not use up the attempts of crashes", func(t *testing.T) {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 1, 1, `,"max_attempts":2`)
		w.settle()
		w.running(a, "job", shardset.Of(0), record.Ref{Gen: 1, Fire: at(1), Attempt: 8, HandedBack: 7})
		w.kill(a)
		b := w.member("b", "job")
		w.settle()
		next := record.Ref{Gen: 1, Fire: at(1), Attempt: 9, HandedBack: 7}
		require.Equal(t, record.Runs{{Shards: shardset.Of(0), Ref: next}}, w.plan("job").Reruns)
		w.running(b, "job", shardset.Of(0), next)
		w.kill(b)
		w.member("c", "job")
		w.settle()
		assert.Empty(t, w.plan("job").Reruns)
		assert.EqualValues(t, 1, w.plan("job").Counts.Lost)
	})
}

func TestClaim_RunsHandedBack(t *testing.T) {
	// own returns what the owner of shards 0 and 1 knows after a run of both, of which that of
	// shard 0 was handed back.
	own := func(t *testing.T) *claiming {
		in := claimant(t, 2)
		in.claims.Marks = in.claims.Marks.Raise(shardset.Of(0, 1), fire(1, 1).Mark())
		in.claims.Running = in.claims.Running.With(shardset.Of(0, 1), fire(1, 1))
		in.ended = []ended{{shard: 0, err: errors.New("handed back"), handedBack: true}, {shard: 1}}
		return in
	}
	t.Run("are pending at the next attempt, and neither failed nor succeeded", func(t *testing.T) {
		in := own(t)
		in.open = false
		out := in.claim()
		assert.Empty(t, out.claims.Running)
		assert.Equal(t, record.Runs{{Shards: shardset.Of(0), Ref: fire(1, 1).Return()}}, out.claims.Reruns)
		assert.Equal(t, record.Counts{Succeeded: 1}, out.claims.Counts)
		assert.Empty(t, out.claims.Failures)
	})
	t.Run("are claimed by an owner that goes on, before any other run of the shard", func(t *testing.T) {
		in := own(t)
		in.now = at(3)
		out := in.claim()
		ref, ok := out.starts.Of(0)
		require.True(t, ok)
		assert.Equal(t, fire(1, 1).Return(), ref)
		assert.Empty(t, out.claims.Reruns, "claimed")
		ref, _ = out.starts.Of(1)
		assert.Equal(t, at(3), ref.Fire)
	})
	t.Run("hold up the fires of a disabled shard", func(t *testing.T) {
		in := own(t)
		in.plan.Disabled = shardset.Of(0, 1)
		in.now = at(3)
		out := in.claim()
		assert.Empty(t, out.starts)
		assert.Equal(t, at(1), out.claims.Marks.Of(0).Fire)
		assert.Equal(t, at(3), out.claims.Marks.Of(1).Fire)
		assert.Len(t, out.claims.Reruns, 1)
	})
	t.Run("count as lost once the newest definition wants no re-runs", func(t *testing.T) {
		in := own(t)
		in.open = false
		in.claims, in.ended = in.claim().claims, nil
		in.plan = in.plan.Clone()
		e, err := record.NewEpoch(2, at(5), []byte(`{"name":"job","shards":2,"on_crash":"count as failed"}`))
		require.NoError(t, err)
		in.plan.Epochs[0].Until = at(5)
		in.plan.Epochs = append(in.plan.Epochs, e)
		in.programs[2] = minutely{}
		in.open = true
		out := in.claim()
		assert.EqualValues(t, 1, out.claims.Counts.Lost)
		assert.Empty(t, out.claims.Reruns)
	})
}
