package claiming

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestClaim_RunsHandedBack(t *testing.T) {
	// own returns the input of the owner of shards 0 and 1 after a run of both has ended; that of
	// shard 0 was handed back.
	own := func(t *testing.T) *Input {
		in := claimant(t, 2)
		in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(0, 1), coordtest.Fire(1, 1).Watermark())
		in.Claims.Running = in.Claims.Running.With(shardset.Of(0, 1), coordtest.Fire(1, 1))
		in.Ended = []EndedRun{{Shard: 0, Err: errors.New("handed back"), HandedBack: true}, {Shard: 1}}
		return in
	}
	t.Run("are pending as the next attempt, and count neither as failed nor as succeeded", func(t *testing.T) {
		in := own(t)
		in.MayClaim = false
		out := in.Decide()
		assert.Empty(t, out.Claims.Running)
		assert.Equal(t, record.Runs{{Shards: shardset.Of(0), Ref: coordtest.Fire(1, 1).Return()}}, out.Claims.Reruns)
		assert.Equal(t, record.Counts{Succeeded: 1}, out.Claims.Counts)
		assert.Empty(t, out.Claims.Failures)
	})
	t.Run("are claimed by an owner that does not drain, before any other run of the shard", func(t *testing.T) {
		in := own(t)
		in.Now = coordtest.At(3)
		out := in.Decide()
		ref, ok := out.Starts.Of(0)
		require.True(t, ok)
		assert.Equal(t, coordtest.Fire(1, 1).Return(), ref)
		assert.Empty(t, out.Claims.Reruns, "claimed")
		ref, _ = out.Starts.Of(1)
		assert.Equal(t, coordtest.At(3), ref.Fire)
	})
	t.Run("delay the fires of a disabled shard", func(t *testing.T) {
		in := own(t)
		in.Plan.Disabled = shardset.Of(0, 1)
		in.Now = coordtest.At(3)
		out := in.Decide()
		assert.Empty(t, out.Starts)
		assert.Equal(t, coordtest.At(1), out.Claims.Watermarks.Of(0).Fire)
		assert.Equal(t, coordtest.At(3), out.Claims.Watermarks.Of(1).Fire)
		assert.Len(t, out.Claims.Reruns, 1)
	})
	t.Run("count as lost if the newest definition does not want re-runs", func(t *testing.T) {
		in := own(t)
		in.MayClaim = false
		in.Claims, in.Ended = in.Decide().Claims, nil
		in.Plan = in.Plan.Clone()
		e, err := record.NewEpoch(2, coordtest.At(5), []byte(`{"name":"job","shards":2,"on_crash":"count as failed"}`))
		require.NoError(t, err)
		in.Plan.Epochs[0].Until = coordtest.At(5)
		in.Plan.Epochs = append(in.Plan.Epochs, e)
		in.Programs[2] = coordtest.Minutely{}
		in.MayClaim = true
		out := in.Decide()
		assert.EqualValues(t, 1, out.Claims.Counts.Lost)
		assert.Empty(t, out.Claims.Reruns)
	})
}
