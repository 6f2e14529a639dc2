package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// During a term only its leader writes plans, and no process deletes a plan or a definition or stores
// a definition of a lower revision. So a leader that observes such a change has observed a record
// edit. Its view holds the plans, and the plans hold the definitions in force; it writes them again
// under its term. A later leader has no copy to compare with, and plans by the records that it reads.

// Restorer is a leader's knowledge for restoring edited plans and definitions.
type Restorer struct {
	lastWrite map[string]uint64       // by segment: the commit of this term that last wrote the plan
	unsure    map[string]bool         // segments whose last change has an unknown outcome
	deleted   map[string]registry.Rev // by segment of a deleted plan to be restored: the last Rev of the plan

	badJobs, badControls map[string]bool // segments whose definition or control record cannot be read

	foreign         map[registry.Key]bool // keys whose value another program wrote; lists leave them out
	rereadForeignAt time.Time             // when to read them again; zero: there are none

	restoreRefused bool // the view is behind a record on which a definition to restore depends

	retired map[string]retiredJob // by segment: jobs that this term has deleted lately

	rereadClaimsAt time.Time // when to read unreadable claims again; zero: there are none
}

// NewRestorer returns the Restorer of a new term.
func NewRestorer() *Restorer {
	return &Restorer{
		lastWrite: map[string]uint64{}, unsure: map[string]bool{}, deleted: map[string]registry.Rev{}, badJobs: map[string]bool{}, badControls: map[string]bool{},
		foreign: map[registry.Key]bool{}, retired: map[string]retiredJob{},
	}
}

// detectPlanEdit reports whether another writer changed a plan. If so, the view keeps the plan that the
// leader knows, and planning writes it over the stored value.
func (l *Leader) detectPlanEdit(n feed.Update[*record.Plan]) bool {
	old, known := l.View.Plans[n.Name]
	unsure := l.unsure[n.Name]
	delete(l.deleted, n.Name)
	delete(l.unsure, n.Name) // after another write of the record, a transaction whose outcome is unknown can no longer commit
	switch {
	case !known, !l.synced, unsure, errors.Is(n.Err, record.ErrNewerFormat): // a record of a newer version is valid
		return false
	case n.Deleted && !l.View.IsOffered(old.Job):
		return false // an operator may remove a job that no live instance offers
	case !n.Deleted && n.Rev.Seq <= max(l.View.Term.Seq, l.lastWrite[n.Name]):
		return false
	}
	if n.Deleted {
		l.deleted[n.Name] = old.Rev
	}
	l.View.Plans[n.Name] = planning.PlanRecord{Rev: n.Rev, Plan: old.Plan}
	l.View.EditedPlans[n.Name] = true
	l.idle = false
	l.LastCommit = max(l.LastCommit, n.Rev.Seq)
	if !n.Deleted { // otherwise confirmDeletedPlans finds out whether the plan is restored
		l.logPlanEdit(n.Name)
	}
	return true
}

func (l *Leader) logPlanEdit(segment string) {
	l.Log.Warn("another writer changed or deleted a plan; restoring it", "job", l.View.Plans[segment].Job, "key", string(l.Self.Keys.Plan(segment)))
}

// recordPlan records a plan that this leader committed.
func (l *Leader) recordPlan(c planning.Change, rev registry.Rev) {
	l.lastWrite[c.Segment] = rev.Seq
	delete(l.unsure, c.Segment)
	delete(l.View.EditedPlans, c.Segment)
	l.View.Plans[c.Segment] = planning.PlanRecord{Rev: rev, Plan: c.Plan}
	l.reportEndedFires(c.Segment)
}

// restoreRecords restores the definitions that another writer deleted, and decides which deleted plans are restored.
func (l *Leader) restoreRecords(ctx context.Context) error {
	if err := l.confirmDeletedPlans(ctx); err != nil {
		return err
	}
	if err := l.restoreDefinitions(ctx); err != nil {
		return err
	}
	l.dropForgotten()
	return nil
}

// confirmDeletedPlans finds out which deleted plans are to be restored, and leaves those of jobs that an operator has
// forgotten for dropForgotten. Forget deletes the definition, the plan and the claims of a job in one commit, and
// instances may offer the job again before the watch delivers the deletion of the plan. Restored without the claims, the
// plan would have its last fires claimed again. A record edit leaves a definition that is older than the deletion, or claims
// that are older than the definition, if that was deleted and restored before.
func (l *Leader) confirmDeletedPlans(ctx context.Context) error {
	for seg, rev := range l.deleted {
		e, err := l.Self.Reg.Get(ctx, l.Self.Keys.Job(seg), registry.ReadOptions{Fresh: true})
		switch {
		case errors.Is(err, registry.ErrNotFound):
			delete(l.View.Jobs, seg) // its watch will deliver that
		case err != nil && !errors.Is(err, registry.ErrForeign):
			return fmt.Errorf("read the definition of a deleted plan: %w", err)
		default:
			edited := err != nil || e.Created.Seq < rev.Seq
			if !edited {
				if edited, err = l.hasClaimsBefore(ctx, seg, e.Created); err != nil {
					return fmt.Errorf("read the claims of a deleted plan: %w", err)
				}
			}
			if edited {
				l.logPlanEdit(seg)
				delete(l.deleted, seg)
			}
		}
	}
	return nil
}

// hasClaimsBefore reports whether an owner's claims of a plan's job are older than rev.
func (l *Leader) hasClaimsBefore(ctx context.Context, segment string, rev registry.Rev) (bool, error) {
	plan := l.View.Plans[segment].Plan
	for _, inc := range slices.Sorted(maps.Keys(plan.Owners)) {
		e, err := l.Self.Reg.Get(ctx, l.Self.Keys.Claims(inc, plan.Job), registry.ReadOptions{Fresh: true})
		switch {
		case errors.Is(err, registry.ErrNotFound), errors.Is(err, registry.ErrForeign):
		case err != nil:
			return false, err
		case e.Created.Seq < rev.Seq:
			return true, nil
		}
	}
	return false, nil
}

// dropForgotten drops the plans of forgotten jobs from the view. Until then, restoreDefinitions takes missing definitions
// from them.
func (l *Leader) dropForgotten() {
	for seg := range l.deleted {
		l.Log.Info("the job of the deleted plan was forgotten; it begins anew", "job", l.View.Plans[seg].Job)
		delete(l.View.Plans, seg)
		delete(l.View.EditedPlans, seg)
	}
	clear(l.deleted)
}

// restoreDefinitions stores definitions in force again that another writer deleted or replaced by one of
// a lower revision. It leaves a job that no live instance offers, since an operator may have removed it.
func (l *Leader) restoreDefinitions(ctx context.Context) error {
	l.restoreRefused = false
	var parts []restoredDefinition
	for _, seg := range slices.Sorted(maps.Keys(l.View.Plans)) {
		last := l.View.Plans[seg].Last()
		stored, ok := l.View.Jobs[seg]
		if ok && stored.Revision >= last.Job().Revision || l.badJobs[seg] || l.foreign[l.Self.Keys.Job(seg)] || !l.View.IsOffered(last.Job().Name) {
			continue
		}
		d, err := restoreDefinition(l.Self.Keys.Job(seg), stored.Rev, last)
		if err != nil {
			return err
		}
		d.conds, d.forgotten = l.restoreConditions(seg, last.Job().Name)
		parts = append(parts, d)
	}
	again, err := l.restoreRetired()
	if err != nil {
		return err
	}
	parts = append(parts, again...)
	if len(parts) == 0 {
		return nil
	}
	l.SetTask("writes", "definitions")
	term := []registry.Cond{registry.At(l.Self.Keys.Leader(), l.View.Term)}
	refused, err := applyParts(ctx, l, term, parts, func(d restoredDefinition) batch.Items {
		return batch.Items{Conds: d.conds, Ops: []registry.Op{d.op}}
	}, l.recordRestored)
	if err != nil {
		return fmt.Errorf("restore definitions: %w", err)
	}
	for _, d := range refused { // the watches deliver what has changed
		l.restoreRefused = true
		if err := l.findForeignValue(ctx, registry.Txn{Then: []registry.Op{d.op}}, 0); err != nil {
			return err
		}
	}
	return nil
}

// recordRestored logs a definition that is stored again, and applies it without waiting for its event.
func (l *Leader) recordRestored(d restoredDefinition, rev registry.Rev) {
	l.jobs.Feed.RecordWrite(d.op.Key.Name(), rev, d.JobRecord)
	switch {
	case d.retired:
		delete(l.retired, d.op.Key.Name())
		l.Log.Info("an instance offers a job that was just deleted, since it was retired; the job begins anew", "job", d.job.Name)
	case !d.forgotten: // dropForgotten logs it
		l.Log.Warn("another writer deleted a definition or stored an older one; restored the one in force",
			"job", d.job.Name, "revision", d.job.Revision, "key", string(d.op.Key))
	}
}

// restoredDefinition is a definition to store again.
type restoredDefinition struct {
	planning.JobRecord
	job       record.Job
	op        registry.Op
	conds     []registry.Cond
	forgotten bool // with its plan, by an operator
	retired   bool
}

// restoreConditions returns the conditions under which a definition is stored again, and whether an operator has
// forgotten the job. The plan from which the definition is taken must be there: an operator deletes both in one commit,
// and the watch of plans may be behind that of definitions. And the member that offers the job must offer it still: it
// may have withdrawn the job so that it could be forgotten.
func (l *Leader) restoreConditions(segment, job string) (conds []registry.Cond, forgotten bool) {
	if _, forgotten = l.deleted[segment]; !forgotten && !l.View.EditedPlans[segment] {
		conds = append(conds, registry.At(l.Self.Keys.Plan(segment), l.View.Plans[segment].Rev))
	}
	return append(conds, l.offerCondition(job)...), forgotten
}

// offerCondition returns the condition that a live member offers a job still.
func (l *Leader) offerCondition(job string) []registry.Cond {
	for _, inc := range slices.Sorted(maps.Keys(l.View.Members)) {
		if m := l.View.Members[inc]; m.Offers(job) && l.View.Alive(inc) && !m.Rev.IsZero() {
			return []registry.Cond{registry.At(l.Self.Keys.Member(inc), m.Rev)}
		}
	}
	return nil
}

// restoreDefinition returns the write that stores the definition of an epoch over the stored version, without the
// override of an operator.
func restoreDefinition(key registry.Key, stored registry.Rev, e *record.Epoch) (restoredDefinition, error) {
	def, job := e.Def, e.Job()
	if len(e.Stored) > 0 {
		var err error
		if job, err = record.ParseJob(e.Stored); err != nil {
			return restoredDefinition{}, err
		}
		def = e.Stored
	}
	value, err := record.Encode(def)
	if err != nil {
		return restoredDefinition{}, err
	}
	d := restoredDefinition{JobRecord: planning.JobRecord{Def: def, Job: job}, job: e.Job(), op: registry.Create(key, value)}
	if !stored.IsZero() {
		d.op = registry.Set(key, stored, value)
	}
	return d, nil
}

// foreignReread is the interval at which a leader reads keys with foreign values again.
const foreignReread = 2 * time.Second

// findForeignValue finds out whether a transaction was refused because of a foreign value: one that
// another program wrote, so that lists leave its key out though the key exists. No transaction can
// replace such a value.
func (l *Leader) findForeignValue(ctx context.Context, t registry.Txn, index int) error {
	var key registry.Key
	if n := len(t.If); index < n && t.If[index].Kind == registry.CondAbsent {
		key = t.If[index].Key
	} else if index >= n && t.Then[index-n].Kind == registry.OpCreate {
		key = t.Then[index-n].Key
	} else {
		return nil
	}
	_, err := l.Self.Reg.Get(ctx, key, elector.Fresh)
	if !errors.Is(err, registry.ErrForeign) {
		return nil // the watch delivers the stored value
	}
	if !l.foreign[key] {
		l.Log.Error("record left alone: another program wrote its value; delete the key", "key", string(key), "error", err)
	}
	l.foreign[key], l.rereadForeignAt = true, time.Now().Add(foreignReread)
	return nil
}

// rereadForeign reads keys with foreign values again when that is due.
func (l *Leader) rereadForeign(ctx context.Context) {
	if len(l.foreign) == 0 || time.Now().Before(l.rereadForeignAt) {
		return
	}
	for key := range l.foreign {
		if _, err := l.Self.Reg.Get(ctx, key, elector.Fresh); err == nil || errors.Is(err, registry.ErrNotFound) {
			l.Log.Info("key with a foreign value was deleted; rota uses the key again", "key", string(key))
			delete(l.foreign, key)
			l.idle = false
		}
	}
	if l.rereadForeignAt = time.Now().Add(foreignReread); len(l.foreign) == 0 {
		l.rereadForeignAt = time.Time{}
	}
}

// unreadableReread is how long a leader waits before it reads unreadable claims again. It does not watch
// them, and an operator may have restored or deleted the record.
const unreadableReread = 5 * time.Second

// scheduleReread sets when to read unreadable claims again.
func (l *Leader) scheduleReread() {
	l.rereadClaimsAt = time.Time{}
	for _, reads := range []map[string]planning.FreshRead{l.View.Reads, l.View.PartReads} {
		for _, read := range reads {
			if len(read.Unreadable) > 0 {
				l.rereadClaimsAt = time.Now().Add(unreadableReread)
			}
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
		if key.Dir() == l.Self.Keys.Plans() {
			all[key.Name()] = true
		}
	}
	return all
}

// unreadableInputs returns, by segment, the key of a definition or control record that cannot be read.
func (l *Leader) unreadableInputs() map[string]registry.Key {
	out := map[string]registry.Key{}
	for seg := range l.badControls {
		out[seg] = l.Self.Keys.Control(seg)
	}
	for seg := range l.badJobs {
		out[seg] = l.Self.Keys.Job(seg)
	}
	for key := range l.foreign {
		if key.Dir() == l.Self.Keys.Jobs() {
			out[key.Name()] = key
		}
	}
	return out
}
