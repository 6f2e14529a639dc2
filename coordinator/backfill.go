package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

var (
	// ErrNoFailure means that the records name no failed run of the fire that can be retried.
	ErrNoFailure = errors.New("no failed run is on record")
	// ErrTooManyFires means that more than 64 fires of a job would wait to be backfilled.
	ErrTooManyFires = errors.New("too many fires wait to be backfilled")
	// ErrNoCompiler means that the call needs an Operator with a compiler; see WithCompiler.
	ErrNoCompiler = errors.New("the operator has no compiler")
)

// RetriedRuns are the runs that Operator.Retry has requested.
type RetriedRuns struct {
	Runs
	// More is the number of failed shards of the fire that the records do not name, because they keep eight ranges of
	// shards per attempt. Trigger runs them by number.
	More int
}

// Retry runs the failed shards of a fire again, by the newest definition. It requests one trigger: its runs have the
// fire as Run.FireTime, the reason Retried, and attempts of their own. They are durable like those of Trigger, and
// wait for the same conditions.
//
// A shard has failed if its last attempt at the fire did, or ended in a crash and is not made again. Retry knows only
// what Status.Failures lists: the latest failures, of few fires. It fails with ErrNoFailure if they name none of
// this fire, which is no proof that all its runs succeeded. A failure stays listed after a Retry, so a second Retry
// runs the shards once more. Jobs that follow the job (executor.AfterJob) do not fire again. Owners of versions without Retry run such a trigger with the time of the request.
func (o *Operator) Retry(ctx context.Context, job string, fire time.Time) (RetriedRuns, error) {
	var out RetriedRuns
	at := record.InstantOf(fire)
	err := o.changeControl(ctx, job, func(c *record.Control, def record.Job) (string, error) {
		failed, more, err := o.findFailed(ctx, record.Segment(job), at)
		if err != nil {
			return "", err
		}
		shards := failed.Intersect(shardset.Range(0, def.Shards))
		if shards.IsZero() {
			return "", fmt.Errorf("%w for %v", ErrNoFailure, at)
		}
		if len(c.Triggers) >= record.MaxTriggers {
			return "", fmt.Errorf("%w: %d", ErrTooManyTriggers, len(c.Triggers))
		}
		c.LastTrigger++
		c.Triggers = append(c.Triggers, record.Trigger{
			Number: c.LastTrigger, At: record.InstantOf(time.Now()), Shards: &shards, Fire: at, Reason: record.TriggerRetry,
		})
		out = RetriedRuns{Runs{Shards: shardList(shards), Fire: at.Time(), Trigger: c.LastTrigger, Attempt: 1}, more}
		return fmt.Sprintf("retry %v, trigger %d of shards %v", at, c.LastTrigger, shards), nil
	})
	if err != nil {
		return RetriedRuns{}, fmt.Errorf("retry %q: %w", job, err)
	}
	return out, nil
}

// findFailed returns the shards whose last attempt at a fire failed, as far as the records name them, and how many they
// do not name.
func (o *Operator) findFailed(ctx context.Context, segment string, fire record.Instant) (failed shardset.Set, more int, err error) {
	p, _, err := o.readPlan(ctx, segment)
	if p == nil || err != nil {
		return failed, 0, err
	}
	all, marks := p.Failures, p.Watermarks
	listing, err := o.reg.List(ctx, o.keys.Members(), registry.ReadOptions{})
	if err != nil {
		return failed, 0, err
	}
	for _, e := range listing.Entries {
		claims, err := o.readClaims(ctx, e.Key.Name(), segment, &Status{})
		if err != nil {
			return failed, 0, err
		}
		marks = marks.Fold(claims.Watermarks, p.Owners[e.Key.Name()])
		all = append(slices.Clip(all), claims.Failures...)
	}
	var followed shardset.Set // shards with a later attempt
	for _, f := range all {
		if f.Fire != fire || f.Again {
			continue
		}
		failed = failed.Union(f.Shards)
		more += f.More
		for _, part := range marks.Split(f.Shards) {
			later := f.Ref.AfterCrash()
			isSame := part.Epoch == f.Epoch && part.Fire == f.Fire || f.Trigger > 0 && part.Trigger == f.Trigger
			if isSame && part.Covers(later) && !due.DropsNext(f.Error) && !slices.ContainsFunc(all, func(o record.Failure) bool {
				return o.IsSameRun(f.Ref) && o.Attempt > f.Attempt && !o.Again
			}) {
				followed = followed.Union(part.Shards)
			}
		}
	}
	return failed.Minus(followed), more, nil
}

// ListFires returns the fires of a job's present schedule from an instant to before another, ascending: those that
// Backfill would run. It fails with ErrTooManyFires if there are more than 64, and names the instant at which to split
// the window. It needs a compiler; see WithCompiler. Fires that count from the ends of runs are not known in advance.
func (o *Operator) ListFires(ctx context.Context, job string, from, to time.Time) ([]time.Time, error) {
	fires, err := o.listFires(ctx, job, from, to)
	if err != nil {
		return nil, fmt.Errorf("fires of %q: %w", job, err)
	}
	return fires, nil
}

func (o *Operator) listFires(ctx context.Context, job string, from, to time.Time) ([]time.Time, error) {
	if o.compile == nil {
		return nil, ErrNoCompiler
	}
	text, _, err := o.readDefinitionText(ctx, record.Segment(job))
	if err != nil {
		return nil, err
	}
	prog, err := o.compile(text)
	if err != nil {
		return nil, err
	}
	if due.CountsEnds(prog) {
		return nil, errors.New("its fires count from the ends of runs")
	}
	var fires []time.Time
	for at := from.Add(-1); ; {
		next := prog.Due(at, time.Time{}, at).Wake
		if next.IsZero() || !next.Before(to) || !next.After(at) {
			return fires, nil
		}
		if len(fires) == record.MaxBackfill {
			return nil, fmt.Errorf("%w: the window has more than %d; its first %d end before %v, where the next window can begin",
				ErrTooManyFires, record.MaxBackfill, record.MaxBackfill, next.UTC().Format(time.RFC3339Nano))
		}
		fires = append(fires, next.UTC())
		at = next
	}
}

// Backfill runs the past fires of a job's present schedule from an instant to before another, by the newest definition,
// and returns them. At most parallel of its fires are in flight at a time, 0 means 1: the next one begins when all
// shards of an earlier one have ended. The runs have the fire as Run.FireTime and the reason Backfill; each fire is a
// trigger of all shards, which goes before scheduled fires of its shards and waits behind earlier triggers. ListFires
// returns the same fires and changes nothing.
//
// The request is durable like Trigger, and likewise not idempotent. It fails with ErrTooManyFires if more than 64 fires
// would wait, and names the instant at which to split the window. It does not look whether a fire has run before. Jobs that follow the job do not fire after these
// fires: backfill them too.
//
// Backfill needs a compiler; see WithCompiler. Leaders of versions without Backfill leave the fires waiting.
func (o *Operator) Backfill(ctx context.Context, job string, from, to time.Time, parallel int) ([]time.Time, error) {
	fires, err := o.backfill(ctx, job, from, to, max(parallel, 1))
	if err != nil {
		return nil, fmt.Errorf("backfill %q: %w", job, err)
	}
	return fires, nil
}

func (o *Operator) backfill(ctx context.Context, job string, from, to time.Time, parallel int) ([]time.Time, error) {
	if now := time.Now(); to.After(now) {
		return nil, fmt.Errorf("the window ends at %v, after now: the schedule runs later fires itself", to.Format(time.RFC3339))
	}
	fires, err := o.listFires(ctx, job, from, to)
	if err != nil {
		return nil, err
	}
	if len(fires) == 0 {
		return nil, fmt.Errorf("the schedule has no fire from %v to before %v", from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	err = o.changeControl(ctx, job, func(c *record.Control, _ record.Job) (string, error) {
		if n := c.WaitingFires(); n+len(fires) > record.MaxBackfill {
			return "", fmt.Errorf("%w: %d wait already, and these are %d, of at most %d", ErrTooManyFires, n, len(fires), record.MaxBackfill)
		}
		c.LastBackfill++
		b := record.Backfill{Number: c.LastBackfill, At: record.InstantOf(time.Now()), Parallel: parallel}
		for _, f := range fires {
			b.Fires = append(b.Fires, record.InstantOf(f))
		}
		c.Backfills = append(c.Backfills, b)
		return fmt.Sprintf("backfill %d: %d fires from %v to before %v, %d at a time",
			b.Number, len(fires), from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339), parallel), nil
	})
	return fires, err
}

// StopBackfills drops the fires of all backfills of a job that have not begun, and returns how many. Fires in flight go
// on; Cancel ends their runs.
func (o *Operator) StopBackfills(ctx context.Context, job string) (dropped int, err error) {
	err = o.changeControl(ctx, job, func(c *record.Control, _ record.Job) (string, error) {
		dropped, c.Backfills = c.WaitingFires(), nil
		return fmt.Sprintf("stop backfills: %d fires", dropped), nil
	})
	if err != nil {
		return 0, fmt.Errorf("stop backfills of %q: %w", job, err)
	}
	return dropped, nil
}

// Backfill describes a backfill with fires that have not begun.
type Backfill struct {
	Number   uint64
	Parallel int         // how many of its fires are in flight at most
	Waiting  []time.Time // fires that have not begun, ascending
}

func backfillsOf(all []record.Backfill) []Backfill {
	var out []Backfill
	for _, b := range all {
		one := Backfill{Number: b.Number, Parallel: b.Parallel}
		for _, f := range b.Fires {
			one.Waiting = append(one.Waiting, f.Time())
		}
		out = append(out, one)
	}
	return out
}
