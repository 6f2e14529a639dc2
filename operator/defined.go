package operator

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// DefinedState is the state of a job that is defined as data.
type DefinedState string

// The states.
const (
	DefinedResting    DefinedState = "resting"    // nothing of it is due; the leader wakes it for its next fire, or for an act of an operator
	DefinedAwake      DefinedState = "awake"      // it has a plan, or is about to
	DefinedFinished   DefinedState = "finished"   // it rests and has no further fire; see DefinedJob.DeleteAt
	DefinedDeleting   DefinedState = "deleting"   // it is deleted, and the leader has yet to delete its records
	DefinedUnreadable DefinedState = "unreadable" // its record cannot be read; see DefinedJob.Problem
)

// DefinedJob is a job that is defined as data.
type DefinedJob struct {
	Name     string       `json:"name"` // of one whose record cannot be read, the last segment of its key
	State    DefinedState `json:"state"`
	Kind     string       `json:"kind,omitempty"`
	Revision int          `json:"revision,omitempty"` // from 1; one more at each change
	// Creation identifies this creation of the name: a job that is defined after a Delete has another one.
	Creation string `json:"creation,omitempty"`
	Schedule string `json:"schedule,omitempty"` // schedule.Parse parses it
	// Definition is the stored definition, with the defaults that were filled in: Define of it changes nothing. It includes
	// parameters, which may be secret, so the JSON does not have it.
	Definition Definition `json:"-"`
	Defined    time.Time  `json:"defined,omitzero"` // when this creation was defined, by the clock of its author
	By         Act        `json:"by,omitzero"`      // the last Define, or the Delete
	// NextFire is the next fire, zero if there is none. That of a job that is awake is as in Status.
	NextFire time.Time `json:"next,omitzero"`
	// Counts, Ended, Failures and Failing are those of Status, since the job was created. In Definitions, those of a job
	// that is awake are as of its last rest.
	Counts   Counts    `json:"counts"`
	Ended    time.Time `json:"last_end,omitzero"`
	Failures []Failure `json:"failures"`
	Failing  bool      `json:"failing,omitempty"` // the last run of a shard has failed
	// DeleteAt is when the leader deletes a finished job, zero if it stays.
	DeleteAt time.Time `json:"delete_at,omitzero"`
	// Problem is the fault in the records of the job. It is empty if there is none.
	Problem string `json:"problem,omitempty"`
}

// DefinitionFilter selects among the jobs of Definitions.
type DefinitionFilter func(*definitionFilter)

type definitionFilter struct{ kind, prefix string }

// OfKind selects the jobs of a kind.
func OfKind(kind string) DefinitionFilter { return func(f *definitionFilter) { f.kind = kind } }

// WithPrefix selects the jobs whose names begin with a prefix.
func WithPrefix(prefix string) DefinitionFilter {
	return func(f *definitionFilter) { f.prefix = prefix }
}

// has reports whether a job is selected.
func (f *definitionFilter) has(j *DefinedJob) bool {
	return (f.kind == "" || j.Kind == f.kind) && strings.HasPrefix(j.Name, f.prefix)
}

// Definition returns a job that is defined as data, whether it rests or is awake. It fails with ErrUnknownJob if there is none, and with
// ErrRegistered if the job is registered in code.
func (o *Operator) Definition(ctx context.Context, job string) (DefinedJob, error) {
	d, err := o.readDefinedJob(ctx, job)
	if err != nil {
		return DefinedJob{}, fmt.Errorf("definition of %q: %w", job, err)
	}
	return d, nil
}

func (o *Operator) readDefinedJob(ctx context.Context, job string) (DefinedJob, error) {
	segment := record.Segment(job)
	if err := o.checkFormat(ctx); err != nil {
		return DefinedJob{}, err
	}
	s, err := o.getReadable(ctx, o.keys.Job(segment))
	if err != nil {
		return DefinedJob{}, err
	}
	awake, found := s.Jobs[segment]
	d, err := o.readDefined(ctx, segment)
	switch {
	case err != nil:
		return DefinedJob{}, err
	case d.Defined == nil && found && awake.Kind == "":
		return DefinedJob{}, ErrRegistered
	case d.Defined == nil && found:
		return DefinedJob{Name: awake.Name, State: DefinedDeleting, Kind: awake.Kind, Creation: awake.Created}, nil
	case d.Defined == nil:
		return DefinedJob{}, ErrUnknownJob
	}
	out := definedJobOf(d.Defined, awake.Job)
	if out.State != DefinedAwake {
		return out, nil
	}
	st, err := o.readStatus(ctx, job)
	if err != nil {
		return DefinedJob{}, err
	}
	if !st.Rests { // else it has just been put to rest
		out.NextFire, out.Counts, out.Ended, out.Failures, out.Failing = st.NextFire, st.Counts, st.Ended, st.Failures, len(st.Failing) > 0
	}
	return out, nil
}

// definedJobOf returns a defined job as its record has it. Awake is the definition of the job that is awake under its name, zero if none is.
func definedJobOf(d *record.Defined, awake record.Job) DefinedJob {
	j := DefinedJob{
		Name: d.Job, State: DefinedResting, Kind: d.Parsed().Kind, Revision: d.Revision, Creation: d.Created, Defined: d.At.Time(),
		By: actOf(&d.By), NextFire: d.Next.Time(), DeleteAt: d.DeleteAt().Time(),
	}
	if d.IsDeleted() {
		j.State, j.Kind = DefinedDeleting, awake.Kind
		return j
	}
	var err error
	if j.Definition, err = decodeDefinition(d); err != nil {
		j.Problem = fmt.Sprintf("the definition cannot be read: %v", err)
	}
	j.Schedule = scheduleOf(d.Definition)
	if r := d.Rest; r != nil {
		j.Counts, j.Ended, j.Failures, j.Failing = Counts(r.Counts), r.Ended.Time(), failuresOf(r.Failures), r.Failing
		if r.Finished != 0 && d.Next == 0 {
			j.State = DefinedFinished
		}
	}
	switch {
	case awake.Name == "":
	case awake.Kind == "":
		j.Problem = registeredProblem
	case awake.Created == d.Created:
		j.State = DefinedAwake
	default:
		j.Problem = "an earlier creation of the name is being deleted; this one wakes after that"
	}
	return j
}

// registeredProblem is the problem of a defined job whose name is that of a registered one, which has the records of the name.
const registeredProblem = "a process has registered a job of this name in code, so this one does not run; delete it or rename the other"

// Definitions returns the jobs that are defined as data, in no particular order, as the iteration reads them: a change
// meanwhile may or may not be seen. A record that cannot be read is a DefinedJob with a Problem; an error ends the iteration.
//
// It reads the 256 directories of definitions, eight at a time, and keeps no more than these in memory. The definitions of all jobs
// that are awake are read once.
func (o *Operator) Definitions(ctx context.Context, filters ...DefinitionFilter) iter.Seq2[DefinedJob, error] {
	var f definitionFilter
	for _, filter := range filters {
		filter(&f)
	}
	return func(yield func(DefinedJob, error) bool) {
		err := o.checkFormat(ctx)
		var awake map[string]planning.JobRecord
		if err == nil {
			awake, err = o.listJobs(ctx)
		}
		if err == nil {
			err = o.eachDefined(ctx, func(e registry.Entry) bool {
				j, exists := definedJobOfEntry(e, awake)
				return !exists || !f.has(&j) || yield(j, nil)
			})
		}
		if err != nil {
			yield(DefinedJob{}, fmt.Errorf("definitions: %w", err))
		}
	}
}

// DefinedPage is a page of the jobs that are defined as data.
type DefinedPage struct {
	Jobs []DefinedJob // in the order of the records
	// Next is the cursor with which the next page begins; it is empty if there is none. A page may have fewer jobs than its limit and a Next.
	Next string
}

// maxScanned is how many records a page reads before it ends without being full, but for those of the directories that it reads together.
const maxScanned = 1000

// DefinitionsPage is Definitions for a page of at most limit jobs, which begins at the cursor of an earlier page, or at the first job if it is
// empty. It reads a directory of records after the other, until it has enough jobs or has read a thousand records that the filters
// do not select. A job that is neither created nor deleted meanwhile is on one page exactly.
func (o *Operator) DefinitionsPage(ctx context.Context, cursor string, limit int, filters ...DefinitionFilter) (DefinedPage, error) {
	var f definitionFilter
	for _, filter := range filters {
		filter(&f)
	}
	if limit < 1 {
		return DefinedPage{}, invalidArgument(fmt.Errorf("definitions: the limit is %d, below 1", limit))
	}
	p, err := o.readDefinitionsPage(ctx, cursor, limit, &f)
	if err != nil {
		return DefinedPage{}, fmt.Errorf("definitions: %w", err)
	}
	return p, nil
}

func (o *Operator) readDefinitionsPage(ctx context.Context, cursor string, limit int, f *definitionFilter) (page DefinedPage, err error) {
	if err := o.checkFormat(ctx); err != nil {
		return page, err
	}
	entries, next, err := o.selectDefined(ctx, cursor, limit, f)
	if err != nil {
		return page, err
	}
	var mu sync.Mutex
	awake := map[string]planning.JobRecord{}
	err = parallel.Each(ctx, parallelReads, entries, func(ctx context.Context, e registry.Entry) error {
		segment := e.Key.Name()
		s, err := o.getReadable(ctx, o.keys.Job(segment))
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			awake[segment] = s.Jobs[segment]
		}
		return err
	})
	for _, e := range entries {
		j, _ := definedJobOfEntry(e, awake)
		page.Jobs = append(page.Jobs, j)
	}
	page.Next = next
	return page, err
}

// selectDefined returns the records of a page, and the cursor of the next one: the last record that was read.
func (o *Operator) selectDefined(ctx context.Context, cursor string, limit int, f *definitionFilter) (selected []registry.Entry, next string, err error) {
	first := 0
	if cursor != "" {
		first = record.DefinedBucket(cursor)
	}
	last, scanned := cursor, 0
	for bucket, together := first, 1; bucket < record.Buckets; bucket, together = bucket+together, min(2*together, maxListings) {
		if scanned >= maxScanned {
			return selected, last, nil
		}
		listings, err := o.listBuckets(ctx, bucket, min(bucket+together, record.Buckets))
		if err != nil {
			return nil, "", err
		}
		for i, entries := range listings {
			for _, e := range entries {
				if cursor != "" && bucket+i == first && e.Key.Name() <= cursor {
					continue
				}
				if len(selected) == limit {
					return selected, last, nil
				}
				last = e.Key.Name()
				scanned++
				if j, exists := definedJobOfEntry(e, nil); exists && f.has(&j) {
					selected = append(selected, e)
				}
			}
		}
	}
	return selected, "", nil
}

// listBuckets returns the records of the buckets from first to before end, those of each by their keys.
func (o *Operator) listBuckets(ctx context.Context, first, end int) ([][]registry.Entry, error) {
	all := make([][]registry.Entry, end-first)
	indexes := make([]int, len(all))
	for i := range indexes {
		indexes[i] = i
	}
	err := parallel.Each(ctx, maxListings, indexes, func(ctx context.Context, i int) error {
		listing, err := o.reg.List(ctx, o.keys.DefinedIn(first+i), registry.ReadOptions{})
		all[i] = listing.Entries
		return err
	})
	return all, err
}

// definedJobOfEntry returns the job of a record, which may be damaged, or all that is left of a deleted job, which does not exist.
func definedJobOfEntry(e registry.Entry, awake map[string]planning.JobRecord) (j DefinedJob, exists bool) {
	d, err := decodeDefined(e)
	if err != nil {
		return DefinedJob{Name: e.Key.Name(), State: DefinedUnreadable, Problem: fmt.Sprintf("%s cannot be read: %v", e.Key, err)}, true
	}
	return definedJobOf(d, awake[e.Key.Name()].Job), !d.IsGone()
}

// listJobs returns the definitions of the jobs that are registered or awake, by segment, without those that cannot be read.
func (o *Operator) listJobs(ctx context.Context) (map[string]planning.JobRecord, error) {
	listing, err := o.reg.List(ctx, o.keys.Jobs(), registry.ReadOptions{})
	if err != nil {
		return nil, err
	}
	jobs := map[string]planning.JobRecord{}
	for _, e := range listing.Entries {
		if _, job, err := record.DecodeDefinition(e.Value); err == nil {
			jobs[e.Key.Name()] = planning.JobRecord{Rev: e.Modified, Job: job}
		}
	}
	return jobs, nil
}

// eachDefined calls f for the record of each defined job until it returns false. It follows a fresh read, as getEach does.
func (o *Operator) eachDefined(ctx context.Context, f func(registry.Entry) bool) error {
	for first := 0; first < record.Buckets; first += maxListings {
		listings, err := o.listBuckets(ctx, first, min(first+maxListings, record.Buckets))
		if err != nil {
			return err
		}
		for _, entries := range listings {
			for _, e := range entries {
				if !f(e) {
					return nil
				}
			}
		}
	}
	return nil
}
