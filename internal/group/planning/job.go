package planning

import (
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// planJob returns the change that a job's plan needs, if any.
func (r *round) planJob(segment string, t target) (Change, bool) {
	p := jobPlanner{round: r, segment: segment, target: t, change: Change{Segment: segment}}
	prev, ok := r.Plans[segment]
	if !ok {
		return p.createPlan()
	}
	if r.EditedPlans[segment] {
		return p.restorePlan()
	}
	if p.prev = prev; p.isSettled() {
		return Change{}, false
	}
	p.next = prev.Clone()
	p.change.rev, p.change.Plan = prev.Rev, p.next
	p.endUnoffered()
	p.applyControl()
	p.applyDefinition()
	p.acceptRequests()
	p.absorbExpired()
	p.failOverExpired()
	p.moveShards()
	p.trackFires()
	p.followFires()
	p.beginUnoffered()
	if (p.SlowTick || p.needsRoom) && isClearable(p.next) {
		p.clearServed()
	}
	p.writeProblem()
	return p.change, len(p.change.Why)+len(p.change.Upkeep) > 0
}

// isSettled reports whether the plan needs no change. It makes no copy of the plan: a leader of
// ten thousand jobs finds nearly all of them settled each time.
func (p *jobPlanner) isSettled() bool {
	prev := p.prev
	if p.SlowTick && isClearable(prev.Plan) || p.hasExpiredClaims() || prev.Problem != p.target.problem ||
		!prev.Frozen.IsZero() || len(prev.Owners) != len(p.target.owners) {
		return false
	}
	if p.hasFiresToPlan() {
		return false
	}
	for inc, want := range p.target.owners {
		if !want.Equal(prev.Owners[inc]) {
			return false
		}
	}
	if p.target.unoffered != (prev.Unoffered != 0) {
		return false
	}
	if !p.isHeldAsWanted(prev.Plan) {
		return false
	}
	if c, ok := p.Control[p.segment]; ok && (!c.Disabled.Equal(prev.Disabled) || hasRequests(c.Control)) {
		return false
	}
	if prev.Paused {
		return true
	}
	if prev.Stopped {
		return !p.hasNewDefinition(prev.Last())
	}
	if p.isResetDue(prev.Plan) {
		return false
	}
	return prev.Last().Until == 0 && !p.hasNewDefinition(prev.Last())
}

// createPlan makes the first plan of a job once a live member offers it, even one that may not own
// its shards: its fires count from then on.
func (p *jobPlanner) createPlan() (Change, bool) {
	if len(p.target.owners) == 0 && !p.target.noneEligible {
		return Change{}, false
	}
	job := p.Jobs[p.segment]
	past, missing := p.findPastPlan()
	if len(missing) > 0 {
		p.requestReads(missing...)
		return Change{}, false
	}
	first, err := record.NewEpoch(past.epoch+1, max(p.Now, past.through+1), job.Def)
	if err != nil { // the view holds only definitions that parse
		return Change{}, false
	}
	first.Stored = job.Stored
	p.next = &record.Plan{
		Format: record.Format, Job: job.Name, Epochs: []record.Epoch{first},
		Owners: map[string]shardset.Set{}, Paused: job.StartPaused, Watermarks: past.watermarks,
	}
	if past.trigger > 0 { // triggers are numbered after those of shards that the plan does not have, too
		p.next.Watermarks = p.next.Watermarks.Raise(shardset.Range(0, p.next.Shards()), record.Watermark{Trigger: past.trigger})
	}
	if c, ok := p.Control[p.segment]; ok {
		p.next.Disabled, p.next.Resets = c.Disabled, c.Resets
	}
	if p.tracksFires() {
		p.next.Fires = &record.Fires{From: first.From}
	}
	p.next.Paused, p.next.Stopped, p.next.GroupPause = p.wantHold(p.next)
	if p.next.Paused || p.next.Stopped {
		p.next.Last().Until = p.Now // no fire before the first resume is due
	}
	p.change.Plan = p.next
	p.keepRunning(past.running)
	p.assignUnowned()
	p.acceptRequests()
	p.writeProblem()
	p.explain("create")
	return p.change, true
}
