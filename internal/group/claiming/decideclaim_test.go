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

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// commit updates the input as the claimer does after a commit.
func (in *Input) commit(out Decision) {
	in.Claims = out.Claims
	in.Ended = nil
}

// endRuns adds successful ends of the runs of these shards.
func (in *Input) endRuns(shards ...int) {
	for _, s := range shards {
		in.Ended = append(in.Ended, EndedRun{Shard: s})
	}
}

func TestClaim_Schedule(t *testing.T) {
	t.Run("no fire is claimed before its instant, and Wake is that instant", func(t *testing.T) {
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
	t.Run("a claimed fire is not claimed again", func(t *testing.T) {
		in := claimant(t, 4)
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.endRuns(0, 1, 2, 3)
		out := in.Decide()
		assert.Empty(t, out.Starts)
		assert.Empty(t, out.Claims.Running)
		assert.False(t, out.RestsOnPlan, "an end does not depend on the plan")
		assert.EqualValues(t, 4, out.Claims.Counts.Succeeded)
		assert.Equal(t, coordtest.At(2), out.Wake)
	})
	t.Run("a running shard claims nothing, a free one does", func(t *testing.T) {
		in := claimant(t, 2)
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.endRuns(0)
		in.Now = coordtest.At(2)
		out := in.Decide()
		assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(2, 1)), out.Starts)
		assert.Equal(t, coordtest.Fire(1, 1), coordtest.Must(out.Claims.Running.Of(1)))
	})
	t.Run("a fire that the plan's watermark covers is not claimed again", func(t *testing.T) {
		in := claimant(t, 2)
		in.Plan.Watermarks = record.Watermarks{}.Raise(shardset.Of(1), coordtest.Fire(1, 1).Watermark())
		in.Now = coordtest.At(1)
		assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1)), in.Decide().Starts)
	})
	t.Run("skipped fires are counted for each shard", func(t *testing.T) {
		in := claimant(t, 2)
		in.Now = coordtest.At(10)
		out := in.Decide()
		assert.Equal(t, coordtest.Runs(shardset.Range(0, 2), coordtest.Fire(10, 1)), out.Starts)
		assert.EqualValues(t, 2*9, out.Claims.Counts.Skipped)
	})
}

func TestClaim_ClaimsNothingFor(t *testing.T) {
	for name, f := range map[string]func(*Input){
		"frozen shards":                                 func(in *Input) { in.Plan.Frozen = shardset.Of(1) },
		"shards of other owners":                        func(in *Input) { in.Plan.Owners["me"] = shardset.Of(0) },
		"shards whose earlier handler has not returned": func(in *Input) { in.Blocked = shardset.Of(1) },
	} {
		t.Run(name, func(t *testing.T) {
			in := claimant(t, 2)
			in.Now = coordtest.At(1)
			f(in)
			assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1)), in.Decide().Starts)
		})
	}
	for name, f := range map[string]func(*Input){
		"a paused job":                func(in *Input) { in.Plan.Paused = true },
		"a member that may not claim": func(in *Input) { in.MayClaim = false },
		"a job without a plan":        func(in *Input) { in.Plan = nil },
		"an unsupported definition": func(in *Input) {
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
	t.Run("pending re-runs and triggers of an unsupported definition, and later runs", func(t *testing.T) {
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
	t.Run("a member that may not claim, but it records ends", func(t *testing.T) {
		in := claimant(t, 1)
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.endRuns(0)
		in.MayClaim = false
		out := in.Decide()
		assert.True(t, out.Changed)
		assert.Empty(t, out.Claims.Running)
	})
}

func TestClaim_RerunsNoLongerWanted(t *testing.T) {
	// switched returns a claimant with a re-run pending for shard 0, of the fire at minute 1. The
	// definition in force from minute 2 on does not want re-runs.
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
	t.Run("a pending re-run is counted as lost, and the next fire of its shard is claimed at once", func(t *testing.T) {
		in := switched(t, "")
		out := in.Decide()
		assert.True(t, out.RestsOnPlan, "so that it is counted once: the plan is a condition")
		assert.Equal(t, coordtest.Runs(shardset.Range(0, 2), next), out.Starts)
		assert.EqualValues(t, 1, out.Claims.Counts.Lost)
		require.Len(t, out.Claims.Failures, 1)
		assert.Equal(t, record.RunGroup{Shards: shardset.Of(0), Ref: coordtest.Fire(1, 1)}, out.Claims.Failures[0].RunGroup)
		in.commit(out)
		in.endRuns(0, 1)
		assert.EqualValues(t, 1, in.Decide().Claims.Counts.Lost, "once")
	})
	t.Run("so is one of a shard without a due fire", func(t *testing.T) {
		in := switched(t, "")
		in.Now = coordtest.At(2) - 1
		out := in.Decide()
		assert.True(t, out.RestsOnPlan)
		assert.Empty(t, out.Starts)
		assert.True(t, out.Claims.Watermarks.Of(0).Covers(coordtest.Fire(1, 2)))
	})
	t.Run("so is the re-run of a trigger", func(t *testing.T) {
		in := switched(t, "")
		again := record.Ref{Epoch: 1, Fire: coordtest.At(0), Trigger: 3, Attempt: 2}
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), again)
		out := in.Decide()
		assert.EqualValues(t, 1, out.Claims.Counts.Lost)
		assert.True(t, out.Claims.Watermarks.Of(0).Covers(again))
	})
	t.Run("so is that of a disabled shard", func(t *testing.T) {
		in := switched(t, "")
		in.Plan.Disabled = shardset.Of(0)
		out := in.Decide()
		assert.EqualValues(t, 1, out.Claims.Counts.Lost)
		assert.EqualValues(t, 1, out.Claims.Counts.Skipped, "the due fire")
		assert.Equal(t, coordtest.Runs(shardset.Of(1), next), out.Starts)
	})
	t.Run("that of a frozen shard stays pending for its next owner", func(t *testing.T) {
		in := switched(t, "")
		in.Plan.Frozen = shardset.Of(0)
		assert.Zero(t, in.Decide().Claims.Counts.Lost)
	})
	t.Run("it is run if the newest definition does not track runs", func(t *testing.T) {
		in := switched(t, `,"tracking":"claims"`)
		out := in.Decide()
		assert.Zero(t, out.Claims.Counts.Lost)
		assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 2)).With(shardset.Of(1), next), out.Starts)
	})
}

func TestClaim_Reruns(t *testing.T) {
	t.Run("come before a newer fire of their shard", func(t *testing.T) {
		in := claimant(t, 2)
		in.Plan.Watermarks = record.Watermarks{}.Raise(shardset.Range(0, 2), coordtest.Fire(1, 1).Watermark())
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 2))
		in.Now = coordtest.At(2)
		out := in.Decide()
		assert.Equal(t, coordtest.Fire(1, 2), coordtest.Must(out.Starts.Of(0)))
		assert.Equal(t, coordtest.Fire(2, 1), coordtest.Must(out.Starts.Of(1)))
		in.commit(out)
		in.endRuns(0)
		assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(2, 1)), in.Decide().Starts, "the fire follows")
	})
	t.Run("are not claimed again while the plan still lists them", func(t *testing.T) {
		in := claimant(t, 1)
		in.Plan.Watermarks = record.Watermarks{}.Raise(shardset.Of(0), coordtest.Fire(1, 1).Watermark())
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 2))
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.endRuns(0)
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
	t.Run("run on each of their shards, in order, one at a time", func(t *testing.T) {
		assert.Equal(t, ref(4, coordtest.Start+1), coordtest.Must(out.Starts.Of(0)))
		assert.Equal(t, ref(3, coordtest.Start), coordtest.Must(out.Starts.Of(1)))
		in.commit(out)
		in.endRuns(0, 1)
		out = in.Decide()
		assert.Equal(t, coordtest.Runs(shardset.Of(1), ref(4, coordtest.Start+1)), out.Starts)
	})
	t.Run("come before the schedule and do not shift it", func(t *testing.T) {
		in.commit(out)
		in.endRuns(1)
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
	t.Run("new shards have no due fires from before their epoch", func(t *testing.T) {
		in := setUp(t)
		in.Now = coordtest.At(2)
		out := in.Decide()
		assert.Equal(t, coordtest.Runs(shardset.Range(0, 2), coordtest.Fire(2, 1)), out.Starts)
		assert.Equal(t, coordtest.At(3), out.Wake)
	})
	t.Run("fires of an earlier epoch are claimed before those of a later one", func(t *testing.T) {
		in := setUp(t)
		in.Now = coordtest.At(5)
		second := record.Ref{Epoch: 2, Fire: coordtest.At(5), Attempt: 1}
		out := in.Decide()
		assert.Equal(t, "0-1", out.Starts[0].Shards.String())
		assert.Equal(t, coordtest.Fire(2, 1), out.Starts[0].Ref)
		assert.Equal(t, second, coordtest.Must(out.Starts.Of(3)))
		in.commit(out)
		in.endRuns(0, 1)
		assert.Equal(t, coordtest.Runs(shardset.Range(0, 2), second), in.Decide().Starts)
	})
	t.Run("no fire has runs of two epochs", func(t *testing.T) {
		in := setUp(t)
		epochOf := map[record.Instant]int{}
		for now := coordtest.Start; now < coordtest.At(8); now += record.Instant(10 * time.Second) {
			in.Now = now
			out := in.Decide()
			for _, g := range out.Starts {
				if epoch, ok := epochOf[g.Fire]; ok {
					assert.Equal(t, epoch, g.Epoch, g.Fire)
				}
				epochOf[g.Fire] = g.Epoch
			}
			in.commit(out)
			for s := range out.Starts.Shards().All() {
				in.endRuns(s)
			}
		}
		assert.Len(t, epochOf, 7)
	})
}

func TestClaim_Record(t *testing.T) {
	t.Run("drops watermarks of moved shards, only with a claim, which has the plan as a condition", func(t *testing.T) {
		in := claimant(t, 4)
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.endRuns(0, 1, 2, 3)
		in.Plan.Owners["me"] = shardset.Range(0, 2)
		out := in.Decide()
		assert.NotZero(t, out.Claims.Watermarks.Of(3), "nothing was claimed")
		in.commit(out)
		in.Now = coordtest.At(2)
		out = in.Decide()
		assert.Zero(t, out.Claims.Watermarks.Of(3))
		assert.NotZero(t, out.Claims.Watermarks.Of(1))
	})
	t.Run("has the time of the last end, the failed shards, and the first error, cut to a limit", func(t *testing.T) {
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
	t.Run("is not written if nothing has changed", func(t *testing.T) {
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
		in.endRuns(0, 1, 2)
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
	skipped := func(n int) record.Watermark { return record.Watermark{Epoch: 1, Fire: coordtest.At(n)} }
	t.Run("a due fire is skipped and counted in the commit that claims it for other shards", func(t *testing.T) {
		in := setUp(t)
		out := in.Decide()
		assert.False(t, out.Changed, "not before its instant")
		assert.Equal(t, coordtest.At(1), out.Wake)
		in.Now = coordtest.At(1)
		out = in.Decide()
		assert.True(t, out.RestsOnPlan)
		assert.Equal(t, coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1)), out.Starts)
		assert.Equal(t, out.Starts, out.Claims.Running)
		assert.Equal(t, skipped(1), out.Claims.Watermarks.Of(1))
		assert.Equal(t, record.Counts{Claimed: 1, Skipped: 1}, out.Claims.Counts)
		assert.Equal(t, coordtest.At(2), out.Wake)
		in.commit(out)
		assert.False(t, in.Decide().Changed, "once")
	})
	t.Run("missed fires are skipped as well", func(t *testing.T) {
		in := setUp(t)
		in.Plan.Disabled = shardset.Range(0, 2)
		in.Now = coordtest.At(10)
		out := in.Decide()
		assert.Empty(t, out.Starts)
		assert.Equal(t, skipped(10), out.Claims.Watermarks.Of(0))
		assert.EqualValues(t, 2*10, out.Claims.Counts.Skipped)
	})
	t.Run("a skipped fire does not run when its shard is enabled", func(t *testing.T) {
		in := setUp(t)
		in.Now = coordtest.At(3)
		in.commit(in.Decide())
		in.Plan.Disabled = shardset.Set{}
		in.Now = coordtest.At(4) - 1
		assert.Empty(t, in.Decide().Starts)
		in.Now = coordtest.At(4)
		assert.Equal(t, coordtest.Runs(shardset.Of(1), coordtest.Fire(4, 1)), in.Decide().Starts)
	})
	t.Run("a run in progress goes on, and fires due meanwhile are skipped when it ends", func(t *testing.T) {
		in := setUp(t)
		in.Plan.Disabled = shardset.Set{}
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.Plan.Disabled = shardset.Of(1)
		in.endRuns(0)
		in.Now = coordtest.At(3)
		out := in.Decide()
		assert.Equal(t, coordtest.Fire(1, 1), coordtest.Must(out.Claims.Running.Of(1)))
		assert.Equal(t, coordtest.Fire(1, 1).Watermark(), out.Claims.Watermarks.Of(1))
		in.commit(out)
		in.endRuns(1)
		out = in.Decide()
		assert.Empty(t, out.Starts)
		assert.Equal(t, coordtest.At(3), out.Claims.Watermarks.Of(1).Fire)
	})
	t.Run("a re-run waits with later fires, and runs first when its shard is enabled", func(t *testing.T) {
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
		in.endRuns(1)
		assert.Equal(t, coordtest.Runs(shardset.Of(1), coordtest.Fire(3, 1)), in.Decide().Starts)
	})
	t.Run("a claimed re-run that the plan still lists delays no fire", func(t *testing.T) {
		in := setUp(t)
		in.Plan.Reruns = coordtest.Runs(shardset.Of(1), coordtest.Fire(1, 2))
		in.Claims.Watermarks = record.Watermarks{}.Raise(shardset.Range(0, 2), coordtest.Fire(1, 2).Watermark())
		in.Now = coordtest.At(2)
		assert.Equal(t, skipped(2), in.Decide().Claims.Watermarks.Of(1))
	})
	t.Run("a trigger or its re-run waits and delays no fire", func(t *testing.T) {
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
			assert.Equal(t, skipped(1), out.Claims.Watermarks.Of(1), name)
			in.commit(out)
			in.Plan.Disabled = shardset.Set{}
			r := coordtest.Must(in.Decide().Starts.Of(1))
			assert.EqualValues(t, 1, r.Trigger, name)
		}
	})
	t.Run("due fires of earlier epochs are skipped", func(t *testing.T) {
		in := setUp(t)
		in.Plan.Epochs[0].Until = coordtest.At(3)
		in.Plan.Epochs = append(in.Plan.Epochs, coordtest.Epoch(t, 2, coordtest.At(3), 2))
		in.Now = coordtest.At(5)
		out := in.Decide()
		assert.Equal(t, record.Watermark{Epoch: 2, Fire: coordtest.At(5)}, out.Claims.Watermarks.Of(1))
		assert.EqualValues(t, 1+5, out.Claims.Counts.Skipped, "one of the other shard, five of this one")
		assert.Equal(t, coordtest.At(6), out.Wake)
	})
	t.Run("no fire is skipped that this member may not claim", func(t *testing.T) {
		for name, f := range map[string]func(*Input){
			"frozen":          func(in *Input) { in.Plan.Frozen = shardset.Of(1) },
			"another owner's": func(in *Input) { in.Plan.Owners["me"] = shardset.Of(0) },
			"paused":          func(in *Input) { in.Plan.Paused = true },
			"may not claim":   func(in *Input) { in.MayClaim = false },
			"unsupported":     func(in *Input) { in.Programs = nil },
		} {
			in := setUp(t)
			in.Now = coordtest.At(1)
			f(in)
			assert.Zero(t, in.Decide().Claims.Watermarks.Of(1), name)
		}
	})
}

func TestClaim_Awaited(t *testing.T) {
	// running returns a claimant whose shards run the first fire.
	running := func(t *testing.T) *Input {
		in := claimant(t, 2)
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		return in
	}
	t.Run("Wake is the next fire of a shard that runs", func(t *testing.T) {
		out := running(t).Decide()
		assert.Equal(t, coordtest.At(2), out.Wake)
		assert.False(t, out.Awaited)
	})
	t.Run("a claim has the next fire of its own runs as Wake", func(t *testing.T) {
		in := claimant(t, 2)
		in.Now = coordtest.At(1)
		assert.Equal(t, coordtest.At(2), in.Decide().Wake)
	})
	t.Run("a due fire waits for the end of a run, without a Wake of its own", func(t *testing.T) {
		in := running(t)
		in.Now = coordtest.At(2)
		out := in.Decide()
		assert.True(t, out.Awaited)
		assert.False(t, out.Changed)
		assert.Zero(t, out.Wake)
	})
	t.Run("the end and the claim of the fire that waits for it are one decision", func(t *testing.T) {
		in := running(t)
		in.Now = coordtest.At(2)
		in.endRuns(0, 1)
		out := in.Decide()
		assert.Equal(t, coordtest.Runs(shardset.Range(0, 2), coordtest.Fire(2, 1)), out.Claims.Running)
		assert.EqualValues(t, 2, out.Claims.Counts.Succeeded)
		assert.False(t, out.Awaited)
	})
	for name, change := range map[string]func(*Input){
		"a frozen shard":               func(in *Input) { in.Plan.Frozen = shardset.Range(0, 2) },
		"a disabled shard":             func(in *Input) { in.Plan.Disabled = shardset.Range(0, 2) },
		"a shard of another owner":     func(in *Input) { in.Plan.Owners = nil },
		"a paused job":                 func(in *Input) { in.Plan.Paused = true },
		"an unsupported definition":    func(in *Input) { in.Programs = nil },
		"a member that claims nothing": func(in *Input) { in.MayClaim = false },
	} {
		t.Run("no fire waits for "+name, func(t *testing.T) {
			in := running(t)
			in.Now = coordtest.At(2)
			change(in)
			assert.False(t, in.Decide().Awaited)
		})
	}
}

// expiring is a program that runs the latest of the due fires, and one of the others has expired.
type expiring struct{ coordtest.Minutely }

func (p expiring) Due(last, until, now time.Time) due.Due {
	d := p.Minutely.Due(last, until, now)
	d.Expired = 1
	return d
}

func TestClaim_ReportsExpiredFiresApart(t *testing.T) {
	in := claimant(t, 2)
	in.Programs[1], in.Now = expiring{}, coordtest.At(4)
	out := in.Decide()
	reported := map[event.SkipReason]int{}
	for _, s := range out.Skipped {
		reported[s.Reason] += s.Fires
	}
	assert.Equal(t, map[event.SkipReason]int{event.Expired: 1, event.Misfire: 2}, reported)
	assert.EqualValues(t, 6, out.Claims.Counts.Skipped)
}
