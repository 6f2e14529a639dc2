package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/scheduletext"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

var (
	// ErrExists means that the job is defined already, and IfAbsent was given.
	ErrExists = errors.New("the job is defined already")
	// ErrOtherRevision means that the job does not have the revision that IfRevision names, or is not defined.
	ErrOtherRevision = errors.New("the job has another revision")
	// ErrRegistered means that a process has registered a job of this name in code, so that it cannot be defined or deleted as data.
	ErrRegistered = errors.New("the job is registered in code")
	// ErrDefined means that the job is defined as data: Operator.Delete removes it, not Retire or Forget.
	ErrDefined = errors.New("the job is defined as data: delete it with Operator.Delete")
	// ErrDeleting means that the job was deleted, and that the leader has not deleted all of its records yet.
	ErrDeleting = errors.New("the job is being deleted")
	// ErrUnknownKind means that no process has stored the kind, or not in that revision. It is executor.ErrUnknownKind as well.
	ErrUnknownKind = errors.New("unknown kind")
	// ErrNoFires means that the schedule has no fire from the call on.
	ErrNoFires = errors.New("the schedule has no fire from now on")
	// ErrTooManyJobs means that as many jobs of the kind, or of the group, are defined as may be.
	ErrTooManyJobs = errors.New("too many jobs are defined")
	// ErrTooManyChanges means that the job owes fires by as many definitions as its record holds: it was changed again and again while no
	// leader was there to run them.
	ErrTooManyChanges = errors.New("the job was changed while fires were owed and no leader was there")
)

// DefineOption is an option of Operator.Define and DefineAll.
type DefineOption func(*defineOptions)

type defineOptions struct {
	ifAbsent, dryRun, allowUnknownKind, allowNoFires bool
	hasRevision                                      bool
	revision                                         int
}

func defineOptionsOf(options []DefineOption) (all defineOptions) {
	for _, option := range options {
		option(&all)
	}
	return all
}

// IfAbsent makes Define fail with ErrExists if the job is defined already.
func IfAbsent() DefineOption { return func(o *defineOptions) { o.ifAbsent = true } }

// IfRevision makes Define fail with ErrOtherRevision unless the job is defined with this revision (DefinedJob.Revision): so
// none of two changes that were made from the same state is lost.
func IfRevision(revision int) DefineOption {
	return func(o *defineOptions) { o.hasRevision, o.revision = true, revision }
}

// AllowUnknownKind permits a kind that no process has stored yet, or not in that revision. The job waits until an instance offers it.
func AllowUnknownKind() DefineOption { return func(o *defineOptions) { o.allowUnknownKind = true } }

// AllowNoFires permits a schedule without a fire from now on. Such a job runs when it is triggered, as one that is on trigger.
func AllowNoFires() DefineOption { return func(o *defineOptions) { o.allowNoFires = true } }

// DryRun makes Define check everything and write nothing. Its results are those of a call at this moment.
func DryRun() DefineOption { return func(o *defineOptions) { o.dryRun = true } }

// DefineOutcome is what Define has done.
type DefineOutcome string

// The outcomes.
const (
	DefineCreated   DefineOutcome = "created"
	DefineChanged   DefineOutcome = "changed"
	DefineUnchanged DefineOutcome = "unchanged" // the stored definition is the same
)

// DefineResult is the result of a definition that is stored.
type DefineResult struct {
	Name     string        `json:"name"`
	Outcome  DefineOutcome `json:"outcome,omitempty"` // empty: the definition has failed
	Revision int           `json:"revision,omitempty"`
	// NextFire is the first fire that the job owes if it rests. It is zero if there is none. That of a job whose schedule counts ends of
	// runs, or follows other jobs, is the time of the call.
	NextFire time.Time `json:"next,omitzero"`
	// Changed are the names of the fields that have changed.
	Changed []string `json:"changed,omitempty"`
}

// Define stores a job as data, or changes one. When it returns, the definition is durable, and the leader runs it like any
// job; a process that calls it need not be of the fleet. Fires count from the call on: the first one may be at its very instant. A
// one-off in the past is refused (ErrNoFires).
//
// Of a job that is defined already, all fields are replaced but the kind, which stays. A changed definition comes into force as that of
// any job: fires of a job that is awake and that are due run by the earlier one. A changed schedule of a resting job counts from
// the call on. A definition that is the same changes nothing, so that a call may be repeated after any error; ReportingUnchanged
// makes it fail with ErrUnchanged.
//
// The defaults of the kind are resolved now: those of a later version of it apply once the job is defined again. After a Delete,
// Define makes a new job of the name at once. The runs of the earlier one end first.
//
// Define needs a compiler; see WithCompiler. Its errors are ErrInvalidArgument, one for each field that breaks a rule, and those of
// this package that begin with Err and name a rule.
func (o *Operator) Define(ctx context.Context, def Definition, options ...DefineOption) (DefineResult, error) {
	results, errs := o.defineAll(ctx, record.InstantOf(time.Now()), []Definition{def}, defineOptionsOf(options))
	return results[0], nameErrors("define", []string{def.Name}, errs)
}

// DefineAll is Define for many jobs, which share reads and commits: thousands take a few seconds. Each definition is stored or refused on its own.
// The results are in the order of the definitions. The error joins those of all that have failed, and names each; the others are
// stored. If ctx ends, or the store fails, a repetition stores the rest. IfRevision needs a single definition.
func (o *Operator) DefineAll(ctx context.Context, defs []Definition, options ...DefineOption) ([]DefineResult, error) {
	results, errs := o.defineAll(ctx, record.InstantOf(time.Now()), defs, defineOptionsOf(options))
	names := make([]string, len(defs))
	for i := range defs {
		names[i] = defs[i].Name
	}
	return results, nameErrors("define", names, errs)
}

// JobError is the error of one job in an act on several, such as DefineAll, which joins them.
type JobError struct {
	Job string
	Err error
	act string
}

// Error names the act and the job.
func (e *JobError) Error() string { return fmt.Sprintf("%s %q: %v", e.act, e.Job, e.Err) }

// Unwrap returns Err.
func (e *JobError) Unwrap() error { return e.Err }

// nameErrors joins the errors of an act on jobs, each with the name of its job.
func nameErrors(verb string, jobs []string, errs [][]error) error {
	var all []error
	for i, job := range jobs {
		for _, err := range errs[i] {
			all = append(all, &JobError{Job: job, Err: err, act: verb})
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// definer defines jobs for one call.
type definer struct {
	*Operator
	options defineOptions
	called  record.Instant        // fires count from it, however long the store takes
	kinds   map[string]kindRecord // those of the definitions
	counts  map[string]int        // of the jobs that are defined, by kind, with those that this call has created
	results []DefineResult
	errs    [][]error // by definition
}

// kindRecord is the record of a kind, or why it cannot be read. Both are nil if there is none.
type kindRecord struct {
	*record.Kind
	err error
}

func (o *Operator) defineAll(ctx context.Context, called record.Instant, defs []Definition, options defineOptions) ([]DefineResult, [][]error) {
	d := &definer{Operator: o, options: options, called: called, results: make([]DefineResult, len(defs)), errs: make([][]error, len(defs))}
	for i := range defs {
		d.results[i].Name = defs[i].Name
	}
	if err := d.begin(ctx, defs); err != nil {
		for i := range defs {
			d.errs[i] = []error{err}
		}
		return d.results, d.errs
	}
	all := make([]*wanted, len(defs))
	var left []int
	segments := map[string]bool{}
	for i := range defs {
		if all[i], d.errs[i] = o.encodeDefinition(&defs[i], d.kinds[defs[i].Kind].Kind); len(d.errs[i]) == 0 {
			if err := d.checkKind(&defs[i]); err != nil {
				d.errs[i] = []error{err}
			} else if segments[all[i].segment] {
				d.errs[i] = []error{invalidArgument(errors.New("name: it is that of an earlier definition of the call"))}
			} else {
				segments[all[i].segment] = true
				left = append(left, i)
			}
		}
	}
	for alone := map[int]bool{}; len(left) > 0; {
		left = d.defineOnce(ctx, all, left, alone)
	}
	return d.results, d.errs
}

// begin reads what all definitions need, and checks the options.
func (d *definer) begin(ctx context.Context, defs []Definition) error {
	switch {
	case d.compile == nil:
		return ErrNoCompiler
	case d.options.hasRevision && d.options.ifAbsent:
		return invalidArgument(errors.New("IfAbsent and IfRevision exclude each other"))
	case d.options.hasRevision && d.options.revision < 1:
		return invalidArgument(fmt.Errorf("IfRevision: %d is below 1", d.options.revision))
	case d.options.hasRevision && len(defs) > 1:
		return invalidArgument(fmt.Errorf("IfRevision is for one definition, and these are %d", len(defs)))
	}
	if err := d.checkFormat(ctx); err != nil {
		return err
	}
	if err := d.readCounts(ctx); err != nil {
		return err
	}
	d.kinds = map[string]kindRecord{}
	for i := range defs {
		if record.CheckKindName(defs[i].Kind) == nil {
			d.kinds[defs[i].Kind] = kindRecord{}
		}
	}
	var mu sync.Mutex
	return parallel.Each(ctx, parallelReads, slices.Sorted(maps.Keys(d.kinds)), func(ctx context.Context, name string) error {
		k, err := d.readKind(ctx, name)
		mu.Lock()
		defer mu.Unlock()
		d.kinds[name] = k
		return err
	})
}

// readKind returns the record of a kind. It fails if the store does.
func (o *Operator) readKind(ctx context.Context, name string) (kindRecord, error) {
	key := o.keys.Kind(name)
	e, found, err := o.getRecord(ctx, key)
	switch {
	case errors.Is(err, registry.ErrForeign):
		return kindRecord{err: err}, nil
	case err != nil || !found:
		return kindRecord{}, err
	}
	k, err := decodeKind(e)
	if err != nil {
		return kindRecord{err: fmt.Errorf("read %s: %w", key, err)}, nil
	}
	return kindRecord{Kind: k}, nil
}

// decodeKind decodes the record of a kind, and checks that it belongs at its key.
func decodeKind(e registry.Entry) (*record.Kind, error) {
	k, err := record.DecodeKind(e.Value)
	if err == nil && k.Name != e.Key.Name() {
		err = fmt.Errorf("record of kind %q at %s", k.Name, e.Key)
	}
	return k, err
}

// readCounts reads how many jobs are defined. Nothing is refused if that cannot be read: only leaders write it, and they replace such a
// record.
func (d *definer) readCounts(ctx context.Context) error {
	d.counts = map[string]int{}
	key := d.keys.KindCounts()
	e, found, err := d.getRecord(ctx, key)
	switch {
	case errors.Is(err, registry.ErrForeign):
		return nil
	case err != nil:
		return err
	case found:
		if c, err := record.DecodeKindCounts(e.Value); err == nil {
			maps.Copy(d.counts, c.ByKind)
		}
		return nil
	case d.options.dryRun:
		return nil
	}
	// The first definition of the group: the record has leaders follow definitions.
	value, err := record.Encode(&record.KindCounts{})
	if err != nil {
		return err
	}
	_, err = registry.Apply(ctx, d.reg, registry.Txn{Then: []registry.Op{registry.Create(key, value)}})
	if _, exists := batch.FindConflict(err); exists {
		return nil
	}
	return err
}

// checkKind checks that the kind of a definition exists.
func (d *definer) checkKind(def *Definition) error {
	switch k := d.kinds[def.Kind]; {
	case k.err != nil:
		return fmt.Errorf("kind: %w", k.err)
	case d.options.allowUnknownKind:
	case k.Kind == nil:
		return fmt.Errorf("kind: %w: no process has stored %q", ErrUnknownKind, def.Kind)
	case k.Revision < def.KindRevision:
		return fmt.Errorf("kind_revision: %w: %q has revision %d, below %d", ErrUnknownKind, def.Kind, k.Revision, def.KindRevision)
	}
	return nil
}

// checkLimit checks that one more job of a kind may be defined.
func (d *definer) checkLimit(kind string) error {
	limit := maxJobs(d.kinds[kind].Kind)
	if n := d.counts[kind]; n >= limit {
		return fmt.Errorf("%w: %d of kind %q, at most %d", ErrTooManyJobs, n, kind, limit)
	}
	all := record.KindCounts{ByKind: d.counts}
	if n := all.Total(); n >= record.DefaultMaxJobs {
		return fmt.Errorf("%w: %d in the group, at most %d", ErrTooManyJobs, n, record.DefaultMaxJobs)
	}
	return nil
}

// maxJobs returns how many jobs of a kind may be defined. The kind may be nil.
func maxJobs(k *record.Kind) int {
	if k == nil || k.MaxJobs == 0 {
		return record.DefaultMaxJobs
	}
	return k.MaxJobs
}

// definedState is the stored state of a name.
type definedState struct {
	planning.DefinedRecord                    // without a Defined if there is none
	job                    planning.JobRecord // zero if there is none; read only for a new creation
	plan                   registry.Rev       // zero if there is none
	isPlanned              bool               // the plan is of this creation, so that it goes on with a change; that of an earlier one stays until its runs have ended
	control                registry.Rev       // of an earlier creation that was deleted while it rested; zero if there is none
}

// isLive reports whether the name is defined.
func (s *definedState) isLive() bool { return s.Defined != nil && !s.IsDeleted() }

// leftAtRest reports whether the records of a deleted job may be left that no leader would delete any more, once the name is defined again.
func (s *definedState) leftAtRest() bool {
	return s.Defined != nil && s.IsDeleted() && s.job.Name == "" && s.plan.IsZero()
}

// readDefinedState reads what decides a Define.
func (o *Operator) readDefinedState(ctx context.Context, segment string) (s definedState, err error) {
	if s.DefinedRecord, err = o.readAnyDefined(ctx, segment); err != nil {
		return s, err
	}
	if s.Defined != nil {
		if err = o.readPlanOf(ctx, segment, &s); err != nil || s.isLive() {
			return s, err
		}
	}
	read, err := o.getReadable(ctx, o.keys.Job(segment))
	if s.job = read.Jobs[segment]; err == nil && s.leftAtRest() {
		s.control, err = o.readRev(ctx, o.keys.Control(segment))
	}
	return s, err
}

// prepare reads what decides a Define, and deletes the states of a job that was deleted while it rested.
func (d *definer) prepare(ctx context.Context, segment string) (definedState, error) {
	for {
		s, err := d.readDefinedState(ctx, segment)
		if err != nil || !s.leftAtRest() || d.options.dryRun {
			return s, err
		}
		_, err = d.deleteStates(ctx, segment, registry.At(d.keys.Defined(segment), s.Rev))
		if _, changed := batch.FindConflict(err); !changed {
			return s, err
		}
	}
}

// readPlanOf reads the revision of the plan, and whether it is of this creation. One that cannot be read is taken for such a plan: a leader
// writes it again. A call of readPlan would fail.
func (o *Operator) readPlanOf(ctx context.Context, segment string, s *definedState) error {
	e, found, err := o.getRecord(ctx, o.keys.Plan(segment))
	if err != nil || !found {
		return err
	}
	plan, err := record.Decode[struct{ Life string }](e.Value)
	s.plan, s.isPlanned = e.Modified, err != nil || s.HasLife(plan.Life)
	return nil
}

// readRev returns the revision of a record, zero if there is none.
func (o *Operator) readRev(ctx context.Context, key registry.Key) (registry.Rev, error) {
	e, _, err := o.getRecord(ctx, key)
	return e.Modified, err
}

// readDefined returns the record of a defined job, without a Defined if there is none, or if nothing else is left of a deleted job. The
// caller has checked the format.
func (o *Operator) readDefined(ctx context.Context, segment string) (planning.DefinedRecord, error) {
	d, err := o.readAnyDefined(ctx, segment)
	if err == nil && d.Defined != nil && d.IsGone() {
		return planning.DefinedRecord{}, nil
	}
	return d, err
}

// readAnyDefined is readDefined that returns what is left of a deleted job as well.
func (o *Operator) readAnyDefined(ctx context.Context, segment string) (planning.DefinedRecord, error) {
	key := o.keys.Defined(segment)
	e, found, err := o.getRecord(ctx, key)
	if err != nil || !found {
		return planning.DefinedRecord{}, err
	}
	d, err := decodeDefined(e)
	if err != nil {
		return planning.DefinedRecord{}, &damagedError{key, err}
	}
	return planning.DefinedRecord{Rev: e.Modified, Defined: d}, nil
}

// damagedError is a record that cannot be read, and the rule that it breaks.
type damagedError struct {
	key  registry.Key
	rule error
}

func (e *damagedError) Error() string { return fmt.Sprintf("read %s: %v", e.key, e.rule) }

func (e *damagedError) Unwrap() error { return e.rule }

// decodeDefined decodes the record of a defined job, and checks that it belongs at its key.
func decodeDefined(e registry.Entry) (*record.Defined, error) {
	return record.DecodeOf(e, record.DecodeDefined)
}

// defineWrite is the write of one definition.
type defineWrite struct {
	index int // of the definition
	items batch.Items
}

// defineOnce makes one attempt at definitions, and returns those to be tried again as another writer was faster. Alone are those
// that are to have commits of their own, to which it adds.
func (d *definer) defineOnce(ctx context.Context, all []*wanted, indexes []int, alone map[int]bool) (again []int) {
	states := make(map[int]definedState, len(indexes))
	var mu sync.Mutex
	err := parallel.Each(ctx, parallelReads, indexes, func(ctx context.Context, i int) error {
		s, err := d.prepare(ctx, all[i].segment)
		mu.Lock()
		defer mu.Unlock()
		if states[i] = s; err != nil {
			d.errs[i] = []error{err}
		}
		return nil
	})
	var writes []defineWrite
	for _, i := range indexes {
		s, read := states[i]
		switch {
		case len(d.errs[i]) > 0:
		case !read: // ctx has ended
			d.errs[i] = []error{err}
		default:
			items, err := d.decide(all[i], &s, &d.results[i])
			if err != nil {
				d.errs[i] = []error{err}
			} else if len(items.Ops) > 0 && !d.options.dryRun {
				writes = append(writes, defineWrite{i, items})
			}
		}
	}
	for _, ld := range batch.Pack(nil, writes, d.reg.Limits(), func(w defineWrite) batch.Items { return w.items }, func(w defineWrite) bool { return alone[w.index] }) {
		again = append(again, d.commit(ctx, ld, all, alone)...)
	}
	return again
}

// commit commits definitions, and returns those to be tried again.
func (d *definer) commit(ctx context.Context, ld batch.Load[defineWrite], all []*wanted, alone map[int]bool) (again []int) {
	_, err := registry.Apply(ctx, d.reg, d.settle(ld.Txn))
	conflict, refused := batch.FindConflict(err)
	if refused && d.isSettled(conflict) {
		err, refused = errSettled, false
	}
	if refused && d.posted == nil {
		if part, ok := ld.PartOf(conflict.Index); ok {
			alone[ld.Parts[part].index] = true
		}
	}
	for _, w := range ld.Parts {
		result := &d.results[w.index]
		if err != nil && result.Outcome == DefineCreated {
			d.count(all[w.index].kind, -1)
		}
		switch {
		case refused:
			again = append(again, w.index)
		case err != nil:
			d.errs[w.index] = []error{err}
		default:
			continue
		}
		*result = DefineResult{Name: result.Name}
	}
	return again
}

// count adds to the number of jobs that are defined.
func (d *definer) count(kind string, more int) { d.counts[kind] += more }

// decide returns the write of a definition, none if it is the stored one.
func (d *definer) decide(w *wanted, s *definedState, result *DefineResult) (batch.Items, error) {
	next, changed, err := w.next(s, &d.options, d.called)
	if err != nil {
		return batch.Items{}, err
	}
	result.Revision, result.NextFire, result.Changed = next.Revision, next.Next.Time(), changed
	switch {
	case next == s.Defined:
		result.Outcome = DefineUnchanged
		return batch.Items{}, d.orNil(ErrUnchanged)
	case !s.isLive():
		if err := d.checkLimit(w.kind); err != nil {
			return batch.Items{}, err
		}
		d.count(w.kind, 1)
		result.Outcome, next.By = DefineCreated, d.newAct("define")
	default:
		result.Outcome, next.By = DefineChanged, d.newAct("define: change "+strings.Join(changed, ", ")) // without values: parameters may be secret
	}
	op, err := putOp(d.keys.Defined(w.segment), s.Rev, next)
	if err != nil {
		return batch.Items{}, err
	}
	items := batch.Items{Ops: []registry.Op{op}}
	switch {
	case result.Outcome == DefineCreated:
		items.Conds = []registry.Cond{asRead(d.keys.Job(w.segment), s.job.Rev)}
		if s.leftAtRest() {
			items.Conds = append(items.Conds, registry.Absent(d.keys.Plan(w.segment)))
		}
		if !s.control.IsZero() {
			items.Ops = append(items.Ops, registry.Delete(d.keys.Control(w.segment), s.control))
		}
	case !s.isPlanned: // the first plan begins with the earlier definitions in the record
		items.Conds = []registry.Cond{asRead(d.keys.Plan(w.segment), s.plan)}
	}
	return items, nil
}

// asRead returns the condition that a record is at rev, or does not exist if rev is zero.
func asRead(key registry.Key, rev registry.Rev) registry.Cond {
	if rev.IsZero() {
		return registry.Absent(key)
	}
	return registry.At(key, rev)
}

// next returns the record that defines the job, which is the stored one if nothing changes, and the names of the fields that change.
func (w *wanted) next(s *definedState, options *defineOptions, now record.Instant) (next *record.Defined, changed []string, err error) {
	if err := options.check(s); err != nil {
		return nil, nil, err
	}
	if s.isLive() {
		if changed, err = w.findChanges(s.Defined); err != nil || len(changed) == 0 {
			return s.Defined, nil, err
		}
	} else if s.job.Name != "" && s.job.Kind == "" {
		return nil, nil, fmt.Errorf("name: %w", ErrRegistered)
	}
	if s.isLive() && len(s.Earlier) > 0 {
		now = max(now, s.Earlier[len(s.Earlier)-1].Until) // of an author whose clock may be ahead of this one
	}
	from := now
	if s.isLive() && s.Rest != nil {
		from = max(from, s.Rest.From)
	}
	first, err := w.firstFire(from)
	switch {
	case err != nil:
		return nil, nil, err
	case first == 0 && !w.isOnTrigger() && !options.allowNoFires:
		return nil, nil, invalidArgument(fmt.Errorf("schedule: %w: %q at %v", ErrNoFires, w.schedule.String(), now))
	case s.isLive():
		next, err = w.change(s, now, first)
	default:
		next, err = w.create(s.Defined, now, first)
	}
	return next, changed, err
}

// check checks the conditions of a Define.
func (o *defineOptions) check(s *definedState) error {
	switch {
	case o.ifAbsent && s.isLive():
		return fmt.Errorf("%w, as revision %d", ErrExists, s.Revision)
	case o.hasRevision && !s.isLive():
		return fmt.Errorf("%w: it is not defined, and revision %d was expected", ErrOtherRevision, o.revision)
	case o.hasRevision && s.Revision != o.revision:
		return fmt.Errorf("%w: it has revision %d, and %d was expected", ErrOtherRevision, s.Revision, o.revision)
	}
	return nil
}

// create returns the record of a new creation. Old is that of a deleted one, or nil.
func (w *wanted) create(old *record.Defined, now, first record.Instant) (*record.Defined, error) {
	d := &record.Defined{Job: w.name, Created: record.NewToken(), Revision: 1, At: now, Next: first, DeleteAfter: w.deleteAfter}
	if old != nil {
		d.Revision = old.Revision + 1 // as long as the name has a record, no revision comes again
	}
	var err error
	d.Definition, err = w.fields.encode(d.Created, d.Revision)
	return d, err
}

// findChanges returns the names of the fields that change.
func (w *wanted) findChanges(old *record.Defined) ([]string, error) {
	stored, err := storedFields(old.Definition)
	if err != nil {
		return nil, err
	}
	changed := w.fields.differing(stored)
	if slices.Contains(changed, "kind") {
		return nil, invalidArgument(fmt.Errorf("kind: it is %q, and stays for as long as the job exists; delete the job first", old.Parsed().Kind))
	}
	if w.deleteAfter != old.DeleteAfter {
		changed = append(changed, "delete_after")
	}
	return changed, nil
}

// change returns the record of another revision. A plan goes on with the new definition, and its end writes the fire that is next.
func (w *wanted) change(s *definedState, now, first record.Instant) (*record.Defined, error) {
	next := *s.Defined
	next.Revision, next.DeleteAfter = s.Revision+1, w.deleteAfter
	if !s.isPlanned {
		next.Changed, next.Next, next.Earlier = now, first, nil
		if owes(s.Defined, now) {
			if len(s.Earlier) == record.MaxEarlier {
				return nil, fmt.Errorf("%w: %d times", ErrTooManyChanges, record.MaxEarlier)
			}
			next.Next = s.Next
			next.Earlier = append(slices.Clip(s.Earlier), record.EarlierDefinition{Until: now, Definition: s.Definition})
		}
	}
	if first != 0 && next.Rest != nil && next.Rest.Finished != 0 {
		rest := *next.Rest
		rest.Finished, next.Rest = 0, &rest
	}
	var err error
	next.Definition, err = w.fields.encode(next.Created, next.Revision)
	return &next, err
}

// owes reports whether a job without a plan owes fires by its definition, as no leader has run them yet. A fire at this very instant is
// one of the next definition.
func owes(d *record.Defined, now record.Instant) bool {
	return d.Next != 0 && d.Next < now && d.Parsed().After == nil && !scheduletext.CountsEnds(scheduleOf(d.Definition))
}

// firstFire returns the first fire from an instant on, zero if there is none. A job whose fires depend on other records
// wakes at once, and stays awake.
func (w *wanted) firstFire(from record.Instant) (record.Instant, error) {
	if w.schedule.After() != nil {
		return from, nil
	}
	first := w.fires.Next(from.Time().Add(-1))
	switch {
	case first.IsZero():
		return 0, nil
	case w.schedule.CountsEnds():
		return from, nil
	case first.Year() > lastYear:
		return 0, invalidArgument(fmt.Errorf("schedule: its first fire %v is after %d", first.Format(time.RFC3339), lastYear))
	}
	return record.InstantOf(first), nil
}

// lastYear is the last one of which records can hold instants.
const lastYear = 2261

// isOnTrigger reports whether the schedule has no fires by intent.
func (w *wanted) isOnTrigger() bool { return w.schedule == schedule.OnTrigger() }
