package leader

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// commitRetirements deletes retired jobs: first the states of their shards, then in one transaction for each job, or for
// several, the definition, the plan and the control record. While the control record is there, another leader finishes
// a deletion that this one does not. A job whose records have changed is decided anew when its watches deliver that.
func (l *Leader) commitRetirements(ctx context.Context, retirements []planning.Retirement, term []registry.Cond) error {
	if len(retirements) == 0 {
		return nil
	}
	l.Progress.SetTask("writes", "retirements")
	_, err := deleteJobs(ctx, l, term, retirements, func(r planning.Retirement) stateOwner {
		return stateOwner{r.Segment, registry.At(r.Key, r.Rev)}
	}, func(r planning.Retirement) batch.Items { return r.Records }, l.recordRetirement)
	return err
}

// stateOwner is a job whose shards' states are to be deleted, and the condition of that. The zero value keeps the states.
type stateOwner struct {
	segment string
	cond    registry.Cond
}

// deleteJobs deletes the states of jobs' shards, and then commits the parts that delete the jobs' other records. It leaves out,
// and returns, jobs whose condition is not met, or of which a state was saved meanwhile: the part would leave that state behind.
func deleteJobs[T any](ctx context.Context, l *Leader, term []registry.Cond, parts []T, ownerOf func(T) stateOwner, itemsOf func(T) batch.Items, done func(T, registry.Rev)) (changed map[string]bool, err error) {
	var owners []stateOwner
	for _, part := range parts {
		if o := ownerOf(part); o.segment != "" {
			owners = append(owners, o)
		}
	}
	if changed, err = l.deleteStates(ctx, owners, term); err != nil {
		return nil, err
	}
	parts = slices.DeleteFunc(slices.Clone(parts), func(part T) bool { return changed[ownerOf(part).segment] })
	_, err = applyParts(ctx, l, term, parts, itemsOf, done)
	return changed, err
}

// stateDeletion deletes the state of a shard of a job.
type stateDeletion struct {
	segment string
	items   batch.Items
}

// deleteStates deletes the states of the shards of jobs, each on its condition. It returns the segments of jobs whose condition
// is not met, or whose states have changed.
func (l *Leader) deleteStates(ctx context.Context, owners []stateOwner, term []registry.Cond) (changed map[string]bool, err error) {
	var mu sync.Mutex
	var parts []stateDeletion
	err = parallel.Each(ctx, parallelReads, owners, func(ctx context.Context, o stateOwner) error {
		listing, err := l.Self.Reg.List(ctx, l.Self.Keys.Data(o.segment, 0).Dir(), elector.Fresh)
		if err != nil {
			return fmt.Errorf("list the states of %s: %w", o.segment, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range listing.Entries {
			parts = append(parts, stateDeletion{o.segment, batch.Items{
				Conds: []registry.Cond{o.cond}, Ops: []registry.Op{registry.Delete(e.Key, e.Modified)},
			}})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	refused, err := applyParts(ctx, l, term, parts, func(d stateDeletion) batch.Items { return d.items }, func(stateDeletion, registry.Rev) {})
	changed = map[string]bool{}
	for _, d := range refused {
		changed[d.segment] = true
	}
	return changed, err
}

// applyParts commits parts under the term, as few transactions as possible, and calls done for each that is committed. It
// returns those that the store refuses.
func applyParts[T any](ctx context.Context, l *Leader, term []registry.Cond, parts []T, itemsOf func(T) batch.Items, done func(T, registry.Rev)) (refused []T, err error) {
	pack := func(parts []T, alone bool) []batch.Load[T] {
		return batch.Pack(term, parts, l.Self.Reg.Limits(), itemsOf, func(T) bool { return alone })
	}
	queue := pack(parts, false)
	for len(queue) > 0 {
		ld := queue[0]
		queue = queue[1:]
		rev, err := registry.Apply(ctx, l.Self.Reg, ld.Txn)
		switch refusal, conflict := batch.FindConflict(err); {
		case conflict && refusal.Index == 0:
			return nil, elector.ErrTermOver
		case conflict && len(ld.Parts) > 1:
			queue = append(pack(ld.Parts, true), queue...)
		case conflict:
			refused = append(refused, ld.Parts...)
		case err != nil:
			return nil, err
		default:
			l.Progress.RecordAnswer()
			l.LastCommit = max(l.LastCommit, rev.Seq)
			for _, part := range ld.Parts {
				done(part, rev)
			}
			l.wakeUp()
		}
	}
	return refused, nil
}

// recordRetirement removes a retired job from the view without waiting for the events.
func (l *Leader) recordRetirement(r planning.Retirement, _ registry.Rev) {
	if old, ok := l.View.Jobs[r.Segment]; ok {
		l.Edits.recordRetired(r.Segment, old)
	}
	delete(l.View.Plans, r.Segment)
	delete(l.View.Jobs, r.Segment)
	delete(l.View.Control, r.Segment)
	by := r.Control.Retiring
	l.Log.Info("retired job deleted: no instance offers it", "job", r.Control.Job, "by", by.By, "reason", by.Reason)
}

// retiredJob is a job that this leader has deleted.
type retiredJob struct {
	planning.JobRecord
	at time.Time
}

// keepRetired is how long a leader keeps the definitions of retired jobs that it has deleted. An instance that has found
// the definition stored, so that it stores none, may join that much later: it may wait for its name.
const keepRetired = 10 * time.Minute

// findRetiredDefinitions returns the definitions, of jobs deleted lately, that are to be stored again: an instance offers such a
// job, and has stored no definition of its own. The job is a new one.
func (e *Edits) findRetiredDefinitions(v *planning.View) (parts []restoredDefinition, err error) {
	for _, seg := range slices.Sorted(maps.Keys(e.retired)) {
		old, key := e.retired[seg], e.keys.Job(seg)
		if _, stored := v.Jobs[seg]; stored || time.Since(old.at) > keepRetired {
			delete(e.retired, seg)
			continue
		}
		if !e.isWritable(seg) || !v.IsOffered(old.Job) {
			continue
		}
		value, err := record.Encode(old.Def)
		if err != nil {
			return nil, err
		}
		parts = append(parts, restoredDefinition{
			JobRecord: planning.JobRecord{Def: old.Def, Job: old.Job}, job: old.Job, op: registry.Create(key, value),
			conds: e.offerCondition(v, old.Job), retired: true,
		})
	}
	return parts, nil
}
