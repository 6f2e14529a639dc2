package operator

import (
	"context"
	"errors"
	"sync"

	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

const (
	// parallelReads bounds the reads of single records that run at once, maxListings the listings: one of ten thousand
	// claims is megabytes.
	parallelReads = 16
	maxListings   = 8
)

// getRecord reads a record. Found is false if it does not exist.
func (o *Operator) getRecord(ctx context.Context, key registry.Key) (e registry.Entry, found bool, err error) {
	e, err = o.reg.Get(ctx, key, registry.ReadOptions{Fresh: true})
	if errors.Is(err, registry.ErrNotFound) {
		return e, false, nil
	}
	return e, err == nil, err
}

// get reads records into s, in the order of keys. A damaged or foreign one is no error; see Snapshot.Unreadable.
func (o *Operator) get(ctx context.Context, s *snapshot.Snapshot, keys ...registry.Key) error {
	for _, key := range keys {
		e, found, err := o.getRecord(ctx, key)
		switch {
		case errors.Is(err, registry.ErrForeign):
			s.PutForeign(key, err)
		case err != nil:
			return err
		case found:
			s.Put(e)
		}
	}
	return nil
}

// getEach reads records into s, several at once. It follows a fresh read, so these need not be fresh: reads of a handle never
// go back in time.
func (o *Operator) getEach(ctx context.Context, s *snapshot.Snapshot, keys []registry.Key) error {
	var mu sync.Mutex
	return parallel.Each(ctx, parallelReads, keys, func(ctx context.Context, key registry.Key) error {
		e, err := o.reg.Get(ctx, key, registry.ReadOptions{})
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, registry.ErrForeign):
			s.PutForeign(key, err)
		case err == nil:
			s.Put(e)
		case !errors.Is(err, registry.ErrNotFound):
			return err
		}
		return nil
	})
}

// list reads directories into s, in their order.
func (o *Operator) list(ctx context.Context, s *snapshot.Snapshot, options registry.ReadOptions, dirs ...registry.Key) error {
	for _, dir := range dirs {
		listing, err := o.reg.List(ctx, dir, options)
		if err != nil {
			return err
		}
		s.PutAll(listing.Entries)
	}
	return nil
}

// listMembers reads the members and their sessions into s. It follows a fresh read, as getEach does.
func (o *Operator) listMembers(ctx context.Context, s *snapshot.Snapshot) error {
	return o.list(ctx, s, registry.ReadOptions{}, o.keys.Members(), o.keys.Instances())
}

// listGroup reads the records of the group but the claims: one list for each directory, without those of pools if no job has one.
func (o *Operator) listGroup(ctx context.Context) (*snapshot.Snapshot, error) {
	s := snapshot.New(o.keys)
	if err := o.get(ctx, s, o.keys.Meta()); err != nil {
		return nil, err
	}
	if err := o.list(ctx, s, registry.ReadOptions{Fresh: true}, s.Directories()...); err != nil {
		return nil, err
	}
	return s, o.listPools(ctx, s)
}

// listClaims reads the claims records of incarnations into s.
func (o *Operator) listClaims(ctx context.Context, s *snapshot.Snapshot, incarnations []string) error {
	var mu sync.Mutex
	return parallel.Each(ctx, maxListings, incarnations, func(ctx context.Context, inc string) error {
		listing, err := o.reg.List(ctx, o.keys.ClaimsOf(inc), registry.ReadOptions{})
		mu.Lock()
		defer mu.Unlock()
		s.PutAll(listing.Entries)
		return err
	})
}

// getClaims reads the claims records of incarnations for one job into s.
func (o *Operator) getClaims(ctx context.Context, s *snapshot.Snapshot, segment string, incarnations []string) error {
	keys := make([]registry.Key, len(incarnations))
	for i, inc := range incarnations {
		keys[i] = o.keys.Claims(inc, segment)
	}
	return o.getEach(ctx, s, keys)
}

// getFleet reads into s what answers about one job need besides its own records: the leader, the members, and the claims
// of the job.
func (o *Operator) getFleet(ctx context.Context, s *snapshot.Snapshot, segment string) error {
	err := o.get(ctx, s, o.keys.Seat())
	if err == nil && s.Seat != nil {
		err = o.get(ctx, s, o.keys.Leader())
	}
	if err == nil {
		err = o.listMembers(ctx, s)
	}
	if err != nil {
		return err
	}
	return o.getClaims(ctx, s, segment, s.ClaimantsOf(segment))
}

// getReadable reads records that have to be readable, if they exist.
func (o *Operator) getReadable(ctx context.Context, keys ...registry.Key) (*snapshot.Snapshot, error) {
	s := snapshot.New(o.keys)
	if err := o.get(ctx, s, keys...); err != nil {
		return s, err
	}
	return s, s.Check(keys...)
}

// readPlan returns the plan of a job, without a Plan if there is none.
func (o *Operator) readPlan(ctx context.Context, segment string) (planning.PlanRecord, error) {
	s, err := o.getReadable(ctx, o.keys.Plan(segment))
	return s.Plans[segment], err
}

// readControl returns the intent for a job. Without a control record, the intent is that of
// the plan, which the first definition set by StartPaused; later definitions do not change it.
func (o *Operator) readControl(ctx context.Context, job *storedJob) (*record.Control, error) {
	segment := record.Segment(job.Name)
	stored, err := o.readStoredControl(ctx, segment)
	if err != nil {
		return nil, err
	}
	if c := job.ownControl(stored.Control); c != nil {
		return c, nil
	}
	p, err := o.readPlan(ctx, segment)
	if err != nil {
		return nil, err
	}
	return job.controlWithoutRecord(p.Plan), nil
}

// readStoredControl returns the control record of a job, without a Control if there is none.
func (o *Operator) readStoredControl(ctx context.Context, segment string) (planning.ControlRecord, error) {
	s, err := o.getReadable(ctx, o.keys.Control(segment))
	return s.Control[segment], err
}

// controlWithoutRecord returns the intent for a job that has no control record. A nil plan means
// that there is none.
func controlWithoutRecord(def record.Job, p *record.Plan) *record.Control {
	c := &record.Control{Job: def.Name, Paused: def.StartPaused}
	if p != nil {
		own := p.OwnHold()
		c.Paused, c.Stopped, c.Disabled, c.Resets = own.Paused, own.Stopped, p.Disabled, p.Resets
	}
	return c
}

// readGroupControl returns the intent for all jobs.
func (o *Operator) readGroupControl(ctx context.Context) (planning.GroupRecord, error) {
	if err := o.checkFormat(ctx); err != nil {
		return planning.GroupRecord{}, err
	}
	s, err := o.getReadable(ctx, o.keys.GroupControl())
	if s.Group.GroupControl == nil {
		s.Group.GroupControl = &record.GroupControl{}
	}
	return s.Group, err
}

// storedJob is the definition of a job, and the record that defines it, if the job is defined as data.
type storedJob struct {
	planning.JobRecord // of a defined job, without a Rev: what operators want, whether the job is awake or not
	defined            planning.DefinedRecord
	replaces           bool // another creation of the name has records, which the leader deletes before this one wakes
	deleting           bool // operators want no creation of the name, and the leader has yet to delete its records
}

// asRead returns the condition on which an intent for the job rests: a deleted job has none, and the leader deletes those of an
// earlier creation.
func (j *storedJob) asRead(keys record.Keys) []registry.Cond {
	if j.defined.Defined == nil || j.deleting {
		return nil
	}
	return []registry.Cond{registry.At(keys.Defined(record.Segment(j.Name)), j.defined.Rev)}
}

// ownControl returns a control record, or nil if it is that of an earlier creation.
func (j *storedJob) ownControl(c *record.Control) *record.Control {
	if c != nil && j.replaces && !c.HasActsSince(j.defined.At) {
		return nil
	}
	return c
}

// controlWithoutRecord returns the intent for the job if it has no control record.
func (j *storedJob) controlWithoutRecord(p *record.Plan) *record.Control {
	if j.replaces {
		p = nil
	}
	return controlWithoutRecord(j.Job, p)
}

// readDefinition returns the stored definition of a job, or ErrDeleting for one that is being deleted.
func (o *Operator) readDefinition(ctx context.Context, segment string) (storedJob, error) {
	job, err := o.readStoredJob(ctx, segment)
	if err == nil && job.deleting {
		return storedJob{}, ErrDeleting
	}
	return job, err
}

// readStoredJob returns the stored definition of a job, which may be one that is being deleted.
func (o *Operator) readStoredJob(ctx context.Context, segment string) (storedJob, error) {
	if err := o.checkFormat(ctx); err != nil {
		return storedJob{}, err
	}
	s, err := o.getReadable(ctx, o.keys.Job(segment))
	if err != nil {
		return storedJob{}, err
	}
	awake, found := s.Jobs[segment]
	if found && awake.Kind == "" {
		return storedJob{JobRecord: awake}, nil
	}
	d, err := o.readDefined(ctx, segment)
	switch {
	case err != nil:
		return storedJob{}, err
	case d.Defined == nil && !found:
		return storedJob{}, ErrUnknownJob
	case d.Defined == nil || d.IsDeleted():
		if !found {
			awake.Job = record.Job{Name: d.Job}
		}
		return storedJob{JobRecord: awake, defined: d, deleting: true}, nil
	}
	job := storedJob{JobRecord: planning.JobRecord{Def: d.Definition, Job: d.Parsed()}, defined: d, replaces: found && awake.Created != d.Created}
	if d.Rest != nil {
		job.StartPaused = false // that was before the first rest
	}
	return job, nil
}

// putResting adds the definition of a defined job that has none of its own to s, as if it were awake. It returns the record of the
// defined job, without a Defined if there is none. The caller has read whether the job is awake.
func (o *Operator) putResting(ctx context.Context, s *snapshot.Snapshot, segment string) (planning.DefinedRecord, error) {
	d, err := o.readDefined(ctx, segment)
	if err == nil && d.Defined != nil && !d.IsDeleted() && !s.Has(o.keys.Job(segment)) {
		s.Put(registry.Entry{Key: o.keys.Job(segment), Value: d.Definition, Modified: d.Rev})
	}
	return d, err
}

// checkFormat checks that this version supports the record format of the namespace.
func (o *Operator) checkFormat(ctx context.Context) error {
	_, err := o.getReadable(ctx, o.keys.Meta())
	return err
}
