package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

var (
	// ErrUnknownJob means that no process has stored a definition of the job.
	ErrUnknownJob = errors.New("unknown job")
	// ErrTooManyTriggers means that 64 triggers of the job wait for the leader, which takes up 64 more, or that the parameters of
	// those that wait are too long together.
	ErrTooManyTriggers = errors.New("too many triggers wait")
	// ErrTooManyDisabled means that more than 256 instances or 256 hosts would be disabled
	// for the job, or for all jobs.
	ErrTooManyDisabled = errors.New("too many are disabled")
	// ErrInvalidArgument means that an argument is wrong, at all or for the job as it is stored: a shard that the job does not
	// have, or an override that its definition cannot have. Nothing was written.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrNewerFormat means that a newer version of rota wrote a record that this version
	// cannot interpret. Nothing was written.
	ErrNewerFormat = record.ErrNewerFormat
	// ErrUnchanged means that the call would change nothing. See Operator.ReportingUnchanged.
	ErrUnchanged = errors.New("the intent stays as it is")
)

// argumentError is an ErrInvalidArgument with the text of its cause alone.
type argumentError struct{ error }

func (argumentError) Is(target error) bool { return target == ErrInvalidArgument }

func (e argumentError) Unwrap() error { return e.error }

// invalidArgument returns an error with the text of err that is ErrInvalidArgument; nil for nil.
func invalidArgument(err error) error {
	if err == nil {
		return nil
	}
	return argumentError{err}
}

// Operator changes which jobs, shards and instances of a group may run, and reads the status
// of jobs. Its process need not be in the group. Its methods may be called from several
// goroutines at once.
//
// When a call returns nil, the intent is stored in the registry, where it survives any crash.
// It takes effect once the leader has copied it into its plans, usually within a second; a
// group without a leader does so after the next election. After an error that wraps
// registry.ErrUnknownOutcome, the intent may or may not be stored. All calls but Trigger and
// Reset are idempotent and can be repeated; see those two for what a repetition does.
type Operator struct {
	reg              registry.Registry
	keys             record.Keys
	namespace, group string
	compile          due.Compiler // nil if the schedules of jobs are not known

	by, reason      string // of As
	reportUnchanged bool   // of ReportingUnchanged

	posted *registry.Entry // the record of the act that a transaction has posted and a call is to do; nil: none
}

// New returns an Operator for a group of a namespace. An empty group means "default".
// It sends nothing to the registry before the first call.
func New(reg registry.Registry, namespace, group string) (*Operator, error) {
	if group == "" {
		group = member.DefaultGroup
	}
	keys, err := record.NewKeys(namespace, group)
	if err != nil {
		return nil, err
	}
	if reg == nil {
		return nil, member.ErrNilRegistry
	}
	return &Operator{reg: reg, keys: keys, namespace: namespace, group: group}, nil
}

// Scope names shards, instances or hosts to disable or enable. At least one of the three
// lists must have an element.
type Scope struct {
	// Job is the name of a job. Empty means all jobs of the group, present and future.
	Job string `json:"job,omitempty"`
	// Shards are shards of Job, which must not be empty then.
	Shards []int `json:"shards,omitempty"`
	// Instances are names of instances. They need not exist. An instance without a configured
	// name gets another one after a restart, to which the Scope no longer applies.
	Instances []string `json:"instances,omitempty"`
	// Hosts are names of hosts, compared byte by byte with the Host of each instance, which
	// is the system's name unless configured.
	Hosts []string `json:"hosts,omitempty"`
}

// Intent is the stored intent of operators. A plan that has not yet been updated may differ.
type Intent struct {
	// Paused reports whether the job is paused, or all jobs of the group if the intent is that for all
	// jobs. The pause of the group is not included in the intent for one job.
	Paused bool `json:"paused"`
	// Disabled is everything that is disabled, sorted.
	Disabled Scope `json:"disabled,omitzero"`
	// ScheduleStopped reports whether the job runs by triggers only. It is false while Paused.
	ScheduleStopped bool `json:"schedule_stopped"`
	// Until is when the pause ends by itself. It is zero if the job is not paused, or until an operator
	// resumes it.
	Until time.Time `json:"paused_until,omitzero"`
	// HeldBy is the act that paused the job or stopped its schedule. It is zero if neither is in force, and
	// for a job that was stored with StartPaused.
	HeldBy Act `json:"paused_by,omitzero"`
	// Override is the override in place, and OverriddenBy the act that set it. Both are zero if there is none.
	// The JSON of Intent does not have Override, whose parameters may be secret.
	Override     Override `json:"-"`
	OverriddenBy Act      `json:"overridden_by,omitzero"`
	// RetiredBy is the act of a Retire in force: the job is being removed. It is zero if there is none.
	RetiredBy Act `json:"retired_by,omitzero"`
}

// Trigger requests a run of a job by hand and returns its number, which the runs have as
// Run.Trigger. Numbers count from 1 for each job. Param replaces the job's Param unless it is
// empty. It has up to 8192 bytes of UTF-8.
//
// Shards are the shards to run. Nil means all; an empty slice is an error. Each gets one run,
// which may have several attempts. While the job is paused or a shard disabled, the run waits.
//
// The request is durable: once Trigger returns nil, crashes cannot prevent the run. Trigger
// is not idempotent: each successful call is another run. It fails with ErrTooManyTriggers
// if 64 triggers of the job wait beside the 64 that the leader has taken up, or if the parameters of those that wait
// would have more than 64 KiB.
func (o *Operator) Trigger(ctx context.Context, job, param string, shards []int) (uint64, error) {
	if shards != nil && len(shards) == 0 {
		return 0, fmt.Errorf("trigger %q: %w", job, invalidArgument(errors.New("no shard is named; nil means all")))
	}
	if err := record.CheckParam(param); err != nil {
		return 0, fmt.Errorf("trigger %q: the parameter %w", job, invalidArgument(err))
	}
	number, token := uint64(0), record.NewToken()
	err := o.changeControl(ctx, job, func(c *record.Control, def record.Job) (what string, err error) {
		t := record.Trigger{At: record.InstantOf(time.Now()), Param: param, Token: token}
		of := ""
		if shards != nil {
			set, err := shardSetOf(shards, def.Shards)
			if err != nil {
				return "", err
			}
			t.Shards, of = &set, " of "+set.Text()
		}
		if len(c.Triggers) >= record.MaxTriggers {
			return "", fmt.Errorf("%w: %d", ErrTooManyTriggers, len(c.Triggers))
		}
		c.LastTrigger++
		t.Number, number = c.LastTrigger, c.LastTrigger
		c.Triggers = append(c.Triggers, t)
		return fmt.Sprintf("trigger %d%s", number, of), checkParamBytes(c.Triggers)
	})
	if err != nil {
		return 0, fmt.Errorf("trigger %q: %w", job, err)
	}
	return number, nil
}

// checkParamBytes checks the parameters of the triggers that the leader has not taken up.
func checkParamBytes(triggers []record.Trigger) error {
	if n := record.ParamBytes(triggers); n > record.MaxWaitingParamBytes {
		return fmt.Errorf("%w: their parameters have %d bytes, at most %d", ErrTooManyTriggers, n, record.MaxWaitingParamBytes)
	}
	return nil
}

// Pause stops a job until Resume: no fire, trigger or re-run is claimed. Triggers and re-runs
// wait for the Resume; fires that come due during the pause never run and are not counted as skipped. Fires that were due
// before and are not claimed are subject to the job's misfire policy at the Resume. Runs that
// were claimed before continue, or begin once a worker is free. Pause replaces a StopSchedule.
func (o *Operator) Pause(ctx context.Context, job string) error {
	return o.hold(ctx, "pause", job, true, false, time.Time{})
}

// StopSchedule makes a job run by Trigger only, until Resume. Fires that come due after the
// leader has stopped the schedule are never run; earlier ones are. Triggers and re-runs go on.
// A new definition applies to triggers once the leader has applied it, and to the schedule
// from the Resume on. StopSchedule replaces a Pause, so waiting triggers run.
func (o *Operator) StopSchedule(ctx context.Context, job string) error {
	return o.hold(ctx, "stop schedule of", job, false, true, time.Time{})
}

// Resume ends a Pause or a StopSchedule. Fires count from an instant that lies MaxClockSkew in
// the future, so that no clock of the fleet has passed it. Fires between the Pause or
// StopSchedule and that instant are never run. For a job that is neither paused nor stopped, Resume changes nothing and
// records no act.
func (o *Operator) Resume(ctx context.Context, job string) error {
	return o.hold(ctx, "resume", job, false, false, time.Time{})
}

// Reset starts a new epoch of a job, with its newest definition. It is for shards that wait
// because a skewed clock claimed their fires ahead of time, which Status.Problem reports. The
// epoch begins MaxClockSkew from now, or after the last fire that was claimed until then. A
// job that is paused, or whose schedule is stopped, is reset when it resumes.
//
// Cost: fires of the new epoch that were claimed ahead of time run again, with the same ID
// and attempt 1. After a Reset, each attempt is claimed at most once per epoch.
//
// Due fires of earlier epochs are run or skipped by the job's misfire policy. Pending re-runs
// and triggers stay. Repeating a Reset starts another epoch, which does no harm.
func (o *Operator) Reset(ctx context.Context, job string) error {
	done, err := o.readResets(ctx, record.Segment(job))
	if err == nil {
		err = o.changeControl(ctx, job, func(c *record.Control, _ record.Job) (string, error) {
			c.Resets = max(c.Resets, done) + 1 // the record may be an older one, from a backup
			return "reset", nil
		})
	}
	if err != nil {
		return fmt.Errorf("reset %q: %w", job, err)
	}
	return nil
}

// readResets returns the number of resets in the plan of a job.
func (o *Operator) readResets(ctx context.Context, segment string) (uint64, error) {
	if err := o.checkFormat(ctx); err != nil {
		return 0, err
	}
	p, err := o.readPlan(ctx, segment)
	if err != nil || p.Plan == nil {
		return 0, err
	}
	return p.Resets, nil
}

// Disable prevents the shards, instances and hosts of s from starting runs until Enable. Runs
// that have begun continue, but the context of Config.Own ends for disabled shards of Join.
//
// A disabled shard keeps its owner. The owner skips and counts its fires as they come due, so
// they are not run after Enable. If the shard has no owner, or its last run has not ended,
// fires are skipped later; those not yet skipped at the time of Enable are subject to the
// job's misfire policy. Triggers and re-runs wait for Enable, and so do the fires after a
// re-run. Waiting triggers count towards ErrTooManyTriggers. A waiting run also keeps its
// definition in use, and a job has at most eight definitions in use: a ninth waits.
//
// Disabled instances, and instances on disabled hosts, own no shards. Their shards are
// reassigned, running ones after the run, and without restart grace. The instances stay in
// the group and may lead it. If all instances that offer a job are disabled, its shards have
// no owner and its fires stay due.
func (o *Operator) Disable(ctx context.Context, s Scope) error {
	if err := o.setDisabled(ctx, &s, true); err != nil {
		return fmt.Errorf("disable for %s: %w", s.describeJob(), err)
	}
	return nil
}

// Enable reverts Disable for the shards, instances and hosts of s in exactly the given Job:
// an instance that is disabled for all jobs stays disabled when it is enabled for one. Names
// that are not disabled are ignored; if nothing of s is disabled, no act is recorded.
func (o *Operator) Enable(ctx context.Context, s Scope) error {
	if err := o.setDisabled(ctx, &s, false); err != nil {
		return fmt.Errorf("enable for %s: %w", s.describeJob(), err)
	}
	return nil
}

// Intent returns the stored intent for one job. For an empty job, it returns the intent for
// all jobs of the group, which is not included in that of a single job.
func (o *Operator) Intent(ctx context.Context, job string) (Intent, error) {
	if job == "" {
		c, err := o.readGroupControl(ctx)
		if err != nil {
			return Intent{}, fmt.Errorf("intent for all jobs: %w", err)
		}
		return intentOfGroup(c.GroupControl), nil
	}
	def, err := o.readDefinition(ctx, record.Segment(job))
	if err != nil {
		return Intent{}, fmt.Errorf("intent for %q: %w", job, err)
	}
	c, err := o.readControl(ctx, &def)
	if err != nil {
		return Intent{}, fmt.Errorf("intent for %q: %w", job, err)
	}
	return intentOf(job, c), nil
}

// setDisabled disables or enables s.
func (o *Operator) setDisabled(ctx context.Context, s *Scope, disabled bool) error {
	if err := invalidArgument(s.validate()); err != nil {
		return err
	}
	what := "enable " + s.describe()
	if disabled {
		what = "disable " + s.describe()
	}
	if s.Job == "" {
		return o.changeGroupControl(ctx, func(c *record.GroupControl) (string, error) {
			if !disabled && !s.overlaps(&c.Exclusion) {
				return "", ErrUnchanged
			}
			return what, s.setExclusion(&c.Exclusion, disabled)
		})
	}
	return o.changeControl(ctx, s.Job, func(c *record.Control, def record.Job) (string, error) {
		total := def.Shards
		if !disabled {
			total = record.MaxShards // an earlier definition may have had more shards
		}
		shards, err := shardSetOf(s.Shards, total)
		if err != nil {
			return "", err
		}
		if !disabled && !s.overlaps(&c.Exclusion) && c.Disabled.Intersect(shards).IsZero() {
			return "", ErrUnchanged
		}
		if c.Disabled = c.Disabled.Minus(shards); disabled {
			c.Disabled = c.Disabled.Union(shards)
		}
		return what, s.setExclusion(&c.Exclusion, disabled)
	})
}

func (s *Scope) describeJob() string {
	if s.Job == "" {
		return "all jobs"
	}
	return fmt.Sprintf("%q", s.Job)
}

func (s *Scope) validate() error {
	switch {
	case len(s.Shards)+len(s.Instances)+len(s.Hosts) == 0:
		return errors.New("no shard, instance or host is named")
	case s.Job == "" && len(s.Shards) > 0:
		return errors.New("shards are those of one job, and none is named")
	}
	for _, name := range s.Instances {
		if err := record.CheckName(name); err != nil {
			return fmt.Errorf("instance: %w", err)
		}
	}
	for _, host := range s.Hosts {
		if err := record.CheckHost(host); err != nil {
			return fmt.Errorf("host: %w", err)
		}
	}
	return nil
}

// setExclusion adds the instances and hosts of s to x, or removes them.
func (s *Scope) setExclusion(x *record.Exclusion, disabled bool) error {
	if !disabled {
		x.Instances, x.Hosts = removeNames(x.Instances, s.Instances), removeNames(x.Hosts, s.Hosts)
		return nil
	}
	x.Instances, x.Hosts = addNames(x.Instances, s.Instances), addNames(x.Hosts, s.Hosts)
	if most := max(len(x.Instances), len(x.Hosts)); most > record.MaxExcluded {
		return fmt.Errorf("%w: %d, at most %d instances and as many hosts", ErrTooManyDisabled, most, record.MaxExcluded)
	}
	return nil
}

// overlaps reports whether x has an instance or a host of s.
func (s *Scope) overlaps(x *record.Exclusion) bool {
	contains := func(names []string) func(string) bool {
		return func(name string) bool { return slices.Contains(names, name) }
	}
	return slices.ContainsFunc(s.Instances, contains(x.Instances)) || slices.ContainsFunc(s.Hosts, contains(x.Hosts))
}

func addNames(names, more []string) []string {
	all := slices.Concat(names, more)
	slices.Sort(all)
	return slices.Compact(all)
}

func removeNames(names, less []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(less, name) })
}

// shardSetOf returns a set of shards of a job with total shards.
func shardSetOf(numbers []int, total int) (shardset.Set, error) {
	set := shardset.Set{}
	for _, s := range numbers {
		if s < 0 || s >= total {
			return shardset.Set{}, invalidArgument(fmt.Errorf("there is no shard %d of %d", s, total))
		}
		set.Add(s)
	}
	return set, nil
}

// changeControl changes the intent for a job by compare-and-set, and adds the act, whose text change returns. If change fails with
// ErrUnchanged, no record is written, and no act is added, which would hide one of the last 32. changeControl fails with ErrRetiring or
// ErrDeleting for a job that is to be deleted, since the change would be lost with it.
func (o *Operator) changeControl(ctx context.Context, job string, change func(*record.Control, record.Job) (what string, err error)) error {
	return o.changeAnyControl(ctx, job, func(c *record.Control, def *storedJob) (string, error) {
		switch {
		case def.deleting:
			return "", ErrDeleting
		case c.Retiring != nil:
			return "", fmt.Errorf("%w since %v", ErrRetiring, c.Retiring.At)
		}
		return change(c, def.Job)
	})
}

// changeAnyControl is changeControl for a job that may be to be deleted.
func (o *Operator) changeAnyControl(ctx context.Context, job string, change func(*record.Control, *storedJob) (what string, err error)) error {
	segment := record.Segment(job)
	for {
		def, err := o.readStoredJob(ctx, segment)
		if err != nil {
			return err
		}
		c, rev, conds, err := o.readOrCreateControl(ctx, &def)
		if err != nil {
			return err
		}
		what, err := change(c, &def)
		if err != nil {
			return o.orNil(err)
		}
		c.Acts = c.Acts.With(o.newAct(what))
		if again, err := o.putRecord(ctx, o.keys.Control(segment), rev, c, conds...); !again {
			return err
		}
	}
}

// readOrCreateControl returns the control record of a job and its revision, or the first one with a zero revision, and the conditions
// under which it is true.
func (o *Operator) readOrCreateControl(ctx context.Context, def *storedJob) (*record.Control, registry.Rev, []registry.Cond, error) {
	stored, err := o.readStoredControl(ctx, record.Segment(def.Name))
	if err != nil {
		return nil, registry.Rev{}, nil, err
	}
	conds := def.asRead(o.keys)
	if c := def.ownControl(stored.Control); c != nil {
		return c, stored.Rev, conds, nil
	}
	c, planAsRead, err := o.createControl(ctx, def)
	if err != nil {
		return nil, registry.Rev{}, nil, err
	}
	if old := stored.Control; old != nil { // of an earlier creation, whose runs may be cancelled
		c.LastTrigger, c.LastBackfill, c.Cancels = max(c.LastTrigger, old.LastTrigger), old.LastBackfill, old.Cancels
	}
	return c, stored.Rev, append(conds, planAsRead), nil
}

// changeGroupControl changes the intent for all jobs by compare-and-set, and adds the act, whose text change returns.
func (o *Operator) changeGroupControl(ctx context.Context, change func(*record.GroupControl) (what string, err error)) error {
	for {
		c, err := o.readGroupControl(ctx)
		if err != nil {
			return err
		}
		what, err := change(c.GroupControl)
		if err != nil {
			return o.orNil(err)
		}
		c.Acts = c.Acts.With(o.newAct(what))
		if again, err := o.putRecord(ctx, o.keys.GroupControl(), c.Rev, c.GroupControl); !again {
			return err
		}
	}
}

// putRecord replaces the record at rev, or creates one if rev is zero, on conditions. It reports
// whether another writer changed a record first, so that the caller must retry.
func (o *Operator) putRecord(ctx context.Context, key registry.Key, rev registry.Rev, v any, conds ...registry.Cond) (again bool, err error) {
	op, err := putOp(key, rev, v)
	if err != nil {
		return false, err
	}
	_, err = registry.Apply(ctx, o.reg, o.settle(registry.Txn{If: conds, Then: []registry.Op{op}}))
	conflict, again := batch.FindConflict(err)
	if again && o.isSettled(conflict) {
		return false, errSettled
	}
	return again, err
}

// putOp returns the operation that replaces the record at rev, or creates one if rev is zero.
func putOp(key registry.Key, rev registry.Rev, v any) (registry.Op, error) {
	value, err := record.EncodeChecked(v)
	if err != nil {
		return registry.Op{}, err
	}
	if rev.IsZero() {
		return registry.Create(key, value), nil
	}
	return registry.Set(key, rev, value), nil
}

// createControl returns the first control record of a job, and the condition under which it is true:
// a plan that a leader creates or changes meanwhile may absorb claims before they are read here.
func (o *Operator) createControl(ctx context.Context, def *storedJob) (c *record.Control, planAsRead registry.Cond, err error) {
	segment := record.Segment(def.Name)
	p, err := o.readPlan(ctx, segment)
	if err != nil {
		return nil, registry.Cond{}, err
	}
	c = def.controlWithoutRecord(p.Plan)
	c.LastTrigger, err = o.findLastTrigger(ctx, segment, p.Plan)
	if d := def.defined.Defined; d != nil && d.Rest != nil {
		c.LastTrigger = max(c.LastTrigger, d.Rest.Trigger)
	}
	return c, asRead(o.keys.Plan(segment), p.Rev), err
}

// findLastTrigger returns the highest trigger number in the plan and in the claims records of
// its owners; without a plan, in those of all members, which may have owned shards before the
// job was forgotten. It is needed if the control record, which counts triggers, was deleted: a
// trigger whose number was used before would never run.
func (o *Operator) findLastTrigger(ctx context.Context, segment string, p *record.Plan) (last uint64, err error) {
	var incs []string
	if p != nil {
		incs = slices.Collect(maps.Keys(p.Owners))
	} else {
		p = &record.Plan{}
		listing, err := o.reg.List(ctx, o.keys.Members(), registry.ReadOptions{})
		if err != nil {
			return 0, err
		}
		for _, e := range listing.Entries {
			incs = append(incs, e.Key.Name())
		}
	}
	s := snapshot.New(o.keys)
	if err := o.getClaims(ctx, s, segment, incs); err != nil {
		return 0, err
	}
	marks := slices.Clone(p.Watermarks)
	for _, claims := range s.Claims[segment] {
		marks = append(marks, claims.Watermarks...)
	}
	for _, g := range marks {
		last = max(last, g.Trigger)
	}
	for _, t := range p.Triggers {
		last = max(last, t.Number)
	}
	return last, nil
}

// readMeta reads the record of the namespace, and its revision, which is zero if there is none. An error with a revision
// means that the record cannot be decoded.
func (o *Operator) readMeta(ctx context.Context) (record.Meta, registry.Rev, error) {
	key := o.keys.Meta()
	e, found, err := o.getRecord(ctx, key)
	if err != nil || !found {
		return record.Meta{Format: record.Format}, registry.Rev{}, err
	}
	meta, err := record.DecodeMeta(e.Value)
	if err != nil {
		return record.Meta{}, e.Modified, fmt.Errorf("read %s: %w", key, err)
	}
	return meta, e.Modified, nil
}
