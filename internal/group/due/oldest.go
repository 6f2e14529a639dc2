package due

import (
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// Progress describes the runs of a job by the records of its owners.
type Progress struct {
	Watermarks record.Watermarks
	Running    shardset.Set // the shards with a run in progress
	OnTime     shardset.Set // those of Running whose run was claimed on time: later fires came due during the run
	Pending    []Pending
}

// NewProgress returns the progress of a job whose owners have these runs in progress.
func NewProgress(watermarks record.Watermarks, running record.Runs, pending []Pending) Progress {
	done := Progress{Watermarks: watermarks, Pending: pending}
	for _, g := range running {
		done.Running = done.Running.Union(g.Shards)
		if ClaimedOnTime(g.Ref) {
			done.OnTime = done.OnTime.Union(g.Shards)
		}
	}
	return done
}

// ClaimedOnTime reports whether a run was claimed when its fire came due, so that the fires due since then overlap with it. Those
// that came due before a late run was claimed do not.
func ClaimedOnTime(run record.Ref) bool { return !run.Missed }

// Pending are pending re-runs of one record.
type Pending struct {
	Runs  record.Runs
	Since record.Instant // when the record last changed by such a run
}

// PendingOf returns the pending re-runs of a plan and those that owners have handed back.
func PendingOf(p *record.Plan, handedBack ...Pending) []Pending {
	of := Pending{Runs: p.Reruns}
	if n := len(p.Decisions); n > 0 {
		of.Since = p.Decisions[n-1].At
	}
	return append([]Pending{of}, handedBack...)
}

// HandedBack returns the runs of shards that an owner has handed back, or that it retries.
func HandedBack(c *record.Claims, shards shardset.Set) Pending {
	return Pending{c.Reruns.Within(shards), c.Ended}
}

// OldestUnclaimed returns the oldest fire of a plan that is due for one of shards and is not claimed,
// or not claimed again after a crash; zero if there is none. A retry counts from its own time on. Fires that the misfire policy will skip,
// those that the overlap policy will skip when a run ends, and those of disabled shards and of epochs without a program, do not count.
//
// If fires count from the ends of runs, a shard that runs or has a pending re-run has no due fire, and the re-run
// counts from when it became pending: its fire is when the shard first ran, perhaps weeks ago.
func OldestUnclaimed(p *record.Plan, programs map[int]Program, done Progress, shards shardset.Set, now record.Instant) record.Instant {
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
	for _, pending := range done.Pending {
		for _, g := range Unclaimed(pending.Runs.Within(shards), done.Watermarks) {
			if g.NotBefore > now {
				continue
			}
			at := max(g.Fire, g.NotBefore)
			if CountsEnds(programs[g.Epoch]) {
				at = max(at, pending.Since)
			}
			note(at)
		}
	}
	free := done.free(shards)
	for i := range p.Epochs {
		e := &p.Epochs[i]
		prog, ok := programs[e.Number]
		if !ok {
			continue
		}
		of := shards
		switch {
		case CountsEnds(prog):
			of = free
		case e.Job().SkipsOverlapping():
			of = shards.Minus(done.OnTime)
		}
		for _, group := range done.Watermarks.Split(of.Intersect(shardset.Range(0, e.Job().Shards))) {
			note(oldestInEpoch(e, prog, group.Watermark, now))
		}
	}
	return oldest
}

// free returns those of shards that neither run nor have a pending re-run.
func (done *Progress) free(shards shardset.Set) shardset.Set {
	shards = shards.Minus(done.Running)
	for _, pending := range done.Pending {
		for _, g := range Unclaimed(pending.Runs.Within(shards), done.Watermarks) {
			shards = shards.Minus(g.Shards)
		}
	}
	return shards
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

// NextFire returns the first fire of a plan after now, zero if there is none. Fires that count from the ends of runs are
// those of free shards; a shard that runs has none yet. Epochs without a program have no fire.
func NextFire(p *record.Plan, programs map[int]Program, done Progress, shards shardset.Set, now time.Time) time.Time {
	if p.Paused || p.Stopped {
		return time.Time{}
	}
	var next time.Time
	note := func(fire time.Time) {
		if !fire.IsZero() && (next.IsZero() || fire.Before(next)) {
			next = fire
		}
	}
	for i := range p.Epochs {
		e := &p.Epochs[i]
		prog, ok := programs[e.Number]
		switch {
		case !ok:
		case CountsEnds(prog):
			free := done.free(shards.Minus(p.Disabled))
			for _, group := range done.Watermarks.Split(free.Intersect(shardset.Range(0, e.Job().Shards))) {
				if fire := FirstUnclaimed(e, prog, group.Watermark); fire > record.InstantOf(now) {
					note(fire.Time())
				}
			}
		default:
			from := now
			if before := (e.From - 1).Time(); from.Before(before) {
				from = before
			}
			note(prog.Due(from, e.Until.Time(), from).Wake)
		}
	}
	return next.UTC()
}
