package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// Edits finds the records that another writer edited during a term, and returns the definitions that repair them; planning
// repairs plans. It reads the store and writes nothing to it. It belongs to the goroutine of its leader.
type Edits struct {
	reg  registry.Registry
	keys record.Keys
	log  *slog.Logger

	lastWrite map[string]uint64       // by segment: the commit of this term that last wrote the plan
	unsure    map[string]bool         // segments whose last change has an unknown outcome
	deleted   map[string]registry.Rev // by segment of a deleted plan to be restored: the last Rev of the plan

	badJobs, badControls map[string]bool // segments whose definition or control record cannot be read

	foreign         map[registry.Key]bool // keys whose value another program wrote; lists leave them out
	rereadForeignAt time.Time             // when to read them again; zero: there are none

	refused bool // the view is behind a record on which a definition to restore depends

	retired map[string]retiredJob // by segment: jobs that this term has deleted lately

	rereadClaimsAt time.Time // when to read unreadable claims again; zero: there are none
}

// NewEdits returns the Edits of a new term.
func NewEdits(reg registry.Registry, keys record.Keys, log *slog.Logger) *Edits {
	return &Edits{
		reg: reg, keys: keys, log: log,
		lastWrite: map[string]uint64{}, unsure: map[string]bool{}, deleted: map[string]registry.Rev{}, badJobs: map[string]bool{}, badControls: map[string]bool{},
		foreign: map[registry.Key]bool{}, retired: map[string]retiredJob{},
	}
}

// nextDue returns when reread has something to do; zero: never.
func (e *Edits) nextDue() time.Time { return earliest(e.rereadClaimsAt, e.rereadForeignAt) }

// reread reads again what could not be read, when that is due. It reports whether the leader has to plan.
func (e *Edits) reread(ctx context.Context, now time.Time) bool {
	usable := e.rereadForeign(ctx, now)
	claims := !e.rereadClaimsAt.IsZero() && !now.Before(e.rereadClaimsAt)
	if claims { // planning requests them; should this round not plan, since clocks are in doubt, a later one does
		e.rereadClaimsAt = now.Add(unreadableReread)
	}
	return usable || claims
}

// detectPlanEdit reports whether another writer changed a plan. If so, the view keeps the plan that the
// leader knows, and planning writes it over the stored value. synced reports whether the view is complete.
func (e *Edits) detectPlanEdit(v *planning.View, n feed.Update[*record.Plan], synced bool) bool {
	old, known := v.Plans[n.Name]
	unsure := e.unsure[n.Name]
	delete(e.deleted, n.Name)
	delete(e.unsure, n.Name) // after another write of the record, a transaction whose outcome is unknown can no longer commit
	switch {
	case !known, !synced, unsure, errors.Is(n.Err, record.ErrNewerFormat): // a record of a newer version is valid
		return false
	case n.Deleted && !v.IsOffered(old.Last().Job()):
		return false // an operator may remove a job that no live instance offers
	case !n.Deleted && n.Rev.Seq <= max(v.Term.Seq, e.lastWrite[n.Name]):
		return false // of an earlier term or this leader: a watch may deliver it after the leader's own record of the write
	}
	if n.Deleted {
		e.deleted[n.Name] = old.Rev
	}
	v.Plans[n.Name] = planning.PlanRecord{Rev: n.Rev, Plan: old.Plan}
	v.EditedPlans[n.Name] = true
	if !n.Deleted { // otherwise confirmDeletedPlans finds out whether the plan is restored
		e.logPlanEdit(old.Job, n.Name)
	}
	return true
}

func (e *Edits) logPlanEdit(job, segment string) {
	e.log.Warn("another writer changed or deleted a plan; restoring it", "job", job, "key", string(e.keys.Plan(segment)))
}

// recordWrite records that the leader wrote a plan, so that the event of it is no edit.
func (e *Edits) recordWrite(segment string, rev registry.Rev) {
	e.lastWrite[segment] = rev.Seq
	delete(e.unsure, segment)
}

// recordUnknown records that a write of a plan has an unknown outcome.
func (e *Edits) recordUnknown(segment string) { e.unsure[segment] = true }

// recordRetired records that the leader deleted a retired job, whose definition was old.
func (e *Edits) recordRetired(segment string, old planning.JobRecord) {
	e.retired[segment] = retiredJob{old, time.Now()}
}

// step finds out which deleted plans are to be restored, and returns the definitions to store. The leader commits them and
// passes each outcome to recordRestored or recordRefused; then it calls dropForgotten.
func (e *Edits) step(ctx context.Context, v *planning.View) ([]restoredDefinition, error) {
	if err := e.confirmDeletedPlans(ctx, v); err != nil {
		return nil, err
	}
	e.refused = false
	lost, err := e.findLostDefinitions(v)
	if err != nil {
		return nil, err
	}
	again, err := e.findRetiredDefinitions(v)
	return append(lost, again...), err
}

// confirmDeletedPlans finds out which deleted plans are to be restored, and leaves those of jobs that an operator has
// forgotten for dropForgotten. Forget deletes the definition, the plan and the claims of a job in one commit, and
// instances may offer the job again before the watch delivers the deletion of the plan. Restored without the claims, the
// plan would have its last fires claimed again. A record edit leaves a definition that is older than the deletion, or claims
// that are older than the definition, if that was deleted and restored before.
func (e *Edits) confirmDeletedPlans(ctx context.Context, v *planning.View) error {
	for seg, rev := range e.deleted {
		plan := v.Plans[seg].Plan
		def, err := e.reg.Get(ctx, e.keys.Job(seg), registry.ReadOptions{Fresh: true})
		switch {
		case errors.Is(err, registry.ErrNotFound):
			delete(v.Jobs, seg) // its watch will deliver that
		case err != nil && !errors.Is(err, registry.ErrForeign):
			return fmt.Errorf("read the definition of a deleted plan: %w", err)
		default:
			edited := err != nil || def.Created.Seq < rev.Seq
			if !edited {
				if edited, err = e.hasClaimsBefore(ctx, plan, def.Created); err != nil {
					return fmt.Errorf("read the claims of a deleted plan: %w", err)
				}
			}
			if edited {
				e.logPlanEdit(plan.Job, seg)
				delete(e.deleted, seg)
			}
		}
	}
	return nil
}

// hasClaimsBefore reports whether an owner's claims of a plan's job are older than rev.
func (e *Edits) hasClaimsBefore(ctx context.Context, plan *record.Plan, rev registry.Rev) (bool, error) {
	for _, inc := range slices.Sorted(maps.Keys(plan.Owners)) {
		claims, err := e.reg.Get(ctx, e.keys.Claims(inc, plan.Job), registry.ReadOptions{Fresh: true})
		switch {
		case errors.Is(err, registry.ErrNotFound), errors.Is(err, registry.ErrForeign):
		case err != nil:
			return false, err
		case claims.Created.Seq < rev.Seq:
			return true, nil
		}
	}
	return false, nil
}

// dropForgotten drops the plans of forgotten jobs from the view. Until then, findLostDefinitions takes missing
// definitions from them.
func (e *Edits) dropForgotten(v *planning.View) {
	for seg := range e.deleted {
		e.log.Info("the job of the deleted plan was forgotten; it begins anew", "job", v.Plans[seg].Job)
		delete(v.Plans, seg)
		delete(v.EditedPlans, seg)
	}
	clear(e.deleted)
}

// findLostDefinitions returns the definitions in force that another writer deleted or replaced by one of
// a lower revision. It leaves a job that no live instance offers, since an operator may have removed it, and a defined job
// whose plan was deleted with its definition: while operators want it, it wakes again by their record.
func (e *Edits) findLostDefinitions(v *planning.View) (lost []restoredDefinition, err error) {
	for _, seg := range slices.Sorted(maps.Keys(v.Plans)) {
		last := v.Plans[seg].Last()
		stored, ok := v.Jobs[seg]
		if ok && stored.Revision >= last.Job().Revision || !e.isWritable(seg) || !v.IsOffered(last.Job()) {
			continue
		}
		d, err := restoreDefinition(e.keys.Job(seg), stored.Rev, last)
		if err != nil {
			return nil, err
		}
		d.conds, d.forgotten = e.restoreConditions(v, seg, last.Job())
		if !d.forgotten || last.Job().Kind == "" {
			lost = append(lost, d)
		}
	}
	return lost, nil
}

// isWritable reports whether the key of a definition has no value that this leader cannot read.
func (e *Edits) isWritable(segment string) bool {
	return !e.badJobs[segment] && !e.foreign[e.keys.Job(segment)]
}

// restoreRecords repairs the records that another writer edited, except for plans, which planning repairs.
func (l *Leader) restoreRecords(ctx context.Context) error {
	parts, err := l.Edits.step(ctx, &l.View)
	if err != nil {
		return err
	}
	if len(parts) > 0 {
		l.Progress.SetTask("writes", "definitions")
		term := []registry.Cond{registry.At(l.Self.Keys.Leader(), l.View.Term)}
		refused, err := applyParts(ctx, l, term, parts, func(d restoredDefinition) batch.Items {
			return batch.Items{Conds: d.conds, Ops: []registry.Op{d.op}}
		}, func(d restoredDefinition, rev registry.Rev) {
			l.jobs.Feed.RecordWrite(d.op.Key.Name(), rev, d.JobRecord) // without waiting for its event
			l.Edits.recordRestored(d)
		})
		if err != nil {
			return fmt.Errorf("restore definitions: %w", err)
		}
		for _, d := range refused { // the watches deliver what has changed
			if err := l.Edits.recordRefused(ctx, d); err != nil {
				return err
			}
		}
	}
	l.Edits.dropForgotten(&l.View)
	return nil
}

// recordRefused records that the store refused a definition: the view is behind, or the key has a foreign value.
func (e *Edits) recordRefused(ctx context.Context, d restoredDefinition) error {
	e.refused = true
	return e.findForeignValue(ctx, registry.Txn{Then: []registry.Op{d.op}}, 0)
}

// recordRestored logs a definition that is stored again.
func (e *Edits) recordRestored(d restoredDefinition) {
	switch {
	case d.retired:
		delete(e.retired, d.op.Key.Name())
		e.log.Info("an instance offers a job that was just deleted, since it was retired; the job begins anew", "job", d.job.Name)
	case !d.forgotten: // dropForgotten logs it
		e.log.Warn("another writer deleted a definition or stored an older one; restored the one in force",
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
func (e *Edits) restoreConditions(v *planning.View, segment string, job record.Job) (conds []registry.Cond, forgotten bool) {
	if _, forgotten = e.deleted[segment]; !forgotten && !v.EditedPlans[segment] {
		conds = append(conds, registry.At(e.keys.Plan(segment), v.Plans[segment].Rev))
	}
	return append(conds, e.offerCondition(v, job)...), forgotten
}

// offerCondition returns the condition that a live member offers a job still.
func (e *Edits) offerCondition(v *planning.View, job record.Job) []registry.Cond {
	for _, inc := range slices.Sorted(maps.Keys(v.Members)) {
		if m := v.Members[inc]; m.Offers(job) && v.Alive(inc) && !m.Rev.IsZero() {
			return []registry.Cond{registry.At(e.keys.Member(inc), m.Rev)}
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
func (e *Edits) findForeignValue(ctx context.Context, t registry.Txn, index int) error {
	var key registry.Key
	if n := len(t.If); index < n && t.If[index].Kind == registry.CondAbsent {
		key = t.If[index].Key
	} else if index >= n && t.Then[index-n].Kind == registry.OpCreate {
		key = t.Then[index-n].Key
	} else {
		return nil
	}
	_, err := e.reg.Get(ctx, key, elector.Fresh)
	if !errors.Is(err, registry.ErrForeign) {
		return nil // the watch delivers the stored value
	}
	if !e.foreign[key] {
		e.log.Error("record left alone: another program wrote its value; delete the key", "key", string(key), "error", err)
	}
	e.foreign[key], e.rereadForeignAt = true, time.Now().Add(foreignReread)
	return nil
}

// rereadForeign reads keys with foreign values again when that is due. It reports whether one is usable again.
func (e *Edits) rereadForeign(ctx context.Context, now time.Time) (usable bool) {
	if len(e.foreign) == 0 || now.Before(e.rereadForeignAt) {
		return false
	}
	for key := range e.foreign {
		if _, err := e.reg.Get(ctx, key, elector.Fresh); err == nil || errors.Is(err, registry.ErrNotFound) {
			e.log.Info("key with a foreign value was deleted; rota uses the key again", "key", string(key))
			delete(e.foreign, key)
			usable = true
		}
	}
	if e.rereadForeignAt = time.Now().Add(foreignReread); len(e.foreign) == 0 {
		e.rereadForeignAt = time.Time{}
	}
	return usable
}

// unreadableReread is how long a leader waits before it reads unreadable claims again. It does not watch
// them, and an operator may have restored or deleted the record.
const unreadableReread = 5 * time.Second

// scheduleReread sets when to read unreadable claims again, by the fresh reads of a round.
func (e *Edits) scheduleReread(v *planning.View) {
	e.rereadClaimsAt = time.Time{}
	for _, reads := range []map[string]planning.FreshRead{v.Reads, v.PartReads} {
		for _, read := range reads {
			if len(read.Unreadable) > 0 {
				e.rereadClaimsAt = time.Now().Add(unreadableReread)
			}
		}
	}
}

// foreignIn returns the names of the keys in a directory that have foreign values.
func (e *Edits) foreignIn(dir registry.Key) (names []string) {
	for key := range e.foreign {
		if key.Dir() == dir {
			names = append(names, key.Name())
		}
	}
	return names
}

// unreadablePlans returns the segments whose plan cannot be read, broken ones included.
func (e *Edits) unreadablePlans(broken map[string]bool) map[string]bool {
	if len(e.foreign) == 0 {
		return broken
	}
	all := maps.Clone(broken)
	for _, segment := range e.foreignIn(e.keys.Plans()) {
		all[segment] = true
	}
	return all
}

// unreadableInputs returns, by segment, the key of a definition or control record that cannot be read.
func (e *Edits) unreadableInputs() map[string]registry.Key {
	out := map[string]registry.Key{}
	for seg := range e.badControls {
		out[seg] = e.keys.Control(seg)
	}
	for seg := range e.badJobs {
		out[seg] = e.keys.Job(seg)
	}
	for _, segment := range e.foreignIn(e.keys.Jobs()) {
		out[segment] = e.keys.Job(segment)
	}
	return out
}
