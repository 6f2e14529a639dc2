package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
)

var (
	// ErrTooManyFires means that more than 64 fires of a job would wait to be backfilled.
	ErrTooManyFires = errors.New("too many fires wait to be backfilled")
	// ErrNoCompiler means that the call needs an Operator with a compiler; see WithCompiler.
	ErrNoCompiler = errors.New("the operator has no compiler")
)

// MaxBackfill is how many fires of a job may wait to be backfilled.
const MaxBackfill = record.MaxBackfill

// maxListedFires bounds the fires that ListFires returns.
const maxListedFires = 10_000

// ListFires returns the fires of a job's present schedule from an instant to before another, ascending: those that
// Backfill would run, MaxBackfill at a time. It fails with ErrTooManyFires if there are more than 10,000, and names the
// instant at which to split the window. It needs a compiler; see WithCompiler. Fires that count from the ends of runs are not known in advance.
func (o *Operator) ListFires(ctx context.Context, job string, from, to time.Time) ([]time.Time, error) {
	fires, err := o.listFires(ctx, job, from, to, maxListedFires)
	if err != nil {
		return nil, fmt.Errorf("fires of %q: %w", job, err)
	}
	return fires, nil
}

func (o *Operator) listFires(ctx context.Context, job string, from, to time.Time, most int) ([]time.Time, error) {
	if o.compile == nil {
		return nil, ErrNoCompiler
	}
	def, err := o.readDefinition(ctx, record.Segment(job))
	if err != nil {
		return nil, err
	}
	prog, err := o.compile(def.Def)
	if err != nil {
		return nil, err
	}
	if due.CountsEnds(prog) {
		return nil, invalidArgument(errors.New("its fires count from the ends of runs"))
	}
	var fires []time.Time
	for at := from.Add(-1); ; {
		next := prog.Due(at, time.Time{}, at).Wake
		if next.IsZero() || !next.Before(to) || !next.After(at) {
			return fires, nil
		}
		if len(fires) == most {
			return nil, invalidArgument(fmt.Errorf("%w: the window has more than %d; its first %d end before %v, where the next window can begin",
				ErrTooManyFires, most, most, next.UTC().Format(time.RFC3339Nano)))
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
		return nil, invalidArgument(fmt.Errorf("the window ends at %v, after now: the schedule runs later fires itself", to.Format(time.RFC3339)))
	}
	fires, err := o.listFires(ctx, job, from, to, record.MaxBackfill)
	if err != nil {
		return nil, err
	}
	if len(fires) == 0 {
		return nil, invalidArgument(fmt.Errorf("the schedule has no fire from %v to before %v", from.Format(time.RFC3339), to.Format(time.RFC3339)))
	}
	token := record.NewToken() // the same if a lost race repeats the change
	err = o.changeControl(ctx, job, func(c *record.Control, _ record.Job) (string, error) {
		if n := c.WaitingFires(); n+len(fires) > record.MaxBackfill {
			return "", fmt.Errorf("%w: %d wait already, and these are %d, of at most %d", ErrTooManyFires, n, len(fires), record.MaxBackfill)
		}
		c.LastBackfill++
		b := record.Backfill{Number: c.LastBackfill, At: record.InstantOf(time.Now()), Parallel: parallel, Token: token}
		for _, f := range fires {
			b.Fires = append(b.Fires, record.InstantOf(f))
		}
		c.Backfills = append(c.Backfills, b)
		return fmt.Sprintf("backfill %d: %s from %v to before %v, %d at a time",
			b.Number, count.Of(len(fires), "fire"), from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339), parallel), nil
	})
	return fires, err
}

// StopBackfills drops the fires of all backfills of a job that have not begun, and returns how many. Fires in flight go
// on; Cancel ends their runs.
func (o *Operator) StopBackfills(ctx context.Context, job string) (dropped int, err error) {
	err = o.changeControl(ctx, job, func(c *record.Control, _ record.Job) (string, error) {
		dropped, c.Backfills = c.WaitingFires(), nil
		return "stop backfills: " + count.Of(dropped, "fire"), nil
	})
	if err != nil {
		return 0, fmt.Errorf("stop backfills of %q: %w", job, err)
	}
	return dropped, nil
}

// Backfill describes a backfill with fires that have not begun.
type Backfill struct {
	Number   uint64      `json:"number"`
	Parallel int         `json:"parallel"` // how many of its fires are in flight at most
	Waiting  []time.Time `json:"waiting"`  // fires that have not begun, ascending
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
