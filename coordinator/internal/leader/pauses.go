package leader

import (
	"context"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/elector"
	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// commitEndedPauses writes the control records of pauses that have ended at their time. If an operator has
// changed a record since, the change stays and is delivered by the watch.
func (l *Leader) commitEndedPauses(ctx context.Context, ended []planning.EndedPause, term []registry.Cond) error {
	if len(ended) == 0 {
		return nil
	}
	items := make(map[registry.Key]batch.Items, len(ended))
	for _, e := range ended {
		value, err := record.Encode(e.Record())
		if err != nil {
			return err
		}
		items[e.Key] = batch.Items{Ops: []registry.Op{registry.Set(e.Key, e.Rev, value)}}
	}
	itemsOf := func(e planning.EndedPause) batch.Items { return items[e.Key] }
	pack := func(parts []planning.EndedPause, alone bool) []batch.Load[planning.EndedPause] {
		return batch.Pack(term, parts, l.Self.Reg.Limits(), itemsOf, func(planning.EndedPause) bool { return alone })
	}
	l.SetTask("writes", "ends of pauses")
	queue := pack(ended, false)
	for len(queue) > 0 {
		ld := queue[0]
		queue = queue[1:]
		rev, err := registry.Apply(ctx, l.Self.Reg, ld.Txn)
		switch refusal, refused := batch.FindConflict(err); {
		case refused && refusal.Index == 0:
			return elector.ErrTermOver
		case refused && len(ld.Parts) > 1:
			queue = append(pack(ld.Parts, true), queue...)
		case refused:
		case err != nil:
			return err
		default:
			l.recordEndedPauses(ld.Parts, rev)
		}
	}
	return nil
}

// recordEndedPauses applies committed ends of pauses to the view without waiting for their events.
func (l *Leader) recordEndedPauses(ended []planning.EndedPause, rev registry.Rev) {
	l.RecordAnswer()
	l.LastCommit = max(l.LastCommit, rev.Seq)
	for _, e := range ended {
		if e.Group != nil {
			l.View.Group = planning.GroupRecord{Rev: rev, GroupControl: e.Group}
			continue
		}
		l.View.Control[e.Segment] = planning.ControlRecord{Rev: rev, Control: e.Control}
	}
	l.wakeUp()
}
