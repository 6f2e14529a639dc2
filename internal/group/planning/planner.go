package planning

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

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
