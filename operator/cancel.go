package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// ErrNotRunning means that no run of the named shards is in progress or pending.
var ErrNotRunning = errors.New("no run is in progress or pending")

// Cancel cancels the runs of shards of a job that are in progress, and those pending to be made again. Without
// shards it cancels all of the job. It returns the runs that it found on record; only these are cancelled, not
// later runs of the shards. It fails with ErrNotRunning if there are none.
//
// The owner ends the context of each run, with ErrCancelled as the cause. A run whose handler then returns an error
// has failed; it is neither retried nor made again, whatever the definition and whoever owns the shard or leads the
// group by then. A handler that returns nil has succeeded. A handler that ignores its context goes on, and its shard
// waits for it. A run that waits for a worker ends when it gets one. The shard's next fire runs as usual; to
// prevent that too, disable the shard or pause the job first.
//
// The cancellation is durable until the run has ended. Owners and leaders of versions without Cancel ignore it.
func (o *Operator) Cancel(ctx context.Context, job string, shards ...int) ([]Runs, error) {
	var found record.Runs
	err := o.changeAnyControl(ctx, job, func(c *record.Control, _ *storedJob) (string, error) {
		var err error
		if found, err = o.findRuns(ctx, record.Segment(job), shards); err != nil {
			return "", err
		}
		for _, g := range found {
			c.Cancels = c.Cancels.With(g.Shards, g.Ref.Cancel())
		}
		return "cancel the runs of " + found.Shards().Text(), nil
	})
	if err != nil {
		return nil, fmt.Errorf("cancel %q: %w", job, err)
	}
	return runsOf(found), nil
}

// findRuns returns the runs of shards that are in progress or pending; of all shards if none is named.
func (o *Operator) findRuns(ctx context.Context, segment string, shards []int) (record.Runs, error) {
	s, err := o.getReadable(ctx, o.keys.Plan(segment))
	if err != nil {
		return nil, err
	}
	p := s.Plans[segment].Plan
	if p == nil {
		return nil, ErrNotRunning
	}
	wanted := shardset.Range(0, p.Shards())
	if len(shards) > 0 {
		if wanted, err = shardSetOf(shards, p.Shards()); err != nil {
			return nil, err
		}
	}
	if err := o.getClaims(ctx, s, segment, slices.Collect(maps.Keys(p.Owners))); err != nil {
		return nil, err
	}
	if err := s.CheckForeign(); err != nil {
		return nil, err
	}
	var found record.Runs
	marks, pending := p.Watermarks, slices.Clone(p.Reruns)
	for inc, owned := range p.Owners {
		claims := s.Claims[segment][inc]
		marks = marks.Fold(claims.Watermarks, owned)
		pending = append(pending, claims.Reruns.Within(owned)...)
		for _, g := range claims.Running.Within(owned.Intersect(wanted)) {
			found = found.With(g.Shards, g.Ref)
		}
	}
	for _, g := range due.Unclaimed(pending, marks) {
		if part := g.Shards.Intersect(wanted).Minus(found.Shards()); !part.IsZero() {
			found = found.With(part, g.Ref)
		}
	}
	if len(found) == 0 {
		return nil, ErrNotRunning
	}
	return found, nil
}
