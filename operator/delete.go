package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/backoff"
	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// DeleteOption is an option of Operator.Delete and DeleteAll.
type DeleteOption func(*deleteOptions)

type deleteOptions struct{ cancelRuns, noWait bool }

// CancelRuns cancels the runs in progress before the deletion, as Operator.Cancel does. A run that begins in the moment between is
// not cancelled.
func CancelRuns() DeleteOption { return func(o *deleteOptions) { o.cancelRuns = true } }

// WithoutWait makes Delete return once the deletion is stored. Until the leader has paused the job, runs of it may begin.
func WithoutWait() DeleteOption { return func(o *deleteOptions) { o.noWait = true } }

// Delete deletes a job that is defined as data. The deletion is durable: once it is stored, the leader pauses the job, waits for its runs to end, and
// deletes its records, with its counts, failures and the states that its runs have saved. If the leader dies, the next one goes on.
// History that package history has written stays, and for five minutes a tombstone, one small record.
//
// Delete returns when no run of the job can be claimed any more: at once for a job that rests, usually within a second otherwise.
// Runs in progress go on, see CancelRuns, and a run that was claimed before may begin once a worker is free. If ctx ends
// before, the error wraps ErrDeleting and its cause: the deletion is stored, and until the leader pauses the job, runs of it may
// begin. A repetition waits again.
//
// Define may follow at once; the runs of the deleted job end first. Delete fails with ErrUnknownJob for a job that is not defined, which is also the
// answer to a repetition once all records are deleted, and with ErrRegistered for one that is registered in code.
func (o *Operator) Delete(ctx context.Context, job string, options ...DeleteOption) error {
	return nameErrors("delete", []string{job}, o.deleteAll(ctx, []string{job}, options))
}

// DeleteAll is Delete for many jobs, which share reads and commits. A job that is not defined counts as deleted, so that programs that
// clean up after the same list do not fail each other. The error joins those of all jobs that failed, and names each; the others are deleted.
func (o *Operator) DeleteAll(ctx context.Context, jobs []string, options ...DeleteOption) error {
	jobs = slices.Clone(jobs)
	slices.Sort(jobs)
	jobs = slices.Compact(jobs)
	errs := o.deleteAll(ctx, jobs, options)
	for i, of := range errs {
		errs[i] = slices.DeleteFunc(of, func(err error) bool { return errors.Is(err, ErrUnknownJob) })
	}
	return nameErrors("delete", jobs, errs)
}

// deletion is the deletion of one job.
type deletion struct {
	job, segment string
	items        batch.Items // none: it is stored already
	created      string      // the creation to delete; "" if it is not known
	isAlone      bool        // no record is left that would let runs be claimed
	err          error
	waits        string // why runs may still be claimed; "" if none can be
}

func (o *Operator) deleteAll(ctx context.Context, jobs []string, options []DeleteOption) [][]error {
	var opts deleteOptions
	for _, option := range options {
		option(&opts)
	}
	all := make([]*deletion, len(jobs))
	for i, job := range jobs {
		all[i] = &deletion{job: job, segment: record.Segment(job)}
	}
	if err := o.checkFormat(ctx); err != nil {
		for _, d := range all {
			d.err = err
		}
	} else {
		o.storeDeletions(ctx, all, opts.cancelRuns)
		if !opts.noWait {
			o.awaitDeletions(ctx, all)
		}
	}
	errs := make([][]error, len(all))
	for i, d := range all {
		if d.err != nil {
			errs[i] = []error{d.err}
		}
	}
	return errs
}

// storeDeletions stores deletions. It retries those of jobs that another writer changes meanwhile.
func (o *Operator) storeDeletions(ctx context.Context, all []*deletion, cancelRuns bool) {
	alone := map[*deletion]bool{}
	for left := all; len(left) > 0; {
		err := parallel.Each(ctx, parallelReads, left, func(ctx context.Context, d *deletion) error {
			if d.err = o.readDeletion(ctx, d); d.err == nil && cancelRuns {
				if _, err := o.Cancel(ctx, d.job); !errors.Is(err, ErrNotRunning) && !errors.Is(err, ErrUnknownJob) {
					d.err = err
				}
			}
			return nil
		})
		var writes []*deletion
		for _, d := range left {
			if d.err == nil && err != nil {
				d.err = err
			}
			if d.err == nil && len(d.items.Ops) > 0 {
				writes = append(writes, d)
			}
		}
		left = nil
		for _, ld := range batch.Pack(nil, writes, o.reg.Limits(), func(d *deletion) batch.Items { return d.items }, func(d *deletion) bool { return alone[d] }) {
			_, err := registry.Apply(ctx, o.reg, ld.Txn)
			conflict, refused := batch.FindConflict(err)
			if refused {
				if part, ok := ld.PartOf(conflict.Index); ok {
					alone[ld.Parts[part]] = true
				}
				left = append(left, ld.Parts...)
				continue
			}
			for _, d := range ld.Parts {
				d.err = err
			}
		}
	}
}

// readDeletion reads the records of a job and sets the write that deletes it; none if it is deleted already.
func (o *Operator) readDeletion(ctx context.Context, d *deletion) error {
	d.items, d.isAlone = batch.Items{}, false
	keys := []registry.Key{o.keys.Job(d.segment), o.keys.Control(d.segment), o.keys.Plan(d.segment)}
	stored, err := o.readDefined(ctx, d.segment)
	if err != nil {
		return err
	}
	s, err := o.getReadable(ctx, keys[0])
	if err != nil {
		return err
	}
	job, found := s.Jobs[d.segment]
	d.created = job.Created
	switch {
	case stored.Defined == nil && !found:
		return ErrUnknownJob
	case stored.Defined == nil && job.Kind == "":
		return ErrRegistered
	case stored.Defined == nil: // the leader is deleting its other records
		return nil
	case stored.IsDeleted():
		return nil
	}
	d.created = stored.Created
	isAlone := stored.Rest == nil && !found
	for _, key := range keys {
		_, found, err := o.getRecord(ctx, key)
		if err != nil && !errors.Is(err, registry.ErrForeign) {
			return err
		}
		isAlone = isAlone && !found && err == nil
	}
	if isAlone {
		for _, key := range keys {
			d.items.Conds = append(d.items.Conds, registry.Absent(key))
		}
		d.isAlone = true
		op, err := putOp(o.keys.Defined(d.segment), stored.Rev, stored.Tombstone(record.InstantOf(time.Now()), o.newAct("delete")))
		d.items.Ops = []registry.Op{op}
		return err
	}
	op, err := putOp(o.keys.Defined(d.segment), stored.Rev, &record.Defined{Job: stored.Job, Revision: stored.Revision, At: stored.At, By: o.newAct("delete")})
	d.items.Ops = []registry.Op{op}
	return err
}

// awaitDeletions waits until no run of the deleted jobs can be claimed. It reads few records, and no watch could follow less than all plans.
func (o *Operator) awaitDeletions(ctx context.Context, all []*deletion) {
	left := slices.DeleteFunc(slices.Clone(all), func(d *deletion) bool { return d.err != nil || d.isAlone })
	for _, d := range left {
		d.waits = "its plan was not read"
	}
	var pause backoff.Backoff
	for {
		err := parallel.Each(ctx, parallelReads, left, func(ctx context.Context, d *deletion) error {
			waits, err := o.findClaimable(ctx, d)
			if err == nil {
				d.waits = waits
			} else if !registry.Retryable(err) {
				d.err = fmt.Errorf("%w, and whether runs of it may begin is unknown: %w", ErrDeleting, err)
			}
			return nil
		})
		left = slices.DeleteFunc(left, func(d *deletion) bool { return d.err != nil || d.waits == "" })
		if len(left) == 0 {
			return
		}
		if err == nil {
			err = pause.Wait(ctx)
		}
		if err != nil {
			for _, d := range left {
				d.err = fmt.Errorf("%w: %w: the deletion is stored, and the leader goes on with it; until then, runs of it may begin: %s", ErrDeleting, err, d.waits)
			}
			return
		}
	}
}

// findClaimable returns why a run of a deleted job may still be claimed, "" if none can be. Without a plan none can, nor by one that is
// paused: a leader creates a plan, and ends a pause, on condition that the record of the creation is as it knows it.
func (o *Operator) findClaimable(ctx context.Context, d *deletion) (why string, err error) {
	plan, err := o.readPlan(ctx, d.segment)
	p := plan.Plan
	if err != nil || p == nil || p.Paused {
		return "", err
	}
	if created := p.Last().Job().Created; d.created != "" && created != d.created {
		next, err := o.readDefined(ctx, d.segment)
		if err != nil || next.Defined != nil && next.Created == created {
			return "", err
		} // else it is of an earlier creation, which is to be deleted too
	}
	return "no leader has paused its plan", nil
}
