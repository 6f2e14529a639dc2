package planning

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// endFires puts fires on record as ended, as many as a plan may list; more changes the last.
func (w *world) endFires(job string, more func(*record.EndedFire), minutes ...int) {
	p := w.Plan(job).Clone()
	fires := *p.Fires
	number := uint64(0)
	if n := len(fires.Ended); n > 0 {
		number = fires.Ended[n-1].Number
	}
	for _, n := range minutes {
		number++
		fires.Ended = append(fires.Ended[:len(fires.Ended):len(fires.Ended)], record.EndedFire{Number: number, At: coordtest.At(n), Shards: 2})
		fires.Through = coordtest.At(n)
	}
	if more != nil {
		more(&fires.Ended[len(fires.Ended)-1])
	}
	fires.Ended = fires.Ended[max(0, len(fires.Ended)-record.MaxEndedFires):]
	p.Fires = &fires
	w.View.Plans[job] = PlanRecord{Rev: w.nextRev(), Plan: p}
	w.View.Now = max(w.View.Now, fires.Through)
}

func TestPlan_FollowedFires(t *testing.T) {
	fail := func(e *record.EndedFire) { e.Failed = 1 }
	skip := func(e *record.EndedFire) { e.Skipped = 1 }
	for _, c := range []struct {
		name, schedule string
		outcome        func(*record.EndedFire)
		released       bool
		skipped        uint64
	}{
		{"AfterJob releases a fire of which no run failed", "after parent", nil, true, 0},
		{"AfterJob skips a fire of which a run failed", "after parent", fail, false, 3},
		{"AfterJob skips a fire that a shard skipped", "after parent", skip, false, 3},
		{"OnEnd releases a fire of which a run failed", "after-end parent", fail, true, 0},
		{"OnEnd releases a fire that a shard skipped", "after-end parent", skip, true, 0},
		{"OnFailure releases a fire of which a run failed", "after-failure parent", fail, true, 0},
		{"OnFailure passes a fire of which no run failed", "after-failure parent", nil, false, 0},
		{"OnFailure passes a fire that a shard skipped", "after-failure parent", skip, false, 0},
		{"several followed jobs: none has ended a fire up to it", "after parent, other", nil, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _, _ := newChain(t, "other")
			delete(w.View.Plans, "child")
			w.Define("other", 1, 1, "")
			w.Define("child", 3, 2, `,"schedule":"`+c.schedule+`"`)
			w.Settle()
			w.endFires("parent", c.outcome, 1)
			w.Settle()
			if c.released {
				assert.Equal(t, []record.Instant{coordtest.At(1)}, w.released("child"))
			} else {
				assert.Empty(t, w.released("child"))
			}
			assert.Equal(t, c.skipped, w.Plan("child").Counts.Skipped, "by each shard")
		})
	}
	t.Run("skipped fires are reported with the reason", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.endFires("parent", fail, 1)
		d := w.round()
		require.Len(t, d.Changes, 1)
		assert.Equal(t, []event.Skipped{{Job: "child", Reason: event.Upstream, Shards: shardset.Of(0), Fires: 1, Through: coordtest.At(1)}}, d.Changes[0].Skipped)
	})
	t.Run("of several jobs are released when all have ended them, and skipped if one has no such fire", func(t *testing.T) {
		w, _, _ := newChain(t, "other")
		delete(w.View.Plans, "child")
		w.Define("other", 1, 1, "")
		w.Define("child", 1, 2, `,"schedule":"after parent, other"`)
		w.Settle()
		w.endFires("parent", nil, 1, 2, 3)
		w.Settle()
		require.Empty(t, w.released("child"))
		w.endFires("other", nil, 1, 3)
		w.Settle()
		assert.Equal(t, []record.Instant{coordtest.At(1), coordtest.At(3)}, w.released("child"))
		assert.EqualValues(t, 1, w.Plan("child").Counts.Skipped)
	})
	t.Run("at the instant of a trigger are one fire, which fails with either", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.endFires("parent", fail, 1)
		w.endFires("parent", func(e *record.EndedFire) { e.Trigger = 1 }, 1)
		w.Settle()
		assert.Empty(t, w.released("child"))
		assert.EqualValues(t, 1, w.Plan("child").Counts.Skipped)
	})
	t.Run("belong to the epoch in force at the release, and are due from then on", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.View.Now = coordtest.At(5)
		w.Define("child", 1, 2, `,"schedule":"after parent","timeout":"1s"`)
		w.round()
		require.NotZero(t, w.Plan("child").Last().Until)
		w.endFires("parent", nil, 1, 2)
		require.Empty(t, w.decideOnce().Changes, "the epoch has ended: the next one, which waits for reads, runs the fires")
		w.View.Now = coordtest.At(6)
		w.Settle()
		last := w.Plan("child").Last()
		require.Equal(t, 2, last.Number)
		assert.Equal(t, []record.Release{{At: coordtest.At(1), Released: w.View.Now}, {At: coordtest.At(2), Released: w.View.Now + 1}}, last.Released)
	})
	for name, hold := range map[string]func(*record.Control){
		"a paused job":                 func(c *record.Control) { c.Paused = true },
		"a job whose schedule stopped": func(c *record.Control) { c.Stopped = true },
	} {
		t.Run("that end are not run by "+name+", and not counted", func(t *testing.T) {
			w, _, _ := newChain(t)
			w.editControl("child", hold)
			w.Settle()
			w.endFires("parent", nil, 1)
			w.Settle()
			w.editControl("child", func(c *record.Control) { c.Paused, c.Stopped = false, false })
			w.Settle()
			assert.Empty(t, w.released("child"))
			assert.Zero(t, w.Plan("child").Counts.Skipped)
			w.endFires("parent", nil, 2)
			w.Settle()
			assert.Equal(t, []record.Instant{coordtest.At(2)}, w.released("child"))
		})
	}
	t.Run("beyond the room of the plan wait, and those that the followed plan forgets count as skipped", func(t *testing.T) {
		w, _, _ := newChain(t)
		for n := 1; n <= record.MaxReleases+record.MaxEndedFires+3; n++ {
			w.endFires("parent", nil, n)
			w.Settle()
		}
		require.Len(t, w.released("child"), record.MaxReleases)
		assert.EqualValues(t, 3, w.Plan("child").Counts.Skipped)
		last := coordtest.At(record.MaxReleases)
		w.run(w.Plan("child").OwnerOf(0), "child", shardset.Of(0), record.Ref{Epoch: 1, Fire: last, Attempt: 1})
		w.Settle()
		assert.Len(t, w.released("child"), record.MaxEndedFires)
		assert.EqualValues(t, 3, w.Plan("child").Counts.Skipped)
	})
	t.Run("are kept in the plan until all shards have claimed them", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.endFires("parent", nil, 1, 2)
		w.Settle()
		w.run(w.Plan("child").OwnerOf(0), "child", shardset.Of(0), record.Ref{Epoch: 1, Fire: coordtest.At(1), Attempt: 1})
		w.View.SlowTick = true
		w.Settle()
		assert.Equal(t, []record.Instant{coordtest.At(2)}, w.released("child"))
	})
	for _, jobs := range []string{"other", "other, parent"} {
		t.Run("of other jobs than before are those of the new epoch, with "+jobs, func(t *testing.T) {
			w, _, _ := newChain(t, "other", "more")
			w.Define("other", 1, 1, "")
			w.Define("more", 1, 1, `,"schedule":"after other, parent"`)
			w.Settle()
			w.endFires("parent", nil, 1)
			for n := 2; n <= 40; n++ {
				w.endFires("other", nil, n)
			}
			w.Settle()
			w.Define("child", 1, 2, fmt.Sprintf(`,"schedule":"after-end %s"`, jobs))
			w.Settle()
			w.View.Now = w.Plan("child").Last().From
			w.endFires("parent", nil, 2, 41)
			w.endFires("other", nil, 41)
			w.Settle()
			assert.Equal(t, []record.Instant{coordtest.At(1), coordtest.At(41)}, w.released("child"))
			assert.Zero(t, w.Plan("child").Counts.Skipped)
		})
	}
}

func TestPlan_ChainsOfJobs(t *testing.T) {
	chain := func(t *testing.T) (w *world, owner string) {
		w, _, _ = newChain(t, "grandchild")
		w.Define("grandchild", 1, 1, `,"schedule":"after child"`)
		w.Settle()
		return w, w.Plan("child").OwnerOf(0)
	}
	t.Run("a fire has ended only if no fire of the followed jobs up to it can still come", func(t *testing.T) {
		w, owner := chain(t)
		w.View.Now = coordtest.At(1).Add(time.Second)
		w.trigger("child", 1, w.View.Now)
		w.Settle()
		w.run(owner, "child", shardset.Of(0), record.Ref{Epoch: 1, Fire: w.View.Now, Trigger: 1, Attempt: 1})
		w.Settle()
		require.Empty(t, w.ended("child"), "the fire of the parent at minute 1 has not ended")
		w.runFire(1)
		w.Settle()
		require.Empty(t, w.ended("child"), "the child has not claimed it")
		require.Equal(t, []record.Instant{coordtest.At(1)}, w.released("child"))
		w.run(owner, "child", shardset.Of(0), record.Ref{Epoch: 1, Fire: coordtest.At(1), Attempt: 1})
		w.Settle()
		assert.Equal(t, []record.Instant{coordtest.At(1), w.View.Now}, []record.Instant{w.ended("child")[0].At, w.ended("child")[1].At})
		assert.Len(t, w.released("grandchild"), 2)
	})
	t.Run("releases stay until their fire is on record as ended, as copies of claims may be older than a read", func(t *testing.T) {
		w, owner := chain(t)
		w.endFires("parent", nil, 1)
		w.Settle()
		w.copyClaims(owner, "child")
		w.begin(owner, "child", shardset.Of(0), record.Ref{Epoch: 1, Fire: coordtest.At(1), Attempt: 1})
		w.View.SlowTick = true
		w.Settle()
		require.Equal(t, []record.Instant{coordtest.At(1)}, w.released("child"))
		w.end(owner, "child", shardset.Of(0))
		w.Settle()
		assert.Empty(t, w.released("child"))
		assert.Len(t, w.ended("child"), 1)
	})
	t.Run("releases that all shards skip make room", func(t *testing.T) {
		w, owner := chain(t)
		skipped := func(n int) {
			w.claim(owner, "child", func(c *record.Claims) {
				c.Watermarks = c.Watermarks.Raise(shardset.Of(0), record.Watermark{Epoch: 1, Fire: coordtest.At(n)})
			})
			w.copyClaims(owner, "child")
		}
		for n := 1; n <= record.MaxReleases+1; n++ {
			w.endFires("parent", nil, n)
			w.Settle()
			if n <= record.MaxReleases {
				skipped(n)
			}
		}
		w.Settle()
		assert.Equal(t, []record.Instant{coordtest.At(record.MaxReleases + 1)}, w.released("child"))
	})
	t.Run("a circle is named, and ends nothing twice", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.Define("parent", 2, 2, `,"schedule":"after child"`)
		w.Settle()
		assert.Contains(t, w.Plan("child").Problem, "follows itself through jobs")
		assert.Contains(t, w.Plan("parent").Problem, "follows itself through jobs")
	})
	for name, c := range map[string]struct{ more, want string }{
		"that does not exist":     {"", "which has no definition"},
		"that tracks only claims": {coordtest.ClaimsOnly, "which does not record the ends of runs"},
	} {
		t.Run("a followed job "+name+" is named", func(t *testing.T) {
			w := NewWorld(t)
			w.Join("a", "child", "parent")
			if c.more != "" {
				w.Define("parent", 1, 1, c.more)
			}
			w.Define("child", 1, 1, `,"schedule":"after parent"`)
			w.Settle()
			assert.Contains(t, w.Plan("child").Problem, c.want)
		})
	}
}
