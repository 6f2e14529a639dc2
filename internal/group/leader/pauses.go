package leader

import (
	"context"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/planning"
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
	l.Progress.SetTask("writes", "ends of pauses")
	_, err := applyParts(ctx, l, term, ended, func(e planning.EndedPause) batch.Items { return items[e.Key] }, l.recordEndedPause)
	return err
}

// recordEndedPause applies the committed end of a pause to the view without waiting for its event.
func (l *Leader) recordEndedPause(e planning.EndedPause, rev registry.Rev) {
	if e.Group != nil {
		l.View.Group = planning.GroupRecord{Rev: rev, GroupControl: e.Group}
		return
	}
	l.View.Control[e.Segment] = planning.ControlRecord{Rev: rev, Control: e.Control}
}
