package rotatest

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry/memory"
)

// commitAudit compares the model of a job before and after a commit.
type commitAudit struct {
	*jobModel
	old    *jobModel
	commit memory.Commit
}

// audit reports runs that a commit has lost or doubled, and updates watermarks and epochs.
func (j *jobModel) audit(c memory.Commit, old *jobModel) {
	a := commitAudit{j, old, c}
	for _, incarnation := range slices.Sorted(maps.Keys(j.claims)) {
		if was := old.claims[incarnation]; was != j.claims[incarnation] {
			a.auditClaims(incarnation, orEmpty(was), j.claims[incarnation])
		}
	}
	if j.plan != nil && j.plan != old.plan {
		a.auditPlan()
	}
	for _, incarnation := range slices.Sorted(maps.Keys(old.claims)) {
		if _, ok := j.claims[incarnation]; !ok {
			a.auditReaped(incarnation, old.claims[incarnation])
		}
	}
}

func orEmpty(c *record.Claims) *record.Claims {
	if c == nil {
		return &record.Claims{}
	}
	return c
}

func (a *commitAudit) reportFault(shards shardset.Set, format string, args ...any) {
	a.group.model.fault("commit of %s at %s: %s/%s: "+format,
		append([]any{a.commit.Client, clock(a.commit.At), a.name, shards}, args...)...)
}

// auditClaims audits a new state of an incarnation's claims record.
func (a *commitAudit) auditClaims(incarnation string, was, is *record.Claims) {
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
			a.auditNewRuns(incarnation, begun, g.Ref)
		}
	}
	skipped := is.Counts.Skipped - was.Counts.Skipped
	if lost, which := a.countPassed(is.Watermarks, fresh); lost > skipped {
		a.reportFault(which, "lost: %d fires of these shards were passed over, and %d counted as skipped", lost, skipped)
	}
	a.watermarks = a.watermarks.Fold(is.Watermarks, everyShard())
}

// auditNewRuns audits the claim of a run.
func (a *commitAudit) auditNewRuns(incarnation string, shards shardset.Set, r record.Ref) {
	for _, part := range a.watermarks.Split(shards) {
		if part.Covers(r) {
			a.reportFault(part.Shards, "claimed twice: %s", describe(r))
		}
	}
	for other, c := range a.claims {
		if both := c.Running.Shards().Intersect(shards); other != incarnation && !both.IsZero() {
			instance, _ := splitIncarnation(other)
			a.reportFault(both, "%s was claimed while a run on %s stood on record", describe(r), instance)
		}
	}
}

// countPassed returns how many fires, over all shards, the new watermarks pass without a claim,
// and the shards of these fires.
func (a *commitAudit) countPassed(marks record.Watermarks, fresh record.Runs) (n uint64, which shardset.Set) {
	for _, g := range marks {
		for _, part := range a.watermarks.Split(g.Shards) {
			if part.Covers(record.Ref{Epoch: g.Epoch, Fire: g.Fire, Attempt: g.Attempt}) {
				continue
			}
			if _, ok := a.epochs[g.Epoch]; !ok && g.Epoch != 0 {
				a.reportFault(part.Shards, "lost: a watermark of epoch %d, which no plan has had", g.Epoch)
			}
			for _, gen := range slices.Sorted(maps.Keys(a.epochs)) {
				e := a.epochs[gen]
				fires := e.count(part.Watermark, g.Watermark)
				if fires == 0 {
					continue
				}
				shards := part.Shards.Intersect(e.shards)
				if e.countsEnds {
					shards = shards.Minus(a.old.runningShards())
				}
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

// auditPlan audits a new plan.
func (a *commitAudit) auditPlan() {
	for i := range a.plan.Epochs {
		e := newEpoch(&a.plan.Epochs[i])
		a.epochs[e.number] = e
	}
	if lost, which := a.countPassed(a.plan.Watermarks, nil); lost > a.skippedAsUnoffered() {
		a.reportFault(which, "lost: the plan passes over %d fires of these shards", lost)
	}
	a.watermarks = a.watermarks.Fold(a.plan.Watermarks, everyShard())
	if a.old.plan != nil {
		a.auditEpochs()
		a.auditDropped()
		for incarnation, shards := range a.old.plan.Owners {
			if c, ok := a.old.claims[incarnation]; ok {
				a.auditHandBacks(incarnation, c, shards.Minus(a.plan.Owners[incarnation]))
			}
		}
	}
}

// auditEpochs checks that there is no gap between epochs, except during a pause or a stopped
// schedule.
func (a *commitAudit) auditEpochs() {
	if a.plan.Paused || a.plan.Stopped || a.offeredAgain() {
		return
	}
	for i := range a.plan.Epochs {
		e := a.epochs[a.plan.Epochs[i].Number]
		was, ok := a.old.plan.Epoch(e.number)
		next, follows := beginAfter(a.plan.Epochs[i+1:])
		if !ok || e.until == 0 || !follows {
			continue // the last one, if it has been ended, is followed by another in a change to come
		}
		if e.countsEnds {
			continue // the next definition counts from its own begin
		}
		followed := !a.old.plan.Paused && !a.old.plan.Stopped && a.old.plan.Last().Number == e.number
		if e.until == was.Until && !followed {
			continue
		}
		end, gap := e.until, e
		gap.until = next
		if fire := gap.next(end - 1); fire != 0 {
			a.reportFault(e.shards, "lost: no definition holds for the fire of %s", clock(fire.Time()))
		}
	}
}

// offeredAgain reports whether the plan ends a time in which no instance offered the job. If that
// was long, the job owes nothing until its next epoch begins.
func (a *commitAudit) offeredAgain() bool {
	return a.old.plan != nil && a.old.plan.Unoffered != 0 && a.plan.Unoffered == 0
}

// skippedAsUnoffered returns how many fires the plan counts as skipped because no instance
// offered the job for long.
func (a *commitAudit) skippedAsUnoffered() uint64 {
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

// auditDropped checks that fires and re-runs which a plan no longer contains have been claimed.
func (a *commitAudit) auditDropped() {
	for i := range a.old.plan.Epochs {
		e := a.epochs[a.old.plan.Epochs[i].Number]
		if _, ok := a.plan.Epoch(e.number); ok {
			continue
		}
		for _, part := range a.watermarks.Split(e.shards) {
			if after, ok := e.after(part.Watermark); ok && e.next(after) != 0 {
				a.reportFault(part.Shards, "lost: the plan has dropped a definition by which the fire of %s is due", clock(e.next(after).Time()))
			}
		}
	}
	for _, g := range a.old.plan.Reruns {
		for _, part := range a.watermarks.Split(g.Shards.Minus(pendingReruns(a.plan, g.Ref))) {
			if !part.Covers(g.Ref) {
				a.reportFault(part.Shards, "lost: the plan has dropped %s", describe(g.Ref))
			}
		}
	}
}

// pendingReruns returns the shards for which a plan has a re-run of r, or of a later attempt.
func pendingReruns(p *record.Plan, r record.Ref) shardset.Set {
	var shards shardset.Set
	for _, g := range p.Reruns {
		same := g.Ref
		same.Attempt, same.Missed, same.HandedBack = r.Attempt, r.Missed, r.HandedBack
		same.Retries, same.NotBefore, same.RetryDelay = r.Retries, r.NotBefore, r.RetryDelay
		if same == r && g.Attempt >= r.Attempt {
			shards = shards.Union(g.Shards)
		}
	}
	return shards
}

// auditReaped checks that the runs in a deleted claims record are pending again or counted: as
// unknown if the job does not track ends.
func (a *commitAudit) auditReaped(incarnation string, was *record.Claims) {
	if a.plan == nil {
		return
	}
	instance, _ := splitIncarnation(incarnation)
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
		missing = missing.Union(g.Shards.Minus(pendingReruns(a.plan, g.AfterCrash())))
	}
	a.auditHandBacks(incarnation, was, everyShard())
	if counted := a.plan.Counts.Lost - before.Lost; uint64(missing.Len()) > counted {
		a.reportFault(missing, "lost: these were running on %s; they are neither to be run again nor counted (%d are)", instance, counted)
	}
	if counted := a.plan.Counts.Unknown - before.Unknown; uint64(untold.Len()) > counted {
		a.reportFault(untold, "lost: these were claimed by %s, and their ends are not tracked; they are not counted as unknown (%d are)", instance, counted)
	}
}

// auditHandBacks checks that runs which an incarnation handed back are pending in the plan, or
// have been claimed again.
func (a *commitAudit) auditHandBacks(incarnation string, was *record.Claims, shards shardset.Set) {
	for _, g := range was.Reruns.Within(shards) {
		for _, part := range a.watermarks.Split(g.Shards.Minus(pendingReruns(a.plan, g.Ref))) {
			if !part.Covers(g.Ref) {
				instance, _ := splitIncarnation(incarnation)
				a.reportFault(part.Shards, "lost: %s handed these back, and the plan does not hold %s", instance, describe(g.Ref))
			}
		}
	}
}

// everyShard returns all numbers that a shard can have.
func everyShard() shardset.Set { return shardset.Range(0, record.MaxShards) }
