package planning

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_RunsOfUnknownEpochsAreCountedAsLost(t *testing.T) {
	w := NewWorld(t)
	a := w.Join("a", "job")
	w.Define("job", 1, 0, "")
	w.Settle()
	w.startRuns(a, "job", w.View.Plans["job"].Owners[a], record.Ref{Epoch: 7, Fire: coordtest.Start, Attempt: 1})
	w.expire(a)
	w.Join("b", "job")
	w.Settle()
	p := w.View.Plans["job"]
	assert.Empty(t, p.Reruns)
	assert.EqualValues(t, 1, p.Counts.Lost)
}

func TestPlan_WithoutAPlanMembersKeepTheShardsThatTheyRun(t *testing.T) {
	w := NewWorld(t)
	a, b := w.Join("a", "job"), w.Join("b", "job")
	w.Define("job", 2, 0, "")
	w.View.Term = w.nextRev() // later than the definition: there may have been a plan
	both := shardset.Range(0, 2)
	w.startRuns(a, "job", both, record.Ref{Epoch: 7, Fire: coordtest.Start, Attempt: 1})
	w.round()
	p := w.Plan("job")
	assert.Equal(t, both.String(), p.Owners[a].String())
	assert.True(t, p.Owners[b].IsZero())
	assert.Equal(t, 8, p.Last().Number)
}

func TestPlan_OfAnotherWriter(t *testing.T) {
	setUp := func(t *testing.T) *world {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		w.View.EditedPlans = map[string]bool{"job": true}
		w.editControl("job", func(c *record.Control) { c.Paused = true })
		return w
	}
	t.Run("is replaced by the leader's copy, without another change", func(t *testing.T) {
		w := setUp(t)
		d := w.decideOnce()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, w.Plan("job"), d.Changes[0].Plan)
		assert.Equal(t, w.View.Plans["job"].Rev, d.Changes[0].rev)
		assert.Equal(t, []string{"restore the plan, which another writer changed"}, d.Changes[0].Why)
	})
	t.Run("stays while it cannot be read", func(t *testing.T) {
		w := setUp(t)
		w.View.UnreadablePlans["job"] = true
		assert.Empty(t, w.decideOnce().Changes)
	})
}

func TestPlan_AfterALostOne(t *testing.T) {
	setUp := func(t *testing.T) (w *world, a string) {
		w = NewWorld(t)
		a = w.Join("a", "job")
		w.Define("job", 2, 1, "")
		return w, a
	}
	t.Run("is created after reads of all members, also those that do not offer the job", func(t *testing.T) {
		w, a := setUp(t)
		b := w.Join("b", "other")
		w.readClaims(w.Join("c", "job"))
		d := w.decideOnce()
		assert.Equal(t, []string{a, b}, d.Reads)
		assert.Empty(t, d.Changes)
	})
	t.Run("begins after the last claimed fire that no skewed clock claimed", func(t *testing.T) {
		w, a := setUp(t)
		ahead := w.View.Now.Add(w.View.Skew)
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(0), record.Watermark{Epoch: 3, Fire: ahead, Attempt: 1})
			c.Watermarks = c.Watermarks.Raise(shardset.Of(1), record.Watermark{Epoch: 3, Fire: ahead + 1, Attempt: 1})
		})
		w.Settle()
		assert.Equal(t, 4, w.Plan("job").Last().Number)
		assert.Equal(t, ahead+1, w.Plan("job").Last().From)
	})
	t.Run("shows the last fire that a shard has claimed", func(t *testing.T) {
		w, a := setUp(t)
		last := record.Watermark{Epoch: 3, Fire: w.View.Now - 1, Attempt: 2}
		w.claim(a, "job", func(c *record.Claims) { c.Watermarks = c.Watermarks.Raise(shardset.Of(1), last) })
		w.Settle()
		assert.Equal(t, last, w.Plan("job").Watermarks.Of(1))
	})
	t.Run("has a number after that of each run, and names the shards that stay", func(t *testing.T) {
		w, a := setUp(t)
		w.claim(a, "job", func(c *record.Claims) { c.Running = coordtest.Runs(shardset.Of(1), record.Ref{Epoch: 5, Attempt: 1}) })
		d := w.round()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, 6, w.Plan("job").Last().Number)
		assert.Equal(t, []string{"keep 1 with " + a + ", which runs them", "assign 0 to a", "create"}, d.Changes[0].Why)
	})
	t.Run("gives no shard to a member that has gone, though its record shows a run", func(t *testing.T) {
		w, a := setUp(t)
		b := w.Join("b", "job")
		w.claim(b, "job", func(c *record.Claims) { c.Running = coordtest.Runs(shardset.Of(1), record.Ref{Epoch: 5, Attempt: 1}) })
		w.expire(b)
		w.round()
		p := w.Plan("job")
		assert.Equal(t, 6, p.Last().Number)
		assert.Equal(t, map[string]shardset.Set{a: shardset.Range(0, 2)}, p.Owners)
	})
	t.Run("makes no re-runs of epochs that are gone", func(t *testing.T) {
		w, a := setUp(t)
		fire := record.Ref{Epoch: 3, Fire: w.View.Now - 1, Attempt: 2, Retries: 1}
		triggered := record.Ref{Epoch: 3, Trigger: 4, Fire: w.View.Now - 1, Attempt: 2}
		w.claim(a, "job", func(c *record.Claims) {
			c.Reruns = coordtest.Runs(shardset.Of(0), fire).With(shardset.Of(1), triggered)
		})
		w.Settle()
		p := w.Plan("job")
		assert.Equal(t, 4, p.Last().Number)
		assert.True(t, p.Watermarks.Split(shardset.Of(0))[0].Covers(fire))
		assert.True(t, p.Watermarks.Split(shardset.Of(1))[0].Covers(triggered))
	})
	t.Run("numbers triggers after those of shards that it does not have", func(t *testing.T) {
		w, a := setUp(t)
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(7), record.Watermark{Trigger: 4, TriggerAttempt: 1})
		})
		w.Settle()
		assert.Equal(t, uint64(4), w.Plan("job").Watermarks.LastTrigger(shardset.Range(0, 2)))
	})
	t.Run("names a problem of the job from the first plan on", func(t *testing.T) {
		w, _ := setUp(t)
		w.Define("job", 2, 1, `,"strategy":"unknown"`)
		w.round()
		assert.Contains(t, w.Plan("job").Problem, `strategy "unknown" fails`)
	})
}
