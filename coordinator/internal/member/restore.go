package member

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// While a term lasts, its leader alone writes plans, and no process deletes a plan or a definition
// or replaces a definition by one of a lower revision. A leader that observes such a change has observed
// another hand. It holds the plans in memory, which hold the definitions in force, and writes them again under its
// term. A later leader has no copy to compare with, and plans by the records that it finds.

// Restorer is a leader's knowledge of plans and definitions that another hand changed.
type Restorer struct {
	lastWrite map[string]uint64 // by segment: the commit of this term that last wrote the plan
	unsure    map[string]bool   // segments of whose last change the outcome is unknown

	badJobs, badControls map[string]bool // segments whose definition or intent cannot be read

	foreign         map[registry.Key]bool // keys with values that this library did not write; lists hide them
	rereadForeignAt time.Time             // when to read them again; zero: there are none

	rereadClaimsAt time.Time // when to look again at claims that cannot be read; zero: there are none
}

func NewRestorer() *Restorer {
	return &Restorer{
		lastWrite: map[string]uint64{}, unsure: map[string]bool{}, badJobs: map[string]bool{}, badControls: map[string]bool{},
		foreign: map[registry.Key]bool{},
	}
}

// detectPlanEdit reports whether another hand changed a plan. Then the plan that the leader knows stays
// in the view, and planning writes it again over the stored value.
func (l *Leader) detectPlanEdit(n feed.Update[*record.Plan]) bool {
	old, had := l.View.Plans[n.Name]
	unsure := l.unsure[n.Name]
	delete(l.unsure, n.Name) // after any other write the change can no longer be applied
	switch {
	case !had, !l.synced, unsure, errors.Is(n.Err, record.ErrNewerFormat): // a newer version's record is no garbage
		return false
	case n.Deleted && !l.View.IsOffered(old.Job):
		return false // an operator removes a job that no instance offers
	case !n.Deleted && n.Rev.Seq <= max(l.View.Term.Seq, l.lastWrite[n.Name]):
		return false
	}
	l.View.Plans[n.Name] = planning.PlanRecord{Rev: n.Rev, Plan: old.Plan}
	l.View.EditedPlans[n.Name] = true
	l.idle = false
	l.LastCommit = max(l.LastCommit, n.Rev.Seq)
	l.Log.Warn("another hand changed or deleted a plan; it is written again", "job", old.Job, "key", string(l.M.Keys.Plan(n.Name)))
	return true
}

// recordPlan records a plan that the leader committed.
func (l *Leader) recordPlan(c planning.Change, rev registry.Rev) {
	l.lastWrite[c.Segment] = rev.Seq
	delete(l.unsure, c.Segment)
	delete(l.View.EditedPlans, c.Segment)
	l.View.Plans[c.Segment] = planning.PlanRecord{Rev: rev, Plan: c.Plan}
}

// restoreDefinitions stores definitions again that are in force and that another hand deleted
// or replaced by one of a lower revision. One that no live instance offers may have been removed for good.
func (l *Leader) restoreDefinitions(ctx context.Context) error {
	var parts []restoredDefinition
	for _, seg := range slices.Sorted(maps.Keys(l.View.Plans)) {
		last := l.View.Plans[seg].Last()
		stored, ok := l.View.Jobs[seg]
		if ok && stored.Revision >= last.Job().Revision || l.badJobs[seg] || l.foreign[l.M.Keys.Job(seg)] || !l.View.IsOffered(last.Job().Name) {
			continue
		}
		d, err := restoreDefinition(l.M.Keys.Job(seg), stored.Rev, last)
		if err != nil {
			return err
		}
		parts = append(parts, d)
	}
	loads := batch.Pack([]registry.Cond{registry.At(l.M.Keys.Leader(), l.View.Term)}, parts, l.M.Reg.Limits(),
		func(d restoredDefinition) batch.Share { return batch.Share{Ops: []registry.Op{d.op}} }, func(restoredDefinition) bool { return false })
	for _, ld := range loads {
		l.setTask("the writing", "definitions")
		rev, err := registry.Apply(ctx, l.M.Reg, ld.Txn)
		if refusal, refused := batch.Conflict(err); refused {
			if refusal.Index == 0 {
				return errTermOver
			}
			if err := l.findForeignValue(ctx, ld.Txn, refusal.Index); err != nil {
				return err
			}
			continue // the watch delivers the stored value
		}
		if err != nil {
			return fmt.Errorf("restore definitions: %w", err)
		}
		for _, d := range ld.Parts {
			l.Log.Warn("another hand deleted a definition or stored an older one; the one in force is stored again",
				"job", d.job.Name, "revision", d.job.Revision, "key", string(d.op.Key))
			l.jobs.Feed.RecordWrite(d.op.Key.Name(), rev, d.JobRecord)
		}
	}
	return nil
}

// restoredDefinition is a definition to store again.
type restoredDefinition struct {
	planning.JobRecord
	job record.Job
	op  registry.Op
}

func restoreDefinition(key registry.Key, stored registry.Rev, e *record.Epoch) (restoredDefinition, error) {
	value, err := record.Encode(e.Def)
	if err != nil {
		return restoredDefinition{}, err
	}
	d := restoredDefinition{JobRecord: planning.JobRecord{Def: e.Def, Job: e.Job()}, job: e.Job(), op: registry.Create(key, value)}
	if !stored.IsZero() {
		d.op = registry.Set(key, stored, value)
	}
	return d, nil
}

// foreignReread is how long a leader leaves a foreign value alone before it reads the key again.
const foreignReread = 2 * time.Second

// findForeignValue finds out whether a transaction was refused because of a foreign value: a key that
// lists do not show, and that exists all the same. No transaction can replace such a value.
func (l *Leader) findForeignValue(ctx context.Context, t registry.Txn, index int) error {
	var key registry.Key
	if n := len(t.If); index < n && t.If[index].Kind == registry.CondAbsent {
		key = t.If[index].Key
	} else if index >= n && t.Then[index-n].Kind == registry.OpCreate {
		key = t.Then[index-n].Key
	} else {
		return nil
	}
	_, err := l.M.Reg.Get(ctx, key, Fresh)
	if !errors.Is(err, registry.ErrForeign) {
		return nil // the watch delivers the stored value
	}
	if !l.foreign[key] {
		l.Log.Error("record left alone: another program wrote its value; delete the key", "key", string(key), "error", err)
	}
	l.foreign[key], l.rereadForeignAt = true, time.Now().Add(foreignReread)
	return nil
}

// foreignConflicts is after how many conflicts on one vacancy an instance looks for foreign values.
const foreignConflicts = 10

// logForeignValues logs which record of the office holds a foreign value: no instance leads until it is deleted.
func (o *Elector) logForeignValues(ctx context.Context) {
	for _, key := range []registry.Key{o.M.Keys.Leader(), o.M.Keys.Seat()} {
		if _, err := o.M.Reg.Get(ctx, key, Fresh); errors.Is(err, registry.ErrForeign) {
			o.Log.Error("no instance can lead: another program wrote the value of the key; delete it", "key", string(key), "error", err)
		}
	}
}

// rereadForeign reads keys with foreign values again, some time later.
func (l *Leader) rereadForeign(ctx context.Context) {
	if len(l.foreign) == 0 || time.Now().Before(l.rereadForeignAt) {
		return
	}
	for key := range l.foreign {
		if _, err := l.M.Reg.Get(ctx, key, Fresh); err == nil || errors.Is(err, registry.ErrNotFound) {
			l.Log.Info("a foreign value has gone", "key", string(key))
			delete(l.foreign, key)
			l.idle = false
		}
	}
	if l.rereadForeignAt = time.Now().Add(foreignReread); len(l.foreign) == 0 {
		l.rereadForeignAt = time.Time{}
	}
}

// unreadableReread is how long a leader waits before it looks again at claims that it cannot read:
// it watches no claims, and an operator may have mended or removed the record.
const unreadableReread = 5 * time.Second

// scheduleReread sets when to look again at claims that cannot be read.
func (l *Leader) scheduleReread() {
	l.rereadClaimsAt = time.Time{}
	for _, seen := range l.View.Reads {
		if len(seen.Unreadable) > 0 {
			l.rereadClaimsAt = time.Now().Add(unreadableReread)
		}
	}
}

// unreadablePlans returns the segments whose plan cannot be read.
func (l *Leader) unreadablePlans() map[string]bool {
	if len(l.foreign) == 0 {
		return l.BrokenPlans
	}
	all := maps.Clone(l.BrokenPlans)
	for key := range l.foreign {
		if key.Dir() == l.M.Keys.Plans() {
			all[key.Name()] = true
		}
	}
	return all
}

// unreadableInputs returns, by segment, the key of a definition or of an intent that cannot be read.
func (l *Leader) unreadableInputs() map[string]registry.Key {
	out := map[string]registry.Key{}
	for seg := range l.badControls {
		out[seg] = l.M.Keys.Control(seg)
	}
	for seg := range l.badJobs {
		out[seg] = l.M.Keys.Job(seg)
	}
	for key := range l.foreign {
		if key.Dir() == l.M.Keys.Jobs() {
			out[key.Name()] = key
		}
	}
	return out
}
