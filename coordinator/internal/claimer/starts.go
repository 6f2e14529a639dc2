package claimer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/claiming"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/internal/record"
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
		def := e.Job()
		for s := range g.Shards.All() {
			r.Shard = s
			c.Work.Start(ctx, r, c.TrackRun(ctx, j, s, &def))
		}
		c.yieldShards(j, g.Shards)
	}
}

// TrackRun records that the function of a run is called, and returns the function that records
// its return, by the run's definition. The session is lost if ctx has ended by then.
func (c *Claimer) TrackRun(ctx context.Context, j *JobState, shard int, def *record.Job) func(error) {
	job := j.Claims.Job
	c.Blocked.addRunning(job, shard)
	return func(err error) {
		c.Blocked.removeRunning(job, shard)
		ended := newEndedRun(shard, err, *def)
		ended.At = record.InstantOf(c.Clock())
		if c.Inbox.addEnded(endedRun{j, ended}, ctx.Err() != nil) {
			c.wake()
		}
	}
}

// newEndedRun returns the end of a run whose function returned err.
func newEndedRun(shard int, err error, def record.Job) claiming.EndedRun {
	e := claiming.EndedRun{Shard: shard, Err: err, HandedBack: due.WantsReruns(def) && errors.Is(err, ErrHandedBack)}
	if retry, ok := err.(*RetryError); ok && !e.HandedBack && due.TracksRuns(def) { //nolint:errorlint // only an executor's own error, not one of a handler inside it
		e.Err, e.Retry, e.RetryIn = retry.Err, true, min(max(retry.In, 0), due.MaxRetryDelay)
	}
	return e
}
