package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

var (
	// ErrNoFailure means that the records name no failed run of the fire that can be retried.
	ErrNoFailure = errors.New("no failed run is on record")
	// ErrRetryRefused means that the work of the fire is done or may yet be done without the retry, or is not known. The
	// text has the reason for each shard.
	ErrRetryRefused = errors.New("the retry is refused")
)

// RetryOptions are the options of Operator.Retry. The zero value retries what has failed.
type RetryOptions struct {
	// Shards are the shards to retry, whether or not a failure of them is on record. Nil means those with a failure.
	Shards []int
	// Total is the number of shards that the job had at the fire. Zero means the number on record. It is needed for
	// Shards whose failure is not on record, if the definition has changed since.
	Total int
	// Param replaces the job's Param unless it is empty, as that of Trigger does. It is needed if the failed runs had the
	// parameter of a trigger, as the records do not keep it.
	Param string
	// Again runs the shards whatever has become of the fire, as new work: their Run.Key is another one, which has the
	// name of the trigger after the fire.
	Again bool
}

// RetriedRuns are the runs that Operator.Retry has requested.
type RetriedRuns struct {
	Runs
	// More is the number of failed shards of the fire that the records do not name, because they keep eight ranges of
	// shards per attempt. RetryOptions.Shards retries them.
	More int `json:"more,omitempty"`
	// Refused are the other shards that have failed, or that RetryOptions.Shards names.
	Refused []RefusedRetry `json:"refused,omitempty"`
}

// RefusedRetry is shards that Operator.Retry does not retry.
type RefusedRetry struct {
	Shards []int  `json:"shards"`
	Why    string `json:"why"`
}

// Retry has the failed work of a fire done again, by the newest definition. It requests one trigger: its runs have
// the Run.Key and the fire of the work that failed, a greater fence, the reason Retried, and attempts of their own.
// They are durable like those of Trigger, and wait for the same conditions. The fire may also be the time of a trigger. It may be
// cut to microseconds, as a history has it, if only one fire on record begins so.
//
// A shard has failed if its last attempt did, or ended in a crash and is not made again. Retry knows what
// Status.Failures lists: the latest failures, of few fires. It fails with ErrNoFailure if they name none of
// this fire, which is no proof that all its runs succeeded.
//
// It fails with ErrRetryRefused if the work of all these shards is pending or in progress, if an earlier retry has
// succeeded or its outcome is no longer on record, or if the job had another number of shards at the fire, so that
// a shard was other work, or if the failed runs had a parameter of their trigger and RetryOptions.Param is empty. If only some shards are refused, it retries the others. The records name the last 32
// retries of a job. A second call therefore does nothing, unless the first retry has failed.
//
// Jobs that follow the job (schedule.AfterJob) do not fire again. Owners of versions without Retry run such a
// trigger with the time of the request.
func (o *Operator) Retry(ctx context.Context, job string, fire time.Time, options RetryOptions) (RetriedRuns, error) {
	if err := record.CheckParam(options.Param); err != nil {
		return RetriedRuns{}, fmt.Errorf("retry %q: the parameter %w", job, invalidArgument(err))
	}
	var out RetriedRuns
	token := record.NewToken()
	err := o.changeControl(ctx, job, func(c *record.Control, def record.Job) (string, error) {
		if len(c.Triggers) >= record.MaxTriggers {
			return "", fmt.Errorf("%w: %d", ErrTooManyTriggers, len(c.Triggers))
		}
		asked, err := shardSetOf(options.Shards, def.Shards)
		if err != nil {
			return "", err
		}
		r, err := o.readRetry(ctx, record.Segment(job))
		if err != nil {
			return "", err
		}
		at, err := r.failures.FireAt(record.InstantOf(fire))
		if err != nil {
			return "", invalidArgument(err)
		}
		r.fire = at
		r.control, r.shards, r.total, r.again, r.now = c, def.Shards, options.Total, options.Again, record.InstantOf(time.Now())
		r.hasParam, r.compile = options.Param != "", o.compile
		if options.Shards != nil {
			r.asked = &asked
		}
		d := r.decide()
		if d.shards.IsZero() {
			return "", d.err(r)
		}
		c.LastTrigger++
		t := record.Trigger{
			Number: c.LastTrigger, At: r.now, Shards: &d.shards, Fire: at, Reason: record.TriggerRetry, Token: token, Work: d.work, Again: r.again,
			Param: options.Param,
		}
		c.Triggers = append(c.Triggers, t)
		if err := checkParamBytes(c.Triggers); err != nil {
			return "", err
		}
		if !r.again {
			c.AddRetry(record.Retry{Trigger: t.Number, Fire: at, Work: d.work, Shards: d.shards})
		}
		out = RetriedRuns{Runs{Shards: shardList(d.shards), Fire: at.Time(), Trigger: t.Number, Attempt: 1}, d.more, d.refusedShards()}
		what := fmt.Sprintf("retry %v, trigger %d of %s", at, t.Number, d.shards.Text())
		if r.again {
			what += ", again as new work"
		}
		return what, nil
	})
	if err != nil {
		return RetriedRuns{}, fmt.Errorf("retry %q: %w", job, err)
	}
	return out, nil
}

// readRetry reads the records that decide a retry, but the control record and the definition.
func (o *Operator) readRetry(ctx context.Context, segment string) (*retry, error) {
	r := &retry{}
	s, err := o.getReadable(ctx, o.keys.Plan(segment))
	if err != nil {
		return nil, err
	}
	p := s.Plans[segment].Plan
	if p == nil {
		p = &record.Plan{}
		d, err := o.readDefined(ctx, segment)
		if err != nil {
			return nil, err
		}
		if d.Defined != nil && d.Rest != nil {
			p.Failures = d.Rest.Failures
		}
	}
	r.plan, r.watermarks, r.failures = p, p.Watermarks, p.Failures
	r.pending = p.Reruns
	listing, err := o.reg.List(ctx, o.keys.Members(), registry.ReadOptions{})
	if err != nil {
		return nil, err
	}
	var incs []string
	for _, e := range listing.Entries {
		incs = append(incs, e.Key.Name())
	}
	if err := o.getClaims(ctx, s, segment, incs); err != nil {
		return nil, err
	}
	if err := s.CheckForeign(); err != nil {
		return nil, err
	}
	for _, inc := range incs {
		claims := s.Claims[segment][inc]
		r.watermarks = r.watermarks.Fold(claims.Watermarks, p.Owners[inc])
		r.failures = append(slices.Clip(r.failures), claims.Failures...)
		r.running = append(r.running, claims.Running...)
		r.pending = append(slices.Clip(r.pending), claims.Reruns...)
	}
	return r, nil
}

// retry is the records and the request that decide what Retry does.
type retry struct {
	fire       record.Instant
	asked      *shardset.Set // nil: those that failed
	total      int           // the number of shards at the fire; zero: that on record
	again      bool
	hasParam   bool         // the request has a parameter
	compile    due.Compiler // nil if the schedules of jobs are not known
	now        record.Instant
	shards     int // of the definition
	control    *record.Control
	plan       *record.Plan
	watermarks record.Watermarks
	failures   record.Failures
	running    record.Runs
	pending    record.Runs // reruns that may have been claimed

	epoch   *record.Epoch // of the fire, nil if it is not known
	lacking bool          // the schedule of epoch is known not to have the fire
}

// retryDecision is what a retry does.
type retryDecision struct {
	shards  shardset.Set // those to retry
	work    string       // what they did, as Trigger.Work
	more    int          // failed shards that the records do not name
	reasons []string     // of refusals, in the order of shards
	refused map[string]*shardset.Set
}

// decide chooses the shards to retry, all of one work: that of the latest failure.
func (r *retry) decide() retryDecision {
	d := retryDecision{refused: map[string]*shardset.Set{}}
	r.epoch = r.plan.EpochAt(r.fire)
	r.lacking = r.lacksFire(r.epoch) // once, as a job may have thousands of shards
	named, failed := shardset.Set{}, map[int]*record.Failure{}
	for i := range r.failures {
		f := &r.failures[i]
		if f.Fire != r.fire {
			continue
		}
		shards := f.Shards.Minus(r.followed(f))
		if f.Again { // a later attempt may have succeeded, and the shard gone on to later fires
			shards = shards.Intersect(r.unfinished(f))
		} else {
			d.more += f.More
		}
		for s := range shards.All() {
			if last := failed[s]; last == nil || f.Trigger > last.Trigger || f.Trigger == last.Trigger && f.Attempt > last.Attempt {
				failed[s] = f
			}
			named.Add(s)
		}
	}
	if r.asked != nil {
		named = *r.asked
	}
	latest := uint64(0)
	works := map[string]*shardset.Set{}
	for s := range named.All() {
		f := failed[s]
		why := r.refuse(s, f)
		if why == "" && f != nil && f.OwnParam && !r.hasParam {
			why = fmt.Sprintf("trigger #%d had a parameter of its own, which is not on record: name it", f.Trigger)
		}
		if why != "" {
			d.refuse(shardset.Of(s), why)
			continue
		}
		work, number := "", uint64(0)
		if f != nil {
			work, number = f.Work, f.Trigger
		}
		if works[work] == nil {
			works[work] = &shardset.Set{}
		}
		works[work].Add(s)
		if number >= latest {
			d.work, latest = work, number
		}
	}
	for work, shards := range works {
		switch {
		case r.again:
			d.shards, d.work = d.shards.Union(*shards), ""
		case work == d.work:
			d.shards = *shards
		default:
			d.refuse(*shards, "they failed in other work of the same instant; retry once more for them")
		}
	}
	return d
}

// followed returns the shards of a failure with a later attempt at the same run, which has ended and has not failed.
func (r *retry) followed(f *record.Failure) (followed shardset.Set) {
	for _, part := range r.watermarks.Split(f.Shards) {
		later := f.Ref.AfterCrash()
		isSame := part.Trigger == f.Trigger
		if f.Trigger == 0 {
			isSame = part.Epoch == f.Epoch && part.Fire == f.Fire
		}
		if isSame && part.Covers(later) && !due.DropsNext(f.Error) && !slices.ContainsFunc(r.failures, func(o record.Failure) bool {
			return o.IsSameRun(f.Ref) && o.Attempt > f.Attempt
		}) {
			followed = followed.Union(part.Shards)
		}
	}
	return followed.Minus(r.running.Naming(followed, f.Ref))
}

// unfinished returns the shards of a failure with a later attempt at the same run that is in progress or pending.
func (r *retry) unfinished(f *record.Failure) shardset.Set {
	return r.running.Naming(f.Shards, f.Ref).Union(due.Unclaimed(r.pending, r.watermarks).Naming(f.Shards, f.Ref))
}

// refuse returns why a shard is not retried, "" if it is. The failure is its last one, nil if none is on record.
func (r *retry) refuse(s int, f *record.Failure) string {
	if s >= r.shards {
		return fmt.Sprintf("the job has %s now", count.Of(r.shards, "shard"))
	}
	if r.again {
		return ""
	}
	mark, work := r.watermarks.Of(s), ""
	if f != nil {
		work = f.Work
	}
	isOfFire := func(g record.RunGroup) bool { return g.Fire == r.fire && g.Shards.Has(s) }
	for _, g := range r.running {
		if isOfFire(g) {
			return "a run is in progress"
		}
	}
	for _, g := range r.pending {
		if isOfFire(g) && !mark.Covers(g.Ref) {
			return "another attempt is pending"
		}
	}
	for _, t := range slices.Concat(r.plan.Triggers, r.control.Triggers) {
		if t.FireTime() == r.fire && t.Number > mark.Trigger && (t.Shards == nil || t.Shards.Has(s)) {
			return fmt.Sprintf("trigger #%d of it is pending", t.Number)
		}
	}
	for _, b := range r.control.Backfills {
		if slices.Contains(b.Fires, r.fire) {
			return fmt.Sprintf("backfill %d of it is pending", b.Number)
		}
	}
	total, why := r.findTotal(s, f)
	if why != "" {
		return why
	}
	last := r.control.Retries.Last(r.fire, work, s)
	if last != nil && (f == nil || f.Trigger < last.Trigger) {
		return fmt.Sprintf("trigger #%d has retried it, and has succeeded or its outcome is no longer on record", last.Trigger)
	}
	lost := r.control.LostRetries
	if last == nil && r.fire <= lost.Fire && (f == nil || f.LastTrigger < lost.Trigger) {
		return "retries of that time are no longer on record"
	}
	switch {
	case total == 0:
		return "the number of shards that the job had at the fire is not on record"
	case total != r.shards:
		return fmt.Sprintf("the job had %s at the fire and has %d now, so the shard is other work", count.Of(total, "shard"), r.shards)
	}
	return ""
}

// findTotal returns the number of shards that the job had at the fire, zero if it is not known, or why there is no work
// of the fire that shard s has claimed.
func (r *retry) findTotal(s int, f *record.Failure) (total int, why string) {
	total = r.total
	if f != nil {
		if f.Total > 0 {
			total = f.Total
		} else if e, ok := r.plan.Epoch(f.Epoch); ok {
			total = e.Job().Shards
		}
		return total, ""
	}
	const isDue = "its run is still due"
	if r.fire > r.now {
		return total, isDue
	}
	switch e := r.epoch; {
	case e == nil:
		return total, ""
	case r.lacking:
		return 0, noSuchFire + ", and no failed run of that time is on record; " + exactTrigger
	case !r.watermarks.Of(s).Covers(record.Ref{Epoch: e.Number, Fire: r.fire, Attempt: 1}):
		return 0, isDue
	default:
		return e.Job().Shards, ""
	}
}

const (
	noSuchFire   = "the schedule has no fire at that instant"
	exactTrigger = "the time of a trigger is exact to the nanosecond"
)

// explainNoFailure returns why there can be no failed run of the fire, "" if there might be one.
func (r *retry) explainNoFailure() string {
	switch {
	case r.fire > r.now:
		return ": it is in the future"
	case r.lacking:
		return ": " + noSuchFire + "; " + exactTrigger
	}
	return ""
}

// lacksFire reports whether the schedule of an epoch is known not to have the fire.
func (r *retry) lacksFire(e *record.Epoch) bool {
	if e == nil || r.compile == nil || e.Job().After != nil {
		return false
	}
	p, err := r.compile(e.Def)
	if err != nil || due.CountsEnds(p) {
		return false
	}
	return p.SkipDue(r.fire.Time().Add(-1), time.Time{}, r.fire.Time()).Skipped == 0
}

func (d *retryDecision) refuse(shards shardset.Set, why string) {
	if d.refused[why] == nil {
		d.reasons = append(d.reasons, why)
		d.refused[why] = &shardset.Set{}
	}
	*d.refused[why] = d.refused[why].Union(shards)
}

// refusedShards returns the refusals by reason.
func (d *retryDecision) refusedShards() (out []RefusedRetry) {
	for _, why := range d.reasons {
		out = append(out, RefusedRetry{shardList(*d.refused[why]), why})
	}
	return out
}

// err returns the error of a retry of no shard.
func (d *retryDecision) err(r *retry) error {
	if len(d.reasons) == 0 {
		return fmt.Errorf("%w for %v%s", ErrNoFailure, r.fire, r.explainNoFailure())
	}
	var texts []string
	for _, why := range d.reasons {
		texts = append(texts, fmt.Sprintf("%s: %s", d.refused[why].Text(), why))
	}
	return fmt.Errorf("%w for %v: %s", ErrRetryRefused, r.fire, strings.Join(texts, "; "))
}
