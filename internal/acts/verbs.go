package acts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

var (
	shardsField    = Field{Name: "shards", Kind: Shards, Label: "Shards", Help: "such as 3,7-9; empty for all"}
	scopeShards    = Field{Name: "shards", Kind: Shards, Label: "Shards", Help: "shards of the job, such as 3,7-9"}
	instancesField = Field{Name: "instances", Kind: Names, Label: "Instances", Help: "names of instances, separated by commas"}
	hostsField     = Field{Name: "hosts", Kind: Names, Label: "Hosts", Help: "names of hosts, separated by commas"}
	paramField     = Field{Name: "param", Kind: Lines, Label: "Parameter", Help: "of the runs; empty for the job's", Secret: true}
	untilField     = Field{Name: "until", Kind: Until, Label: "Until", Help: "resume at this instant, or after this time, as 2h; empty for a resume by hand"}
)

// verbs are Verbs whose Do expects a request that Check accepts.
var verbs = []Verb{
	{Name: "trigger", On: OnJob, Short: "Run the job now, in all shards or some", Fields: []Field{shardsField, paramField}, Do: trigger},
	{Name: "retry", On: OnJob, Short: "Run the failed shards of a fire again", Do: retry, Fields: []Field{
		{Name: "fire", Kind: Instant, Label: "Fire", Help: "the instant of the fire", Required: true},
		{Name: "shards", Kind: Shards, Label: "Shards", Help: "whether or not their failure is on record; empty for those that failed, also by the history"},
		{Name: "total", Kind: Number, Label: "Number of shards then", Help: "that the job had at the fire, if it has changed and is not on record"},
		{Name: "param", Kind: Lines, Label: "Parameter", Help: "of the runs, if the trigger that failed had one; empty for the job's", Secret: true},
		{Name: "again", Kind: Switch, Label: "As new work", Help: "also if their work is pending or done, with another key"},
	}},
	{Name: "backfill", On: OnJob, Short: "Run the past fires of the schedule in a window", Do: backfill, Fields: []Field{
		{Name: "from", Kind: Instant, Label: "From", Help: "the first instant", Required: true},
		{Name: "to", Kind: Instant, Label: "To", Help: "the instant after the last fire", Required: true},
		{Name: "parallel", Kind: Number, Label: "At a time", Help: "fires in flight at most; empty for 1"},
	}},
	{
		Name: "stop-backfills", On: OnJob, Short: "Drop the fires of backfills that have not begun", Do: stopBackfills,
		Confirm: func(r Request) string { return "drop the fires of backfills of " + r.Job + " that have not begun" },
	},
	{Name: "cancel", On: OnJob, Short: "Cancel runs in progress, and those pending to be made again", Fields: []Field{shardsField}, Confirm: confirmCancel, Do: cancel},
	{Name: "pause", On: OnJob, Short: "Stop the job until it is resumed; fires that come due meanwhile never run", Do: pause, check: checkPause, Fields: []Field{
		untilField, {Name: "schedule_only", Kind: Switch, Label: "Schedule only", Help: "triggers run"},
	}},
	{Name: "resume", On: OnJob, Short: "End the pause of the job", Do: resume},
	{
		Name: "disable", On: OnJob, Short: "Prevent shards, instances or hosts from starting runs of the job until they are enabled", Do: disable(jobScope),
		Fields: []Field{scopeShards, instancesField, hostsField},
	},
	{
		Name: "enable", On: OnJob, Short: "Let disabled shards, instances or hosts run the job again", Do: enable(jobScope),
		Fields: []Field{scopeShards, instancesField, hostsField},
	},
	{
		Name: "override", On: OnJob, Short: "Replace fields of the job's definition without a deployment, until they are cleared", Do: override, check: checkOverride,
		Fields: []Field{
			{Name: "fields", Kind: Pairs, Label: "Fields", Help: "an empty field stays as it is", Secret: true, Keys: overrideKeys},
			{Name: "clear", Kind: Names, Label: "Take back", Help: "names of fields, separated by commas"},
			{Name: "clear_all", Kind: Switch, Label: "Take all back"},
		},
	},
	{
		Name: "reset", On: OnJob, Short: "Start the job afresh whose shards wait because of a wrong clock", Do: reset,
		Confirm: func(r Request) string {
			return "reset " + r.Job + ": fires that were claimed ahead of time will run again"
		},
	},
	{
		Name: "define", On: OnJob, Origin: Defined, Short: "Define the job of a kind as data, or change it", Fields: defineFields, Do: define, check: checkDefine,
	},
	{
		Name: "delete", On: OnJob, Origin: Defined, Short: "Delete the job, which is defined as data", Do: deleteJob, Confirm: confirmDelete,
		Fields: []Field{{Name: "cancel_runs", Kind: Switch, Label: "Cancel runs", Help: "that are in progress"}},
	},
	{
		Name: "retire", On: OnJob, Origin: Registered, Short: "Remove the job from the fleet: the leader deletes it once no instance offers it", Do: retire,
		Confirm: func(r Request) string {
			return "stop " + r.Job + ", and delete all records of it once no instance offers it"
		},
	},
	{Name: "unretire", On: OnJob, Origin: Registered, Short: "Revert retire, unless the job is deleted already", Do: unretire},
	{
		Name: "forget", On: OnJob, Origin: Registered, Short: "Delete the job for good, which no instance offers", Do: forget,
		Confirm: func(r Request) string {
			return "delete all records of " + r.Job + ", with pending runs and the saved states of shards"
		},
	},
	{
		Name: "pause", On: OnGroup, Short: "Stop all jobs of the group until it is resumed", Fields: []Field{untilField}, Do: pauseGroup,
		Confirm: func(Request) string { return "pause all jobs of the group" },
	},
	{Name: "resume", On: OnGroup, Short: "End the pause of the group; jobs that are paused themselves stay paused", Do: resumeGroup},
	{Name: "disable", On: OnGroup, Short: "Prevent instances or hosts from running jobs until they are enabled", Fields: []Field{instancesField, hostsField}, Do: disable(groupScope)},
	{Name: "enable", On: OnGroup, Short: "Let disabled instances or hosts run jobs again", Fields: []Field{instancesField, hostsField}, Do: enable(groupScope)},
	{
		Name: "set-pool", On: OnGroup, Short: "Set how many runs of the jobs of a pool may run at once in the group", Do: setPool, check: checkPool,
		Fields: []Field{poolField, {Name: "size", Kind: Count, Label: "Size", Help: "how many runs at once; 0 holds all of them back", Required: true}},
	},
	{
		Name: "delete-pool", On: OnGroup, Short: "Delete the size of a pool", Fields: []Field{poolField}, Do: deletePool, check: checkPool,
		Confirm: confirmDeletePool,
	},
	{Name: "acknowledge", On: OnGroup, Short: "End the report that the store has lost records", Do: acknowledge},
	{Name: "drain", On: OnInstance, Short: "Move all shards away from the instance, also after its restart, until undrain", Do: drain},
	{Name: "undrain", On: OnInstance, Short: "Revert drain: the instance may own shards again", Do: undrain},
}

// said is the result of an act with a text.
func said(format string, args ...any) view.Done { return view.Done{Text: fmt.Sprintf(format, args...)} }

// unchanged is the result of an act that has nothing to end.
func unchanged(format string, args ...any) view.Done {
	d := said(format, args...)
	d.Unchanged = true
	return d
}

func trigger(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	n, err := op.Trigger(ctx, r.Job, r.param(), r.Shards)
	if err != nil {
		return view.Done{}, err
	}
	d := said("triggered %s: #%d", r.Job, n)
	d.Trigger, d.Note = n, noteWait(ctx, op, r.Job, r.Shards)
	return d, nil
}

// param returns the parameter of runs, empty for the job's.
func (r *Request) param() string {
	if r.Param == nil {
		return ""
	}
	return *r.Param
}

func retry(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	runs, err := op.Retry(ctx, r.Job, r.Fire, operator.RetryOptions{Shards: r.Shards, Total: r.Total, Param: r.param(), Again: r.Again})
	if err != nil {
		return view.Done{}, err
	}
	d := view.DescribeRetry(r.Job, runs, r.Again)
	d.Note = noteWait(ctx, op, r.Job, runs.Shards)
	return d, nil
}

// FindFailed returns the shards of a job whose last run for a fire failed, and the number of shards that the job had then, by a history.
type FindFailed func(ctx context.Context, job string, fire time.Time) (failed []int, total int, err error)

// ErrHistory is the error of an act that needs the history, which does not answer.
var ErrHistory = errors.New("the history does not answer")

// DoByHistory is Do, but a retry whose shards are left out also looks for them by find, as the records name few failures. A nil find
// finds nothing.
func (v *Verb) DoByHistory(ctx context.Context, op *operator.Operator, r Request, find FindFailed) (view.Done, error) {
	done, err := v.Do(ctx, op, r)
	if find == nil || v.Name != "retry" || r.Shards != nil || !errors.Is(err, operator.ErrNoFailure) {
		return done, err
	}
	failed, total, findErr := find(ctx, r.Job, r.Fire)
	switch {
	case errors.Is(findErr, operator.ErrRetryRefused):
		return view.Done{}, findErr
	case findErr != nil:
		return view.Done{}, fmt.Errorf("%w: %w", ErrHistory, findErr)
	case failed == nil:
		return view.Done{}, err
	}
	r.Shards, r.Total = failed, cmp.Or(r.Total, total)
	return v.Do(ctx, op, r)
}

func backfill(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	parallel := max(r.Parallel, 1)
	fires, err := op.Backfill(ctx, r.Job, r.From, r.To, parallel)
	if err != nil {
		return view.Done{}, err
	}
	d := said("backfills %s of %s, %d at a time", count.Of(len(fires), "fire"), r.Job, parallel)
	d.Fires, d.Note = fires, noteWait(ctx, op, r.Job, nil)
	return d, nil
}

func stopBackfills(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	n, err := op.StopBackfills(ctx, r.Job)
	d := said("dropped %s of %s", count.Of(n, "fire"), r.Job)
	d.Verb = "backfill" // whose flag it is
	return d, err
}

func confirmCancel(r Request) string {
	if r.Shards == nil {
		return "cancel all runs of " + r.Job + " that are in progress or pending"
	}
	return fmt.Sprintf("cancel the runs of %s in %s", r.Job, view.ShardsText(r.Shards))
}

func cancel(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	runs, err := op.Cancel(ctx, r.Job, r.Shards...)
	d := said("cancelled %s: %s", r.Job, view.DescribeRuns(runs))
	d.Runs = runs
	return d, err
}

func checkPause(r Request) error {
	if r.ScheduleOnly && !r.Until.IsZero() {
		return wrongf("schedule_only", "a stopped schedule does not resume by itself: leave out until")
	}
	return nil
}

func pause(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	switch {
	case r.ScheduleOnly:
		return said("stopped the schedule of %s", r.Job), op.StopSchedule(ctx, r.Job)
	case !r.Until.IsZero():
		return said("paused %s until %s", r.Job, r.Until.UTC().Format(time.RFC3339)), op.PauseUntil(ctx, r.Job, r.Until)
	}
	return said("paused %s", r.Job), op.Pause(ctx, r.Job)
}

func resume(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	err := op.ReportingUnchanged().Resume(ctx, r.Job)
	if !errors.Is(err, operator.ErrUnchanged) {
		return said("resumed %s", r.Job), err
	}
	if group, err := op.Intent(ctx, ""); err == nil && group.Paused {
		return unchanged("%s is not paused itself, as the group is: nothing changed", r.Job), nil
	}
	return unchanged("%s is not paused: nothing changed", r.Job), nil
}

func pauseGroup(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	if r.Until.IsZero() {
		return said("paused all jobs of the group"), op.PauseGroup(ctx)
	}
	return said("paused all jobs of the group until %s", r.Until.UTC().Format(time.RFC3339)), op.PauseGroupUntil(ctx, r.Until)
}

func resumeGroup(ctx context.Context, op *operator.Operator, _ Request) (view.Done, error) {
	err := op.ReportingUnchanged().ResumeGroup(ctx)
	if errors.Is(err, operator.ErrUnchanged) {
		return unchanged("the group is not paused: nothing changed"), nil
	}
	return said("resumed the group"), err
}

func jobScope(r *Request) operator.Scope {
	return operator.Scope{Job: r.Job, Shards: r.Shards, Instances: r.Instances, Hosts: r.Hosts}
}

func groupScope(r *Request) operator.Scope {
	return operator.Scope{Instances: r.Instances, Hosts: r.Hosts}
}

func disable(scopeOf func(*Request) operator.Scope) doFunc {
	return func(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
		s := scopeOf(&r)
		if err := op.Disable(ctx, s); err != nil {
			return view.Done{}, err
		}
		d := said("disabled %s", describeScope(&s))
		d.Note = noteAbsent(ctx, op, &s)
		return d, nil
	}
}

func enable(scopeOf func(*Request) operator.Scope) doFunc {
	return func(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
		s := scopeOf(&r)
		err := op.ReportingUnchanged().Enable(ctx, s)
		d := said("enabled %s", describeScope(&s))
		if errors.Is(err, operator.ErrUnchanged) {
			d, err = unchanged("%s: not disabled, nothing changed", describeScope(&s)), nil
		}
		if err != nil {
			return view.Done{}, err
		}
		d.Note = noteAbsent(ctx, op, &s)
		return d, nil
	}
}

// describeScope names the shards, instances and hosts of s, and its job.
func describeScope(s *operator.Scope) string {
	var parts []string
	if len(s.Shards) > 0 {
		parts = append(parts, view.ShardsText(s.Shards))
	}
	for _, i := range s.Instances {
		parts = append(parts, "instance "+i)
	}
	for _, h := range s.Hosts {
		parts = append(parts, "host "+h)
	}
	return strings.Join(parts, ", ") + " for " + cmp.Or(s.Job, "all jobs")
}

func reset(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	return said("reset %s", r.Job), op.Reset(ctx, r.Job)
}

func retire(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	done, err := Retire(ctx, op, r.Job)
	if err != nil {
		return view.Done{}, err
	}
	return done[0], nil
}

// Retire retires jobs together, as their commits are shared, and returns the results of those that are retired. It returns none if
// a job could not be retired for another reason than that nothing of it is on record.
func Retire(ctx context.Context, op *operator.Operator, jobs ...string) (done []view.Done, err error) {
	err = op.Retire(ctx, jobs...)
	if err != nil && (len(jobs) == 1 || !errors.Is(err, operator.ErrUnknownJob)) {
		return nil, err
	}
	for _, job := range jobs {
		d := said("retires %s", job)
		d.Verb, d.Jobs, d.Version = "retire", []string{job}, view.Version
		st, statusErr := op.Status(ctx, job) // the act is stored, so a failed read is no error
		switch isUnknown := errors.Is(statusErr, operator.ErrUnknownJob); {
		case statusErr == nil:
			d.Text += ": " + view.DescribeRetiring(&st)
		case isUnknown && err != nil: // Retire may have reported it
			continue
		case isUnknown:
			d.Text += ": " + view.DeletedByLeader
		}
		done = append(done, d)
	}
	return done, err
}

func unretire(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	err := op.ReportingUnchanged().Unretire(ctx, r.Job)
	if !errors.Is(err, operator.ErrUnchanged) {
		return said("unretired %s", r.Job), err
	}
	if _, err := op.Intent(ctx, r.Job); err != nil { // it is deleted, or misspelt
		return view.Done{}, fmt.Errorf("unretire %q: %w", r.Job, err)
	}
	return unchanged("%s is not retiring: nothing changed", r.Job), nil
}

func forget(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	return said("forgot %s", r.Job), op.Forget(ctx, r.Job)
}

func acknowledge(ctx context.Context, op *operator.Operator, _ Request) (view.Done, error) {
	loss, err := op.StoreLoss(ctx)
	if err != nil {
		return view.Done{}, err
	}
	if loss == nil {
		return unchanged("no loss of records is on record"), nil
	}
	return said("acknowledged: %s", view.LossText(loss)), op.AcknowledgeLoss(ctx)
}

func drain(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	if err := op.BeginDrain(ctx, r.Instance); err != nil {
		return view.Done{}, err
	}
	d := said("drains %s", r.Instance)
	d.Note = NoteDrain(ctx, op, r.Instance)
	return d, nil
}

func undrain(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	err := op.ReportingUnchanged().Undrain(ctx, r.Instance)
	d := said("undrained %s", r.Instance)
	if errors.Is(err, operator.ErrUnchanged) {
		d, err = unchanged("%s is not drained: nothing changed", r.Instance), nil
	}
	if err != nil {
		return view.Done{}, err
	}
	d.Note = noteMissing(ctx, op, []string{r.Instance}, "it may own shards when it starts")
	return d, nil
}
