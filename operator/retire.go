package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// ErrRetiring means that the job is being removed: Retire was called for it, and Unretire was not.
var ErrRetiring = errors.New("the job is retiring")

// Retire removes jobs from the fleet. The intent is durable, so no process has to wait for the removal. Once the leader
// has applied it, nothing of a job is claimed; runs in progress finish. As soon as no live instance offers the job, none
// that is awaited after a restart, and no instance owns a shard of it, the leader deletes its records, as Forget does:
// pending triggers and re-runs, counts and stored states are lost. If the leader dies, the next one goes on. A fleet
// without a live instance has no leader, so the deletion waits for the next instance.
//
// While an instance offers a job, the job is retiring: Intent.RetiredBy has the act, and Status.Members shows which
// instances offer it. Deploy without the job, or call Executor.Withdraw. An instance that registers the job, or
// joins with it, does not end the retirement: in a rolling deployment an old process may restart. Unretire does. Until
// then, other changes of the intent fail with ErrRetiring, except Cancel. After the deletion, an instance that registers
// the job stores a new job, which runs.
//
// Retire fails with ErrDefined for a job that is defined as data: Delete deletes it.
//
// Jobs that follow a retired job (schedule.AfterJob) stay, and have no fires any more. Their Status.Problem names the missing job.
//
// Retiring a job again changes nothing. Retire fails with ErrUnknownJob for a job of which neither a definition nor an
// intent is stored. The error joins those of all jobs that failed, and names each; the others are retired. Many jobs
// share a commit. Leaders of a version without Retire neither pause nor delete the jobs.
func (o *Operator) Retire(ctx context.Context, jobs ...string) error {
	return o.changeRetiring(ctx, "retire", jobs, func(c *record.Control) bool {
		if c.Retiring != nil {
			return false
		}
		act := o.newAct("retire")
		c.Retiring = &act
		return true
	})
}

// Unretire takes a Retire back: jobs that have not been deleted yet continue as after a Resume, or stay paused or stopped
// if they were. States that runs or owners have saved may be gone already. A job that is not retiring, or of which
// nothing is on record, stays as it is, so a program may call Unretire before it registers a job that it has retired before.
func (o *Operator) Unretire(ctx context.Context, jobs ...string) error {
	return o.changeRetiring(ctx, "unretire", jobs, func(c *record.Control) bool {
		was := c.Retiring != nil
		c.Retiring = nil
		return was
	})
}

// intentChange is a change of the control record of one job.
type intentChange struct {
	job   string
	items batch.Items // none: nothing is to be changed
	err   error
}

// changeRetiring changes the control records of many jobs by compare-and-set, and adds the act verb to those for which
// change returns true.
func (o *Operator) changeRetiring(ctx context.Context, verb string, jobs []string, change func(*record.Control) bool) error {
	if len(jobs) == 0 {
		return nil
	}
	if err := o.checkFormat(ctx); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	jobs = slices.Clone(jobs)
	slices.Sort(jobs)
	jobs = slices.Compact(jobs)
	failed := map[string]error{}
	for alone, left := false, jobs; len(left) > 0; alone = true {
		changes := o.readIntentChanges(ctx, left, verb, change)
		left = nil
		for _, c := range changes {
			if c.err != nil {
				failed[c.job] = c.err
			}
		}
		changes = slices.DeleteFunc(changes, func(c intentChange) bool { return len(c.items.Ops) == 0 })
		loads := batch.Pack(nil, changes, o.reg.Limits(), func(c intentChange) batch.Items { return c.items }, func(intentChange) bool { return alone })
		for _, ld := range loads {
			_, err := registry.Apply(ctx, o.reg, ld.Txn)
			_, refused := batch.FindConflict(err)
			for _, c := range ld.Parts {
				if refused {
					left = append(left, c.job) // a record has changed: read it again
				} else if err != nil {
					failed[c.job] = err
				}
			}
		}
	}
	var errs []error
	for _, job := range jobs {
		if err := failed[job]; err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", verb, job, err))
		}
	}
	return errors.Join(errs...)
}

// readIntentChanges reads the intents for jobs and returns their changes.
func (o *Operator) readIntentChanges(ctx context.Context, jobs []string, verb string, change func(*record.Control) bool) []intentChange {
	changes := make([]intentChange, len(jobs))
	indexes := make([]int, len(jobs))
	for i := range jobs {
		indexes[i], changes[i] = i, intentChange{job: jobs[i]}
	}
	err := parallel.Each(ctx, parallelReads, indexes, func(ctx context.Context, i int) error {
		changes[i].items, changes[i].err = o.readIntentChange(ctx, jobs[i], verb, change)
		return nil
	})
	for i := range changes { // ctx has ended
		if err != nil && changes[i].err == nil && len(changes[i].items.Ops) == 0 {
			changes[i].err = err
		}
	}
	return changes
}

// readIntentChange reads the intent for a job and returns the write that changes it.
func (o *Operator) readIntentChange(ctx context.Context, job, verb string, change func(*record.Control) bool) (items batch.Items, err error) {
	segment := record.Segment(job)
	stored, err := o.readStoredControl(ctx, segment)
	if err != nil {
		return items, err
	}
	if verb == "retire" {
		if d, err := o.readDefined(ctx, segment); err != nil || d.Defined != nil {
			return items, cmp.Or(err, ErrDefined)
		}
	}
	c := stored.Control
	if c == nil {
		def, err := o.readDefinition(ctx, segment)
		switch {
		case errors.Is(err, ErrUnknownJob) && verb == "unretire":
			return items, o.orNil(ErrUnchanged)
		case err != nil:
			return items, err
		}
		var planAsRead registry.Cond
		if c, planAsRead, err = o.createControl(ctx, &def); err != nil {
			return items, err
		}
		items.Conds = append(def.asRead(o.keys), planAsRead)
	}
	if !change(c) {
		return batch.Items{}, o.orNil(ErrUnchanged)
	}
	c.Acts = c.Acts.With(o.newAct(verb))
	op, err := putOp(o.keys.Control(segment), stored.Rev, c)
	if err != nil {
		return batch.Items{}, err
	}
	items.Ops = []registry.Op{op}
	return items, nil
}
