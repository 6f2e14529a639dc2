package planning

import (
	"slices"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// trackFires records in the plan which fires have ended, while another job follows this one. It rests on facts
// that stay true however old the view is: a claim that was made, a run that has ended. So it needs no fresh read,
// and its commit no condition but those of every plan.
func (p *jobPlanner) trackFires() {
	if !p.tracksFires() {
		if p.next.Fires != nil {
			p.next.Fires = nil
			p.explainUpkeep("track fires no longer")
		}
		return
	}
	if p.next.Fires == nil {
		p.next.Fires = &record.Fires{From: p.Now.Add(p.Skew)} // owners may have claimed fires until then without a trace
		p.explainUpkeep("track fires")
		return
	}
	p.endFires()
}

// hasFiresToTrack reports whether the tracking begins or ends, or a fire has ended.
func (p *jobPlanner) hasFiresToTrack() bool {
	return p.tracksFires() != (p.prev.Fires != nil) || p.prev.Fires != nil && len(p.findEndedFiresWithReads(p.segment)) > 0
}

// hasFiresToFollow reports whether the job begins or ends to follow others, or one of their fires has ended.
func (p *jobPlanner) hasFiresToFollow() bool {
	after := p.prev.Last().Job().After
	return (after != nil) != (p.prev.Followed != nil) || after != nil && len(p.findFollowedFires(p.prev.Plan, after)) > 0
}

// tracksFires reports whether a job in force follows this one.
func (p *jobPlanner) tracksFires() bool { return len(p.followers[p.segment]) > 0 }

// endFires records those fires as ended of which no run is left, in order.
func (p *jobPlanner) endFires() {
	if p.prev.Fires == nil {
		return
	}
	ended := p.findEndedFiresWithReads(p.segment)
	if len(ended) == 0 {
		return
	}
	fires := *p.next.Fires
	var number uint64
	if n := len(fires.Ended); n > 0 {
		number = fires.Ended[n-1].Number
	}
	fires.Ended = slices.Clone(fires.Ended)
	for _, run := range ended {
		number++
		targets := targetsOf(p.prev.Plan, run)
		e := record.EndedFire{
			Number: number, At: run.At, Trigger: run.Trigger, Shards: targets.Len(),
			Failed: run.Failed.Len(), Skipped: targets.Minus(run.Ran).Len(), Ended: p.Now,
		}
		fires.Ended = append(fires.Ended, e)
		fires.Through = run.At
		p.explainUpkeep("fire %v has ended: %d shards, %d failed, %d skipped", run.At.Time(), e.Shards, e.Failed, e.Skipped)
	}
	fires.Ended = fires.Ended[max(0, len(fires.Ended)-record.MaxEndedFires):]
	fires.Open = fires.Open.After(fires.Through)
	p.next.Fires = &fires
}

// findEndedFiresWithReads returns the fires of a job that have ended and are not on record as such, in order. A fire has ended
// when all earlier ones have. A round looks for them once: they follow from the View.
func (r *round) findEndedFiresWithReads(segment string) record.FireRuns {
	ended, ok := r.endedFires[segment]
	if !ok {
		plan := r.Plans[segment]
		ended = r.findOpenFires(segment, plan)
		if i := slices.IndexFunc(ended, func(run record.FireRun) bool { return !r.hasEndedWithReads(segment, plan, run.At, nil) }); i >= 0 {
			ended = ended[:i]
		}
		r.endedFires[segment] = ended
	}
	return ended
}

// findOpenFires returns the tracked fires of a plan that are not on record as ended, as far as shards have claimed them.
func (r *round) findOpenFires(segment string, plan PlanRecord) record.FireRuns {
	open := plan.Fires.Open
	for inc, owned := range plan.Owners {
		open = open.Merge(r.Ends[segment][inc].Fires.Within(owned))
	}
	return slices.DeleteFunc(slices.Clone(open.After(plan.Fires.Through)), func(run record.FireRun) bool { return run.At < plan.Fires.From })
}

// hasEndedWithReads reports, and requests the reads that it lacks to report, whether all runs with instants up to at have ended: no owner has one in progress, none is
// pending, and no fire is due or can still come. Path holds the jobs that follow this one and ask for it.
//
// Before a new definition, the end of the last epoch may still move beyond fires that were claimed after it.
func (r *round) hasEndedWithReads(segment string, plan PlanRecord, at record.Instant, path []string) bool {
	if !r.hasEndedByClaims(plan, at, r.Ends[segment]) || r.mayFollowWithReads(segment, plan, at, path) {
		return false
	}
	if until := plan.Last().Until; until != 0 && at >= until && !plan.Paused && !plan.Stopped {
		return false
	}
	if !mayHideClaims(plan.Plan, at) {
		return true
	}
	claims, missing := EndsOfJob{}, false
	for inc := range plan.Owners {
		l, ok := r.freshRead(inc, plan.Rev)
		if !ok {
			r.requestReads(inc)
		}
		if !ok || l.Unreadable[segment] {
			missing = true
		}
		claims[inc] = l.claimsOf(segment)
	}
	return !missing && r.hasEndedByClaims(plan, at, claims)
}

// mayHideClaims reports whether owners may have claimed fires up to an instant that belong to no epoch of the plan and
// are not on record as ended: after the end of an epoch, before it was committed, by a pause that may be over. Copies
// of claims may be older than such a claim, and the schedule does not show it. Reads that began after the plan do.
func mayHideClaims(plan *record.Plan, at record.Instant) bool {
	for i := range plan.Epochs {
		until := plan.Epochs[i].Until
		if until == 0 || at < until {
			continue
		}
		if i+1 == len(plan.Epochs) {
			return true
		}
		if next := plan.Epochs[i+1].From; next > until && next > plan.Fires.Through+1 {
			return true
		}
	}
	return false
}

// hasEndedByClaims is hasEndedWithReads by given claims of the owners.
func (r *round) hasEndedByClaims(plan PlanRecord, at record.Instant, claims EndsOfJob) bool {
	watermarks := plan.Watermarks
	isOpen := func(g record.RunGroup) bool { return g.Fire <= at && !plan.RunsPastFire(g.Ref) }
	for inc, owned := range plan.Owners {
		watermarks = watermarks.Fold(claims[inc].Watermarks, owned)
	}
	for inc, owned := range plan.Owners {
		left := slices.Concat(claims[inc].Running.Within(owned), due.Unclaimed(claims[inc].Reruns.Within(owned), watermarks))
		if slices.ContainsFunc(left, isOpen) {
			return false
		}
	}
	if slices.ContainsFunc(due.Unclaimed(plan.Reruns, watermarks), isOpen) {
		return false
	}
	for _, t := range plan.Triggers {
		if t.At <= at && !t.IsPast() && slices.ContainsFunc(watermarks.Split(targetsOf(plan.Plan, record.FireRun{Epoch: t.Epoch, Trigger: t.Number})),
			func(part record.WatermarkGroup) bool { return part.Trigger < t.Number }) {
			return false
		}
	}
	return !slices.ContainsFunc(plan.Epochs, func(e record.Epoch) bool { return r.hasUnclaimed(&e, watermarks, plan.Fires.From, at) })
}

// mayFollowWithReads reports, with the reads that hasEndedWithReads requests, whether a job may still follow a fire with an instant up to at, which then becomes a fire of it.
func (r *round) mayFollowWithReads(segment string, plan PlanRecord, at record.Instant, path []string) bool {
	after := plan.Last().Job().After
	if after == nil || plan.Followed == nil || slices.Contains(path, segment) {
		return false
	}
	path = append(slices.Clone(path), segment)
	return slices.ContainsFunc(after.Jobs, func(name string) bool {
		followed := record.Segment(name)
		parent, ok := r.Plans[followed]
		if !ok || parent.Fires == nil {
			return false // if it is tracked again, then from a later instant on
		}
		if slices.ContainsFunc(parent.Fires.Ended, func(e record.EndedFire) bool { return e.At > plan.Followed.Through && e.At <= at }) {
			return true
		}
		if open := r.findOpenFires(followed, parent); len(open) > 0 && open[0].At <= at {
			return true
		}
		return at > parent.Fires.Through && !r.hasEndedWithReads(followed, parent, at, path)
	})
}

// hasUnclaimed reports whether tracked fires of an epoch up to an instant are not claimed yet, or may not be. Earlier
// fires do not count: an owner that has ended no run since then has written no copy of its claims.
func (r *round) hasUnclaimed(e *record.Epoch, watermarks record.Watermarks, from, through record.Instant) bool {
	prog, err := r.compile(e)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(watermarks.Split(shardset.Range(0, e.Job().Shards)), func(part record.WatermarkGroup) bool {
		return due.HasUnclaimed(e, prog, part.Watermark.Max(record.Watermark{Epoch: e.Number, Fire: from - 1}), through)
	})
}

// targetsOf returns the shards that a fire or trigger runs.
func targetsOf(plan *record.Plan, run record.FireRun) shardset.Set {
	e, ok := plan.Epoch(run.Epoch)
	if !ok {
		return run.Ran // the epoch is cleared: all its shards have claimed what they had to
	}
	if i := slices.IndexFunc(plan.Triggers, func(t record.Trigger) bool { return t.Number == run.Trigger }); i >= 0 {
		return due.TriggerTargets(plan.Triggers[i], e)
	}
	if run.Trigger > 0 {
		return run.Ran
	}
	return shardset.Range(0, e.Job().Shards)
}

// earliestTrigger returns the earliest instant of a trigger that the plan accepts now. A trigger whose operator's clock
// is behind must not come before fires that are on record as ended or followed, of this job or of one that follows it.
func (p *jobPlanner) earliestTrigger() record.Instant {
	if p.next.Fires == nil {
		return 0
	}
	var earliest record.Instant
	if p.prev.Plan != nil {
		earliest = p.endedThrough(p.segment) + 1
	}
	if from := p.next.Fires.From; from <= p.Now {
		earliest = max(earliest, from)
	}
	for _, t := range p.next.Triggers {
		earliest = max(earliest, t.At+1) // two triggers are two fires
	}
	return max(earliest, p.followedThrough(p.segment, nil)+1)
}

// endedThrough returns the instant of the last fire that is on record as ended, or that this decision puts there.
func (r *round) endedThrough(segment string) record.Instant {
	if ended := r.findEndedFiresWithReads(segment); len(ended) > 0 {
		return ended[len(ended)-1].At
	}
	return r.Plans[segment].Fires.Through
}

// placeTrigger returns the instant of a trigger that the plan accepts now. In a followed job it is a fire. So an
// operator's clock must not put it ahead of the leader's: it would end only when its instant has come, and hide the
// fires of an epoch that begins before.
func (p *jobPlanner) placeTrigger(at record.Instant) record.Instant {
	if p.next.Fires == nil {
		return at
	}
	return max(min(at, p.Now), p.earliestTrigger())
}

// followedThrough returns the last instant that jobs which follow a job, directly or not, have on record.
func (r *round) followedThrough(segment string, path []string) (through record.Instant) {
	for _, follower := range r.followers[segment] {
		plan, ok := r.Plans[follower]
		if !ok || slices.Contains(path, follower) {
			continue
		}
		if f := plan.Followed; f != nil && f.Through < r.Now {
			through = max(through, f.Through)
		}
		if f := plan.Fires; f != nil {
			through = max(through, r.endedThrough(follower))
		}
		through = max(through, r.followedThrough(follower, append(slices.Clone(path), follower)))
	}
	return through
}

// isOpenFire reports whether a fire or trigger is tracked and not on record as ended. What the plan lists of it stays
// there until then, although its shards have claimed it: the copies of claims that the leader watches may be older.
func (p *jobPlanner) isOpenFire(at record.Instant) bool {
	f := p.next.Fires
	return f != nil && at >= f.From && at > f.Through
}

// keepsFireWithReads reports whether the plan keeps the releases, triggers and re-runs of a fire: it is open, and copies of claims do
// not show its end. A fire that all shards have skipped ends without a record.
func (p *jobPlanner) keepsFireWithReads(at record.Instant) bool {
	return p.isOpenFire(at) && (p.prev.Fires == nil || !p.hasEndedWithReads(p.segment, p.prev, at, nil))
}

// foldFires writes into the plan which fires an owner has run for shards that it loses.
func (p *jobPlanner) foldFires(claims record.Claims, shards shardset.Set) {
	if p.next.Fires == nil {
		return
	}
	fires := *p.next.Fires
	fires.Open = fires.Open.Merge(claims.Fires.Within(shards).After(fires.Through)).Latest()
	p.next.Fires = &fires
}

// failFire writes into the plan that runs of a fire are lost.
func (p *jobPlanner) failFire(shards shardset.Set, r record.Ref) {
	if p.next.Fires == nil || r.Fire <= p.next.Fires.Through || p.next.RunsPastFire(r) {
		return
	}
	fires := *p.next.Fires
	fires.Open = fires.Open.With(record.FireRunOf(r, shards, shards)).Latest()
	p.next.Fires = &fires
}
