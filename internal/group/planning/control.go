package planning

import (
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// hasNewIntent reports whether operators want something else than the plan has.
func (p *jobPlanner) hasNewIntent() bool {
	c, ok := p.Control[p.segment]
	return ok && !c.Disabled.Equal(p.prev.Disabled) || !p.isHeldAsWanted(p.prev.Plan)
}

// applyControl copies the intent of operators into the plan. Every claim is conditional on
// the plan, so a pause and a disabled shard take effect between two commits.
func (p *jobPlanner) applyControl() {
	if c, ok := p.Control[p.segment]; ok {
		p.applyDisabled(c)
	}
	p.applyHold()
}

// applyDisabled disables and enables shards.
func (p *jobPlanner) applyDisabled(c ControlRecord) {
	if more := c.Disabled.Minus(p.next.Disabled); !more.IsZero() {
		p.explain("disable %s", more)
	}
	if less := p.next.Disabled.Minus(c.Disabled); !less.IsZero() {
		p.explain("enable %s", less)
	}
	p.next.Disabled = c.Disabled
}

// pauseJob pauses a job, or stops its schedule.
func (p *jobPlanner) pauseJob(paused, stopped bool) {
	p.next.Paused, p.next.Stopped = paused, stopped
	p.endEpochs(p.Now) // no fire from now on is due
	if stopped {
		p.explain("stop the schedule")
	} else {
		p.explain("pause")
	}
}

// resumeJob begins a new epoch. It begins after all fires that owners have claimed, so the resume
// waits for reads of their claims.
func (p *jobPlanner) resumeJob() {
	if !p.hasRoomToResume() || !p.requireCreation() {
		return
	}
	through, missing := p.nextEpochAfter()
	if missing.any() {
		p.reportGaps(missing)
		return
	}
	p.next.Paused, p.next.Stopped = false, false
	from := max(p.Now.Add(p.Skew), through+1)
	p.endEpochs(from)
	p.completeReset()
	p.appendEpoch(from, p.newestDefinition())
	p.explain("resume")
}

// requireCreation makes the change of a defined job depend on the record of the creation, so that the pause of a deleted job is
// final, whoever leads. It returns false while the leader does not know that record.
func (p *jobPlanner) requireCreation() bool {
	if p.next.Life == "" {
		return true
	}
	d, known := p.creation()
	if known {
		p.change.conds = append(p.change.conds, registry.At(p.Keys.Defined(p.segment), d.Rev))
	}
	return known
}

// acceptRequests moves triggers, fires of backfills and cancelled runs from the control record into the plan, in one transaction.
func (p *jobPlanner) acceptRequests() {
	c, ok := p.Control[p.segment]
	if !ok {
		return
	}
	rest := *c.Control
	accepted := p.acceptTriggers(&rest)
	accepted = p.acceptBackfills(&rest) || accepted
	if accepted = p.acceptCancels(&rest) || accepted; !accepted {
		return
	}
	value, err := record.Encode(&rest)
	if err != nil {
		return
	}
	p.change.ops = append(p.change.ops, registry.Set(p.Keys.Control(p.segment), c.Rev, value))
}

// hasRequests reports whether the control record holds something that acceptRequests moves.
func (p *jobPlanner) hasRequests() bool {
	c, ok := p.Control[p.segment]
	return ok && len(c.Triggers)+len(c.Cancels)+len(c.Backfills) > 0
}

// acceptTriggers moves the triggers in the control record into the plan.
func (p *jobPlanner) acceptTriggers(rest *record.Control) (accepted bool) {
	if len(rest.Triggers) == 0 {
		return false
	}
	if len(p.next.Triggers)+len(rest.Triggers) > record.MaxTriggers {
		p.needsRoom = true
		return false
	}
	if n := len(p.next.Triggers); n > 0 && record.ParamBytes(p.next.Triggers)+record.ParamBytes(rest.Triggers) > record.MaxWaitingParamBytes {
		p.needsRoom = true // a plan that is too large could not be written
		return false
	}
	for _, t := range rest.Triggers {
		if n := len(p.next.Triggers); n > 0 && p.next.Triggers[n-1].Number >= t.Number {
			continue
		}
		t.Epoch, t.At = p.epochAt(p.Now).Number, p.placeTrigger(t.At)
		p.next.Triggers = append(p.next.Triggers, t)
		p.explainUpkeep("trigger %d", t.Number)
	}
	rest.Triggers = nil
	return true
}
