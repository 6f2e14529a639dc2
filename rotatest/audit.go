package rotatest

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry/memory"
)

// auditing compares the books of a job before and after a commit.
type auditing struct {
	*jobBooks
	old    *jobBooks
	commit memory.Commit
}

// audit reports what a commit has lost or doubled, and brings marks and epochs up to date.
func (j *jobBooks) audit(c memory.Commit, old *jobBooks) {
	a := auditing{j, old, c}
	for _, incarnation := range slices.Sorted(maps.Keys(j.claims)) {
		if was := old.claims[incarnation]; was != j.claims[incarnation] {
			a.claimed(incarnation, orEmpty(was), j.claims[incarnation])
		}
	}
	if j.plan != nil && j.plan != old.plan {
		a.planned()
	}
	for _, incarnation := range slices.Sorted(maps.Keys(old.claims)) {
		if _, ok := j.claims[incarnation]; !ok {
			a.buried(incarnation, old.claims[incarnation])
		}
	}
}

func orEmpty(c *record.Claims) *record.Claims {
	if c == nil {
		return &record.Claims{}
	}
	return c
}

func (a *auditing) fault(shards shardset.Set, format string, args ...any) {
	a.group.books.fault("commit of %s at %s: %s/%s: "+format,
		append([]any{a.commit.Client, clock(a.commit.At), a.name, shards}, args...)...)
}

// claimed audits a new state of an incarnation's record.
func (a *auditing) claimed(incarnation string, was, is *record.Claims) {
	var fresh record.Runs
	for _, g := range is.Running {
		begun := g.Shards
		for _, o := range was.Running {
			if o.Ref == g.Ref {
				begun = begun.Minus(o.Shards)
			}
		}
		if !begun.IsZero() {
			fresh = fresh.With(begun, g.Ref)
			a.begun(incarnation, begun, g.Ref)
		}
	}
	skipped := is.Counts.Skipped - was.Counts.Skipped
	if lost, which := a.passed(is.Watermarks, fresh); lost > skipped {
		a.fault(which, "lost: %d fires of these shards were passed over, and %d counted as skipped", lost, skipped)
	}
	a.marks = a.marks.Fold(is.Watermarks, everyShard())
}

// begun audits the claim of a run.
func (a *auditing) begun(incarnation string, shards shardset.Set, r record.Ref) {
	for _, part := range a.marks.Split(shards) {
		if part.Covers(r) {
			a.fault(part.Shards, "claimed twice: %s", describe(r))
		}
	}
	for other, c := range a.claims {
		if both := c.Running.Shards().Intersect(shards); other != incarnation && !both.IsZero() {
			instance, _ := split(other)
			a.fault(both, "%s was claimed while a run on %s stood on record", describe(r), instance)
		}
	}
}

// passed returns how many fires, over all shards, marks pass over that are not claimed
// with them, and which shards these are.
func (a *auditing) passed(marks record.Watermarks, fresh record.Runs) (n uint64, which shardset.Set) {
	for _, g := range marks {
		for _, part := range a.marks.Split(g.Shards) {
			if part.Covers(record.Ref{Epoch: g.Epoch, Fire: g.Fire, Attempt: g.Attempt}) {
				continue
			}
			if _, ok := a.epochs[g.Epoch]; !ok && g.Epoch != 0 {
				a.fault(part.Shards, "lost: a watermark of epoch %d, which no plan has had", g.Epoch)
			}
			for _, gen := range slices.Sorted(maps.Keys(a.epochs)) {
				e := a.epochs[gen]
				fires := e.count(part.Watermark, g.Watermark)
				if fires == 0 {
					continue
				}
				shards := part.Shards.Intersect(e.shards)
				now := shardset.Set{} // of which the last of these fires is claimed now
				for _, f := range fresh {
					if f.Trigger == 0 && f.Epoch == gen && f.Fire == g.Fire {
						now = now.Union(f.Shards.Intersect(shards))
					}
				}
				over := uint64(fires*shards.Len() - now.Len())
				if over > 0 {
					which = which.Union(shards)
				}
				n += over
			}
		}
	}
	return n, which
}

// planned audits a new plan.
func (a *auditing) planned() {
	for i := range a.plan.Epochs {
		e := newEpoch(&a.plan.Epochs[i])
		a.epochs[e.gen] = e
	}
	if lost, which := a.passed(a.plan.Watermarks, nil); lost > a.skippedAsUnoffered() {
		a.fault(which, "lost: the plan passes over %d fires of these shards", lost)
	}
	a.marks = a.marks.Fold(a.plan.Watermarks, everyShard())
	if a.old.plan != nil {
		a.unbroken()
		a.dropped()
		for incarnation, shards := range a.old.plan.Owners {
			if c, ok := a.old.claims[incarnation]; ok {
				a.returned(incarnation, c, shards.Minus(a.plan.Owners[incarnation]))
			}
		}
	}
}

// unbroken audits that where a definition ends another begins, but for a pause or a stopped schedule.
func (a *auditing) unbroken() {
	if a.plan.Paused || a.plan.Stopped || a.offeredAgain() {
		return
	}
	for i := range a.plan.Epochs {
		e := a.epochs[a.plan.Epochs[i].Number]
		was, ok := a.old.plan.Epoch(e.gen)
		next, follows := beginAfter(a.plan.Epochs[i+1:])
		if !ok || e.until == 0 || !follows {
			continue // the last one, if it has been ended, is followed by another in a change to come
		}
		followed := !a.old.plan.Paused && !a.old.plan.Stopped && a.old.plan.Last().Number == e.gen
		if e.until == was.Until && !followed {
			continue
		}
		end, gap := e.until, e
		gap.until = next
		if fire := gap.next(end - 1); fire != 0 {
			a.fault(e.shards, "lost: no definition holds for the fire of %s", clock(fire.Time()))
		}
	}
}

// offeredAgain reports whether the plan ends a time in which no instance offered the job. If that
// was long, the job owes nothing until its next epoch begins.
func (a *auditing) offeredAgain() bool {
	return a.old.plan != nil && a.old.plan.Unoffered != 0 && a.plan.Unoffered == 0
}

// skippedAsUnoffered returns how many fires the plan counts as skipped because no instance
// offered the job for long.
func (a *auditing) skippedAsUnoffered() uint64 {
	if !a.offeredAgain() {
		return 0
	}
	return a.plan.Counts.Skipped - a.old.plan.Counts.Skipped
}

// beginAfter returns when the first of epochs begins that does not end before it begins, as one
// does that a reset overtakes.
func beginAfter(epochs []record.Epoch) (from record.Instant, ok bool) {
	for i := range epochs {
		if e := &epochs[i]; e.Until == 0 || e.Until > e.From {
			return e.From, true
		}
	}
	return 0, false
}

// dropped audits that what is no longer in the plan has been claimed.
func (a *auditing) dropped() {
	for i := range a.old.plan.Epochs {
		e := a.epochs[a.old.plan.Epochs[i].Number]
		if _, ok := a.plan.Epoch(e.gen); ok {
			continue
		}
		for _, part := range a.marks.Split(e.shards) {
			if after, ok := e.after(part.Watermark); ok && e.next(after) != 0 {
				a.fault(part.Shards, "lost: the plan has dropped a definition by which the fire of %s is owed", clock(e.next(after).Time()))
			}
		}
	}
	for _, g := range a.old.plan.Reruns {
		for _, part := range a.marks.Split(g.Shards.Minus(pending(a.plan, g.Ref))) {
			if !part.Covers(g.Ref) {
				a.fault(part.Shards, "lost: the plan has dropped %s", describe(g.Ref))
			}
		}
	}
}

// pending returns the shards for which a plan has a re-run of r, or of a later attempt.
func pending(p *record.Plan, r record.Ref) shardset.Set {
	var shards shardset.Set
	for _, g := range p.Reruns {
		same := g.Ref
		same.Attempt, same.Missed, same.HandedBack = r.Attempt, r.Missed, r.HandedBack
		if same == r && g.Attempt >= r.Attempt {
			shards = shards.Union(g.Shards)
		}
	}
	return shards
}

// buried audits that what a record said to be running, which is gone now, is to be run
// again or counted: as unknown where ends are not tracked.
func (a *auditing) buried(incarnation string, was *record.Claims) {
	if a.plan == nil {
		return
	}
	instance, _ := split(incarnation)
	before := record.Counts{}
	if a.old.plan != nil {
		before = a.old.plan.Counts
	}
	var missing, untold shardset.Set
	for _, g := range was.Running {
		if e, ok := a.epochs[g.Epoch]; ok && !e.tracksRuns() {
			untold = untold.Union(g.Shards)
			continue
		}
		missing = missing.Union(g.Shards.Minus(pending(a.plan, g.Retry())))
	}
	a.returned(incarnation, was, everyShard())
	if counted := a.plan.Counts.Lost - before.Lost; uint64(missing.Len()) > counted {
		a.fault(missing, "lost: these were running on %s; they are neither to be run again nor counted (%d are)", instance, counted)
	}
	if counted := a.plan.Counts.Unknown - before.Unknown; uint64(untold.Len()) > counted {
		a.fault(untold, "lost: these were claimed by %s, and their ends are not tracked; they are not counted as unknown (%d are)", instance, counted)
	}
}

// returned audits that the runs of shards which an incarnation handed back are pending in the
// plan, or have been claimed again.
func (a *auditing) returned(incarnation string, was *record.Claims, shards shardset.Set) {
	for _, g := range was.Reruns.Within(shards) {
		for _, part := range a.marks.Split(g.Shards.Minus(pending(a.plan, g.Ref))) {
			if !part.Covers(g.Ref) {
				instance, _ := split(incarnation)
				a.fault(part.Shards, "lost: %s handed these back, and the plan does not hold %s", instance, describe(g.Ref))
			}
		}
	}
}

// everyShard returns all numbers that a shard can have.
func everyShard() shardset.Set { return shardset.Range(0, record.MaxShards) }
