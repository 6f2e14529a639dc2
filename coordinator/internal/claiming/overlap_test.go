package claiming

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/event"
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
}
