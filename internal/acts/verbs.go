package acts

import (
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
	shardsField = Field{Name: "shards", Kind: Shards, Label: "Shards", Help: "such as 3,7-9; empty for all"}
	paramField  = Field{Name: "param", Kind: Text, Label: "Parameter", Help: "in place of the job's; empty for the job's", Secret: true}
	untilField  = Field{Name: "until", Kind: Instant, Label: "Until", Help: "when it ends by itself, in UTC; empty for a resume by hand"}
)

// required returns a field that has to be set.
func required(f Field) Field {
	f.Required = true
	return f
}

// Verbs are all acts of forms, in the order in which they are offered.
var Verbs = []Verb{
	{Name: "trigger", On: OnJob, Short: "Run the job now", Fields: []Field{shardsField, paramField}, Do: trigger},
	{Name: "pause", On: OnJob, Short: "Stop the job until it is resumed; fires that come due meanwhile never run", Fields: []Field{untilField}, Do: pause},
	{Name: "resume", On: OnJob, Short: "End the pause of the job", Do: resume},
	{Name: "retry", On: OnJob, Short: "Run the failed shards of a fire again", Do: retry, Fields: []Field{
		{Name: "fire", Kind: Instant, Label: "Fire", Help: "the instant of the fire, in UTC", Required: true},
		{Name: "shards", Kind: Shards, Label: "Shards", Help: "empty for those that failed"}, paramField,
		{Name: "again", Kind: Switch, Label: "As new work", Help: "also if the work is pending or done, with another key"},
	}},
	{Name: "backfill", On: OnJob, Short: "Run the past fires of the schedule in a window", Do: backfill, Fields: []Field{
		{Name: "from", Kind: Instant, Label: "From", Help: "the first instant, in UTC", Required: true},
		{Name: "to", Kind: Instant, Label: "To", Help: "the instant after the last fire, in UTC", Required: true},
		{Name: "parallel", Kind: Number, Label: "At a time", Help: "fires in flight at most; 1 if empty"},
	}},
	{Name: "cancel", On: OnJob, Short: "Cancel runs in progress, and those pending to be made again", Fields: []Field{shardsField}, Do: cancel},
	{Name: "disable", On: OnJob, Short: "Skip the fires of shards until they are enabled", Fields: []Field{required(shardsField)}, Do: disable},
	{Name: "enable", On: OnJob, Short: "Let disabled shards run again", Fields: []Field{required(shardsField)}, Do: enable},
	{
		Name: "override", On: OnJob, Short: "Replace the schedule or the number of shards without a deployment", Do: override,
		Warning: "An override wins over later deployments until it is taken back.",
		Fields: []Field{
			{Name: "schedule", Kind: Text, Label: "Schedule", Help: "such as cron 0 4 * * * in Europe/Paris; empty to leave it"},
			{Name: "count", Kind: Number, Label: "Number of shards", Help: "empty to leave it"},
			{Name: "clear", Kind: Switch, Label: "Take the whole override back"},
		},
	},
	{Name: "reset", On: OnJob, Short: "Start the job afresh whose shards wait because of a wrong clock", Warning: "Fires that were claimed ahead of time will run again.", Do: reset},
	{
		Name: "retire", On: OnJob, Short: "Remove the job from the fleet: the leader deletes it once no instance offers it",
		Warning: "Nothing of it begins any more. With its records go pending triggers, re-runs and the saved states of shards.", Do: retire,
	},
	{Name: "unretire", On: OnJob, Short: "Take a retirement back", Do: unretire},
	{
		Name: "forget", On: OnJob, Short: "Delete a job for good that no instance offers", Do: forget,
		Warning: "All its records go, with its acts and the saved states of shards.",
	},
	{Name: "pause", On: OnGroup, Short: "Stop all jobs of the group until it is resumed", Fields: []Field{untilField}, Do: pauseGroup},
	{Name: "resume", On: OnGroup, Short: "End the pause of the group", Do: resumeGroup},
	{Name: "acknowledge", On: OnGroup, Short: "Acknowledge that the store has lost records", Do: acknowledge},
	{Name: "drain", On: OnInstance, Short: "Move all shards away from the instance, also after its restart, until undrain", Do: drain},
	{Name: "undrain", On: OnInstance, Short: "Let the instance own shards again", Do: undrain},
}

// done returns the answer of an act on a job.
func done(verb string, r Request, format string, args ...any) view.Done {
	d := view.Done{Version: view.Version, Verb: verb, Jobs: []string{}, Text: fmt.Sprintf(format, args...)}
	if r.Job != "" {
		d.Jobs = []string{r.Job}
	}
	return d
}

func trigger(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	n, err := op.Trigger(ctx, r.Job, r.param(), r.Shards)
	d := done("trigger", r, "triggered %s: #%d", r.Job, n)
	d.Trigger = n
	return d, err
}

func (r Request) param() string {
	if r.Param == nil {
		return ""
	}
	return *r.Param
}

func pause(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	if r.Until.IsZero() {
		return done("pause", r, "paused %s", r.Job), op.Pause(ctx, r.Job)
	}
	return done("pause", r, "paused %s until %s", r.Job, r.Until.UTC().Format(time.RFC3339)), op.PauseUntil(ctx, r.Job, r.Until)
}

func resume(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	in, err := op.Intent(ctx, r.Job)
	if err != nil || in.Paused || in.ScheduleStopped || !in.RetiredBy.At.IsZero() {
		return done("resume", r, "resumed %s", r.Job), op.Resume(ctx, r.Job)
	}
	if group, err := op.Intent(ctx, ""); err == nil && group.Paused {
		return done("resume", r, "%s is not paused itself, as the group is: nothing changed", r.Job), nil
	}
	return done("resume", r, "%s is not paused: nothing changed", r.Job), nil
}

func retry(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	found, err := op.Retry(ctx, r.Job, r.Fire, operator.RetryOptions{Shards: r.Shards, Param: r.param(), Again: r.Again})
	if err != nil {
		return view.Done{}, err
	}
	return view.DescribeRetry(r.Job, found, r.Again), nil
}

func backfill(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	if !r.From.Before(r.To) {
		return view.Done{}, errors.New("the window is empty: to is not after from")
	}
	parallel := max(r.Parallel, 1)
	fires, err := op.Backfill(ctx, r.Job, r.From, r.To, parallel)
	d := done("backfill", r, "backfills %s of %s, %d at a time", count.Of(len(fires), "fire"), r.Job, parallel)
	d.Fires = fires
	return d, err
}

func cancel(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	runs, err := op.Cancel(ctx, r.Job, r.Shards...)
	d := done("cancel", r, "cancelled %s: %s", r.Job, view.DescribeRuns(runs))
	d.Runs = runs
	return d, err
}

func disable(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	err := op.Disable(ctx, operator.Scope{Job: r.Job, Shards: r.Shards})
	return done("disable", r, "disabled %s for %s", view.ShardsText(r.Shards), r.Job), err
}

func enable(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	err := op.Enable(ctx, operator.Scope{Job: r.Job, Shards: r.Shards})
	return done("enable", r, "enabled %s for %s", view.ShardsText(r.Shards), r.Job), err
}

// override changes the fields that are set, and leaves others of the override in place.
func override(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	if r.Clear {
		if r.Schedule != "" || r.Count != 0 {
			return view.Done{}, errors.New("clear and other fields exclude each other")
		}
		return done("override", r, "took the override of %s back", r.Job), op.Override(ctx, r.Job, operator.Override{})
	}
	if r.Schedule == "" && r.Count == 0 {
		return view.Done{}, errors.New("name a schedule, a number of shards, or clear")
	}
	in, err := op.Intent(ctx, r.Job)
	if err != nil {
		return view.Done{}, err
	}
	ov, names := in.Override, []string{}
	if r.Schedule != "" {
		ov.Schedule, names = r.Schedule, append(names, "schedule")
	}
	if r.Count != 0 {
		ov.Shards, names = r.Count, append(names, "shards")
	}
	return done("override", r, "overrides %s of %s", strings.Join(names, ", "), r.Job), op.Override(ctx, r.Job, ov)
}

func reset(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	return done("reset", r, "reset %s", r.Job), op.Reset(ctx, r.Job)
}

func retire(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	if err := op.Retire(ctx, r.Job); err != nil {
		return view.Done{}, err
	}
	d := done("retire", r, "retires %s", r.Job)
	st, err := op.Status(ctx, r.Job) // the act is stored, so a failed read is no error
	switch {
	case err == nil:
		d.Text += ": " + view.DescribeRetiring(&st)
	case errors.Is(err, operator.ErrUnknownJob):
		d.Text += ": " + view.DeletedByLeader
	}
	return d, nil
}

func unretire(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	in, err := op.Intent(ctx, r.Job)
	if err == nil && in.RetiredBy.At.IsZero() {
		return done("unretire", r, "%s is not retiring: nothing changed", r.Job), nil
	}
	return done("unretire", r, "unretired %s", r.Job), op.Unretire(ctx, r.Job)
}

func forget(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	return done("forget", r, "forgot %s", r.Job), op.Forget(ctx, r.Job)
}

func pauseGroup(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	if r.Until.IsZero() {
		return done("pause", r, "paused all jobs of the group"), op.PauseGroup(ctx)
	}
	return done("pause", r, "paused all jobs of the group until %s", r.Until.UTC().Format(time.RFC3339)), op.PauseGroupUntil(ctx, r.Until)
}

func resumeGroup(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	in, err := op.Intent(ctx, "")
	if err == nil && !in.Paused {
		return done("resume", r, "the group is not paused: nothing changed"), nil
	}
	return done("resume", r, "resumed the group"), op.ResumeGroup(ctx)
}

func acknowledge(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	return done("acknowledge", r, "acknowledged the loss"), op.AcknowledgeLoss(ctx)
}

func drain(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	return done("drain", r, "drains %s", r.Instance), op.BeginDrain(ctx, r.Instance)
}

func undrain(ctx context.Context, op *operator.Operator, r Request) (view.Done, error) {
	return done("undrain", r, "undrained %s", r.Instance), op.Undrain(ctx, r.Instance)
}
