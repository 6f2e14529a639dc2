package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/coordinator/internal/member"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

var (
	// ErrUnknownJob means that nobody has stored a definition of the job.
	ErrUnknownJob = errors.New("unknown job")
	// ErrTooManyTriggers means that as many triggers of the job wait as may.
	ErrTooManyTriggers = errors.New("too many triggers wait")
	// ErrTooManyDisabled means that as many instances or hosts are disabled as may be.
	ErrTooManyDisabled = errors.New("too many are disabled")
	// ErrNewerFormat means that a newer version has written what this one must not guess at.
	// Nothing was written.
	ErrNewerFormat = record.ErrNewerFormat
)

// Operator says what a group is to run and what not, without being in it. Its methods may
// be called from many goroutines.
//
// What an Operator says is in the registry when the call returns, and outlives every
// process. It takes effect when the leader has copied it into its plans, a moment later; if
// nobody leads, when somebody does. An error that wraps registry.ErrUnknownOutcome leaves
// open whether it was stored; calls other than Trigger can then simply be made again.
type Operator struct {
	reg     registry.Registry
	keys    record.Keys
	compile due.Compiler // nil: the schedules of jobs are not known
}

// NewOperator returns an Operator of a group of a namespace; "" is the group "default".
// Nothing is sent before the first call.
func NewOperator(reg registry.Registry, namespace, group string) (*Operator, error) {
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
	return &Operator{reg: reg, keys: keys}, nil
}

// Scope names what to disable or enable.
type Scope struct {
	// Job is the job that it is about. Empty means all jobs of the group, also those that
	// are yet to come.
	Job string
	// Shards are numbers of shards of Job, which is not empty then.
	Shards []int
	// Instances are names. A process that was given its name has it again after a restart;
	// one that was not comes back under another.
	Instances []string
	// Hosts are hosts, each as its instances state it, letter for letter: the name that the
	// system gives them, if their options have no other.
	Hosts []string
}

// Intent is what operators want, as it is stored.
type Intent struct {
	Paused   bool
	Disabled Scope // what would have to be enabled for nothing to be disabled; sorted
	// ScheduleStopped is whether the schedule is stopped, and triggers run. A job that is
	// paused has it false.
	ScheduleStopped bool
}

// Trigger asks for a run of a job by hand. It is durable: once Trigger has returned, the
// run happens whoever crashes. shards are those to run, nil for all, and an empty slice is
// refused; those that are disabled, or whose job is paused, run when they no longer are. The number that is
// returned stands in Run.Trigger.
func (o *Operator) Trigger(ctx context.Context, job, param string, shards []int) (uint64, error) {
	if shards != nil && len(shards) == 0 {
		return 0, fmt.Errorf("trigger %q: no shard is named; nil means all", job)
	}
	number := uint64(0)
	err := o.changeControl(ctx, job, func(c *record.Control, def record.Job) error {
		t := record.Trigger{At: record.InstantOf(time.Now()), Param: param}
		if shards != nil {
			set, err := shardSetOf(shards, def.Shards)
			if err != nil {
				return err
			}
			t.Shards = &set
		}
		if len(c.Triggers) >= record.MaxTriggers {
			return fmt.Errorf("%w: %d", ErrTooManyTriggers, len(c.Triggers))
		}
		c.LastTrigger++
		t.Number, number = c.LastTrigger, c.LastTrigger
		c.Triggers = append(c.Triggers, t)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("trigger %q: %w", job, err)
	}
	return number, nil
}

// Pause makes the fleet claim nothing more of a job until Resume, no trigger and no re-run
// either: they wait. Runs that have begun go on. A job whose schedule is stopped becomes a
// paused one.
func (o *Operator) Pause(ctx context.Context, job string) error {
	return o.setPaused(ctx, "pause", job, true, false)
}

// StopSchedule makes the fleet run a job by Trigger alone until Resume. Fires that come due
// after the leader has stopped the schedule are not owed, as in a pause; those before it run.
// Triggers run, and so do runs that a crash ended. A new definition holds for triggers from
// when the leader has taken it up, and for the schedule from the Resume. A paused job becomes
// one whose schedule is stopped, so that triggers that wait run.
func (o *Operator) StopSchedule(ctx context.Context, job string) error {
	return o.setPaused(ctx, "stop schedule of", job, false, true)
}

// Resume ends a Pause or a StopSchedule, at an instant that is MaxClockSkew away, so that no
// clock in the fleet has passed it. Fires that come until then are not owed.
func (o *Operator) Resume(ctx context.Context, job string) error {
	return o.setPaused(ctx, "resume", job, false, false)
}

func (o *Operator) setPaused(ctx context.Context, verb, job string, paused, stopped bool) error {
	err := o.changeControl(ctx, job, func(c *record.Control, _ record.Job) error {
		c.Paused, c.Stopped = paused, stopped
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s %q: %w", verb, job, err)
	}
	return nil
}

// Reset starts a job afresh from now, whatever its shards have claimed: a new generation of its
// newest definition begins at an instant that is MaxClockSkew away, or after the last fire that
// was claimed until then. It is for shards that wait because a clock was wrong, which
// Status.Problem shows. A job that is paused, or whose schedule is stopped, is reset when it resumes.
//
// Reset forgets which fires after that instant have been claimed. They are claimed at their
// time, so those that a wrong clock has had run before are run again, with the same ID and
// attempt 1: after a Reset each attempt at a fire is claimed at most once per generation. Fires
// of before that are still owed run or are skipped as the job's misfire policy says; pending
// re-runs and triggers stay. A Reset that is made twice resets twice, which does no harm.
func (o *Operator) Reset(ctx context.Context, job string) error {
	done, err := o.readResets(ctx, record.Segment(job))
	if err == nil {
		err = o.changeControl(ctx, job, func(c *record.Control, _ record.Job) error {
			c.Resets = max(c.Resets, done) + 1 // an older copy of the record may have been restored
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("reset %q: %w", job, err)
	}
	return nil
}

// resetsDone returns how many resets of a job the plan has.
func (o *Operator) readResets(ctx context.Context, segment string) (uint64, error) {
	if err := o.checkFormat(ctx); err != nil {
		return 0, err
	}
	key := o.keys.Plan(segment)
	e, found, err := o.getRecord(ctx, key)
	if err != nil || !found {
		return 0, err
	}
	p, err := record.DecodePlan(e.Value)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", key, err)
	}
	return p.Resets, nil
}

// Disable keeps what s names from running until Enable. Runs that have begun go on; those
// who own shards by Join are told to let go.
//
// A shard that is disabled stays where it is. Its fires are passed over as they come, and
// count as skipped: when it is enabled none of them is made up for. That is done by its
// owner, so fires that find none, or one whose run of the shard has not ended, are passed
// over later, and if the shard is enabled before that, run as the job's misfire policy says.
// What is to run in any case waits: triggers, and runs that a crash ended, with the fires
// that follow those. Waiting triggers count for ErrTooManyTriggers, and eight definitions
// of a job are in force at most: while a run waits that names an older one, no ninth is
// taken up.
//
// Instances and hosts that are disabled own no shards: others are given them, those that
// run when they have ended. They stay in the group and may lead it, and none of their shards
// waits for their return (MemberOptions.RestartGrace). Nobody has to know the names: whoever
// comes under them is disabled. If all who offer a job are disabled, nobody owns its shards;
// its fires are owed, and run late.
func (o *Operator) Disable(ctx context.Context, s Scope) error {
	if err := o.setDisabled(ctx, &s, true); err != nil {
		return fmt.Errorf("disable in %s: %w", s.describeJob(), err)
	}
	return nil
}

// Enable takes back what Disable said of what s names, and no more: what is disabled for
// all jobs stays so when it is enabled for one. What was not disabled is left as it is.
func (o *Operator) Enable(ctx context.Context, s Scope) error {
	if err := o.setDisabled(ctx, &s, false); err != nil {
		return fmt.Errorf("enable in %s: %w", s.describeJob(), err)
	}
	return nil
}

// Intent returns what operators want of a job, or, if job is empty, of all jobs of the
// group: what is said of all is not repeated for each.
func (o *Operator) Intent(ctx context.Context, job string) (Intent, error) {
	if job == "" {
		c, _, err := o.readGroupControl(ctx)
		if err != nil {
			return Intent{}, fmt.Errorf("intent for all jobs: %w", err)
		}
		return Intent{Disabled: Scope{Instances: c.Instances, Hosts: c.Hosts}}, nil
	}
	def, err := o.readDefinition(ctx, record.Segment(job))
	if err != nil {
		return Intent{}, fmt.Errorf("intent for %q: %w", job, err)
	}
	c, _, err := o.readControl(ctx, def)
	if err != nil {
		return Intent{}, fmt.Errorf("intent for %q: %w", job, err)
	}
	return intentOf(job, c), nil
}

// set disables or enables.
func (o *Operator) setDisabled(ctx context.Context, s *Scope, disabled bool) error {
	if err := s.validate(); err != nil {
		return err
	}
	if s.Job == "" {
		return o.changeGroupControl(ctx, func(c *record.GroupControl) error { return s.setExclusion(&c.Exclusion, disabled) })
	}
	return o.changeControl(ctx, s.Job, func(c *record.Control, def record.Job) error {
		total := def.Shards
		if !disabled {
			total = record.MaxShards // the job may have had more
		}
		shards, err := shardSetOf(s.Shards, total)
		if err != nil {
			return err
		}
		if c.Disabled = c.Disabled.Minus(shards); disabled {
			c.Disabled = c.Disabled.Union(shards)
		}
		return s.setExclusion(&c.Exclusion, disabled)
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

// set puts the instances and hosts of s into x, or takes them out.
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

func addNames(names, more []string) []string {
	all := slices.Concat(names, more)
	slices.Sort(all)
	return slices.Compact(all)
}

func removeNames(names, less []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(less, name) })
}

// shardsOf returns a set of shards of a job that has so many.
func shardSetOf(numbers []int, total int) (shardset.Set, error) {
	set := shardset.Set{}
	for _, s := range numbers {
		if s < 0 || s >= total {
			return shardset.Set{}, fmt.Errorf("there is no shard %d of %d", s, total)
		}
		set.Add(s)
	}
	return set, nil
}

// change changes the intent for a job by compare and set.
func (o *Operator) changeControl(ctx context.Context, job string, change func(*record.Control, record.Job) error) error {
	segment := record.Segment(job)
	def, err := o.readDefinition(ctx, segment)
	if err != nil {
		return err
	}
	for {
		c, rev, err := o.readControl(ctx, def)
		if err == nil && rev.IsZero() {
			c.LastTrigger, err = o.findLastTrigger(ctx, segment)
		}
		if err != nil {
			return err
		}
		if err := change(c, def); err != nil {
			return err
		}
		if again, err := o.putRecord(ctx, o.keys.Control(segment), rev, c); !again {
			return err
		}
	}
}

// changeGroup changes the intent for all jobs by compare and set.
func (o *Operator) changeGroupControl(ctx context.Context, change func(*record.GroupControl) error) error {
	for {
		c, rev, err := o.readGroupControl(ctx)
		if err != nil {
			return err
		}
		if err := change(c); err != nil {
			return err
		}
		if again, err := o.putRecord(ctx, o.keys.GroupControl(), rev, c); !again {
			return err
		}
	}
}

// store writes a record in place of the one at rev, which is zero if there was none. It
// reports that somebody came between.
func (o *Operator) putRecord(ctx context.Context, key registry.Key, rev registry.Rev, v any) (again bool, err error) {
	value, err := record.Encode(v)
	if err != nil {
		return false, err
	}
	op := registry.Set(key, rev, value)
	if rev.IsZero() {
		op = registry.Create(key, value)
	}
	_, err = registry.Apply(ctx, o.reg, registry.Txn{Then: []registry.Op{op}})
	_, again = batch.FindConflict(err)
	return again, err
}

// get reads a record; found is false if there is none.
func (o *Operator) getRecord(ctx context.Context, key registry.Key) (e registry.Entry, found bool, err error) {
	e, err = o.reg.Get(ctx, key, registry.ReadOptions{Fresh: true})
	if errors.Is(err, registry.ErrNotFound) {
		return e, false, nil
	}
	return e, err == nil, err
}

// control returns the intent for a job. Where none is stored it is what the plan says, from
// when the job was new; later definitions do not change it.
func (o *Operator) readControl(ctx context.Context, def record.Job) (*record.Control, registry.Rev, error) {
	segment := record.Segment(def.Name)
	key := o.keys.Control(segment)
	e, found, err := o.getRecord(ctx, key)
	if err != nil {
		return nil, registry.Rev{}, err
	}
	if found {
		c, err := record.DecodeControl(e.Value)
		if err == nil {
			err = record.CheckJobOf(key, c.Job)
		}
		if err != nil {
			return nil, registry.Rev{}, fmt.Errorf("read %s: %w", key, err)
		}
		return c, e.Modified, nil
	}
	c := &record.Control{Job: def.Name, Paused: def.StartPaused}
	if e, found, err = o.getRecord(ctx, o.keys.Plan(segment)); err != nil {
		return nil, registry.Rev{}, err
	}
	if found {
		p, err := record.DecodePlan(e.Value)
		if err != nil {
			return nil, registry.Rev{}, fmt.Errorf("read %s: %w", o.keys.Plan(segment), err)
		}
		c.Paused, c.Stopped, c.Disabled, c.Resets = p.Paused, p.Stopped, p.Disabled, p.Resets
	}
	return c, registry.Rev{}, nil
}

// lastTrigger returns the highest number of a trigger that a plan or its owners' claims show. The
// record that counts them may have been deleted; a number that is given out again never runs.
func (o *Operator) findLastTrigger(ctx context.Context, segment string) (last uint64, err error) {
	p, err := o.readPlan(ctx, segment)
	if p == nil || err != nil {
		return 0, err
	}
	marks := slices.Clone(p.Watermarks)
	for inc := range p.Owners {
		// The plan was read fresh, and reads of a handle never go back.
		e, err := o.reg.Get(ctx, o.keys.Claims(inc, segment), registry.ReadOptions{})
		if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrForeign) {
			continue
		} else if err != nil {
			return 0, err
		}
		if claims, err := record.Decode[record.Claims](e.Value); err == nil {
			marks = append(marks, claims.Watermarks...)
		}
	}
	for _, g := range marks {
		last = max(last, g.Trigger)
	}
	for _, t := range p.Triggers {
		last = max(last, t.Number)
	}
	return last, nil
}

// groupControl returns the intent for all jobs.
func (o *Operator) readGroupControl(ctx context.Context) (*record.GroupControl, registry.Rev, error) {
	if err := o.checkFormat(ctx); err != nil {
		return nil, registry.Rev{}, err
	}
	key := o.keys.GroupControl()
	e, found, err := o.getRecord(ctx, key)
	if err != nil || !found {
		return &record.GroupControl{}, registry.Rev{}, err
	}
	c, err := record.DecodeGroupControl(e.Value)
	if err != nil {
		return nil, registry.Rev{}, fmt.Errorf("read %s: %w", key, err)
	}
	return c, e.Modified, nil
}

// definition returns the definition of a job.
func (o *Operator) readDefinition(ctx context.Context, segment string) (record.Job, error) {
	_, def, err := o.readDefinitionText(ctx, segment)
	return def, err
}

// definitionText returns the definition of a job as it is stored, too.
func (o *Operator) readDefinitionText(ctx context.Context, segment string) (json.RawMessage, record.Job, error) {
	if err := o.checkFormat(ctx); err != nil {
		return nil, record.Job{}, err
	}
	key := o.keys.Job(segment)
	e, found, err := o.getRecord(ctx, key)
	if err != nil {
		return nil, record.Job{}, err
	}
	if !found {
		return nil, record.Job{}, ErrUnknownJob
	}
	text, def, err := record.DecodeDefinition(e.Value)
	if err != nil {
		return nil, record.Job{}, fmt.Errorf("read %s: %w", key, err)
	}
	return text, def, nil
}

// checkFormat checks that this version may touch the namespace.
func (o *Operator) checkFormat(ctx context.Context) error {
	e, found, err := o.getRecord(ctx, o.keys.Meta())
	if err != nil || !found {
		return err
	}
	if _, err := record.DecodeMeta(e.Value); err != nil {
		return fmt.Errorf("read %s: %w", o.keys.Meta(), err)
	}
	return nil
}
