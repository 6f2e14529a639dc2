package claiming

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/coordinator/internal/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// skipOverlapped skips the fires that came due while a run of their shard lasted, of definitions that want
// that. It considers the runs whose ends are recorded now. Fires that came due later are the misfire policy's,
// as are those of a shard that has moved since. It returns the raised watermarks.
//
// A pending attempt at the same fire goes first, and the shard's fires wait for it: a watermark beyond
// its fire would mean that it was claimed.
func (in *Input) skipOverlapped(out *Decision, watermarks record.Watermarks, free shardset.Set) record.Watermarks {
	if !slices.ContainsFunc(in.Plan.Epochs, func(e record.Epoch) bool { return e.Job().OnOverlap == record.OverlapSkip }) {
		return watermarks
	}
	ended := in.endedAt()
	for _, at := range slices.Sorted(maps.Keys(ended)) {
		shards := ended[at].Intersect(free).Minus(in.Plan.Disabled)
		for _, g := range out.pendingReruns(in.Plan) {
			for _, part := range watermarks.Split(shards.Intersect(g.Shards)) {
				if !part.Covers(g.Ref) {
					shards = shards.Minus(part.Shards)
				}
			}
		}
		for i := range in.Plan.Epochs {
			watermarks = in.skipOverlappedOfEpoch(out, watermarks, shards, &in.Plan.Epochs[i], at)
		}
	}
	return watermarks
}

// endedAt returns the shards whose runs have ended, by the instants of the ends.
func (in *Input) endedAt() map[record.Instant]shardset.Set {
	ended := map[record.Instant]shardset.Set{}
	for _, e := range in.Ended {
		ended[e.At] = ended[e.At].Union(shardset.Of(e.Shard))
	}
	return ended
}

func (in *Input) skipOverlappedOfEpoch(out *Decision, watermarks record.Watermarks, shards shardset.Set, e *record.Epoch, at record.Instant) record.Watermarks {
	prog, ok := in.Programs[e.Number]
	if !ok || e.Job().OnOverlap != record.OverlapSkip {
		return watermarks
	}
	for _, group := range watermarks.Split(shards.Intersect(shardset.Range(0, e.Job().Shards))) {
		found, ok := due.InEpoch(e, prog, group.Watermark, min(at, in.Now), true)
		if !ok || found.Skipped == 0 {
			continue
		}
		in.skipFires(out, &found, group.Shards, event.Overlap)
		m := group.Max(record.Watermark{Epoch: e.Number, Fire: record.InstantOf(found.Through)})
		watermarks = watermarks.Raise(group.Shards, m)
		out.raiseWatermark(group.Shards, m)
	}
	return watermarks
}
