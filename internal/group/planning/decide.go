package planning

import (
	"maps"
	"slices"
)

// Decide returns the next steps of the leader. It reads the View, writes nothing into it, and returns
// equal decisions for equal views. The leader calls it whenever the view changes and on a slow
// tick, so that no decision depends on having seen an event.
func Decide(v *View) Decision {
	v, invalid := v.withOverrides()
	r := newRound(v)
	r.invalidOverrides = invalid
	segments := v.segments()
	a := newAssigner(r)
	targets := a.assignJobs(segments)
	d := Decision{GraceEnds: r.graceEnds, StrategyErrors: a.strategyErrors, StrategyProblems: a.strategyProblems}
	retired := map[string]bool{}
	for _, seg := range r.findRetired() {
		retired[seg] = true
		d.Retirements = append(d.Retirements, r.retire(seg))
	}
	p := jobPlanner{round: r}
	for i, seg := range segments {
		if retired[seg] {
			continue // its plan is deleted
		}
		if c, ok := p.planJob(seg, r.explainTarget(seg, targets[i])); ok {
			d.Changes = append(d.Changes, c)
		}
	}
	d.Rests, d.MoreRests = r.findRests(d.Changes)
	d.EndedPauses, d.PauseEnds = v.endPauses()
	d.Reapings = r.reapExpired(d.Changes)
	d.Reads, d.Parts = r.listReads()
	d.Follow = slices.Sorted(maps.Keys(r.follow))
	return d
}

// explainTarget adds the problems that the assignment does not know.
func (r *round) explainTarget(segment string, t target) target {
	if len(t.owners) == 0 && t.problem == "" {
		switch job := r.InForce(segment); {
		case r.isUnsupported(job):
			t.problem = UnsupportedProblem
		case r.isUnoffered(segment, job):
			if t.unoffered = true; !r.wantsNoRuns(segment) {
				t.problem = UnofferedProblem
			}
		}
	}
	t.problem = joinProblems(t.problem, r.followProblem(segment))
	if plan, ok := r.Plans[segment]; ok {
		t.problem = joinProblems(t.problem, r.aheadProblem(plan.Plan))
	}
	if err, ok := r.invalidOverrides[segment]; ok {
		t.problem = joinProblems(t.problem, overrideProblem(err))
	}
	if key, ok := r.UnreadableInputs[segment]; ok {
		t.problem = joinProblems(t.problem, unreadableProblem(key))
	}
	return t
}
