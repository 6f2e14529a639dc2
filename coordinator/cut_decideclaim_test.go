package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// claimant returns what instance "me" knows, owning all shards of a job with a fire each
// minute since start.
func claimant(t *testing.T, shards int) *claiming {
	t.Helper()
	return &claiming{
		me: "me", open: true, now: start, claims: record.Claims{Job: "job"},
		programs: map[int]Program{1: minutely{}, 2: minutely{}},
		plan:     ownPlan(t, shards),
	}
}

// ownPlan returns the plan of a job whose shards belong to the member "me".
func ownPlan(t *testing.T, shards int) *record.Plan {
	t.Helper()
	return &record.Plan{
		Job: "job", Epochs: []record.Epoch{epoch(t, 1, start, shards)},
		Owners: map[string]shardset.Set{"me": shardset.Range(0, shards)},
	}
}

func epoch(t *testing.T, gen int, from record.Instant, shards int) record.Epoch {
	t.Helper()
	e, err := record.NewEpoch(gen, from, json.RawMessage(fmt.Sprintf(`{"name":"job","shards":%d}`, shards)))
	require.NoError(t, err)
	return e
}

// commit makes what was claimed the record, as after a commit.
func (in *claiming) commit(out claimed) {
	in.claims = out.claims
	in.ended = nil
}

func (in *claiming) end(shards ...int) {
	for _, s := range shards {
		in.ended = append(in.ended, ended{shard: s})
	}
}

func runs(shards shardset.Set, r record.Ref) record.Runs { return record.Runs{}.With(shards, r) }

func TestClaim_Schedule(t *testing.T) {
	t.Run("nothing is claimed before its time, and it says when to look again", func(t *testing.T) {
		in := claimant(t, 4)
		in.now = at(1) - 1
		out := in.claim()
		assert.False(t, out.changed)
		assert.Empty(t, out.starts)
		assert.Equal(t, at(1), out.wake)
	})
	t.Run("a fire is claimed for all free shards at once", func(t *testing.T) {
		in := claimant(t, 4)
		in.now = at(1)
		out := in.claim()
		assert.True(t, out.planned)
		assert.Equal(t, runs(shardset.Range(0, 4), fire(1, 1)), out.starts)
		assert.Equal(t, out.starts, out.claims.Running)
		assert.Equal(t, fire(1, 1).Mark(), out.claims.Marks.Of(3))
		assert.EqualValues(t, 4, out.claims.Counts.Claimed)
	})
	t.Run("a fire that was claimed is not claimed again", func(t *testing.T) {
		in := claimant(t, 4)
		in.now = at(1)
		in.commit(in.claim())
		in.end(0, 1, 2, 3)
		out := in.claim()
		assert.Empty(t, out.starts)
		assert.Empty(t, out.claims.Running)
		assert.False(t, out.planned, "what ends needs no plan")
		assert.EqualValues(t, 4, out.claims.Counts.Succeeded)
		assert.Equal(t, at(2), out.wake)
	})
	t.Run("a shard that runs claims nothing; a free neighbour does", func(t *testing.T) {
		in := claimant(t, 2)
		in.now = at(1)
		in.commit(in.claim())
		in.end(0)
		in.now = at(2)
		out := in.claim()
		assert.Equal(t, runs(shardset.Of(0), fire(2, 1)), out.starts)
		assert.Equal(t, fire(1, 1), must(out.claims.Running.Of(1)))
	})
	t.Run("what another owner had claimed, says the plan, is not claimed again", func(t *testing.T) {
		in := claimant(t, 2)
		in.plan.Marks = record.Marks{}.Raise(shardset.Of(1), fire(1, 1).Mark())
		in.now = at(1)
		assert.Equal(t, runs(shardset.Of(0), fire(1, 1)), in.claim().starts)
	})
	t.Run("fires that are passed over are counted, for each shard", func(t *testing.T) {
		in := claimant(t, 2)
		in.now = at(10)
		out := in.claim()
		assert.Equal(t, runs(shardset.Range(0, 2), fire(10, 1)), out.starts)
		assert.EqualValues(t, 2*9, out.claims.Counts.Skipped)
	})
}

func must[T any](v T, ok bool) T {
	if !ok {
		panic("not there")
	}
	return v
}

func TestClaim_LeavesAlone(t *testing.T) {
	for name, f := range map[string]func(*claiming){
		"frozen shards":                      func(in *claiming) { in.plan.Frozen = shardset.Of(1) },
		"shards of others":                   func(in *claiming) { in.plan.Owners["me"] = shardset.Of(0) },
		"shards whose old function lives on": func(in *claiming) { in.barred = shardset.Of(1) },
	} {
		t.Run(name, func(t *testing.T) {
			in := claimant(t, 2)
			in.now = at(1)
			f(in)
			assert.Equal(t, runs(shardset.Of(0), fire(1, 1)), in.claim().starts)
		})
	}
	for name, f := range map[string]func(*claiming){
		"a paused job":                    func(in *claiming) { in.plan.Paused = true },
		"everything while it is not open": func(in *claiming) { in.open = false },
		"a job without a plan":            func(in *claiming) { in.plan = nil },
		"a job that it does not understand": func(in *claiming) {
			in.programs = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := claimant(t, 2)
			in.now = at(1)
			f(in)
			out := in.claim()
			assert.Empty(t, out.starts)
			assert.False(t, out.changed)
		})
	}
	t.Run("pending re-runs and triggers of a definition that it does not understand, and all after them", func(t *testing.T) {
		in := claimant(t, 2)
		in.plan.Epochs[0].Until = at(1)
		in.plan.Epochs = append(in.plan.Epochs, epoch(t, 2, at(1), 2))
		in.plan.Reruns = runs(shardset.Of(0), record.Ref{Gen: 1, Fire: at(0), Attempt: 2})
		in.plan.Triggers = []record.Trigger{{Number: 1, At: start, Gen: 1}}
		delete(in.programs, 1)
		in.now = at(3)
		out := in.claim()
		assert.Empty(t, out.starts)
		assert.False(t, out.changed)
	})
	t.Run("but takes off what has ended even while it is not open", func(t *testing.T) {
		in := claimant(t, 1)
		in.now = at(1)
		in.commit(in.claim())
		in.end(0)
		in.open = false
		out := in.claim()
		assert.True(t, out.changed)
		assert.Empty(t, out.claims.Running)
	})
}

func TestClaim_FailoverSwitchedOff(t *testing.T) {
	// switched returns a claimant whose shard 0 of two has a re-run pending of the fire at 1,
	// while the newest definition, from 2 on, wants no re-runs.
	switched := func(t *testing.T, more string) *claiming {
		in := claimant(t, 2)
		in.plan.Epochs[0].Until = at(2)
		def := json.RawMessage(`{"name":"job","shards":2,"on_crash":"count as failed"` + more + `}`)
		newest, err := record.NewEpoch(2, at(2), def)
		require.NoError(t, err)
		in.plan.Epochs = append(in.plan.Epochs, newest)
		in.plan.Marks = in.plan.Marks.Raise(shardset.Range(0, 2), fire(1, 1).Mark())
		in.plan.Reruns = runs(shardset.Of(0), fire(1, 2))
		in.now = at(2)
		return in
	}
	next := record.Ref{Gen: 2, Fire: at(2), Attempt: 1}
	t.Run("a pending re-run is counted as lost instead, and its shard goes on at once", func(t *testing.T) {
		in := switched(t, "")
		out := in.claim()
		assert.True(t, out.planned, "it is exact: the plan is a condition")
		assert.Equal(t, runs(shardset.Range(0, 2), next), out.starts)
		assert.EqualValues(t, 1, out.claims.Counts.Lost)
		require.Len(t, out.claims.Failures, 1)
		assert.Equal(t, record.RunGroup{Shards: shardset.Of(0), Ref: fire(1, 1)}, out.claims.Failures[0].RunGroup)
		in.commit(out)
		in.end(0, 1)
		assert.EqualValues(t, 1, in.claim().claims.Counts.Lost, "once")
	})
	t.Run("so is one that nothing follows yet", func(t *testing.T) {
		in := switched(t, "")
		in.now = at(2) - 1
		out := in.claim()
		assert.True(t, out.planned)
		assert.Empty(t, out.starts)
		assert.True(t, out.claims.Marks.Of(0).Covers(fire(1, 2)))
	})
	t.Run("so is one of a trigger", func(t *testing.T) {
		in := switched(t, "")
		again := record.Ref{Gen: 1, Fire: at(0), Trigger: 3, Attempt: 2}
		in.plan.Reruns = runs(shardset.Of(0), again)
		out := in.claim()
		assert.EqualValues(t, 1, out.claims.Counts.Lost)
		assert.True(t, out.claims.Marks.Of(0).Covers(again))
	})
	t.Run("so is one that waits on a disabled shard", func(t *testing.T) {
		in := switched(t, "")
		in.plan.Disabled = shardset.Of(0)
		out := in.claim()
		assert.EqualValues(t, 1, out.claims.Counts.Lost)
		assert.EqualValues(t, 1, out.claims.Counts.Skipped, "and the fire is passed over")
		assert.Equal(t, runs(shardset.Of(1), next), out.starts)
	})
	t.Run("on a shard that is to move it waits for who gets that", func(t *testing.T) {
		in := switched(t, "")
		in.plan.Frozen = shardset.Of(0)
		assert.Zero(t, in.claim().claims.Counts.Lost)
	})
	t.Run("it is made where the newest definition says nothing of crashes", func(t *testing.T) {
		in := switched(t, `,"tracking":"claims"`)
		out := in.claim()
		assert.Zero(t, out.claims.Counts.Lost)
		assert.Equal(t, runs(shardset.Of(0), fire(1, 2)).With(shardset.Of(1), next), out.starts)
	})
}

func TestClaim_Reruns(t *testing.T) {
	t.Run("come before any newer fire of their shard", func(t *testing.T) {
		in := claimant(t, 2)
		in.plan.Marks = record.Marks{}.Raise(shardset.Range(0, 2), fire(1, 1).Mark())
		in.plan.Reruns = runs(shardset.Of(0), fire(1, 2))
		in.now = at(2)
		out := in.claim()
		assert.Equal(t, fire(1, 2), must(out.starts.Of(0)))
		assert.Equal(t, fire(2, 1), must(out.starts.Of(1)))
		in.commit(out)
		in.end(0)
		assert.Equal(t, runs(shardset.Of(0), fire(2, 1)), in.claim().starts, "then the fire")
	})
	t.Run("that were claimed are not claimed again, though the plan still has them", func(t *testing.T) {
		in := claimant(t, 1)
		in.plan.Marks = record.Marks{}.Raise(shardset.Of(0), fire(1, 1).Mark())
		in.plan.Reruns = runs(shardset.Of(0), fire(1, 2))
		in.now = at(1)
		in.commit(in.claim())
		in.end(0)
		assert.Empty(t, in.claim().starts)
	})
}

func TestClaim_Triggers(t *testing.T) {
	one := shardset.Of(1)
	in := claimant(t, 2)
	in.plan.Triggers = []record.Trigger{{Number: 3, At: start, Gen: 1, Shards: &one}, {Number: 4, At: start + 1, Gen: 1}}
	ref := func(n uint64, at record.Instant) record.Ref {
		return record.Ref{Gen: 1, Fire: at, Trigger: n, Attempt: 1}
	}
	out := in.claim()
	t.Run("run each shard that they are for, in order, one at a time", func(t *testing.T) {
		assert.Equal(t, ref(4, start+1), must(out.starts.Of(0)))
		assert.Equal(t, ref(3, start), must(out.starts.Of(1)))
		in.commit(out)
		in.end(0, 1)
		out = in.claim()
		assert.Equal(t, runs(shardset.Of(1), ref(4, start+1)), out.starts)
	})
	t.Run("come before the schedule and do not move it", func(t *testing.T) {
		in.commit(out)
		in.end(1)
		in.now = at(1)
		assert.Equal(t, runs(shardset.Range(0, 2), fire(1, 1)), in.claim().starts)
	})
}

func TestClaim_Epochs(t *testing.T) {
	setUp := func(t *testing.T) *claiming { // 2 shards until the third minute, then 4
		in := claimant(t, 2)
		in.plan.Epochs[0].Until = at(3)
		in.plan.Epochs = append(in.plan.Epochs, epoch(t, 2, at(3), 4))
		in.plan.Owners["me"] = shardset.Range(0, 4)
		return in
	}
	t.Run("new shards owe nothing of fires before their time", func(t *testing.T) {
		in := setUp(t)
		in.now = at(2)
		out := in.claim()
		assert.Equal(t, runs(shardset.Range(0, 2), fire(2, 1)), out.starts)
		assert.Equal(t, at(3), out.wake)
	})
	t.Run("fires of the earlier definition are served before those of the later", func(t *testing.T) {
		in := setUp(t)
		in.now = at(5)
		second := record.Ref{Gen: 2, Fire: at(5), Attempt: 1}
		out := in.claim()
		assert.Equal(t, "0-1", out.starts[0].Shards.String())
		assert.Equal(t, fire(2, 1), out.starts[0].Ref)
		assert.Equal(t, second, must(out.starts.Of(3)))
		in.commit(out)
		in.end(0, 1)
		assert.Equal(t, runs(shardset.Range(0, 2), second), in.claim().starts)
	})
	t.Run("no fire has runs of two totals", func(t *testing.T) {
		in := setUp(t)
		totals := map[record.Instant]int{}
		for now := start; now < at(8); now += record.Instant(10 * time.Second) {
			in.now = now
			out := in.claim()
			for _, g := range out.starts {
				if gen, ok := totals[g.Fire]; ok {
					assert.Equal(t, gen, g.Gen, g.Fire)
				}
				totals[g.Fire] = g.Gen
			}
			in.commit(out)
			for s := range out.starts.Shards().All() {
				in.end(s)
			}
		}
		assert.Len(t, totals, 7)
	})
}

func TestClaim_Record(t *testing.T) {
	t.Run("forgets watermarks of shards that moved, only with a claim, which proves the plan", func(t *testing.T) {
		in := claimant(t, 4)
		in.now = at(1)
		in.commit(in.claim())
		in.end(0, 1, 2, 3)
		in.plan.Owners["me"] = shardset.Range(0, 2)
		out := in.claim()
		assert.NotZero(t, out.claims.Marks.Of(3), "nothing was claimed")
		in.commit(out)
		in.now = at(2)
		out = in.claim()
		assert.Zero(t, out.claims.Marks.Of(3))
		assert.NotZero(t, out.claims.Marks.Of(1))
	})
	t.Run("tells when runs ended last, which failed, and why the first did, cut to a bound", func(t *testing.T) {
		in := claimant(t, 3)
		in.now = at(1)
		in.commit(in.claim())
		in.ended = []ended{{shard: 0}, {shard: 2, err: errors.New(strings.Repeat("é", 500))}, {shard: 1, err: errors.New("second")}}
		out := in.claim()
		require.Len(t, out.claims.Failures, 1)
		f := out.claims.Failures[0]
		assert.Equal(t, record.RunGroup{Shards: shardset.Of(1, 2), Ref: fire(1, 1)}, f.RunGroup)
		assert.LessOrEqual(t, len(f.Error), 200)
		assert.True(t, strings.HasPrefix(f.Error, "éé"))
		assert.Equal(t, in.now, f.At)
		assert.Equal(t, in.now, out.claims.Ended)
		assert.EqualValues(t, 2, out.claims.Counts.Failed)
		assert.EqualValues(t, 1, out.claims.Counts.Succeeded)
	})
	t.Run("is not written when nothing has changed", func(t *testing.T) {
		in := claimant(t, 3)
		in.now = at(1)
		in.commit(in.claim())
		assert.False(t, in.claim().changed)
	})
	t.Run("that was decided on is not shared with what it came from", func(t *testing.T) {
		in := claimant(t, 3)
		in.now = at(1)
		in.commit(in.claim())
		before := fmt.Sprint(in.claims)
		in.end(0, 1, 2)
		in.now = at(2)
		in.claim()
		assert.Equal(t, before, fmt.Sprint(in.claims))
	})
}

func TestClaim_Disabled(t *testing.T) {
	setUp := func(t *testing.T) *claiming { // of two shards, the second disabled
		in := claimant(t, 2)
		in.plan.Disabled = shardset.Of(1)
		return in
	}
	passed := func(n int) record.Mark { return record.Mark{Gen: 1, Fire: at(n)} }
	t.Run("a fire is passed over when it comes, and counted, in the commit that claims it for others", func(t *testing.T) {
		in := setUp(t)
		out := in.claim()
		assert.False(t, out.changed, "not before its time")
		assert.Equal(t, at(1), out.wake)
		in.now = at(1)
		out = in.claim()
		assert.True(t, out.planned)
		assert.Equal(t, runs(shardset.Of(0), fire(1, 1)), out.starts)
		assert.Equal(t, out.starts, out.claims.Running)
		assert.Equal(t, passed(1), out.claims.Marks.Of(1))
		assert.Equal(t, record.Counts{Claimed: 1, Skipped: 1}, out.claims.Counts)
		assert.Equal(t, at(2), out.wake)
		in.commit(out)
		assert.False(t, in.claim().changed, "once")
	})
	t.Run("fires that would run late are passed over too", func(t *testing.T) {
		in := setUp(t)
		in.plan.Disabled = shardset.Range(0, 2)
		in.now = at(10)
		out := in.claim()
		assert.Empty(t, out.starts)
		assert.Equal(t, passed(10), out.claims.Marks.Of(0))
		assert.EqualValues(t, 2*10, out.claims.Counts.Skipped)
	})
	t.Run("a fire that was passed over does not run when its shard is enabled", func(t *testing.T) {
		in := setUp(t)
		in.now = at(3)
		in.commit(in.claim())
		in.plan.Disabled = shardset.Set{}
		in.now = at(4) - 1
		assert.Empty(t, in.claim().starts)
		in.now = at(4)
		assert.Equal(t, runs(shardset.Of(1), fire(4, 1)), in.claim().starts)
	})
	t.Run("a run that has begun goes on, and what came meanwhile is passed over when it ends", func(t *testing.T) {
		in := setUp(t)
		in.plan.Disabled = shardset.Set{}
		in.now = at(1)
		in.commit(in.claim())
		in.plan.Disabled = shardset.Of(1)
		in.end(0)
		in.now = at(3)
		out := in.claim()
		assert.Equal(t, fire(1, 1), must(out.claims.Running.Of(1)))
		assert.Equal(t, fire(1, 1).Mark(), out.claims.Marks.Of(1))
		in.commit(out)
		in.end(1)
		out = in.claim()
		assert.Empty(t, out.starts)
		assert.Equal(t, at(3), out.claims.Marks.Of(1).Fire)
	})
	t.Run("a re-run waits with the fires behind it, and goes first when its shard is enabled", func(t *testing.T) {
		in := setUp(t)
		in.plan.Marks = record.Marks{}.Raise(shardset.Range(0, 2), fire(1, 1).Mark())
		in.plan.Reruns = runs(shardset.Of(1), fire(1, 2))
		in.now = at(3)
		out := in.claim()
		assert.Equal(t, runs(shardset.Of(0), fire(3, 1)), out.starts)
		assert.Zero(t, out.claims.Marks.Of(1))
		in.commit(out)
		in.plan.Disabled = shardset.Set{}
		out = in.claim()
		assert.Equal(t, runs(shardset.Of(1), fire(1, 2)), out.starts)
		in.commit(out)
		in.end(1)
		assert.Equal(t, runs(shardset.Of(1), fire(3, 1)), in.claim().starts)
	})
	t.Run("a re-run that was claimed before holds up nothing, though the plan still has it", func(t *testing.T) {
		in := setUp(t)
		in.plan.Reruns = runs(shardset.Of(1), fire(1, 2))
		in.claims.Marks = record.Marks{}.Raise(shardset.Range(0, 2), fire(1, 2).Mark())
		in.now = at(2)
		assert.Equal(t, passed(2), in.claim().claims.Marks.Of(1))
	})
	t.Run("a trigger waits, and its re-run, and hold up no fire", func(t *testing.T) {
		for name, f := range map[string]func(*claiming){
			"trigger": func(in *claiming) { in.plan.Triggers = []record.Trigger{{Number: 1, At: start, Gen: 1}} },
			"re-run": func(in *claiming) {
				in.plan.Reruns = runs(shardset.Of(1), record.Ref{Gen: 1, Fire: start, Trigger: 1, Attempt: 2})
			},
		} {
			in := setUp(t)
			f(in)
			in.now = at(1)
			out := in.claim()
			assert.NotContains(t, out.starts.Shards().String(), "1", name)
			assert.Equal(t, passed(1), out.claims.Marks.Of(1), name)
			in.commit(out)
			in.plan.Disabled = shardset.Set{}
			r := must(in.claim().starts.Of(1))
			assert.EqualValues(t, 1, r.Trigger, name)
		}
	})
	t.Run("fires of all definitions that are over are passed over", func(t *testing.T) {
		in := setUp(t)
		in.plan.Epochs[0].Until = at(3)
		in.plan.Epochs = append(in.plan.Epochs, epoch(t, 2, at(3), 2))
		in.now = at(5)
		out := in.claim()
		assert.Equal(t, record.Mark{Gen: 2, Fire: at(5)}, out.claims.Marks.Of(1))
		assert.EqualValues(t, 1+5, out.claims.Counts.Skipped, "the first of them for the other shard")
		assert.Equal(t, at(6), out.wake)
	})
	t.Run("nothing is passed over of what is not this instance's to claim", func(t *testing.T) {
		for name, f := range map[string]func(*claiming){
			"frozen":         func(in *claiming) { in.plan.Frozen = shardset.Of(1) },
			"another's":      func(in *claiming) { in.plan.Owners["me"] = shardset.Of(0) },
			"paused":         func(in *claiming) { in.plan.Paused = true },
			"not open":       func(in *claiming) { in.open = false },
			"not understood": func(in *claiming) { in.programs = nil },
		} {
			in := setUp(t)
			in.now = at(1)
			f(in)
			assert.Zero(t, in.claim().claims.Marks.Of(1), name)
		}
	})
}
