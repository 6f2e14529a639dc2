package claiming

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestClaim_Cancelled(t *testing.T) {
	fire := coordtest.Fire(1, 1)
	// cancelled returns the input of the owner of shards 0 and 1, which run a fire; that of shard 0 is cancelled.
	cancelled := func(t *testing.T) *Input {
		in := claimant(t, 2)
		in.Now = coordtest.At(1)
		in.commit(in.Decide())
		in.Plan.Cancels = coordtest.Runs(shardset.Of(0), fire)
		return in
	}
	ends := map[string]EndedRun{
		"retried":     {Err: errors.New("out of order"), Retry: true, RetryIn: time.Second},
		"handed back": {Err: errors.New("draining"), HandedBack: true},
	}
	for name, end := range ends {
		t.Run("a run that would be "+name+" counts as failed", func(t *testing.T) {
			in := cancelled(t)
			other := end
			other.Shard, in.MayClaim = 1, false
			in.Ended = []EndedRun{end, other}
			out := in.Decide()
			_, pending := out.Claims.Reruns.Of(0)
			assert.False(t, pending)
			_, pending = out.Claims.Reruns.Of(1)
			assert.True(t, pending, "that of the other shard is not cancelled")
			assert.EqualValues(t, 1, out.Claims.Counts.Failed)
			assert.NotEmpty(t, out.Claims.Failures)
			assert.True(t, in.Ended[0].Retry || in.Ended[0].HandedBack, "the input is unchanged")
		})
	}
	t.Run("a run that has succeeded all the same counts as such", func(t *testing.T) {
		in := cancelled(t)
		in.endRuns(0, 1)
		assert.EqualValues(t, 2, in.Decide().Claims.Counts.Succeeded)
	})
	for name, next := range map[string]record.Ref{
		"after a crash":     fire.AfterCrash(),
		"after a hand-back": fire.Return(),
		"as a retry":        fire.RetryAt(coordtest.At(9), time.Hour),
	} {
		t.Run("a pending attempt "+name+" is dropped, and newer fires run", func(t *testing.T) {
			in := claimant(t, 2)
			in.Plan.Watermarks = in.Plan.Watermarks.Raise(shardset.Of(0, 1), fire.Watermark())
			in.Plan.Reruns = coordtest.Runs(shardset.Of(0), next)
			in.Plan.Cancels = coordtest.Runs(shardset.Of(0), fire)
			in.Now = coordtest.At(1)
			out := in.Decide()
			require.True(t, out.Changed)
			assert.True(t, out.RestsOnPlan, "a move in between must not lose the fact")
			assert.Empty(t, out.Starts)
			assert.True(t, out.Claims.Watermarks.Of(0).Covers(next))
			assert.EqualValues(t, 1, out.Claims.Counts.Failed)
			require.Len(t, out.Claims.Failures, 1)
			assert.Equal(t, due.CancelledRunError, out.Claims.Failures[0].Error)
			assert.Equal(t, 1, out.Claims.Failures[0].Attempt)
			assert.False(t, out.Claims.Failures[0].Again, "that of a retry on record says that another attempt follows")
			in.commit(out)
			assert.False(t, in.Decide().Changed, "it is dropped once")
			in.Now = coordtest.At(2)
			ref, ok := in.Decide().Starts.Of(0)
			require.True(t, ok)
			assert.Equal(t, coordtest.Fire(2, 1).Fire, ref.Fire)
		})
	}
	t.Run("a pending attempt of a paused job waits", func(t *testing.T) {
		in := claimant(t, 1)
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), fire.AfterCrash())
		in.Plan.Cancels = coordtest.Runs(shardset.Of(0), fire)
		in.Plan.Paused = true
		assert.False(t, in.Decide().Changed)
	})
	t.Run("no other run of the shard is dropped", func(t *testing.T) {
		in := claimant(t, 1)
		in.Plan.Watermarks = in.Plan.Watermarks.Raise(shardset.Of(0), coordtest.Fire(2, 1).Watermark())
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(2, 2))
		in.Plan.Cancels = coordtest.Runs(shardset.Of(0), fire)
		in.Now = coordtest.At(2)
		ref, ok := in.Decide().Starts.Of(0)
		require.True(t, ok)
		assert.Equal(t, 2, ref.Attempt)
	})
}
