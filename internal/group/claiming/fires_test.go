package claiming

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestClaim_TrackedFires(t *testing.T) {
	all := shardset.Range(0, 2)
	// tracked returns the input of the owner of two shards of a followed job, at minute n.
	tracked := func(t *testing.T, n int) *Input {
		in := claimant(t, 2)
		in.Plan = in.Plan.Clone()
		in.Plan.Fires = &record.Fires{From: coordtest.At(1)}
		in.Now = coordtest.At(n)
		return in
	}
	// running returns the input after a claim of the fire at minute 1.
	running := func(t *testing.T, r record.Ref) *Input {
		in := tracked(t, 1)
		in.Claims.Watermarks = record.Watermarks{}.Raise(all, r.Watermark())
		in.Claims.Running = coordtest.Runs(all, r)
		in.Claims.Fires = record.FireRuns{record.FireRunOf(r, all, shardset.Set{})}
		return in
	}
	first := coordtest.Fire(1, 1)
	ran := func(failed ...int) record.FireRuns {
		return record.FireRuns{record.FireRunOf(first, all, shardset.Of(failed...))}
	}
	t.Run("a claim records which shards have claimed the fire", func(t *testing.T) {
		assert.Equal(t, ran(), tracked(t, 1).Decide().Claims.Fires)
	})
	t.Run("a claim of a trigger records it as a fire at its instant", func(t *testing.T) {
		in := tracked(t, 1)
		in.Claims.Watermarks = record.Watermarks{}.Raise(all, first.Watermark())
		in.Plan.Triggers = []record.Trigger{{Number: 7, At: coordtest.At(1) + 1, Epoch: 1}}
		assert.Equal(t, record.FireRuns{{Epoch: 1, At: coordtest.At(1) + 1, Trigger: 7, Ran: all}}, in.Decide().Claims.Fires)
	})
	for name, c := range map[string]struct {
		end    EndedRun
		failed []int
	}{
		"succeeds":                        {EndedRun{Shard: 1}, nil},
		"fails":                           {EndedRun{Shard: 1, Err: errors.New("no")}, []int{1}},
		"fails and is to be made again":   {EndedRun{Shard: 1, Err: errors.New("no"), Retry: true, RetryIn: time.Hour}, nil},
		"is handed back to be made again": {EndedRun{Shard: 1, Err: errors.New("no"), HandedBack: true}, nil},
	} {
		t.Run("the end of a run that "+name, func(t *testing.T) {
			in := running(t, first)
			in.MayClaim, in.Ended = false, []EndedRun{c.end}
			assert.Equal(t, ran(c.failed...), in.Decide().Claims.Fires)
		})
	}
	t.Run("a pending re-run that is counted as lost has failed", func(t *testing.T) {
		in := tracked(t, 1)
		e, err := record.NewEpoch(1, coordtest.Start, []byte(`{"name":"job","shards":2,"on_crash":"count as failed"}`))
		assert.NoError(t, err)
		in.Plan.Epochs = []record.Epoch{e}
		in.Plan.Watermarks = record.Watermarks{}.Raise(all, first.Watermark())
		in.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 2))
		assert.Equal(t, record.FireRuns{record.FireRunOf(first, shardset.Of(0), shardset.Of(0))}, in.Decide().Claims.Fires)
	})
	for name, fires := range map[string]*record.Fires{
		"no fires":                    nil,
		"only later fires":            {From: coordtest.At(1) + 1},
		"the fire, and knows its end": {From: coordtest.At(1), Through: coordtest.At(1)},
	} {
		t.Run("nothing is recorded for a plan that tracks "+name, func(t *testing.T) {
			in := tracked(t, 1)
			in.Plan.Fires = fires
			out := in.Decide()
			assert.Equal(t, first, out.Starts[0].Ref)
			assert.Empty(t, out.Claims.Fires)
		})
	}
	for name, fires := range map[string]*record.Fires{
		"tracks no fires":     nil,
		"shows them as ended": {From: coordtest.At(1), Through: coordtest.At(1)},
	} {
		t.Run("the record drops fires when the plan "+name, func(t *testing.T) {
			in := running(t, first)
			in.Plan.Fires, in.MayClaim, in.Ended = fires, false, []EndedRun{{Shard: 1}}
			assert.Empty(t, in.Decide().Claims.Fires)
		})
	}
	t.Run("the record keeps the latest fires", func(t *testing.T) {
		in := running(t, first)
		in.Claims.Fires = nil
		for n := 1; n <= record.MaxEndedFires+3; n++ {
			in.Claims.Fires = in.Claims.Fires.With(record.FireRunOf(coordtest.Fire(n, 1), shardset.Of(0), shardset.Set{}))
		}
		in.MayClaim, in.Ended = false, []EndedRun{{Shard: 1}}
		out := in.Decide()
		assert.Len(t, out.Claims.Fires, record.MaxEndedFires)
		assert.Equal(t, coordtest.At(4), out.Claims.Fires[0].At)
	})
}

func TestClaim_ReleasedFires(t *testing.T) {
	// following returns the input of the owner of a job that follows others, at minute 10, with fires released then.
	following := func(t *testing.T, policy string, releases ...record.Release) *Input {
		in := claimant(t, 1)
		in.Plan = in.Plan.Clone()
		e, err := record.NewEpoch(1, coordtest.Start, []byte(`{"name":"job","shards":1,"on_overlap":"`+policy+`"}`))
		assert.NoError(t, err)
		e.Released = releases
		in.Plan.Epochs, in.Now = []record.Epoch{e}, coordtest.At(10)
		in.Programs = map[int]due.Program{1: coordtest.Following{}}
		return in
	}
	release := func(n int, at record.Instant) record.Release {
		return record.Release{At: coordtest.At(n), Released: at}
	}
	t.Run("are claimed at the instants of the followed fires", func(t *testing.T) {
		out := following(t, "", release(1, coordtest.At(9))).Decide()
		assert.Equal(t, coordtest.Fire(1, 1), out.Starts[0].Ref)
	})
	t.Run("are not claimed before their release", func(t *testing.T) {
		out := following(t, "", release(1, coordtest.At(10)+1)).Decide()
		assert.Empty(t, out.Starts)
		assert.Equal(t, coordtest.At(10)+1, out.Wake)
	})
	t.Run("are skipped by disabled shards", func(t *testing.T) {
		in := following(t, "", release(1, coordtest.At(9)))
		in.Plan.Disabled = shardset.Of(0)
		out := in.Decide()
		assert.Empty(t, out.Starts)
		assert.EqualValues(t, 1, out.Claims.Counts.Skipped)
	})
	t.Run("cancel a run that was claimed before their release, however old they are", func(t *testing.T) {
		in := following(t, record.OverlapCancel, release(1, coordtest.At(8)), release(2, coordtest.At(9)))
		in.Claims.Watermarks = record.Watermarks{}.Raise(shardset.Of(0), coordtest.Fire(1, 1).Watermark())
		in.Claims.Running = coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1))
		in.ClaimedAt = ClaimTimes{{shardset.Of(0), coordtest.At(8)}}
		assert.Equal(t, shardset.Of(0), in.Decide().Overrun)
		in.ClaimedAt = ClaimTimes{{shardset.Of(0), coordtest.At(9)}}
		assert.Empty(t, in.Decide().Overrun, "it was released before the claim")
	})
	t.Run("of an earlier epoch go first, also those with an instant after its end", func(t *testing.T) {
		in := following(t, "", release(1, coordtest.At(2)), release(3, coordtest.At(4)))
		in.Plan.Epochs[0].Until = coordtest.At(1)
		in.Claims.Watermarks = record.Watermarks{}.Raise(shardset.Of(0), coordtest.Fire(1, 1).Watermark())
		assert.Equal(t, coordtest.Fire(3, 1), in.Decide().Starts[0].Ref)
	})
}
