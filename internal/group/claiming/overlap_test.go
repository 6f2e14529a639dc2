package claiming

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestClaim_OverlappingFires(t *testing.T) {
	// ended returns the input of the owner of shards 0 and 1 at 5 min after a run of the fire at 1 min, which ended
	// at 3 min and 30 s for shard 0, and goes on for shard 1.
	ended := func(t *testing.T, policy string) *Input {
		in := claimant(t, 2)
		in.Plan = in.Plan.Clone()
		e, err := record.NewEpoch(1, coordtest.Start, []byte(`{"name":"job","shards":2,"on_overlap":"`+policy+`"}`))
		require.NoError(t, err)
		in.Plan.Epochs = []record.Epoch{e}
		in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(0, 1), coordtest.Fire(1, 1).Watermark())
		in.Claims.Running = in.Claims.Running.With(shardset.Of(0, 1), coordtest.Fire(1, 1))
		in.ClaimedAt = ClaimTimes{{shardset.Of(0, 1), coordtest.At(1)}}
		in.Ended = []EndedRun{{Shard: 0, At: coordtest.At(3).Add(30 * time.Second)}}
		in.Now = coordtest.At(5)
		return in
	}
	t.Run("are skipped up to the end of the run", func(t *testing.T) {
		in := ended(t, record.OverlapSkip)
		in.Now = coordtest.At(3).Add(30 * time.Second)
		out := in.Decide()
		assert.Equal(t, coordtest.At(3), out.Claims.Watermarks.Of(0).Fire)
		assert.EqualValues(t, 2, out.Claims.Counts.Skipped)
		require.Len(t, out.Skipped, 1)
		assert.Equal(t, event.Overlap, out.Skipped[0].Reason)
		assert.Equal(t, []record.Instant{coordtest.At(2), coordtest.At(3)}, []record.Instant{out.Skipped[0].From, out.Skipped[0].Through})
		assert.True(t, out.Starts.Shards().IsZero())
		assert.True(t, out.Overrun.IsZero())
		assert.True(t, out.RestsOnPlan, "a watermark is raised")
	})
	t.Run("are not those that came due later", func(t *testing.T) {
		out := ended(t, record.OverlapSkip).Decide()
		ref, _ := out.Starts.Of(0)
		assert.Equal(t, coordtest.At(5), ref.Fire)
		require.Len(t, out.Skipped, 2)
		assert.Equal(t, 2, out.Skipped[0].Fires)
		assert.Equal(t, event.Misfire, out.Skipped[1].Reason)
		assert.Equal(t, coordtest.At(4), out.Skipped[1].From, "after those that the overlap skips")
	})
	t.Run("wait for a retry of the run, also if the plan holds an attempt that was claimed", func(t *testing.T) {
		in := ended(t, record.OverlapSkip)
		in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(0), coordtest.Fire(1, 2).Watermark())
		in.Claims.Running = in.Claims.Running.With(shardset.Of(0), coordtest.Fire(1, 2))
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 2))
		in.Ended[0].Err, in.Ended[0].Retry, in.Ended[0].RetryIn = errors.New("out of order"), true, time.Hour
		out := in.Decide()
		assert.Equal(t, coordtest.At(1), out.Claims.Watermarks.Of(0).Fire)
		assert.Len(t, out.Claims.Reruns, 1)
		assert.Zero(t, out.Claims.Counts.Skipped)
	})
	t.Run("are not those that were due before the run was claimed, nor those after them", func(t *testing.T) {
		in := ended(t, record.OverlapSkip)
		in.ClaimedAt[0].At = coordtest.At(2)
		out := in.Decide()
		ref, _ := out.Starts.Of(0)
		assert.Equal(t, coordtest.At(5), ref.Fire)
		require.Len(t, out.Skipped, 1)
		assert.Equal(t, event.Misfire, out.Skipped[0].Reason)
	})
	t.Run("are those that came due since the first of the run's attempts, if the last one is a retry", func(t *testing.T) {
		for name, c := range map[string]struct {
			change  func(*record.Ref)
			skipped int
		}{
			"a retry":            {func(*record.Ref) {}, 2},
			"of a late run":      {func(r *record.Ref) { r.Missed = true }, 0},
			"after a crash":      {func(r *record.Ref) { r.Attempt++ }, 0}, // the shard may have had no owner
			"after a hand-back":  {func(r *record.Ref) { r.Attempt, r.HandedBack = r.Attempt+1, 1 }, 0},
			"a re-run, no retry": {func(r *record.Ref) { r.NotBefore = 0 }, 0},
		} {
			in := ended(t, record.OverlapSkip)
			retry := coordtest.Fire(1, 1).RetryAt(coordtest.At(3), time.Minute)
			c.change(&retry)
			in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(0), retry.Watermark())
			in.Claims.Running = in.Claims.Running.With(shardset.Of(0), retry)
			in.ClaimedAt[0].At, in.Now = coordtest.At(3), coordtest.At(3).Add(30*time.Second)
			skipped := 0
			for _, s := range in.Decide().Skipped {
				if s.Reason == event.Overlap {
					skipped += s.Fires
				}
			}
			assert.Equal(t, c.skipped, skipped, name)
		}
	})
	t.Run("do not pass fires of an earlier epoch that stay due", func(t *testing.T) {
		for name, change := range map[string]func(in *Input){
			"by another policy":          func(*Input) {},
			"without a program":          func(in *Input) { delete(in.Programs, 1) },
			"due before the run's claim": func(in *Input) { in.Plan.Epochs[0], in.ClaimedAt[0].At = in.Plan.Epochs[1], coordtest.At(2) },
		} {
			in := ended(t, record.OverlapSkip)
			second := in.Plan.Epochs[0]
			second.Number, second.From = 2, coordtest.At(3)
			in.Plan.Epochs = []record.Epoch{coordtest.Epoch(t, 1, coordtest.Start, 2), second}
			change(in)
			in.Plan.Epochs[0].Number, in.Plan.Epochs[0].From, in.Plan.Epochs[0].Until = 1, coordtest.Start, coordtest.At(3)
			out := in.Decide()
			ref, claimed := out.Starts.Of(0)
			if in.Programs[1] == nil {
				assert.False(t, claimed, name)
				assert.Equal(t, coordtest.Fire(1, 1).Watermark(), out.Claims.Watermarks.Of(0), name)
				continue
			}
			assert.Equal(t, coordtest.Fire(2, 1), ref, name)
		}
	})
	t.Run("are skipped once a pending attempt is claimed", func(t *testing.T) {
		in := ended(t, record.OverlapSkip)
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1)) // not cleared yet
		assert.Equal(t, event.Overlap, in.Decide().Skipped[0].Reason)
	})
	t.Run("are counted for each shard by its watermark", func(t *testing.T) {
		in := ended(t, record.OverlapSkip)
		in.Claims.Running = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1)).With(shardset.Of(1), coordtest.Fire(2, 1))
		in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(1), coordtest.Fire(2, 1).Watermark())
		in.Ended, in.Now = []EndedRun{{Shard: 0, At: coordtest.At(3)}, {Shard: 1, At: coordtest.At(3)}}, coordtest.At(3)
		assert.EqualValues(t, 3, in.Decide().Claims.Counts.Skipped)
	})
	t.Run("are none after the clock's time, if the clock was set back", func(t *testing.T) {
		in := ended(t, record.OverlapSkip)
		in.Now = coordtest.At(2)
		assert.Equal(t, coordtest.At(2), in.Decide().Claims.Watermarks.Of(0).Fire)
	})
	t.Run("are none of a disabled, frozen or blocked shard, and none of an epoch without the shard", func(t *testing.T) {
		for name, change := range map[string]func(in *Input){
			"disabled": func(in *Input) { in.Plan.Disabled = shardset.Of(1) },
			"frozen":   func(in *Input) { in.Plan.Frozen = shardset.Of(1) },
			"blocked":  func(in *Input) { in.Blocked = shardset.Of(1) },
			"fewer shards": func(in *Input) {
				e, err := record.NewEpoch(2, coordtest.At(2), []byte(`{"name":"job","shards":1,"on_overlap":"skip"}`))
				require.NoError(t, err)
				in.Plan.Last().Until = coordtest.At(2)
				in.Plan.Epochs = append(in.Plan.Epochs, e)
			},
		} {
			in := ended(t, record.OverlapSkip)
			in.Ended[0].Shard, in.Claims.Running = 1, in.Claims.Running.Without(shardset.Of(0))
			change(in)
			for _, s := range in.Decide().Skipped {
				assert.False(t, s.Reason == event.Overlap && s.Shards.Has(1), name)
			}
		}
	})
	t.Run("cancel the run", func(t *testing.T) {
		out := ended(t, record.OverlapCancel).Decide()
		assert.Equal(t, shardset.Of(1), out.Overrun)
		assert.True(t, out.Awaited)
	})
	t.Run("of a frozen shard cancel nothing: the run ends before the move", func(t *testing.T) {
		in := ended(t, record.OverlapCancel)
		in.Plan.Frozen = shardset.Of(1)
		assert.True(t, in.Decide().Overrun.IsZero())
	})
	t.Run("cancel no run that was claimed later, and the owner decides again when the next one is due", func(t *testing.T) {
		for name, run := range map[string]record.Ref{
			"a retry":   coordtest.Fire(1, 1).RetryAt(coordtest.At(4), time.Minute),
			"a trigger": {Epoch: 1, Fire: coordtest.At(2), Trigger: 1, Attempt: 1},
		} {
			in := ended(t, record.OverlapCancel)
			in.Ended = nil
			in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(0, 1), run.Watermark())
			in.Claims.Running = coordtest.Runs(shardset.Of(0, 1), run)
			in.ClaimedAt = ClaimTimes{{shardset.Of(0, 1), coordtest.At(4)}}
			in.Now = coordtest.At(4).Add(time.Second)
			out := in.Decide()
			assert.True(t, out.Overrun.IsZero(), name)
			assert.True(t, out.Awaited, name)
			assert.Equal(t, coordtest.At(5), out.Wake, name)
			in.Now = coordtest.At(5)
			assert.Equal(t, shardset.Of(0, 1), in.Decide().Overrun, name)
		}
	})
	t.Run("cancel each run claimed before them, a re-run or retry too", func(t *testing.T) {
		for name, rerun := range map[string]record.Ref{
			"a re-run after a crash": coordtest.Fire(1, 2),
			"a retry":                coordtest.Fire(1, 1).RetryAt(coordtest.At(3), time.Minute),
			"a run handed back":      coordtest.Fire(1, 1).Return(),
		} {
			in := ended(t, record.OverlapCancel)
			in.Ended, in.ClaimedAt, in.Claims.Running = nil, nil, nil
			in.Plan.Reruns = coordtest.Runs(shardset.Of(0), rerun)
			in.Now = coordtest.At(4).Add(30 * time.Second)
			out := in.Decide()
			ref, _ := out.Starts.Of(0)
			require.Equal(t, rerun, ref, name)
			in.Claims, in.ClaimedAt, in.Now = out.Claims, out.ClaimedAt, coordtest.At(5)
			assert.True(t, in.Decide().Overrun.Has(0), name)
		}
	})
	// redefined has a second epoch from 2 min and 30 s on, by a definition with one shard and the other policy.
	redefined := func(t *testing.T, first, second string) *Input {
		in := ended(t, first)
		in.Ended = nil
		e, err := record.NewEpoch(2, coordtest.At(2).Add(30*time.Second), []byte(`{"name":"job","revision":1,"shards":1,"on_overlap":"`+second+`"}`))
		require.NoError(t, err)
		in.Plan.Last().Until = e.From
		in.Plan.Epochs = append(in.Plan.Epochs, e)
		return in
	}
	t.Run("of an earlier definition than the plan's newest cancel the run, which they await", func(t *testing.T) {
		in := redefined(t, record.OverlapCancel, record.OverlapSkip)
		in.Now = coordtest.At(1).Add(time.Second)
		out := in.Decide()
		assert.Equal(t, []any{true, false, coordtest.At(2)}, []any{out.Overrun.IsZero(), out.Awaited, out.Wake})
		in.Now = coordtest.At(2)
		out = in.Decide()
		assert.Equal(t, []any{shardset.Of(0, 1), true}, []any{out.Overrun, out.Awaited})
	})
	t.Run("are none of a shard that the definition does not have", func(t *testing.T) {
		in := redefined(t, record.OverlapSkip, record.OverlapCancel)
		run := record.Ref{Epoch: 1, Fire: coordtest.At(2), Attempt: 1}
		in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(0, 1), run.Watermark())
		in.Claims.Running = coordtest.Runs(shardset.Of(1), run)
		in.ClaimedAt[0].At, in.Now = coordtest.At(2), coordtest.At(3)
		out := in.Decide()
		assert.Equal(t, []any{true, false}, []any{out.Overrun.Minus(shardset.Of(0)).IsZero(), out.Awaited})
		in.Claims.Running = coordtest.Runs(shardset.Of(0, 1), run)
		out = in.Decide()
		assert.Equal(t, []any{shardset.Of(0), true}, []any{out.Overrun, out.Awaited})
	})
	t.Run("await the run of a trigger only if they are not claimed", func(t *testing.T) {
		in := ended(t, record.OverlapCancel)
		in.Ended, in.Now = nil, coordtest.At(1).Add(time.Second)
		run := record.Ref{Epoch: 1, Fire: coordtest.At(1), Trigger: 1, Attempt: 1}
		in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(0, 1), run.Watermark())
		in.Claims.Running = coordtest.Runs(shardset.Of(0, 1), run)
		assert.False(t, in.Decide().Awaited)
	})
}

func TestClaimTimes(t *testing.T) {
	in := claimant(t, 3)
	assert.Empty(t, in.Decide().ClaimedAt, "of a definition without OnOverlap")
	in.Plan = in.Plan.Clone()
	e, err := record.NewEpoch(1, coordtest.Start, []byte(`{"name":"job","shards":3,"on_overlap":"skip"}`))
	require.NoError(t, err)
	in.Plan.Epochs = []record.Epoch{e}
	in.Now = coordtest.At(1)
	in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(2), coordtest.Fire(1, 1).Watermark())
	in.Claims.Running = coordtest.Runs(shardset.Of(2), coordtest.Fire(1, 1))
	in.ClaimedAt = ClaimTimes{{shardset.Of(2), coordtest.At(1)}}
	out := in.Decide()
	assert.Equal(t, ClaimTimes{{shardset.Of(0, 1, 2), coordtest.At(1)}}, out.ClaimedAt)
	assert.Equal(t, ClaimTimes{{shardset.Of(2), coordtest.At(1)}}, in.ClaimedAt, "the input is unchanged")
	in.Claims, in.ClaimedAt, in.Now = out.Claims, out.ClaimedAt, coordtest.At(2)
	in.Ended = []EndedRun{{Shard: 0}, {Shard: 1}}
	out = in.Decide()
	assert.ElementsMatch(t, ClaimTimes{{shardset.Of(2), coordtest.At(1)}, {shardset.Of(0, 1), coordtest.At(2)}}, out.ClaimedAt)
	in.MayClaim = false
	assert.Equal(t, ClaimTimes{{shardset.Of(2), coordtest.At(1)}}, in.Decide().ClaimedAt)
}
