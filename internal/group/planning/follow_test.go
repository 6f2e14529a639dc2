package planning

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/event"
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
		assert.Equal(t, []event.Skipped{{Job: "child", Reason: event.Upstream, Shards: shardset.Of(0), Fires: 1, From: coordtest.At(1), Through: coordtest.At(1)}}, d.Changes[0].Skipped)
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
	// run returns a world in which a trigger of the child at an instant was run to its end.
	run := func(t *testing.T, at record.Instant) *world {
		w, owner := chain(t)
		w.View.Now = coordtest.At(2) - 1
		w.run(owner, "child", shardset.Of(0), record.Ref{Epoch: 1, Fire: at, Trigger: 1, Attempt: 1})
		return w
	}
	for _, c := range []struct {
		name  string
		leave func(w *world)
		held  bool
	}{
		{"that has an ended fire at the same instant holds up a fire", func(w *world) { w.endFires("parent", nil, 1) }, true},
		{"whose shards have run a fire of the same instant holds up a fire", func(w *world) { w.runFire(1) }, true},
		{"without a plan holds up no fire", func(w *world) {
			delete(w.View.Plans, "parent")
			delete(w.View.Jobs, "parent")
		}, false},
		{"whose fires are not tracked holds up no fire", func(w *world) { w.editPlan("parent", func(p *record.Plan) { p.Fires = nil }) }, false},
	} {
		t.Run("a followed job "+c.name, func(t *testing.T) {
			w := run(t, coordtest.At(1))
			c.leave(w)
			through := record.Instant(0)
			if change := w.decideOnce().changeOf("child"); change != nil {
				through = change.Plan.Fires.Through
			}
			assert.Equal(t, c.held, through == 0, "%v", through)
		})
	}
	for name, edit := range map[string]func(*record.Plan){
		"has followed nothing yet": func(p *record.Plan) { p.Followed = nil },
		"no longer follows": func(p *record.Plan) {
			e, err := record.NewEpoch(1, coordtest.At(0), json.RawMessage(`{"name":"child","shards":1}`))
			require.NoError(t, err)
			p.Epochs = []record.Epoch{e}
		},
	} {
		t.Run("a job that "+name+" waits for no fire of another", func(t *testing.T) {
			w := run(t, coordtest.At(1)-1)
			w.editPlan("child", edit)
			w.endFires("parent", nil, 0)
			change := w.decideOnce().changeOf("child")
			require.NotNil(t, change)
			assert.Equal(t, coordtest.At(1)-1, change.Plan.Fires.Through)
		})
	}
	t.Run("a later fire of a followed job that has begun holds up no earlier fire", func(t *testing.T) {
		w := run(t, coordtest.At(1)-1)
		w.begin("a.a", "parent", w.Plan("parent").Owners["a.a"], coordtest.Fire(1, 1))
		w.copyClaims("a.a", "parent")
		w.Settle()
		assert.Equal(t, coordtest.At(1)-1, w.Plan("child").Fires.Through)
	})
	t.Run("a fire of a job that follows jobs in a circle ends", func(t *testing.T) {
		w, _, _ := newChain(t, "grandchild", "last")
		w.Define("grandchild", 1, 1, `,"schedule":"after child"`)
		w.Define("last", 1, 1, `,"schedule":"after grandchild"`)
		w.Define("parent", 2, 2, `,"schedule":"after child"`)
		w.Settle()
		w.View.Now = coordtest.At(1)
		w.run(w.Plan("grandchild").OwnerOf(0), "grandchild", shardset.Of(0), record.Ref{Epoch: 1, Fire: w.View.Now, Trigger: 1, Attempt: 1})
		w.Settle()
		assert.Equal(t, []record.EndedFire{{At: w.View.Now, Trigger: 1, Shards: 1}}, w.ended("grandchild"))
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

func TestPlan_FollowedFires_Positions(t *testing.T) {
	// several returns a world in which the child follows jobs by a schedule that begins with a word.
	several := func(t *testing.T, word string) *world {
		w, _, _ := newChain(t, "other")
		delete(w.View.Plans, "child")
		w.Define("other", 1, 1, "")
		w.Define("child", 3, 2, `,"schedule":"`+word+` parent, other"`)
		w.Settle()
		return w
	}
	passTo := func(w *world, job string, minute int) {
		w.editPlan(job, func(p *record.Plan) { p.Fires = &record.Fires{Through: coordtest.At(minute), Ended: p.Fires.Ended} })
	}
	for _, c := range []struct {
		word    string
		failed  int
		skipped uint64
	}{{"after", 0, 3}, {"after-end", 0, 3}, {"after-failure", 0, 3}, {"after-failure", 1, 3}} {
		t.Run(fmt.Sprintf("a fire of one of two followed jobs counts as skipped, %s, %d failed", c.word, c.failed), func(t *testing.T) {
			w := several(t, c.word)
			w.endFires("parent", func(e *record.EndedFire) { e.Failed = c.failed }, 1)
			passTo(w, "other", 1)
			w.Settle()
			assert.Empty(t, w.released("child"))
			assert.Equal(t, c.skipped, w.Plan("child").Counts.Skipped)
			wants := WantsFire(w.Plan("child").Last().Job().After, map[string]record.EndedFire{"parent": {Failed: c.failed}})
			assert.False(t, wants)
		})
	}
	t.Run("a job wants a fire of which no run failed", func(t *testing.T) {
		w, _, _ := newChain(t)
		after := w.Plan("child").Last().Job().After
		assert.True(t, WantsFire(after, map[string]record.EndedFire{"parent": {}}))
		assert.False(t, WantsFire(after, map[string]record.EndedFire{"parent": {Skipped: 1}}))
	})
	t.Run("no fire is followed until all followed jobs track theirs", func(t *testing.T) {
		w := several(t, "after-end")
		w.endFires("parent", nil, 1)
		w.editPlan("other", func(p *record.Plan) { p.Fires = nil })
		w.Settle()
		assert.Empty(t, w.released("child"))
		assert.Zero(t, w.Plan("child").Counts.Skipped)
	})
	t.Run("the number of the last fire of the first job stays at fires of the others", func(t *testing.T) {
		w := several(t, "after")
		w.endFires("parent", nil, 1)
		w.endFires("other", nil, 1, 2)
		passTo(w, "parent", 2)
		w.Settle()
		assert.Equal(t, record.Followed{Through: coordtest.At(2), Number: 1}, *w.Plan("child").Followed)
	})
	t.Run("a fire at the beginning of the epoch is followed, and none before", func(t *testing.T) {
		w, _, _ := newChain(t, "other")
		w.Define("other", 1, 1, "")
		w.Define("child", 1, 2, `,"schedule":"after other"`)
		w.Settle()
		from := w.Plan("child").Last().From
		assert.Equal(t, from-1, w.Plan("child").Followed.Through)
		w.View.Now = from
		w.editPlan("other", func(p *record.Plan) {
			p.Fires = &record.Fires{Through: from, Ended: []record.EndedFire{{Number: 1, At: from - 1}, {Number: 2, At: from}}}
		})
		w.Settle()
		assert.Equal(t, []record.Instant{from}, w.released("child"))
	})
	t.Run("a fire at the beginning of the first epoch is followed", func(t *testing.T) {
		w, _, _ := newChain(t)
		from := w.Plan("child").Last().From
		w.editPlan("parent", func(p *record.Plan) {
			p.Fires = &record.Fires{Through: from, Ended: []record.EndedFire{{Number: 1, At: from}}}
		})
		w.Settle()
		assert.Equal(t, []record.Instant{from}, w.released("child"))
	})
	t.Run("at the instant of a trigger a fire is skipped if a shard skipped either", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.endFires("parent", func(e *record.EndedFire) { e.Skipped = 1 }, 1)
		w.endFires("parent", func(e *record.EndedFire) { e.Trigger = 1 }, 1)
		w.Settle()
		assert.Empty(t, w.released("child"))
		assert.EqualValues(t, 1, w.Plan("child").Counts.Skipped)
	})
	t.Run("a change of the plan passes no fire that the next epoch runs", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.editPlan("child", func(p *record.Plan) { p.Last().Until = w.View.Now.Add(time.Second) })
		w.endFires("parent", nil, 1)
		w.editControl("child", func(c *record.Control) { c.Disabled = shardset.Of(0) })
		change := w.decideOnce().changeOf("child")
		require.NotNil(t, change)
		assert.Less(t, change.Plan.Followed.Through, coordtest.At(1))
	})
	t.Run("fires that the plan of the followed job lists no more are reported up to the oldest that it lists", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.endFires("parent", nil, 1)
		w.Settle()
		w.editPlan("parent", func(p *record.Plan) {
			p.Fires = &record.Fires{Through: coordtest.At(5), Ended: []record.EndedFire{{Number: 4, At: coordtest.At(4)}, {Number: 5, At: coordtest.At(5)}}}
		})
		w.View.Now = coordtest.At(5)
		change := w.decide().changeOf("child")
		require.NotNil(t, change)
		assert.Equal(t, []event.Skipped{
			{Job: "child", Reason: event.Upstream, Shards: shardset.Of(0), Fires: 2, Through: coordtest.At(4) - 1},
		}, change.Skipped)
		assert.Equal(t, record.Followed{Through: coordtest.At(5), Number: 5}, *change.Plan.Followed)
		assert.Len(t, change.Plan.Last().Released, 3)
	})
	for name, lose := range map[string]func(w *world){
		"lists no fire": func(w *world) { w.editPlan("parent", func(p *record.Plan) { p.Fires = &record.Fires{} }) },
		"is created again, while its fires are not tracked": func(w *world) { w.editPlan("parent", func(p *record.Plan) { p.Fires = nil }) },
		"is lost": func(w *world) { delete(w.View.Plans, "parent"); delete(w.View.Jobs, "parent") },
	} {
		t.Run("no fire counts as missed while the plan of the followed job "+name, func(t *testing.T) {
			w, _, _ := newChain(t)
			w.endFires("parent", nil, 1)
			w.Settle()
			lose(w)
			w.editControl("child", func(c *record.Control) { c.Disabled = shardset.Of(0) })
			change := w.decideOnce().changeOf("child")
			require.NotNil(t, change)
			assert.Zero(t, change.Plan.Counts.Skipped)
			assert.Equal(t, record.Followed{Through: coordtest.At(1), Number: 1}, *change.Plan.Followed)
		})
	}
	t.Run("a released fire of an earlier epoch goes when all shards have claimed a fire of a later one", func(t *testing.T) {
		w, _, _ := newChain(t)
		w.endFires("parent", nil, 1)
		w.Settle()
		w.Define("child", 1, 2, `,"schedule":"after parent","timeout":"1s"`)
		w.Settle()
		w.claim(w.Plan("child").OwnerOf(0), "child", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(0), record.Watermark{Epoch: 2, Fire: coordtest.At(0), Attempt: 1})
		})
		w.View.SlowTick = true
		w.Settle()
		assert.Empty(t, w.released("child"))
	})
	for _, c := range []struct {
		name  string
		edit  func(w *world)
		wants string
	}{
		{"begins to follow, although its stored definition is lost", func(w *world) { w.editPlan("child", func(p *record.Plan) { p.Followed = nil }) }, "follow from"},
		{"no longer follows", func(w *world) {
			w.editPlan("child", func(p *record.Plan) {
				e, err := record.NewEpoch(1, coordtest.At(0), json.RawMessage(`{"name":"child","shards":1}`))
				require.NoError(t, err)
				p.Epochs = []record.Epoch{e}
			})
		}, "follow no job"},
		{"passes a fire of which no run failed", func(w *world) {
			w.editPlan("child", func(p *record.Plan) {
				e, err := record.NewEpoch(1, coordtest.At(0), json.RawMessage(`{"name":"child","shards":1,"schedule":"after-failure parent"}`))
				require.NoError(t, err)
				p.Epochs = []record.Epoch{e}
			})
			w.endFires("parent", nil, 1)
		}, "no run failed"},
	} {
		t.Run("the log shows that a job "+c.name, func(t *testing.T) {
			w, _, _ := newChain(t)
			delete(w.View.Jobs, "child")
			c.edit(w)
			change := w.decide().changeOf("child")
			require.NotNil(t, change)
			assert.Contains(t, fmt.Sprint(change.Upkeep), c.wants)
		})
	}
}

// ending is a program whose fires depend on the ends of runs.
type ending struct{ coordtest.Minutely }

func (ending) CountsEnds() bool { return true }

func TestPlan_FollowedJobsWithoutCommonFires(t *testing.T) {
	for _, c := range []struct {
		name    string
		program due.Program
		err     error
		want    string
	}{
		{"that do have them are no problem", coordtest.Minutely{}, nil, ""},
		{"are a problem of the job that follows", ending{}, nil, `follows job "parent", whose shards have no common fires`},
		{"are no problem if the leader does not support the definition", ending{}, assert.AnError, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _, _ := newChain(t)
			w.View.Compile = func(def json.RawMessage) (due.Program, error) {
				if job, err := record.ParseJob(def); err == nil && job.After != nil {
					return coordtest.Following{}, nil
				}
				return c.program, c.err
			}
			w.Settle()
			assert.Equal(t, c.want, w.Plan("child").Problem)
		})
	}
}
