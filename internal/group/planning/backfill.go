package planning

import (
	"slices"

	"github.com/rota-dev/rota/internal/record"
)

// acceptBackfills makes triggers of the next fires of the backfills in the control record, as many as each may have in
// the plan at a time. Their numbers follow those of all triggers in the record, which so come first.
func (p *jobPlanner) acceptBackfills(rest *record.Control) (accepted bool) {
	if len(rest.Triggers) > 0 {
		return false
	}
	rest.Backfills = slices.Clone(rest.Backfills)
	for i := range rest.Backfills {
		b := &rest.Backfills[i]
		free := min(b.Parallel-p.countBackfillTriggers(b.Number), record.MaxTriggers-len(p.next.Triggers), len(b.Fires))
		for _, fire := range b.Fires[:max(free, 0)] {
			rest.LastTrigger = max(rest.LastTrigger, p.lastTrigger()) + 1
			p.next.Triggers = append(p.next.Triggers, record.Trigger{
				Number: rest.LastTrigger, At: b.At, Epoch: p.epochAt(p.Now).Number, Fire: fire, Reason: record.TriggerBackfill, Backfill: b.Number, Token: b.Token,
			})
			p.explainUpkeep("trigger %d for %v, of backfill %d", rest.LastTrigger, fire, b.Number)
			accepted = true
		}
		b.Fires = b.Fires[max(free, 0):]
	}
	rest.Backfills = slices.DeleteFunc(rest.Backfills, func(b record.Backfill) bool { return len(b.Fires) == 0 })
	if len(rest.Backfills) > 0 {
		p.needsRoom = true // the next fires wait until triggers are cleared
	}
	return accepted
}

// countBackfillTriggers returns how many triggers of a backfill the plan holds.
func (p *jobPlanner) countBackfillTriggers(backfill uint64) int {
	n := 0
	for i := range p.next.Triggers {
		if p.next.Triggers[i].Backfill == backfill {
			n++
		}
	}
	return n
}

// lastTrigger returns the highest number of a trigger in the plan.
func (p *jobPlanner) lastTrigger() uint64 {
	if n := len(p.next.Triggers); n > 0 {
		return p.next.Triggers[n-1].Number
	}
	return 0
}
