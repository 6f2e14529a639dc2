package claiming

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestClaim_Ahead(t *testing.T) {
	waiting := func(t *testing.T, minute int) *Input {
		in := claimant(t, 2)
		in.Now, in.AllowedSkew = coordtest.At(1), 5*time.Second
		in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(1), coordtest.Fire(minute, 1).Watermark())
		return in
	}
	t.Run("a watermark ahead of all clocks is reported with its epoch number", func(t *testing.T) {
		in := waiting(t, 60)
		out := in.Decide()
		assert.Equal(t, record.Ahead{Epoch: 1, At: coordtest.At(60)}, out.Ahead)
		assert.Equal(t, "0", out.Starts.Shards().String(), "the other shard runs on")
	})
	t.Run("a watermark in the plan is reported as well", func(t *testing.T) {
		in := waiting(t, 0)
		in.Plan.Watermarks = in.Plan.Watermarks.Raise(shardset.Of(0), coordtest.Fire(50, 1).Watermark())
		assert.Equal(t, record.Ahead{Epoch: 1, At: coordtest.At(50)}, in.Decide().Ahead)
	})
	t.Run("the begin of an epoch ahead of all clocks is reported", func(t *testing.T) {
		in := waiting(t, 0)
		in.Plan.Epochs[0].From = coordtest.At(90)
		assert.Equal(t, record.Ahead{Epoch: 1, At: coordtest.At(90)}, in.Decide().Ahead)
	})
	t.Run("a watermark that a clock within the limit can have written is not reported", func(t *testing.T) {
		in := waiting(t, 2)
		in.Now = coordtest.At(2).Add(-15 * time.Second)
		assert.Zero(t, in.Decide().Ahead)
		in.Now--
		assert.Equal(t, record.Ahead{Epoch: 1, At: coordtest.At(2)}, in.Decide().Ahead)
	})
	t.Run("the report ends when the clock comes within the limit, though no fire is due", func(t *testing.T) {
		in := waiting(t, 60)
		in.Plan.Owners[in.Me] = shardset.Of(1)
		out := in.Decide()
		assert.Equal(t, coordtest.At(60).Add(-15*time.Second), out.Wake)
		in.Now = out.Wake
		assert.Zero(t, in.Decide().Ahead)
	})
	t.Run("a shard that runs a trigger is still reported", func(t *testing.T) {
		in := waiting(t, 60)
		in.Claims.Running = coordtest.Runs(shardset.Range(0, 2), record.Ref{Epoch: 1, Fire: coordtest.At(1), Trigger: 1, Attempt: 1})
		assert.Equal(t, record.Ahead{Epoch: 1, At: coordtest.At(60)}, in.Decide().Ahead)
	})
	t.Run("a shard of another owner is not reported", func(t *testing.T) {
		in := waiting(t, 60)
		in.Plan.Owners[in.Me] = shardset.Of(0)
		assert.Zero(t, in.Decide().Ahead)
		in.ReportedAhead = record.Ahead{Epoch: 1, At: coordtest.At(60)}
		in.MayClaim, in.Plan.Owners = false, nil
		assert.Zero(t, in.Decide().Ahead, "nor if this member owns no shards")
	})
	t.Run("nothing is reported if clocks are not compared", func(t *testing.T) {
		in := waiting(t, 60)
		in.AllowedSkew = 0
		assert.Zero(t, in.Decide().Ahead)
	})
	t.Run("a watermark of an epoch that has an end is not reported", func(t *testing.T) {
		in := waiting(t, 60)
		in.Plan.Epochs[0].Until = coordtest.At(70)
		assert.Zero(t, in.Decide().Ahead)
	})
	t.Run("a watermark of an earlier epoch is not reported", func(t *testing.T) {
		in := waiting(t, 60)
		in.Plan.Epochs[0].Until = coordtest.At(1)
		in.Plan.Epochs = append(in.Plan.Epochs, coordtest.Epoch(t, 2, coordtest.At(1), 2))
		assert.Zero(t, in.Decide().Ahead)
	})
	t.Run("a report stays while no runs may be claimed", func(t *testing.T) {
		in := waiting(t, 60)
		in.ReportedAhead = in.Decide().Ahead
		in.MayClaim, in.Now = false, coordtest.At(80)
		assert.Equal(t, in.ReportedAhead, in.Decide().Ahead)
		in.Plan.Epochs[0].Number = 2
		assert.Zero(t, in.Decide().Ahead, "it applies to its epoch only")
	})
}
