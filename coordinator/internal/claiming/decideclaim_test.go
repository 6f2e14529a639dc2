package claiming

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// commit makes what was claimed the record, as after a commit.
func (in *Input) commit(out Decision) {
	in.Claims = out.Claims
	in.Ended = nil
}

func (in *Input) end(shards ...int) {
	for _, s := range shards {
		in.Ended = append(in.Ended, EndedRun{Shard: s})
	}
}

func TestClaim_Schedule(t *testing.T) {
	t.Run("nothing is claimed before its time, and it says when to look again", func(t *testing.T) {
		in := claimant(t, 4)
		in.Now = coordtest.At(1) - 1
		out := in.Decide()
		assert.False(t, out.Changed)
		assert.Empty(t, out.Starts)
		assert.Equal(t, coordtest.At(1), out.Wake)
	})
	t.Run("a fire is claimed for all free shards at once", func(t *testing.T) {
		in := claimant(t, 4)
		in.Now = coordtest.At(1)
		out := in.Decide()
		assert.True(t, out.RestsOnPlan)
		assert.Equal(t, coordtest.Runs(shardset.Range(0, 4), coordtest.Fire(1, 1)), out.Starts)
		assert.Equal(t, out.Starts, out.Claims.Running)
		assert.Equal(t, coordtest.Fire(1, 1).Watermark(), out.Claims.Watermarks.Of(3))
		assert.EqualValues(t, 4, out.Claims.Counts.Claimed)
	})
	t.Run("a fire that was claimed is not claimed again", func(t *testing.T) {
		in := claimant(t, 4)
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.end(0, 1, 2, 3)
		out := in.Decide()
		assert.Empty(t, out.Starts)
		assert.Empty(t, out.Claims.Running)
		assert.False(t, out.RestsOnPlan, "what ends needs no plan")
		assert.EqualValues(t, 4, out.Claims.Counts.Succeeded)
		assert.Equal(t, coordtest.At(2), out.Wake)
	})
	t.Run("a shard that runs claims nothing; a free neighbour does", func(t *testing.T) {
		in := claimant(t, 2)
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.end(0)
		in.Now = coordtest.At(2)
		out := in.Decide()
		assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(2, 1)), out.Starts)
		assert.Equal(t, coordtest.Fire(1, 1), coordtest.Must(out.Claims.Running.Of(1)))
	})
	t.Run("what another owner had claimed, says the plan, is not claimed again", func(t *testing.T) {
		in := claimant(t, 2)
		in.Plan.Watermarks = record.Watermarks{}.Raise(shardset.Of(1), coordtest.Fire(1, 1).Watermark())
		in.Now = coordtest.At(1)
		assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1)), in.Decide().Starts)
	})
	t.Run("fires that are passed over are counted, for each shard", func(t *testing.T) {
		in := claimant(t, 2)
		in.Now = coordtest.At(10)
		out := in.Decide()
		assert.Equal(t, coordtest.Runs(shardset.Range(0, 2), coordtest.Fire(10, 1)), out.Starts)
		assert.EqualValues(t, 2*9, out.Claims.Counts.Skipped)
	})
}

func TestClaim_LeavesAlone(t *testing.T) {
	for name, f := range map[string]func(*Input){
		"frozen shards":                      func(in *Input) { in.Plan.Frozen = shardset.Of(1) },
		"shards of others":                   func(in *Input) { in.Plan.Owners["me"] = shardset.Of(0) },
		"shards whose old function lives on": func(in *Input) { in.Blocked = shardset.Of(1) },
	} {
		t.Run(name, func(t *testing.T) {
			in := claimant(t, 2)
			in.Now = coordtest.At(1)
			f(in)
			assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1)), in.Decide().Starts)
		})
	}
	for name, f := range map[string]func(*Input){
		"a paused job":                    func(in *Input) { in.Plan.Paused = true },
		"everything while it is not open": func(in *Input) { in.MayClaim = false },
		"a job without a plan":            func(in *Input) { in.Plan = nil },
		"a job that it does not understand": func(in *Input) {
			in.Programs = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := claimant(t, 2)
			in.Now = coordtest.At(1)
			f(in)
			out := in.Decide()
			assert.Empty(t, out.Starts)
			assert.False(t, out.Changed)
		})
	}
	t.Run("pending re-runs and triggers of a definition that it does not understand, and all after them", func(t *testing.T) {
		in := claimant(t, 2)
		in.Plan.Epochs[0].Until = coordtest.At(1)
		in.Plan.Epochs = append(in.Plan.Epochs, coordtest.Epoch(t, 2, coordtest.At(1), 2))
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), record.Ref{Epoch: 1, Fire: coordtest.At(0), Attempt: 2})
		in.Plan.Triggers = []record.Trigger{{Number: 1, At: coordtest.Start, Epoch: 1}}
		delete(in.Programs, 1)
		in.Now = coordtest.At(3)
		out := in.Decide()
		assert.Empty(t, out.Starts)
		assert.False(t, out.Changed)
	})
	t.Run("but takes off what has ended even while it is not open", func(t *testing.T) {
		in := claimant(t, 1)
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.end(0)
		in.MayClaim = false
		out := in.Decide()
		assert.True(t, out.Changed)
		assert.Empty(t, out.Claims.Running)
	})
}

func TestClaim_FailoverSwitchedOff(t *testing.T) {
	// switched returns a claimant whose shard 0 of two has a re-run pending of the fire at 1,
	// while the newest definition, from 2 on, wants no re-runs.
	switched := func(t *testing.T, more string) *Input {
		in := claimant(t, 2)
		in.Plan.Epochs[0].Until = coordtest.At(2)
		def := json.RawMessage(`{"name":"job","shards":2,"on_crash":"count as failed"` + more + `}`)
		newest, err := record.NewEpoch(2, coordtest.At(2), def)
		require.NoError(t, err)
		in.Plan.Epochs = append(in.Plan.Epochs, newest)
		in.Plan.Watermarks = in.Plan.Watermarks.Raise(shardset.Range(0, 2), coordtest.Fire(1, 1).Watermark())
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 2))
		in.Now = coordtest.At(2)
		return in
	}
	next := record.Ref{Epoch: 2, Fire: coordtest.At(2), Attempt: 1}
	t.Run("a pending re-run is counted as lost instead, and its shard goes on at once", func(t *testing.T) {
		in := switched(t, "")
		out := in.Decide()
		assert.True(t, out.RestsOnPlan, "it is exact: the plan is a condition")
		assert.Equal(t, coordtest.Runs(shardset.Range(0, 2), next), out.Starts)
		assert.EqualValues(t, 1, out.Claims.Counts.Lost)
		require.Len(t, out.Claims.Failures, 1)
		assert.Equal(t, record.RunGroup{Shards: shardset.Of(0), Ref: coordtest.Fire(1, 1)}, out.Claims.Failures[0].RunGroup)
		in.commit(out)
		in.end(0, 1)
		assert.EqualValues(t, 1, in.Decide().Claims.Counts.Lost, "once")
	})
	t.Run("so is one that nothing follows yet", func(t *testing.T) {
		in := switched(t, "")
		in.Now = coordtest.At(2) - 1
		out := in.Decide()
		assert.True(t, out.RestsOnPlan)
		assert.Empty(t, out.Starts)
		assert.True(t, out.Claims.Watermarks.Of(0).Covers(coordtest.Fire(1, 2)))
	})
	t.Run("so is one of a trigger", func(t *testing.T) {
		in := switched(t, "")
		again := record.Ref{Epoch: 1, Fire: coordtest.At(0), Trigger: 3, Attempt: 2}
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), again)
		out := in.Decide()
		assert.EqualValues(t, 1, out.Claims.Counts.Lost)
		assert.True(t, out.Claims.Watermarks.Of(0).Covers(again))
	})
	t.Run("so is one that waits on a disabled shard", func(t *testing.T) {
		in := switched(t, "")
		in.Plan.Disabled = shardset.Of(0)
		out := in.Decide()
		assert.EqualValues(t, 1, out.Claims.Counts.Lost)
		assert.EqualValues(t, 1, out.Claims.Counts.Skipped, "and the fire is passed over")
		assert.Equal(t, coordtest.Runs(shardset.Of(1), next), out.Starts)
	})
	t.Run("on a shard that is to move it waits for who gets that", func(t *testing.T) {
		in := switched(t, "")
		in.Plan.Frozen = shardset.Of(0)
		assert.Zero(t, in.Decide().Claims.Counts.Lost)
	})
	t.Run("it is made where the newest definition says nothing of crashes", func(t *testing.T) {
		in := switched(t, `,"tracking":"claims"`)
		out := in.Decide()
		assert.Zero(t, out.Claims.Counts.Lost)
		assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 2)).With(shardset.Of(1), next), out.Starts)
	})
}

func TestClaim_Reruns(t *testing.T) {
	t.Run("come before any newer fire of their shard", func(t *testing.T) {
		in := claimant(t, 2)
		in.Plan.Watermarks = record.Watermarks{}.Raise(shardset.Range(0, 2), coordtest.Fire(1, 1).Watermark())
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 2))
		in.Now = coordtest.At(2)
		out := in.Decide()
		assert.Equal(t, coordtest.Fire(1, 2), coordtest.Must(out.Starts.Of(0)))
		assert.Equal(t, coordtest.Fire(2, 1), coordtest.Must(out.Starts.Of(1)))
		in.commit(out)
		in.end(0)
		assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(2, 1)), in.Decide().Starts, "then the fire")
	})
	t.Run("that were claimed are not claimed again, though the plan still has them", func(t *testing.T) {
		in := claimant(t, 1)
		in.Plan.Watermarks = record.Watermarks{}.Raise(shardset.Of(0), coordtest.Fire(1, 1).Watermark())
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 2))
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.end(0)
		assert.Empty(t, in.Decide().Starts)
	})
}

func TestClaim_Triggers(t *testing.T) {
	one := shardset.Of(1)
	in := claimant(t, 2)
	in.Plan.Triggers = []record.Trigger{{Number: 3, At: coordtest.Start, Epoch: 1, Shards: &one}, {Number: 4, At: coordtest.Start + 1, Epoch: 1}}
	ref := func(n uint64, at record.Instant) record.Ref {
		return record.Ref{Epoch: 1, Fire: at, Trigger: n, Attempt: 1}
	}
	out := in.Decide()
	t.Run("run each shard that they are for, in order, one at a time", func(t *testing.T) {
		assert.Equal(t, ref(4, coordtest.Start+1), coordtest.Must(out.Starts.Of(0)))
		assert.Equal(t, ref(3, coordtest.Start), coordtest.Must(out.Starts.Of(1)))
		in.commit(out)
		in.end(0, 1)
		out = in.Decide()
		assert.Equal(t, coordtest.Runs(shardset.Of(1), ref(4, coordtest.Start+1)), out.Starts)
	})
	t.Run("come before the schedule and do not move it", func(t *testing.T) {
		in.commit(out)
		in.end(1)
		in.Now = coordtest.At(1)
		assert.Equal(t, coordtest.Runs(shardset.Range(0, 2), coordtest.Fire(1, 1)), in.Decide().Starts)
	})
}

func TestClaim_Epochs(t *testing.T) {
	setUp := func(t *testing.T) *Input { // 2 shards until the third minute, then 4
		in := claimant(t, 2)
		in.Plan.Epochs[0].Until = coordtest.At(3)
		in.Plan.Epochs = append(in.Plan.Epochs, coordtest.Epoch(t, 2, coordtest.At(3), 4))
		in.Plan.Owners["me"] = shardset.Range(0, 4)
		return in
	}
	t.Run("new shards owe nothing of fires before their time", func(t *testing.T) {
		in := setUp(t)
		in.Now = coordtest.At(2)
		out := in.Decide()
		assert.Equal(t, coordtest.Runs(shardset.Range(0, 2), coordtest.Fire(2, 1)), out.Starts)
		assert.Equal(t, coordtest.At(3), out.Wake)
	})
	t.Run("fires of the earlier definition are served before those of the later", func(t *testing.T) {
		in := setUp(t)
		in.Now = coordtest.At(5)
		second := record.Ref{Epoch: 2, Fire: coordtest.At(5), Attempt: 1}
		out := in.Decide()
		assert.Equal(t, "0-1", out.Starts[0].Shards.String())
		assert.Equal(t, coordtest.Fire(2, 1), out.Starts[0].Ref)
		assert.Equal(t, second, coordtest.Must(out.Starts.Of(3)))
		in.commit(out)
		in.end(0, 1)
		assert.Equal(t, coordtest.Runs(shardset.Range(0, 2), second), in.Decide().Starts)
	})
	t.Run("no fire has runs of two totals", func(t *testing.T) {
		in := setUp(t)
		totals := map[record.Instant]int{}
		for now := coordtest.Start; now < coordtest.At(8); now += record.Instant(10 * time.Second) {
			in.Now = now
			out := in.Decide()
			for _, g := range out.Starts {
				if gen, ok := totals[g.Fire]; ok {
					assert.Equal(t, gen, g.Epoch, g.Fire)
				}
				totals[g.Fire] = g.Epoch
			}
			in.commit(out)
			for s := range out.Starts.Shards().All() {
				in.end(s)
			}
		}
		assert.Len(t, totals, 7)
	})
}

func TestClaim_Record(t *testing.T) {
	t.Run("forgets watermarks of shards that moved, only with a claim, which proves the plan", func(t *testing.T) {
		in := claimant(t, 4)
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.end(0, 1, 2, 3)
		in.Plan.Owners["me"] = shardset.Range(0, 2)
		out := in.Decide()
		assert.NotZero(t, out.Claims.Watermarks.Of(3), "nothing was claimed")
		in.commit(out)
		in.Now = coordtest.At(2)
		out = in.Decide()
		assert.Zero(t, out.Claims.Watermarks.Of(3))
		assert.NotZero(t, out.Claims.Watermarks.Of(1))
	})
	t.Run("tells when runs ended last, which failed, and why the first did, cut to a bound", func(t *testing.T) {
		in := claimant(t, 3)
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.Ended = []EndedRun{{Shard: 0}, {Shard: 2, Err: errors.New(strings.Repeat("é", 500))}, {Shard: 1, Err: errors.New("second")}}
		out := in.Decide()
		require.Len(t, out.Claims.Failures, 1)
		f := out.Claims.Failures[0]
		assert.Equal(t, record.RunGroup{Shards: shardset.Of(1, 2), Ref: coordtest.Fire(1, 1)}, f.RunGroup)
		assert.LessOrEqual(t, len(f.Error), 200)
		assert.True(t, strings.HasPrefix(f.Error, "éé"))
		assert.Equal(t, in.Now, f.At)
		assert.Equal(t, in.Now, out.Claims.Ended)
		assert.EqualValues(t, 2, out.Claims.Counts.Failed)
		assert.EqualValues(t, 1, out.Claims.Counts.Succeeded)
	})
	t.Run("is not written when nothing has changed", func(t *testing.T) {
		in := claimant(t, 3)
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		assert.False(t, in.Decide().Changed)
	})
	t.Run("that was decided on is not shared with what it came from", func(t *testing.T) {
		in := claimant(t, 3)
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		before := fmt.Sprint(in.Claims)
		in.end(0, 1, 2)
		in.Now = coordtest.At(2)
		in.Decide()
		assert.Equal(t, before, fmt.Sprint(in.Claims))
	})
}

func TestClaim_Disabled(t *testing.T) {
	setUp := func(t *testing.T) *Input { // of two shards, the second disabled
		in := claimant(t, 2)
		in.Plan.Disabled = shardset.Of(1)
		return in
	}
	passed := func(n int) record.Watermark { return record.Watermark{Epoch: 1, Fire: coordtest.At(n)} }
	t.Run("a fire is passed over when it comes, and counted, in the commit that claims it for others", func(t *testing.T) {
		in := setUp(t)
		out := in.Decide()
		assert.False(t, out.Changed, "not before its time")
		assert.Equal(t, coordtest.At(1), out.Wake)
		in.Now = coordtest.At(1)
		out = in.Decide()
		assert.True(t, out.RestsOnPlan)
		assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1)), out.Starts)
		assert.Equal(t, out.Starts, out.Claims.Running)
		assert.Equal(t, passed(1), out.Claims.Watermarks.Of(1))
		assert.Equal(t, record.Counts{Claimed: 1, Skipped: 1}, out.Claims.Counts)
		assert.Equal(t, coordtest.At(2), out.Wake)
		in.commit(out)
		assert.False(t, in.Decide().Changed, "once")
	})
	t.Run("fires that would run late are passed over too", func(t *testing.T) {
		in := setUp(t)
		in.Plan.Disabled = shardset.Range(0, 2)
		in.Now = coordtest.At(10)
		out := in.Decide()
		assert.Empty(t, out.Starts)
		assert.Equal(t, passed(10), out.Claims.Watermarks.Of(0))
		assert.EqualValues(t, 2*10, out.Claims.Counts.Skipped)
	})
	t.Run("a fire that was passed over does not run when its shard is enabled", func(t *testing.T) {
		in := setUp(t)
		in.Now = coordtest.At(3)
		in.commit(in.Decide())
		in.Plan.Disabled = shardset.Set{}
		in.Now = coordtest.At(4) - 1
		assert.Empty(t, in.Decide().Starts)
		in.Now = coordtest.At(4)
		assert.Equal(t, coordtest.Runs(shardset.Of(1), coordtest.Fire(4, 1)), in.Decide().Starts)
	})
	t.Run("a run that has begun goes on, and what came meanwhile is passed over when it ends", func(t *testing.T) {
		in := setUp(t)
		in.Plan.Disabled = shardset.Set{}
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.Plan.Disabled = shardset.Of(1)
		in.end(0)
		in.Now = coordtest.At(3)
		out := in.Decide()
		assert.Equal(t, coordtest.Fire(1, 1), coordtest.Must(out.Claims.Running.Of(1)))
		assert.Equal(t, coordtest.Fire(1, 1).Watermark(), out.Claims.Watermarks.Of(1))
		in.commit(out)
		in.end(1)
		out = in.Decide()
		assert.Empty(t, out.Starts)
		assert.Equal(t, coordtest.At(3), out.Claims.Watermarks.Of(1).Fire)
	})
	t.Run("a re-run waits with the fires behind it, and goes first when its shard is enabled", func(t *testing.T) {
		in := setUp(t)
		in.Plan.Watermarks = record.Watermarks{}.Raise(shardset.Range(0, 2), coordtest.Fire(1, 1).Watermark())
		in.Plan.Reruns = coordtest.Runs(shardset.Of(1), coordtest.Fire(1, 2))
		in.Now = coordtest.At(3)
		out := in.Decide()
		assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(3, 1)), out.Starts)
		assert.Zero(t, out.Claims.Watermarks.Of(1))
		in.commit(out)
		in.Plan.Disabled = shardset.Set{}
		out = in.Decide()
		assert.Equal(t, coordtest.Runs(shardset.Of(1), coordtest.Fire(1, 2)), out.Starts)
		in.commit(out)
		in.end(1)
		assert.Equal(t, coordtest.Runs(shardset.Of(1), coordtest.Fire(3, 1)), in.Decide().Starts)
	})
	t.Run("a re-run that was claimed before holds up nothing, though the plan still has it", func(t *testing.T) {
		in := setUp(t)
		in.Plan.Reruns = coordtest.Runs(shardset.Of(1), coordtest.Fire(1, 2))
		in.Claims.Watermarks = record.Watermarks{}.Raise(shardset.Range(0, 2), coordtest.Fire(1, 2).Watermark())
		in.Now = coordtest.At(2)
		assert.Equal(t, passed(2), in.Decide().Claims.Watermarks.Of(1))
	})
	t.Run("a trigger waits, and its re-run, and hold up no fire", func(t *testing.T) {
		for name, f := range map[string]func(*Input){
			"trigger": func(in *Input) { in.Plan.Triggers = []record.Trigger{{Number: 1, At: coordtest.Start, Epoch: 1}} },
			"re-run": func(in *Input) {
				in.Plan.Reruns = coordtest.Runs(shardset.Of(1), record.Ref{Epoch: 1, Fire: coordtest.Start, Trigger: 1, Attempt: 2})
			},
		} {
			in := setUp(t)
			f(in)
			in.Now = coordtest.At(1)
			out := in.Decide()
			assert.NotContains(t, out.Starts.Shards().String(), "1", name)
			assert.Equal(t, passed(1), out.Claims.Watermarks.Of(1), name)
			in.commit(out)
			in.Plan.Disabled = shardset.Set{}
			r := coordtest.Must(in.Decide().Starts.Of(1))
			assert.EqualValues(t, 1, r.Trigger, name)
		}
	})
	t.Run("fires of all definitions that are over are passed over", func(t *testing.T) {
		in := setUp(t)
		in.Plan.Epochs[0].Until = coordtest.At(3)
		in.Plan.Epochs = append(in.Plan.Epochs, coordtest.Epoch(t, 2, coordtest.At(3), 2))
		in.Now = coordtest.At(5)
		out := in.Decide()
		assert.Equal(t, record.Watermark{Epoch: 2, Fire: coordtest.At(5)}, out.Claims.Watermarks.Of(1))
		assert.EqualValues(t, 1+5, out.Claims.Counts.Skipped, "the first of them for the other shard")
		assert.Equal(t, coordtest.At(6), out.Wake)
	})
	t.Run("nothing is passed over of what is not this instance's to claim", func(t *testing.T) {
		for name, f := range map[string]func(*Input){
			"frozen":         func(in *Input) { in.Plan.Frozen = shardset.Of(1) },
			"another's":      func(in *Input) { in.Plan.Owners["me"] = shardset.Of(0) },
			"paused":         func(in *Input) { in.Plan.Paused = true },
			"not open":       func(in *Input) { in.MayClaim = false },
			"not understood": func(in *Input) { in.Programs = nil },
		} {
			in := setUp(t)
			in.Now = coordtest.At(1)
			f(in)
			assert.Zero(t, in.Decide().Claims.Watermarks.Of(1), name)
		}
	})
}
