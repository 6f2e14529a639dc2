package planning

import (
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// part is a part of planning a job. It changes the next plan, and can say by the previous one whether it would.
type part struct {
	isNeeded func(*jobPlanner) bool
	apply    func(*jobPlanner)
}

// parts are the parts of planning a job in the order in which they change its plan.
var parts = [...]part{
	{(*jobPlanner).isOfferedAgain, (*jobPlanner).endUnoffered},
	{(*jobPlanner).hasNewIntent, (*jobPlanner).applyControl},
	{(*jobPlanner).hasEpochToChange, (*jobPlanner).applyDefinition}, // a resume has begun the new epoch already
	{(*jobPlanner).hasRequests, (*jobPlanner).acceptRequests},       // of the epochs that there are now
	{(*jobPlanner).hasExpiredClaims, (*jobPlanner).absorbExpired},
	{(*jobPlanner).hasShardsToMove, (*jobPlanner).failOverExpired}, // an expired owner is no target owner, unless it is awaited
	{(*jobPlanner).hasShardsToMove, (*jobPlanner).moveShards},      // and assigns the shards that the failover frees
	{(*jobPlanner).hasFiresToTrack, (*jobPlanner).trackFires},      // of what moves and failovers have folded in
	{(*jobPlanner).hasFiresToFollow, (*jobPlanner).followFires},
	{(*jobPlanner).isNoLongerOffered, (*jobPlanner).beginUnoffered}, // after the last owner has left
	{(*jobPlanner).hasServed, (*jobPlanner).clearServed},            // after the parts that may lack room in the plan
	{(*jobPlanner).hasNewProblem, (*jobPlanner).writeProblem},       // after all that may add one
}

// planJob returns the change that a job's plan needs, if any. One jobPlanner plans all jobs, one after another: calls by
// parts would have each planner allocated, and a leader of ten thousand jobs plans them in each decision.
func (p *jobPlanner) planJob(segment string, t target) (Change, bool) {
	*p = jobPlanner{round: p.round, segment: segment, target: t, change: Change{Segment: segment}}
	prev, ok := p.Plans[segment]
	if !ok {
		return p.createPlan()
	}
	if p.EditedPlans[segment] {
		return p.restorePlan()
	}
	if p.prev = prev; p.isSettled() {
		return Change{}, false
	}
	p.next = prev.Clone()
	p.change.rev, p.change.Plan = prev.Rev, p.next
	for i := range parts { // all of them: one part may call for another, as a resume for a release
		parts[i].apply(p)
	}
	return p.change, len(p.change.Why)+len(p.change.Upkeep) > 0
}

// isSettled reports whether the plan needs no change. It makes no copy of the plan: a leader of
// ten thousand jobs finds nearly all of them settled each time.
func (p *jobPlanner) isSettled() bool {
	for i := range parts {
		if parts[i].isNeeded(p) {
			return false
		}
	}
	return true
}

// hasNewProblem reports whether the assignment found another problem than the plan names.
func (p *jobPlanner) hasNewProblem() bool { return p.prev.Problem != p.target.problem }

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
