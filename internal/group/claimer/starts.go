package claimer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// startingRuns are the claimed runs of one write, not started yet.
type startingRuns struct {
	*PendingWrite
	rev registry.Rev // of the commit that claimed them
}

// startQueuedRuns starts the claimed runs. While the session is suspended they stay queued. The
// process may have been suspended for any length of time since the commit, so safe-until is
// compared with the clock as well.
func (c *Claimer) startQueuedRuns(ctx context.Context) error {
	if len(c.startQueue) == 0 {
		return nil
	}
	switch state, safe := c.Session.State(); {
	case state == registry.SessionSuspended && time.Now().Before(safe):
		return nil
	case state != registry.SessionConnected || !time.Now().Before(safe):
		return fmt.Errorf("start: %w", registry.ErrSessionLost)
	}
	for _, b := range c.startQueue {
		c.startRuns(ctx, b)
	}
	c.startQueue = nil
	return nil
}

// startRuns starts the runs of a claim. It uses the plan on which the claim rests, since the
// job may have another plan by now, or none.
func (c *Claimer) startRuns(ctx context.Context, b startingRuns) {
	j := b.Job
	for _, g := range b.decision.Starts {
		e, ok := b.plan.Epoch(g.Epoch)
		if !ok {
			continue // cannot happen: the claim rests on this plan
		}
		r := Run{
			Job: j.Claims.Job, Program: b.programs[g.Epoch], Shards: e.Job().Shards, Targets: e.Job().Shards,
			Fire: g.Fire.Time(), Attempt: g.Attempt, Rerun: g.Attempt > 1, Retry: g.IsRetry(), Retries: g.Retries, Trigger: g.Trigger, Missed: g.Missed,
			Fence: c.Namespace.FenceBase + b.rev.Seq, Session: c.Session.ID(),
		}
		if t := b.plan.Trigger(g.Trigger); t != nil {
			r.Targets = due.TriggerTargets(*t, e).Len()
			r.Param, r.Cause, r.RunOf = t.Param, t.Reason, record.RunOf{Trigger: t.Name(), Work: t.WorkName()}
		}
		c.Inbox.addRunning(g.Shards.Len())
		c.Work.Start(ctx, r, g.Shards.All(), c.TrackRuns(ctx, j, g.Shards, e.Job()))
		c.yieldShards(j, g.Shards)
	}
}

// TrackRuns records that the functions of runs are called, and returns the function that records the
// return of each, by the definition of the runs. The session is lost if ctx has ended by then.
func (c *Claimer) TrackRuns(ctx context.Context, j *JobState, shards shardset.Set, def record.Job) Done {
	job := j.Claims.Job
	c.Blocked.addRunning(job, shards)
	newEnd := func(shard int, err error, at record.Instant) endedRun {
		c.Blocked.removeRunning(job, shard)
		ended := newEndedRun(shard, err, &def)
		ended.At = at
		return endedRun{j, ended}
	}
	return func(shard int, err error, more ...End) {
		at := record.InstantOf(c.Clock())
		first := newEnd(shard, err, at)
		var rest []endedRun
		for _, e := range more {
			rest = append(rest, newEnd(e.Shard, e.Err, at))
		}
		if c.Inbox.addEnded(ctx.Err() != nil, first, rest...) {
			c.wake()
		}
	}
}

// newEndedRun returns the end of a run whose function returned err.
func newEndedRun(shard int, err error, def *record.Job) claiming.EndedRun {
	e := claiming.EndedRun{Shard: shard, Pool: def.Pool, Err: err}
	if err == nil {
		return e
	}
	e.HandedBack = due.WantsReruns(*def) && errors.Is(err, ErrHandedBack)
	if retry, ok := err.(*RetryError); ok && !e.HandedBack && due.TracksRuns(*def) { //nolint:errorlint // only an executor's own error, not one of a handler inside it
		e.Err, e.Retry, e.RetryIn = retry.Err, true, min(max(retry.In, 0), due.MaxRetryDelay)
	}
	return e
}
