package planning

import (
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// GroupRecord is the control record of the group and its revision. GroupControl is nil if the record cannot be
// read; each plan then stays paused or not, as it is.
type GroupRecord struct {
	Rev registry.Rev
	*record.GroupControl
}

// ownHold returns the job's own intent: that of its control record, or without one, that of its plan.
func (p *jobPlanner) ownHold(plan *record.Plan) record.OwnHold {
	if c, ok := p.Control[p.segment]; ok {
		return record.OwnHold{Paused: c.Paused, Stopped: c.Stopped}
	}
	return plan.OwnHold()
}

// isGroupPaused reports whether the pause of the group applies to a plan.
func (p *jobPlanner) isGroupPaused(plan *record.Plan) bool {
	if p.Group.GroupControl == nil {
		return plan.GroupPause != nil
	}
	return p.Group.Paused
}

// wantHold returns the Paused, Stopped and GroupPause that a plan is to have.
func (p *jobPlanner) wantHold(plan *record.Plan) (paused, stopped bool, group *record.OwnHold) {
	own := p.ownHold(plan)
	if p.isGroupPaused(plan) {
		return true, false, &own
	}
	if p.wantsNoRuns(p.segment) {
		return true, false, nil // the control record keeps the job's own intent
	}
	return own.Paused, own.Stopped, nil
}

// isHeldAsWanted reports whether a plan is paused or stopped as operators want it.
func (p *jobPlanner) isHeldAsWanted(plan *record.Plan) bool {
	paused, stopped, group := p.wantHold(plan)
	return plan.Paused == paused && plan.Stopped == stopped && equalHolds(plan.GroupPause, group)
}

// applyHold pauses the job, stops its schedule or resumes it. A job that the group pauses keeps its own intent in
// the plan, since its control record may be missing when the group is resumed.
func (p *jobPlanner) applyHold() {
	paused, stopped, group := p.wantHold(p.next)
	switch {
	case paused == p.next.Paused && stopped == p.next.Stopped:
	case paused || stopped:
		p.pauseJob(paused, stopped)
	default:
		if p.resumeJob(); p.next.Paused {
			return // the resume waits for reads
		}
	}
	if !equalHolds(p.next.GroupPause, group) {
		switch {
		case p.next.GroupPause == nil:
			p.explain("the group is paused")
		case group == nil:
			p.explain("the group is resumed")
		default:
			p.explainUpkeep("keep the job's own intent")
		}
		p.next.GroupPause = group
	}
}

func equalHolds(a, b *record.OwnHold) bool {
	return a == b || a != nil && b != nil && *a == *b
}
