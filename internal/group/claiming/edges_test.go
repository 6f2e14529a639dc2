package claiming

import (
	"errors"
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

func TestClaim_EarlierEpochsComeFirst(t *testing.T) {
	// second returns the input of the owner of a job whose second epoch begins at minute 3.
	second := func(t *testing.T) *Input {
		in := claimant(t, 1)
		in.Plan.Epochs[0].Until = coordtest.At(3)
		in.Plan.Epochs = append(in.Plan.Epochs, coordtest.Epoch(t, 2, coordtest.At(3), 1))
		in.Now = coordtest.At(5)
		return in
	}
	t.Run("a shard that has claimed a fire of the second epoch claims the next", func(t *testing.T) {
		in := second(t)
		in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(0), record.Watermark{Epoch: 2, Fire: coordtest.At(4), Attempt: 1})
		assert.Equal(t, coordtest.Runs(shardset.Of(0), record.Ref{Epoch: 2, Fire: coordtest.At(5), Attempt: 1}), in.Decide().Starts)
	})
	t.Run("a fire that the first epoch will release comes before due fires of the second", func(t *testing.T) {
		in := second(t)
		in.Programs[1] = coordtest.Following{}
		in.Plan.Epochs[0].Released = []record.Release{{At: coordtest.At(2), Released: coordtest.At(9)}}
		out := in.Decide()
		assert.Empty(t, out.Starts)
		assert.Equal(t, coordtest.At(9), out.Wake)
	})
}

func TestClaim_TriggerOfAnUnknownEpochWaits(t *testing.T) {
	in := claimant(t, 1)
	in.Plan.Triggers = []record.Trigger{{Number: 1, At: coordtest.Start, Epoch: 7}, {Number: 2, At: coordtest.Start, Epoch: 1}}
	ref, ok := in.Decide().Starts.Of(0)
	require.True(t, ok)
	assert.EqualValues(t, 2, ref.Trigger)
}

func TestClaim_WakesForTheFirstOfSeveralFires(t *testing.T) {
	for shard := range 2 {
		in := claimant(t, 2)
		in.Now = coordtest.At(1)
		in.Claims.Watermarks = record.Watermarks{}.Raise(shardset.Of(shard), coordtest.Fire(1, 1).Watermark()).
			Raise(shardset.Of(1-shard), coordtest.Fire(5, 1).Watermark())
		in.Claims.Running = coordtest.Runs(shardset.Of(1), coordtest.Fire(5, 1))
		assert.Equal(t, coordtest.At(2), in.Decide().Wake)
	}
}

func TestClaim_DisabledShardsSayWhy(t *testing.T) {
	in := claimant(t, 1)
	in.Plan.Disabled = shardset.Of(0)
	in.Now = coordtest.At(3)
	out := in.Decide()
	require.Len(t, out.Skipped, 1)
	assert.Equal(t, event.Disabled, out.Skipped[0].Reason)
	assert.Equal(t, 3, out.Skipped[0].Fires)
	assert.Equal(t, []record.Instant{coordtest.At(1), coordtest.At(3)}, []record.Instant{out.Skipped[0].From, out.Skipped[0].Through})
}

func TestClaim_AheadIsComputedAnewOnceRunsMayBeClaimed(t *testing.T) {
	in := claimant(t, 1)
	in.Now, in.AllowedSkew = coordtest.At(1), 5*time.Second
	in.ReportedAhead = record.Ahead{Epoch: 1, At: coordtest.At(60)}
	assert.Zero(t, in.Decide().Ahead)
}

func TestClaim_EndsWithoutAPlan(t *testing.T) {
	in := claimant(t, 1)
	in.Claims.Running = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1))
	in.Claims.Fires = record.FireRuns{record.FireRunOf(coordtest.Fire(1, 1), shardset.Of(0), shardset.Set{})}
	in.Ended = []EndedRun{{Shard: 0, Err: errors.New("no")}}
	in.Plan = nil
	out := in.Decide()
	assert.Equal(t, in.Claims.Fires, out.Claims.Fires, "the fires stay on record until a plan is observed")
	assert.EqualValues(t, 1, out.Claims.Counts.Failed)
}

func TestClaim_FailuresOfOneFire(t *testing.T) {
	in := claimant(t, 3)
	in.Now, in.MayClaim = coordtest.At(1), false
	in.Claims.Running = coordtest.Runs(shardset.Of(0, 1), coordtest.Fire(1, 1)).With(shardset.Of(2), coordtest.Fire(2, 1))
	in.Ended = []EndedRun{
		{Shard: 0, Err: errors.New("retried"), Retry: true},
		{Shard: 1, Err: errors.New("failed")},
		{Shard: 2, Err: errors.New("retried"), Retry: true},
	}
	out := in.Decide()
	shards := map[string]shardset.Set{}
	for _, f := range out.Claims.Failures {
		if f.Fire == coordtest.At(1) {
			shards[f.Error] = f.Shards
		}
	}
	assert.Equal(t, map[string]shardset.Set{"retried": shardset.Of(0), "failed": shardset.Of(1)}, shards)
	for shard, fire := range map[int]record.Instant{0: coordtest.At(1), 2: coordtest.At(2)} {
		ref, _ := out.Claims.Reruns.Of(shard)
		assert.Equal(t, fire, ref.Fire, "shard %d is retried for its own fire", shard)
	}
}

func TestClaim_RetryOfAClockAtTheLimitWaits(t *testing.T) {
	const delay, skew = time.Minute, 5 * time.Second
	in := claimant(t, 1)
	in.Now, in.AllowedSkew = coordtest.At(1), skew
	failed := in.Now.Add(maxLead * skew)
	for at, waits := range map[record.Instant]bool{failed: true, failed + 1: false} {
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1).RetryAt(at.Add(delay+retryGrain(delay)), delay))
		_, claimed := in.Decide().Starts.Of(0)
		assert.Equal(t, waits, !claimed)
	}
}

func TestClaim_FiresThatAreNotTracked(t *testing.T) {
	// tracked returns the input of the owner of a job whose fires are tracked from minute 2 on.
	tracked := func(t *testing.T) *Input {
		in := claimant(t, 1)
		in.Plan.Fires = &record.Fires{From: coordtest.At(2)}
		in.Now = coordtest.At(1)
		return in
	}
	t.Run("a fire from before the tracking fails", func(t *testing.T) {
		in := tracked(t)
		in.Claims.Running = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1))
		in.MayClaim, in.Ended = false, []EndedRun{{Shard: 0, Err: errors.New("no")}}
		assert.Empty(t, in.Decide().Claims.Fires)
	})
	t.Run("a tracked fire that is retried has not failed", func(t *testing.T) {
		in := tracked(t)
		in.Claims.Running = coordtest.Runs(shardset.Of(0), coordtest.Fire(2, 1))
		in.MayClaim, in.Ended = false, []EndedRun{{Shard: 0, Err: errors.New("no"), Retry: true}}
		assert.Empty(t, in.Decide().Claims.Fires)
	})
	t.Run("a trigger runs a past fire", func(t *testing.T) {
		in := tracked(t)
		in.Plan.Fires.From = coordtest.Start
		in.Claims.Watermarks = record.Watermarks{}.Raise(shardset.Of(0), coordtest.Fire(1, 1).Watermark())
		in.Plan.Triggers = []record.Trigger{{Number: 1, At: coordtest.At(1), Fire: coordtest.At(1), Epoch: 1}}
		out := in.Decide()
		require.Len(t, out.Starts, 1)
		assert.Empty(t, out.Claims.Fires)
	})
	t.Run("a cancelled attempt at a tracked fire has failed", func(t *testing.T) {
		in := tracked(t)
		fire := coordtest.Fire(2, 1)
		in.Plan.Watermarks = record.Watermarks{}.Raise(shardset.Of(0), fire.Watermark())
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), fire.AfterCrash())
		in.Plan.Cancels = coordtest.Runs(shardset.Of(0), fire)
		in.Now = coordtest.At(2)
		assert.Equal(t, record.FireRuns{record.FireRunOf(fire, shardset.Of(0), shardset.Of(0))}, in.Decide().Claims.Fires)
	})
}

func TestClaim_OverlapOfSeveralEpochs(t *testing.T) {
	// ended returns the input of the owner of a shard at 5 min. Its run of the fire at 1 min was claimed at 1 min and
	// ended at 3 min and 30 s. The policies are those of two epochs, of which the second begins at this minute.
	ended := func(t *testing.T, first, second string, from int) *Input {
		in := claimant(t, 1)
		in.Plan.Epochs = nil
		for i, policy := range []string{first, second} {
			e, err := record.NewEpoch(i+1, coordtest.Start, []byte(`{"name":"job","shards":1`+policy+`}`))
			require.NoError(t, err)
			in.Plan.Epochs = append(in.Plan.Epochs, e)
		}
		in.Plan.Epochs[0].Until, in.Plan.Epochs[1].From = coordtest.At(from), coordtest.At(from)
		in.Claims.Watermarks = record.Watermarks{}.Raise(shardset.Of(0), coordtest.Fire(1, 1).Watermark())
		in.Claims.Running = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1))
		in.ClaimedAt = ClaimTimes{{shardset.Of(0), coordtest.At(1)}}
		in.Ended = []EndedRun{{Shard: 0, At: coordtest.At(3).Add(30 * time.Second)}}
		in.Now = coordtest.At(5)
		return in
	}
	const skip, none = `,"on_overlap":"skip"`, ``
	t.Run("a first epoch without due fires holds up nothing", func(t *testing.T) {
		in := ended(t, none, skip, 2)
		out := in.Decide()
		require.NotEmpty(t, out.Skipped)
		assert.Equal(t, event.Overlap, out.Skipped[0].Reason)
		assert.Equal(t, 2, out.Skipped[0].Fires)
		assert.Equal(t, coordtest.Runs(shardset.Of(0), record.Ref{Epoch: 2, Fire: coordtest.At(5), Attempt: 1}), out.Starts)
	})
	t.Run("a second epoch without a program changes nothing that was decided", func(t *testing.T) {
		in := ended(t, skip, skip, 4)
		in.Programs = map[int]due.Program{1: coordtest.Minutely{}}
		out := in.Decide()
		assert.Empty(t, out.Starts)
		assert.Equal(t, record.Watermark{Epoch: 1, Fire: coordtest.At(3)}.Max(coordtest.Fire(1, 1).Watermark()), out.Claims.Watermarks.Of(0))
	})
	t.Run("a retry of a past fire did not begin at that fire", func(t *testing.T) {
		in := ended(t, skip, skip, 9)
		retry := record.Ref{Epoch: 1, Fire: coordtest.At(1), Trigger: 1, Attempt: 1}.RetryAt(coordtest.At(3), time.Minute)
		in.Plan.Triggers = []record.Trigger{{Number: 1, At: coordtest.At(3), Fire: coordtest.At(1), Epoch: 1}}
		in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(0), retry.Watermark())
		in.Claims.Running = coordtest.Runs(shardset.Of(0), retry)
		in.ClaimedAt[0].At = coordtest.At(3)
		for _, s := range in.Decide().Skipped {
			assert.NotEqual(t, event.Overlap, s.Reason)
		}
	})
}
