package planning

import (
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// acceptCancels moves the cancelled runs in the control record into the plan.
func (p *jobPlanner) acceptCancels(rest *record.Control) (accepted bool) {
	p.next.Cancels = p.next.Cancels.Merge(rest.Cancels)
	for _, g := range rest.Cancels {
		p.explain("cancel the run of %s", g.Shards)
	}
	accepted, rest.Cancels = len(rest.Cancels) > 0, nil
	return accepted
}

// clearCancels removes cancelled runs that are neither in progress nor pending. A shard does not move while it
// runs, and the claims were read after the operator found the run in them or in the plan.
func (p *jobPlanner) clearCancels(progress *JobProgress) {
	var kept record.Runs
	var cleared shardset.Set
	for _, g := range p.next.Cancels {
		left := progress.Running.Naming(g.Shards, g.Ref).Union(progress.Reruns.Naming(g.Shards, g.Ref))
		if !left.IsZero() {
			kept = append(kept, record.RunGroup{Shards: left, Ref: g.Ref})
		}
		cleared = cleared.Union(g.Shards.Minus(left))
	}
	if !cleared.IsZero() {
		p.next.Cancels = kept
		p.explainUpkeep("clear cancelled runs of %s", cleared)
	}
}

// addRerun makes the crashed runs of an expired owner pending as rerun. Those that an operator cancelled count as
// lost instead.
func (p *jobPlanner) addRerun(inc string, running shardset.Set, crashed, rerun record.Ref) {
	cancelled := p.next.Cancels.Naming(running, crashed)
	if !cancelled.IsZero() {
		p.countLost(cancelled, crashed)
		p.reportCrashed(inc, cancelled, crashed, false)
	}
	if running = running.Minus(cancelled); !running.IsZero() {
		p.next.Reruns = p.next.Reruns.With(running, rerun)
		p.reportCrashed(inc, running, crashed, true)
	}
}
