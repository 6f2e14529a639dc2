package claiming

import (
	"slices"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// withCancelledEnds returns the input in which no cancelled run is handed back or retried.
func (in *Input) withCancelledEnds() *Input {
	if in.Plan == nil || len(in.Plan.Cancels) == 0 {
		return in
	}
	out := *in
	out.Ended = slices.Clone(in.Ended)
	for i := range out.Ended {
		e := &out.Ended[i]
		if run, ok := in.Claims.Running.Of(e.Shard); ok && in.isCancelled(e.Shard, run) {
			e.HandedBack, e.Retry, e.RetryIn = false, false, 0
		}
	}
	return &out
}

// isCancelled reports whether an operator cancelled the run of a shard.
func (in *Input) isCancelled(shard int, r record.Ref) bool {
	return !in.Plan.Cancels.Naming(shardset.Of(shard), r).IsZero()
}

// dropCancelled counts the pending attempts at cancelled runs of free shards as failed. It returns the watermarks
// with these attempts covered, so that no other instance runs them either.
func (in *Input) dropCancelled(out *Decision, watermarks record.Watermarks, free shardset.Set) record.Watermarks {
	if len(in.Plan.Cancels) == 0 {
		return watermarks
	}
	for _, g := range out.pendingReruns(in.Plan) {
		for _, group := range watermarks.Split(in.Plan.Cancels.Naming(free.Intersect(g.Shards), g.Ref)) {
			if group.Covers(g.Ref) {
				continue
			}
			in.Trace.note(Cancelled, group.Shards, g.Ref)
			m := group.Max(g.Watermark())
			watermarks = watermarks.Raise(group.Shards, m)
			out.raiseWatermark(group.Shards, m)
			in.noteFailed(out, group.Shards, g.Ref)
			out.Claims.Counts.Failed += uint64(group.Shards.Len())
			out.Claims.Failures = out.Claims.Failures.With(record.Failure{ // also of a retry: the failure on record says that another attempt follows
				RunGroup: record.RunGroup{Shards: group.Shards, Ref: g.Before()}, At: in.Now, Error: due.CancelledRunError, LastTrigger: m.Trigger,
			}.In(in.Plan))
		}
	}
	return watermarks
}
