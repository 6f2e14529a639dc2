package claiming

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// ClaimTimes are the times at which the runs of shards were claimed, by the clock of their owner.
type ClaimTimes []ClaimTime

// ClaimTime is the time at which the runs of shards were claimed.
type ClaimTime struct {
	Shards shardset.Set
	At     record.Instant
}

// with returns times with at as that of shards. The receiver is unchanged.
func (ts ClaimTimes) with(shards shardset.Set, at record.Instant) ClaimTimes {
	out := ts.without(shards)
	for i := range out {
		if out[i].At == at {
			out[i].Shards = out[i].Shards.Union(shards)
			return out
		}
	}
	return append(out, ClaimTime{shards, at})
}

// without returns times without those of shards. The receiver is unchanged.
func (ts ClaimTimes) without(shards shardset.Set) ClaimTimes {
	if len(ts) == 0 {
		return nil
	}
	out := make(ClaimTimes, 0, len(ts)+1)
	for _, t := range ts {
		if t.Shards = t.Shards.Minus(shards); !t.Shards.IsZero() {
			out = append(out, t)
		}
	}
	return out
}

// cancelOverlapped finds the runs of shards that a fire cancels which came due since their claims. Older fires, such
// as those that came due while the shard had no live owner, wait for the run.
func (in *Input) cancelOverlapped(out *Decision, shards shardset.Set, e *record.Epoch, prog due.Program) {
	for _, claimed := range out.ClaimedAt {
		for _, group := range out.Claims.Watermarks.Split(shards.Intersect(claimed.Shards)) {
			m := due.PassDue(e, prog, group.Watermark, claimed.At)
			found, ok := due.InEpoch(e, prog, m, in.Now, false)
			switch {
			case !ok:
			case found.HasAny():
				out.Overrun = out.Overrun.Union(group.Shards)
			case !found.Wake.IsZero():
				out.wakeNoLaterThan(record.InstantOf(found.Wake))
			}
		}
	}
}

// skipOverlapped skips the fires that came due while a run of their shard lasted, of definitions that want
// that. It considers the runs whose ends are recorded now. The misfire policy decides about fires that came due
// later, or before the run was claimed, and about those of a shard that has moved since. It returns the raised
// watermarks.
//
// A pending attempt at the same fire goes first, and the shard's fires wait for it: a watermark beyond
// its fire would mean that it was claimed.
func (in *Input) skipOverlapped(out *Decision, watermarks record.Watermarks, free shardset.Set) record.Watermarks {
	if !slices.ContainsFunc(in.Plan.Epochs, func(e record.Epoch) bool { return e.Job().SkipsOverlapping() }) {
		return watermarks
	}
	ended, began := in.endedAt(), in.beganAt()
	for _, at := range slices.Sorted(maps.Keys(ended)) {
		shards := ended[at].Intersect(free).Minus(in.Plan.Disabled)
		for _, g := range out.pendingReruns(in.Plan) {
			for _, part := range watermarks.Split(shards.Intersect(g.Shards)) {
				if !part.Covers(g.Ref) {
					shards = shards.Minus(part.Shards)
				}
			}
		}
		for _, b := range began {
			rest := shards.Intersect(b.Shards)
			for i := range in.Plan.Epochs {
				watermarks, rest = in.skipOverlappedOfEpoch(out, watermarks, rest, &in.Plan.Epochs[i], b.At, at)
			}
		}
	}
	return watermarks
}

// endedAt groups the shards of ended runs by the instants of the ends.
func (in *Input) endedAt() map[record.Instant]shardset.Set {
	ended := map[record.Instant]shardset.Set{}
	for _, e := range in.Ended {
		ended[e.At] = ended[e.At].Union(shardset.Of(e.Shard))
	}
	return ended
}

// beganAt returns the times at which the runs of shards were claimed. A retry belongs to the run that failed.
func (in *Input) beganAt() ClaimTimes {
	began := in.ClaimedAt
	for _, g := range in.Claims.Running {
		// If an attempt was late, crashed or was handed back, or is of a past fire, it is not on record when the run began.
		if g.IsRetry() && !in.Plan.RunsPastFire(g.Ref) && due.ClaimedOnTime(g.Ref) && g.HandedBack == 0 && g.CrashAttempts() == 1 {
			began = began.with(g.Shards, g.Fire)
		}
	}
	return began
}

// skipOverlappedOfEpoch skips the fires of an epoch that came due after the instant since, until at. It returns the
// raised watermarks, and the shards without the ones for which fires of this epoch stay due: those precede the
// fires of later epochs.
func (in *Input) skipOverlappedOfEpoch(out *Decision, watermarks record.Watermarks, shards shardset.Set, e *record.Epoch, since, at record.Instant) (record.Watermarks, shardset.Set) {
	sub := shards.Intersect(shardset.Range(0, e.Job().Shards))
	prog, ok := in.Programs[e.Number]
	if !ok {
		return watermarks, shards.Minus(sub)
	}
	for _, group := range watermarks.Split(sub) {
		found, ok := due.InEpoch(e, prog, group.Watermark, min(at, in.Now), true)
		if !ok || found.Skipped == 0 {
			continue
		}
		older, _ := due.InEpoch(e, prog, group.Watermark, since, true)
		if !e.Job().SkipsOverlapping() || older.Skipped > 0 {
			shards = shards.Minus(group.Shards)
			continue
		}
		in.skipFires(out, &found, group.Shards, event.Overlap, due.FirstUnclaimed(e, prog, group.Watermark))
		m := group.Max(record.Watermark{Epoch: e.Number, Fire: record.InstantOf(found.Through)})
		watermarks = watermarks.Raise(group.Shards, m)
		out.raiseWatermark(group.Shards, m)
	}
	return watermarks, shards
}
