package claiming

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// claimant returns the input of member "me", which owns all shards of a job that fires each minute.
func claimant(t *testing.T, shards int) *Input {
	t.Helper()
	return &Input{
		Me: "me", MayClaim: true, Now: coordtest.Start, Claims: record.Claims{Job: "job"},
		Programs: map[int]due.Program{1: coordtest.Minutely{}, 2: coordtest.Minutely{}},
		Plan:     coordtest.PlanOfOwnShards(t, shards),
	}
}

// A claimer keeps the records that it passes to Decide, and shares them with other loops.
func TestDecide_DoesNotModifyItsInput(t *testing.T) {
	snapshot := func(in *Input) string {
		plan, err := json.Marshal(in.Plan)
		require.NoError(t, err)
		claims, err := json.Marshal(in.Claims)
		require.NoError(t, err)
		return fmt.Sprintf("%s\n%s\n%v %v %v %v %v", plan, claims, in.ClaimedAt, in.Ended, in.Blocked, in.Programs, in.ReportedAhead)
	}
	in := claimant(t, 6)
	in.Now = coordtest.At(3)
	in.Plan.Watermarks = record.Watermarks{}.Raise(shardset.Range(0, 6), coordtest.Fire(1, 1).Watermark())
	in.Plan.Reruns = coordtest.Runs(shardset.Of(3, 4), coordtest.Fire(1, 2))
	in.Plan.Disabled = shardset.Of(4, 5)
	in.Plan.Triggers = []record.Trigger{{Number: 1, At: coordtest.Start, Epoch: 1}}
	in.Claims.Watermarks = record.Watermarks{}.Raise(shardset.Range(0, 3), coordtest.Fire(2, 1).Watermark())
	in.Claims.Running = coordtest.Runs(shardset.Range(0, 3), coordtest.Fire(2, 1))
	in.Claims.Failures = record.Failures{}.With(record.Failure{RunGroup: record.RunGroup{Shards: shardset.Of(1), Ref: coordtest.Fire(2, 1)}, Error: "before"})
	in.Ended = []EndedRun{{Shard: 0}, {Shard: 1, Err: errors.New("failed")}, {Shard: 2, Err: errors.New("handed back"), HandedBack: true}}

	dropping := claimant(t, 6)
	dropping.Plan = in.Plan.Clone()
	newest, err := record.NewEpoch(2, coordtest.At(2), json.RawMessage(`{"name":"job","shards":6,"on_crash":"count as failed"}`))
	require.NoError(t, err)
	dropping.Plan.Epochs[0].Until = coordtest.At(2)
	dropping.Plan.Epochs = append(dropping.Plan.Epochs, newest)
	dropping.Now, dropping.Claims, dropping.Ended = in.Now, in.Claims, in.Ended

	for name, input := range map[string]*Input{"claims, skips and ends": in, "drops re-runs": dropping} {
		t.Run(name, func(t *testing.T) {
			before := snapshot(input)
			first := fmt.Sprintf("%+v", input.Decide())
			assert.Equal(t, before, snapshot(input))
			assert.Equal(t, first, fmt.Sprintf("%+v", input.Decide()), "the same input has the same decision")
		})
	}
}

// A leader that rebuilds a lost plan numbers triggers after those of all claims: the watermarks of shards that run rise.
func TestDecide_FailuresNameTheLastTrigger(t *testing.T) {
	for name, c := range map[string]struct{ claimed, inPlan, want uint64 }{
		"that this owner has claimed":     {claimed: 7, inPlan: 3, want: 7},
		"of a plan that has been rebuilt": {inPlan: 7, want: 7},
	} {
		t.Run(name, func(t *testing.T) {
			in := claimant(t, 1)
			in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(0), coordtest.Fire(1, 1).Watermark().Max(record.Watermark{Trigger: c.claimed}))
			in.Claims.Running = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1))
			in.Plan.Watermarks = record.Watermarks{}.Raise(shardset.Of(0), record.Watermark{Trigger: c.inPlan})
			in.Ended, in.Now = []EndedRun{{Shard: 0, Err: errors.New("no such table")}}, coordtest.At(1).Add(1)
			out := in.Decide()
			require.Len(t, out.Claims.Failures, 1)
			assert.Equal(t, c.want, out.Claims.Failures[0].LastTrigger)
			marks := out.Claims.Watermarks.Fold(in.Plan.Watermarks, shardset.Of(0))
			assert.Equal(t, shardset.Of(0), due.FailingShards(in.Plan, in.Programs, marks, nil, out.Claims.Failures))
		})
	}
}

func TestDecide_NamesRunsOfADefinitionThatHasBeenReplaced(t *testing.T) {
	plan := coordtest.PlanOfOwnShards(t, 2)
	next, err := record.NewEpoch(2, coordtest.At(5), plan.Last().Def)
	require.NoError(t, err)
	plan.Last().Until = coordtest.At(5)
	plan.Epochs = append(plan.Epochs, next)
	running := coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1))
	for name, c := range map[string]struct {
		running  record.Runs
		now      record.Instant
		outdated shardset.Set
		wake     record.Instant
	}{
		"none before the epoch ends, and it decides again then": {running, coordtest.At(5) - 1, shardset.Set{}, coordtest.At(5)},
		"the run once the epoch has ended":                      {running, coordtest.At(5), shardset.Of(0), 0},
		"no run of the last epoch":                              {coordtest.Runs(shardset.Of(0), record.Ref{Epoch: 2, Fire: coordtest.At(5), Attempt: 1}), coordtest.At(6), shardset.Set{}, 0},
		"a run whose epoch the plan has no more":                {coordtest.Runs(shardset.Of(1), record.Ref{Epoch: 7, Fire: coordtest.At(1), Attempt: 1}), coordtest.At(1), shardset.Of(1), 0},
	} {
		outdated, wake := FindOutdated(plan, c.running, c.now)
		assert.Equal(t, []any{c.outdated, c.wake}, []any{outdated, wake}, name)
		in := Input{Me: "me", Plan: plan, Claims: record.Claims{Job: "job", Running: c.running}, Now: c.now}
		assert.Equal(t, c.outdated, in.Decide().Outdated, name)
		assert.Equal(t, c.wake, in.Decide().Wake, name)
		in.Plan = plan.Clone()
		in.Plan.Paused = true
		assert.True(t, in.Decide().Outdated.IsZero(), "paused: %s", name)
	}
}

func TestFindOutdated_ReturnsTheFirstEndOfAnEpoch(t *testing.T) {
	plan := coordtest.PlanOfOwnShards(t, 2)
	for i, from := range []record.Instant{coordtest.At(5), coordtest.At(8)} {
		next, err := record.NewEpoch(2+i, from, plan.Last().Def)
		require.NoError(t, err)
		plan.Last().Until = from
		plan.Epochs = append(plan.Epochs, next)
	}
	first := coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1))
	second := coordtest.Runs(shardset.Of(1), record.Ref{Epoch: 2, Fire: coordtest.At(5), Attempt: 1})
	for _, running := range []record.Runs{slices.Concat(first, second), slices.Concat(second, first)} {
		outdated, next := FindOutdated(plan, running, coordtest.At(5)-1)
		assert.True(t, outdated.IsZero())
		assert.Equal(t, coordtest.At(5), next)
	}
}
