package planning

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
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
	d, known := p.creation()
	if job.Kind != "" && !known {
		return Change{}, false // it is not known yet where its rest began, or the job is to be deleted
	}
	past, missing := p.findPast(d)
	if len(missing) > 0 {
		return Change{}, false
	}
	from := max(p.Now, past.through+1)
	if known {
		from = p.lifeBegins(d, past)
		p.change.conds = append(p.change.conds, registry.At(p.Keys.Defined(p.segment), d.Rev))
	}
	epochs, err := p.firstEpochs(past.epoch+1, from, d)
	if err != nil { // the view holds only definitions that parse
		return Change{}, false
	}
	p.next = &record.Plan{
		Format: record.Format, Job: job.Name, Epochs: epochs,
		Owners: map[string]shardset.Set{}, Paused: job.StartPaused && (!known || d.Rest == nil), Watermarks: past.watermarks,
	}
	if known {
		beginLife(p.next, d)
	}
	if past.trigger > 0 { // triggers are numbered after those of shards that the plan does not have, too
		p.next.Watermarks = p.next.Watermarks.Raise(shardset.Range(0, p.next.Shards()), record.Watermark{Trigger: past.trigger})
	}
	if c, ok := p.Control[p.segment]; ok {
		p.next.Disabled, p.next.Resets = c.Disabled, c.Resets
	}
	if p.tracksFires() {
		p.next.Fires = &record.Fires{From: epochs[0].From}
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

// jobPlanner makes the next plan of one job.
type jobPlanner struct {
	*round
	segment string
	target  target

	prev      PlanRecord
	next      *record.Plan // a clone of prev's plan that the parts change
	change    Change
	needsRoom bool // an epoch or a trigger waits for room in the plan: clear served parts at once
}

// explain adds a reason to the change, for the log and the plan. It makes the plan be written.
func (p *jobPlanner) explain(format string, args ...any) {
	p.change.Why = append(p.change.Why, fmt.Sprintf(format, args...))
}

// explainUpkeep adds a reason that only the log shows. It makes the plan be written, too.
func (p *jobPlanner) explainUpkeep(format string, args ...any) {
	p.change.Upkeep = append(p.change.Upkeep, fmt.Sprintf(format, args...))
}

// addProblem adds a text to the problem that the plan is to name.
func (p *jobPlanner) addProblem(text string) {
	p.target.problem = joinProblems(p.target.problem, text)
}

// writeProblem writes the problem into the plan.
func (p *jobPlanner) writeProblem() {
	if p.next.Problem != p.target.problem {
		p.next.Problem = p.target.problem
		p.explain("problem %q", p.next.Problem)
	}
}

// sortedOwners returns the owners of the next plan, sorted.
func (p *jobPlanner) sortedOwners() []string { return slices.Sorted(maps.Keys(p.next.Owners)) }

// unownedShards returns the shards without an owner.
func (p *jobPlanner) unownedShards() shardset.Set {
	unowned := shardset.Range(0, p.next.Shards())
	for _, shards := range p.next.Owners {
		unowned = unowned.Minus(shards)
	}
	return unowned
}

// assignUnowned assigns shards without an owner to their target owners. The plan holds everything
// known about those shards: when their last owner lost them, its claims were folded in.
func (p *jobPlanner) assignUnowned() {
	unowned := p.unownedShards()
	for _, inc := range slices.Sorted(maps.Keys(p.target.owners)) {
		part := p.target.owners[inc].Intersect(unowned)
		if part.IsZero() {
			continue
		}
		p.next.Owners[inc] = p.next.Owners[inc].Union(part)
		p.explain("assign %s to %s", part, record.InstanceOf(inc))
	}
}

// dropEmptyOwners removes owners without shards.
func (p *jobPlanner) dropEmptyOwners() {
	maps.DeleteFunc(p.next.Owners, func(_ string, s shardset.Set) bool { return s.IsZero() })
}
