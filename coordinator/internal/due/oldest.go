package due

import (
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// OldestUnclaimed returns the oldest fire of a plan that is due for one of shards and is not claimed,
// or not claimed again after a crash; zero if there is none. A retry counts from its own time on. Fires that the misfire policy will skip,
// and those of disabled shards and of epochs without a program, do not count. marks and reruns are
// the watermarks and the pending re-runs of the shards.
func OldestUnclaimed(p *record.Plan, programs map[int]Program, marks record.Watermarks, reruns record.Runs, shards shardset.Set, now record.Instant) record.Instant {
	shards = shards.Minus(p.Disabled)
	if p.Paused || shards.IsZero() {
		return 0
	}
	var oldest record.Instant
	note := func(at record.Instant) {
		if at != 0 && (oldest == 0 || at < oldest) {
			oldest = at
		}
	}
	for _, g := range Unclaimed(reruns.Within(shards), marks) {
		if g.NotBefore <= now {
			note(max(g.Fire, g.NotBefore))
		}
	}
	for _, group := range marks.Split(shards) {
		for i := range p.Epochs {
			e := &p.Epochs[i]
			prog, ok := programs[e.Number]
			if !ok || group.Shards.Intersect(shardset.Range(0, e.Job().Shards)).IsZero() {
				continue
			}
			note(oldestInEpoch(e, prog, group.Watermark, now))
		}
	}
	return oldest
}

// oldestInEpoch returns the oldest due fire of an epoch for a shard with watermark m, zero if there is
// none or if all are skipped.
func oldestInEpoch(e *record.Epoch, prog Program, m record.Watermark, now record.Instant) record.Instant {
	before := lastClaimed(e, m) // nothing is due then: Wake is the first fire after it
	if _, ok := asFollower(prog); ok {
		before = 0 // releases may precede the epoch
	}
	next, ok := InEpoch(e, prog, m, before, false)
	if !ok || next.Wake.IsZero() || record.InstantOf(next.Wake) > now {
		return 0
	}
	if found, _ := InEpoch(e, prog, m, now, false); found.Fire.IsZero() {
		return 0
	}
	return record.InstantOf(next.Wake)
}

// NextFire returns the first fire of a plan after now, zero if there is none. program returns the
// program of an epoch, or false if the definition is not supported.
func NextFire(p *record.Plan, program func(*record.Epoch) (Program, bool), now time.Time) time.Time {
	if p.Paused || p.Stopped {
		return time.Time{}
	}
	var next time.Time
	for i := range p.Epochs {
		e := &p.Epochs[i]
		prog, ok := program(e)
		if !ok {
			continue
		}
		from := now
		if before := (e.From - 1).Time(); from.Before(before) {
			from = before
		}
		fire := prog.Due(from, e.Until.Time(), from).Wake
		if !fire.IsZero() && (next.IsZero() || fire.Before(next)) {
			next = fire
		}
	}
	return next.UTC()
}
