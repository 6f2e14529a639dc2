package planning

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

func TestPlan_NewJob(t *testing.T) {
	t.Run("is planned in one change, each shard with an owner", func(t *testing.T) {
		w := NewWorld(t)
		a, b := w.Join("a", "job"), w.Join("b", "job")
		w.Define("job", 4, 0, "")
		d := w.round()
		require.Len(t, d.Changes, 1)
		assert.True(t, d.Changes[0].rev.IsZero(), "it is created")
		assert.Equal(t, map[string]string{a: "0-1", b: "2-3"}, w.owners("job"))
		assert.Empty(t, w.decide().Changes, "and then there is nothing to do")
	})
	t.Run("waits until a member offers it", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "other")
		w.Define("job", 4, 0, "")
		assert.Empty(t, w.decide().Changes)
	})
	t.Run("that starts paused has no fires due before it is resumed", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 1, 0, `,"start_paused":true`)
		w.Settle()
		require.True(t, w.Plan("job").Paused)
		w.View.Now = coordtest.At(60)
		w.editControl("job", func(c *record.Control) { c.Paused = false })
		w.Settle()
		p := w.Plan("job")
		assert.False(t, p.Paused)
		assert.Equal(t, p.Epochs[0].From, p.Epochs[0].Until)
		assert.Equal(t, coordtest.At(60).Add(w.View.Skew), p.Last().From)
	})
}

func TestPlan_Join(t *testing.T) {
	setUp := func(t *testing.T) (*world, string, string) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 4, 0, "")
		w.Settle()
		return w, a, w.Join("b", "job")
	}
	t.Run("freezes the shards that move before their owner's claims are read", func(t *testing.T) {
		w, a, _ := setUp(t)
		w.readClaims(a) // begun before the freeze
		d := w.decideOnce()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, "2-3", d.Changes[0].Plan.Frozen.String())
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
	})
	t.Run("does not use a read from before the freeze", func(t *testing.T) {
		w, a, _ := setUp(t)
		w.readClaims(a)
		stale := w.View.Reads[a]
		w.round()
		w.View.Reads[a] = stale
		d := w.decideOnce()
		assert.Equal(t, []string{a}, d.Reads)
		assert.Empty(t, d.Changes)
	})
	t.Run("moves idle shards with their watermarks in the second change", func(t *testing.T) {
		w, a, b := setUp(t)
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 4), coordtest.Fire(1, 1).Watermark())
		})
		w.round()
		w.round()
		assert.Equal(t, map[string]string{a: "0-1", b: "2-3"}, w.owners("job"))
		assert.True(t, w.Plan("job").Frozen.IsZero())
		assert.Equal(t, coordtest.Fire(1, 1).Watermark(), w.Plan("job").Watermarks.Of(3))
		assert.Empty(t, w.decide().Changes)
	})
	t.Run("leaves running shards with their owner, frozen, and moves the rest", func(t *testing.T) {
		w, a, b := setUp(t)
		w.startRuns(a, "job", shardset.Of(3), coordtest.Fire(1, 1))
		w.round()
		d := w.round()
		assert.Equal(t, map[string]string{a: "0-1,3", b: "2"}, w.owners("job"))
		assert.Equal(t, "3", w.Plan("job").Frozen.String())
		assert.Equal(t, []string{a}, d.Follow, "its claims are followed until it ends")
		w.claim(a, "job", func(c *record.Claims) { c.Running = nil })
		w.round()
		assert.Equal(t, map[string]string{a: "0-1", b: "2-3"}, w.owners("job"))
		assert.Equal(t, coordtest.Fire(1, 1).Watermark(), w.Plan("job").Watermarks.Of(3))
	})
	t.Run("that ends before the move unfreezes the shards", func(t *testing.T) {
		w, a, b := setUp(t)
		w.round()
		w.editMember(b, func(m *record.Member) { m.Draining = true })
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
		assert.True(t, w.Plan("job").Frozen.IsZero())
	})
	t.Run("of a member that does not offer the job moves nothing", func(t *testing.T) {
		w, _, b := setUp(t)
		w.editMember(b, func(m *record.Member) { m.Jobs = []string{"other"} })
		assert.Empty(t, w.decide().Changes)
	})
	t.Run("of a member whose old functions have not returned assigns it none of those shards", func(t *testing.T) {
		w, a, b := setUp(t)
		w.editMember(b, func(m *record.Member) {
			m.Blocked = map[string]shardset.Set{"job": shardset.Range(0, 3)}
		})
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-2", b: "3"}, w.owners("job"))
	})
}

func TestPlan_Leave(t *testing.T) {
	w := NewWorld(t)
	a, b := w.Join("a", "job"), w.Join("b", "job")
	w.Define("job", 4, 0, "")
	w.Settle()
	w.startRuns(a, "job", shardset.Of(1), coordtest.Fire(1, 1))
	w.editMember(a, func(m *record.Member) { m.Draining = true })

	t.Run("moves idle shards at once, without freezing", func(t *testing.T) {
		d := w.round()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, map[string]string{a: "1", b: "0,2-3"}, w.owners("job"))
	})
	t.Run("moves the others when they have ended", func(t *testing.T) {
		w.claim(a, "job", func(c *record.Claims) {
			c.Running, c.Counts = nil, record.Counts{Claimed: 1, Succeeded: 1}
		})
		w.round()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		assert.Empty(t, w.Plan("job").Reruns, "nothing is run again")
	})
	t.Run("adds the counts of the member, and deletes its record, with its last shard", func(t *testing.T) {
		assert.Equal(t, record.Counts{Claimed: 1, Succeeded: 1}, w.Plan("job").Counts)
		assert.Empty(t, w.claims[a])
	})
	t.Run("of the last member leaves its shards unowned until another joins", func(t *testing.T) {
		w.editMember(b, func(m *record.Member) { m.Draining = true })
		w.Settle()
		assert.Empty(t, w.owners("job"))
		c := w.Join("c", "job")
		d := w.round()
		require.Len(t, d.Changes, 1, "without a read of claims")
		assert.Equal(t, map[string]string{c: "0-3"}, w.owners("job"))
		assert.Equal(t, coordtest.Fire(1, 1).Watermark(), w.Plan("job").Watermarks.Of(1))
	})
}

func TestPlan_Failover(t *testing.T) {
	setUp := func(t *testing.T, more string) (*world, string, string) {
		w := NewWorld(t)
		a, b := w.Join("a", "job"), w.Join("b", "job")
		w.Define("job", 4, 0, more)
		w.Settle()
		return w, a, b
	}
	t.Run("makes running shards pending at the next attempt, in the change that moves them", func(t *testing.T) {
		w, a, b := setUp(t, "")
		w.startRuns(a, "job", shardset.Of(1), coordtest.Fire(1, 1))
		w.expire(a)
		d := w.round()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		assert.Equal(t, record.Runs{}.With(shardset.Of(1), coordtest.Fire(1, 2)), w.Plan("job").Reruns)
		assert.Equal(t, coordtest.Fire(1, 1).Watermark(), w.Plan("job").Watermarks.Of(1))
		assert.Zero(t, w.Plan("job").Watermarks.Of(0))
	})
	t.Run("is conditional on the expired session and on the claims that were read", func(t *testing.T) {
		w, a, _ := setUp(t, "")
		w.startRuns(a, "job", shardset.Of(1), coordtest.Fire(1, 1))
		w.expire(a)
		c := w.decide().Changes[0]
		assert.Equal(t, []registry.SessionID{"a"}, c.Expired)
		assert.Equal(t, []registry.Op{registry.Delete(w.View.Keys.Claims(a, "job"), w.claims[a]["job"].Rev)}, c.ops)
	})
	t.Run("is conditional on no claims if none were read", func(t *testing.T) {
		w, a, _ := setUp(t, "")
		w.expire(a)
		c := w.decide().Changes[0]
		assert.Equal(t, []registry.Cond{registry.Absent(w.View.Keys.Claims(a, "job"))}, c.conds)
		assert.Equal(t, []registry.SessionID{"a"}, c.Expired)
	})
	t.Run("counts the runs as lost if the job allows one attempt", func(t *testing.T) {
		w, a, _ := setUp(t, `,"on_crash":"count as failed"`)
		w.startRuns(a, "job", shardset.Range(0, 2), coordtest.Fire(1, 1))
		w.expire(a)
		w.round()
		assert.Empty(t, w.Plan("job").Reruns)
		assert.EqualValues(t, 2, w.Plan("job").Counts.Lost)
	})
	t.Run("counts a run that has used up its attempts", func(t *testing.T) {
		w, a, _ := setUp(t, `,"max_attempts":2`)
		w.startRuns(a, "job", shardset.Of(0), coordtest.Fire(1, 2))
		w.startRuns(a, "job", shardset.Of(1), coordtest.Fire(1, 1))
		w.expire(a)
		w.round()
		assert.Equal(t, "1", w.Plan("job").Reruns.Shards().String())
		assert.EqualValues(t, 1, w.Plan("job").Counts.Lost)
	})
	t.Run("keeps a pending re-run that the expired owner had not claimed", func(t *testing.T) {
		w, a, b := setUp(t, "")
		w.startRuns(a, "job", shardset.Of(1), coordtest.Fire(1, 1))
		w.expire(a)
		w.round()
		w.expire(b)
		c := w.Join("c", "job")
		w.Settle()
		assert.Equal(t, map[string]string{c: "0-3"}, w.owners("job"))
		assert.Equal(t, record.Runs{}.With(shardset.Of(1), coordtest.Fire(1, 2)), w.Plan("job").Reruns)
	})
	t.Run("of a re-run goes on with the attempt after it", func(t *testing.T) {
		w, a, b := setUp(t, "")
		w.startRuns(a, "job", shardset.Of(1), coordtest.Fire(1, 1))
		w.expire(a)
		w.Settle()
		w.startRuns(b, "job", shardset.Of(1), coordtest.Fire(1, 2))
		w.expire(b)
		w.Join("c", "job")
		w.Settle()
		assert.Equal(t, record.Runs{}.With(shardset.Of(1), coordtest.Fire(1, 3)), w.Plan("job").Reruns)
	})
	t.Run("keeps the counts of expired members", func(t *testing.T) {
		w, a, _ := setUp(t, "")
		w.claim(a, "job", func(c *record.Claims) { c.Counts = record.Counts{Claimed: 7, Failed: 2} })
		w.expire(a)
		w.round()
		assert.Equal(t, record.Counts{Claimed: 7, Failed: 2}, w.Plan("job").Counts)
	})
	t.Run("keeps the counts of expired members that own nothing of the job any more", func(t *testing.T) {
		w, a, b := setUp(t, "")
		w.editMember(a, func(m *record.Member) { m.Jobs = nil })
		w.Settle()
		w.claim(a, "job", func(c *record.Claims) { c.Counts = record.Counts{Claimed: 7, Skipped: 2} })
		require.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		w.expire(a)
		d := w.decide()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, []registry.SessionID{"a"}, d.Changes[0].Expired)
		assert.Empty(t, d.Reapings, "not before the plan has its claims")
		w.Settle()
		assert.Equal(t, record.Counts{Claimed: 7, Skipped: 2}, w.Plan("job").Counts)
		assert.Empty(t, w.claims[a])
		assert.NotContains(t, w.View.Members, a)
	})
	t.Run("with no member left leaves the shards unowned", func(t *testing.T) {
		w, a, b := setUp(t, "")
		w.startRuns(a, "job", shardset.Of(1), coordtest.Fire(1, 1))
		w.expire(a)
		w.expire(b)
		w.Settle()
		assert.Empty(t, w.owners("job"))
		assert.Equal(t, "1", w.Plan("job").Reruns.Shards().String())
	})
	t.Run("reaps expired members that own nothing", func(t *testing.T) {
		w, a, _ := setUp(t, "")
		w.claim(a, "gone", func(*record.Claims) {})
		w.expire(a)
		assert.Empty(t, w.round().Reapings, "not in the round that fails its shards over")
		d := w.round()
		require.Len(t, d.Reapings, 1)
		assert.Equal(t, a, d.Reapings[0].Incarnation)
		assert.NotContains(t, w.View.Members, a)
		assert.Empty(t, w.claims[a])
	})
	t.Run("deletes claims only with a plan, or on condition that there is none", func(t *testing.T) {
		w, a, b := setUp(t, "")
		w.editMember(a, func(m *record.Member) { m.Jobs = nil })
		w.Settle()
		require.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		w.claim(a, "job", func(*record.Claims) {})
		w.claim(a, "gone", func(*record.Claims) {})
		w.expire(a)
		d := w.round()
		require.Len(t, d.Changes, 1, "of the plan in which it owns no shards, which must be the latest")
		require.Empty(t, d.Reapings)
		require.Contains(t, w.claims[a], "gone")
		d = w.decide()
		require.Len(t, d.Reapings, 1)
		loads := d.Reapings[0].PackLoads(registry.PortableLimits, nil)
		require.Len(t, loads, 1)
		assert.Equal(t, []registry.Cond{registry.Dead("a"), registry.Absent(w.View.Keys.Plan("gone"))}, loads[0].Txn.If)
	})
	t.Run("deletes no claims of a job whose plan cannot be read: they may be needed", func(t *testing.T) {
		w, a, _ := setUp(t, "")
		w.claim(a, "spoilt", func(*record.Claims) {})
		w.View.UnreadablePlans["spoilt"] = true
		w.expire(a)
		w.round()
		assert.Empty(t, w.decide().Reapings)
	})
	t.Run("leaves an unreadable claims record alone, and names it in the plan", func(t *testing.T) {
		w, a, b := setUp(t, "")
		w.expire(a)
		w.readClaims(a)
		w.View.Reads[a].Unreadable["job"] = true
		d := w.decide()
		require.Len(t, d.Changes, 1)
		assert.Contains(t, d.Changes[0].Plan.Problem, string(w.View.Keys.Claims(a, "job")))
		assert.Equal(t, map[string]string{a: "0-1", b: "2-3"}, w.owners("job"))
		assert.Empty(t, d.Reapings)
	})
}

func TestPlan_Definition(t *testing.T) {
	setUp := func(t *testing.T) (*world, string) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		return w, a
	}
	t.Run("of a higher revision begins when no clock can have claimed a fire", func(t *testing.T) {
		w, a := setUp(t)
		w.View.Now = coordtest.At(10)
		w.Define("job", 4, 2, "")
		w.Settle()
		p := w.Plan("job")
		require.Len(t, p.Epochs, 2)
		assert.Equal(t, coordtest.At(10).Add(w.View.Skew), p.Epochs[1].From)
		assert.Equal(t, p.Epochs[1].From, p.Epochs[0].Until)
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
	})
	t.Run("begins after the fires that were claimed before the last epoch's end was committed", func(t *testing.T) {
		w, a := setUp(t)
		w.View.Now = coordtest.At(10)
		w.Define("job", 4, 2, "")
		w.round() // takes its time: meanwhile
		w.View.Now = coordtest.At(12)
		w.startRuns(a, "job", shardset.Of(0), coordtest.Fire(12, 1))
		w.Settle()
		p := w.Plan("job")
		require.Len(t, p.Epochs, 2)
		assert.Equal(t, coordtest.At(12)+1, p.Epochs[1].From)
		assert.Equal(t, p.Epochs[1].From, p.Epochs[0].Until, "the other shard runs the fire with the old total")
	})
	t.Run("does not use a read from before the last epoch's end", func(t *testing.T) {
		w, a := setUp(t)
		w.View.Now = coordtest.At(10)
		w.Define("job", 4, 2, "")
		w.readClaims(a)
		stale := w.View.Reads[a]
		w.round()
		w.View.Reads[a] = stale
		d := w.decideOnce()
		assert.Equal(t, []string{a}, d.Reads)
		assert.Empty(t, d.Changes)
	})
	t.Run("begins after a claim that only a wrong clock can have made, and until then the last epoch lasts", func(t *testing.T) {
		w, a := setUp(t)
		w.View.Now = coordtest.At(10)
		w.Define("job", 4, 2, "")
		w.round()
		w.startRuns(a, "job", shardset.Of(0), coordtest.Fire(1_000, 1))
		w.Settle()
		p := w.Plan("job")
		assert.Equal(t, coordtest.At(1_000)+1, p.Last().From)
		assert.Equal(t, coordtest.At(1_000)+1, p.Epochs[0].Until)
	})
	t.Run("that is deleted before it begins leaves the last one in force", func(t *testing.T) {
		w, _ := setUp(t)
		w.Define("job", 4, 2, "")
		w.round()
		delete(w.View.Jobs, "job")
		w.Settle()
		p := w.Plan("job")
		assert.Equal(t, 2, p.Last().Job().Shards)
		assert.Zero(t, p.Last().Until)
	})
	t.Run("of a lower revision changes nothing", func(t *testing.T) {
		w, _ := setUp(t)
		w.Define("job", 4, 0, "")
		assert.Empty(t, w.decide().Changes)
	})
	t.Run("of fewer shards keeps the owners of dropped shards while their fires may be due", func(t *testing.T) {
		w, a := setUp(t)
		w.Define("job", 1, 2, "")
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
	})
	t.Run("is cleared when no fire of it is due or running", func(t *testing.T) {
		w, a := setUp(t)
		w.View.Now = coordtest.At(2)
		w.Define("job", 1, 2, "")
		w.Settle()
		w.View.Now, w.View.SlowTick = coordtest.At(4), true
		w.Settle()
		require.Len(t, w.Plan("job").Epochs, 2, "fires are due")
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(1), record.Watermark{Epoch: 1, Fire: coordtest.At(2), Attempt: 1})
			c.Watermarks = c.Watermarks.Raise(shardset.Of(0), record.Watermark{Epoch: 2, Fire: coordtest.At(3), Attempt: 1})
			c.Running = c.Running.With(shardset.Of(1), coordtest.Fire(2, 1))
		})
		w.Settle()
		require.Len(t, w.Plan("job").Epochs, 2, "one runs")
		w.claim(a, "job", func(c *record.Claims) { c.Running = nil })
		w.Settle()
		assert.Len(t, w.Plan("job").Epochs, 1)
		assert.Equal(t, map[string]string{a: "0"}, w.owners("job"))
	})
	crowd := func(w *world) {
		for i := range 2 * maxEpochs {
			w.View.Now = coordtest.At(i)
			w.Define("job", 2, 2+i, "")
			w.Settle()
		}
	}
	t.Run("waits when too many definitions have fires due", func(t *testing.T) {
		w, _ := setUp(t)
		crowd(w)
		assert.Len(t, w.Plan("job").Epochs, maxEpochs)
		assert.NotEmpty(t, w.Plan("job").Problem)
	})
	t.Run("replaces epochs as soon as they are served, without the slow tick", func(t *testing.T) {
		w, a := setUp(t)
		crowd(w)
		assert.Equal(t, []string{a}, w.round().Follow, "its claims are followed")
		last := w.Plan("job").Last().Number
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 2), record.Watermark{Epoch: last, Fire: coordtest.At(maxEpochs), Attempt: 1})
		})
		w.Settle()
		assert.Greater(t, w.Plan("job").Last().Number, last)
		assert.Equal(t, 1+2*maxEpochs, w.Plan("job").Last().Job().Revision)
		assert.Empty(t, w.Plan("job").Problem)
	})
}

func TestPlan_Intent(t *testing.T) {
	setUp := func(t *testing.T) (*world, string) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 2, 1, "")
		w.Settle()
		return w, a
	}
	t.Run("fires between pause and resume are skipped", func(t *testing.T) {
		w, _ := setUp(t)
		w.View.Now = coordtest.At(5)
		w.editControl("job", func(c *record.Control) { c.Paused = true })
		w.Settle()
		w.View.Now = coordtest.At(9)
		w.editControl("job", func(c *record.Control) { c.Paused = false })
		w.Settle()
		p := w.Plan("job")
		require.Len(t, p.Epochs, 2)
		assert.Equal(t, coordtest.At(5), p.Epochs[0].Until)
		assert.Equal(t, coordtest.At(9).Add(5*time.Second), p.Epochs[1].From)
		assert.Equal(t, p.Epochs[0].Def, p.Epochs[1].Def)
	})
	t.Run("a definition that is stored during a pause begins with the resume", func(t *testing.T) {
		w, _ := setUp(t)
		w.editControl("job", func(c *record.Control) { c.Paused = true })
		w.Settle()
		w.Define("job", 3, 2, "")
		w.Settle()
		require.Len(t, w.Plan("job").Epochs, 1)
		w.editControl("job", func(c *record.Control) { c.Paused = false })
		w.Settle()
		require.Len(t, w.Plan("job").Epochs, 2)
		assert.Equal(t, 3, w.Plan("job").Last().Job().Shards)
	})
	t.Run("triggers move from the control record to the plan in one commit", func(t *testing.T) {
		w, _ := setUp(t)
		one := shardset.Of(1)
		w.editControl("job", func(c *record.Control) {
			c.LastTrigger = 7
			c.Triggers = []record.Trigger{{Number: 6, At: coordtest.At(1)}, {Number: 7, At: coordtest.At(2), Shards: &one}}
		})
		d := w.round()
		require.Len(t, d.Changes, 1)
		assert.Len(t, d.Changes[0].ops, 1)
		assert.Empty(t, w.View.Control["job"].Triggers)
		assert.EqualValues(t, 7, w.View.Control["job"].LastTrigger)
		require.Len(t, w.Plan("job").Triggers, 2)
		assert.Equal(t, 1, w.Plan("job").Triggers[0].Epoch)
	})
	t.Run("a trigger is cleared when all its shards have claimed it and none runs", func(t *testing.T) {
		w, a := setUp(t)
		w.editControl("job", func(c *record.Control) { c.Triggers = []record.Trigger{{Number: 1, At: coordtest.At(1)}} })
		w.Settle()
		w.View.SlowTick = true
		r := record.Ref{Epoch: 1, Fire: coordtest.At(1), Trigger: 1, Attempt: 1}
		w.startRuns(a, "job", shardset.Of(0), r)
		w.Settle()
		require.Len(t, w.Plan("job").Triggers, 1, "shard 1 has not")
		w.startRuns(a, "job", shardset.Of(1), r)
		w.Settle()
		require.Len(t, w.Plan("job").Triggers, 1, "they run")
		w.claim(a, "job", func(c *record.Claims) { c.Running = nil })
		w.Settle()
		assert.Empty(t, w.Plan("job").Triggers)
	})
}

func TestPlan_ClearsReruns(t *testing.T) {
	w := NewWorld(t)
	a, b := w.Join("a", "job"), w.Join("b", "job")
	w.Define("job", 2, 0, "")
	w.Settle()
	w.startRuns(a, "job", shardset.Of(0), coordtest.Fire(1, 1))
	w.expire(a)
	w.Settle()
	w.View.SlowTick = true
	w.Settle()
	require.NotEmpty(t, w.Plan("job").Reruns, "it has not been claimed")
	w.startRuns(b, "job", shardset.Of(0), coordtest.Fire(1, 2))

	d := w.decide()
	require.Len(t, d.Changes, 1)
	assert.Empty(t, d.Changes[0].Plan.Reruns)
	assert.Empty(t, d.Changes[0].conds, "claims in between do not make it conflict")
}

func TestPlan_Strategies(t *testing.T) {
	t.Run("the strategy that the job names is followed", func(t *testing.T) {
		w := NewWorld(t)
		a, b := w.Join("a", "job"), w.Join("b", "job")
		w.Define("job", 3, 0, `,"strategy":"average"`)
		w.Settle()
		assert.Equal(t, map[string]string{b: "0,2", a: "1"}, w.owners("job"))
	})
	t.Run("an invalid assignment is refused and named in the plan, and nothing else fails", func(t *testing.T) {
		w := NewWorld(t)
		a, b := w.Join("a", "job", "other"), w.Join("b", "job", "other")
		w.Define("job", 4, 0, `,"strategy":"no-such-strategy"`)
		w.Define("other", 2, 0, "")
		w.Settle()
		assert.Contains(t, w.Plan("job").Problem, `strategy "no-such-strategy" fails, so shards stay where they are: not known on the leader`)
		assert.Equal(t, map[string]string{a: "0-1", b: "2-3"}, w.owners("job"), "new shards are assigned by sticky")
		assert.Empty(t, w.Plan("other").Problem)
	})
}

func TestPlan_UnreadablePlanIsLeftAlone(t *testing.T) {
	w := NewWorld(t)
	w.Join("a", "job")
	w.Define("job", 4, 0, "")
	w.View.UnreadablePlans["job"] = true
	assert.Empty(t, w.decide().Changes)
}
