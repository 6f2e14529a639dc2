package claiming

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// pooled is claimant for a job with pool "db".
func pooled(t *testing.T, shards, free int) *Input {
	t.Helper()
	in := claimant(t, shards)
	def, err := json.Marshal(record.Job{Name: "job", Shards: shards, Pool: "db"})
	require.NoError(t, err)
	e, err := record.NewEpoch(1, in.Plan.Epochs[0].From, def)
	require.NoError(t, err)
	in.Plan.Epochs[0] = e
	in.FreeSlots = map[string]int{"db": free}
	return in
}

func TestClaim_Pool(t *testing.T) {
	t.Run("as many due runs are claimed as there are slots, and the others wait", func(t *testing.T) {
		in := pooled(t, 5, 2)
		in.Now = coordtest.At(1)
		out := in.Decide()
		assert.Equal(t, coordtest.Runs(shardset.Range(0, 2), coordtest.Fire(1, 1)), out.Starts)
		assert.Equal(t, PoolWaits{{"db", 3, coordtest.At(1)}}, out.Waits)
		assert.Equal(t, map[string]int{"db": 2}, out.Taken())
		assert.EqualValues(t, 2, out.Claims.Counts.Claimed)
	})
	t.Run("without a slot nothing changes, and nothing is counted as skipped", func(t *testing.T) {
		in := pooled(t, 2, 0)
		in.Now = coordtest.At(10)
		out := in.Decide()
		assert.False(t, out.Changed)
		assert.Empty(t, out.Skipped)
		assert.Equal(t, 2, out.Waits[0].Runs)
	})
	t.Run("a pool that the input does not name has no slots", func(t *testing.T) {
		in := pooled(t, 1, 0)
		in.FreeSlots = nil
		in.Now = coordtest.At(1)
		assert.Empty(t, in.Decide().Starts)
	})
	t.Run("fires that were missed are skipped for the shards that get a slot, each once", func(t *testing.T) {
		in := pooled(t, 2, 1)
		in.Now = coordtest.At(10)
		out := in.Decide()
		assert.EqualValues(t, 9, out.Claims.Counts.Skipped)
		in.commit(out)
		in.endRuns(0)
		out = in.Decide()
		assert.Equal(t, coordtest.Runs(shardset.Of(1), coordtest.Fire(10, 1)), out.Starts)
		assert.EqualValues(t, 18, out.Claims.Counts.Skipped)
	})
	t.Run("the shard whose last fire is the oldest goes first", func(t *testing.T) {
		in := pooled(t, 3, 1)
		in.Now = coordtest.At(5)
		in.Claims.Watermarks = record.Watermarks{}.Raise(shardset.Of(0), coordtest.Fire(4, 1).Watermark()).
			Raise(shardset.Of(1), coordtest.Fire(2, 1).Watermark()).Raise(shardset.Of(2), coordtest.Fire(3, 1).Watermark())
		assert.Equal(t, shardset.Of(1), in.Decide().Starts.Shards())
	})
	t.Run("triggers and re-runs need slots as well", func(t *testing.T) {
		in := pooled(t, 3, 1)
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), record.Ref{Epoch: 1, Fire: coordtest.At(0), Attempt: 2})
		in.Plan.Triggers = []record.Trigger{{Number: 1, At: coordtest.Start, Epoch: 1}}
		out := in.Decide()
		assert.Equal(t, 1, out.Starts.Shards().Len())
		assert.Equal(t, 2, out.Waits[0].Runs)
	})
	t.Run("runs that are not due, are disabled or may not be claimed wait for no slot", func(t *testing.T) {
		in := pooled(t, 2, 0)
		assert.Empty(t, in.Decide().Waits)
		in.Now = coordtest.At(1)
		in.Plan.Disabled = shardset.Range(0, 2)
		assert.Empty(t, in.Decide().Waits)
		in.Plan.Disabled = shardset.Set{}
		in.MayClaim = false
		assert.Empty(t, in.Decide().Waits)
	})
	t.Run("the trace names the runs that wait", func(t *testing.T) {
		in := pooled(t, 2, 1)
		in.Now = coordtest.At(1)
		in.Trace = &Trace{}
		in.Decide()
		_, waits := in.Trace.Find(1, NoSlot, func(record.Ref) bool { return true })
		assert.True(t, waits)
	})
}
