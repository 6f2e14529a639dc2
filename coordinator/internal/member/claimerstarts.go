package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/claiming"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/registry"
)

// begun is claimed runs that wait to be started.
type startingRuns struct {
	*PendingWrite
	rev registry.Rev // of the commit that claimed them
}

// startQueuedRuns starts what has been claimed, unless the session is suspended: then it is
// asked again when that ends. A process may have been paused for any length of time since
// the claim was committed, so the session's own clock is asked, not only its state.
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

// startRuns begins the runs of a claim. What it needs to know comes from the plan that the
// claim rests on: the account may know another by now, or none.
func (c *Claimer) startRuns(ctx context.Context, b startingRuns) {
	j := b.Job
	for _, g := range b.decision.Starts {
		e, ok := b.plan.Epoch(g.Epoch)
		if !ok {
			continue // claimed by this very plan, so it is there
		}
		r := Run{
			Job: j.Claims.Job, Program: b.programs[g.Epoch], Shards: e.Job().Shards,
			Fire: g.Fire.Time(), Attempt: g.Attempt, Rerun: g.Attempt > 1, Trigger: g.Trigger, Missed: g.Missed,
			Fence: c.fenceBase + b.rev.Seq, Session: c.Session.ID(),
		}
		for _, t := range b.plan.Triggers {
			if t.Number == g.Trigger {
				r.Param = t.Param
			}
		}
		c.Inbox.addRunning(g.Shards.Len())
		for s := range g.Shards.All() {
			r.Shard = s
			c.Work.Start(ctx, r, c.TrackRun(ctx, j, s, due.WantsReruns(e.Job())))
		}
		c.yieldShards(j, g.Shards)
	}
}

// TrackRun returns the function to call when the function of a run has returned, whose session
// has ended if ctx has. reruns reports whether the definition of the run wants it to be made
// again if it is handed back.
func (c *Claimer) TrackRun(ctx context.Context, j *JobState, shard int, reruns bool) func(error) {
	job := j.Claims.Job
	c.Blocked.addRunning(job, shard)
	return func(err error) {
		c.Blocked.removeRunning(job, shard)
		if c.Inbox.addEnded(endedRun{j, claiming.EndedRun{Shard: shard, Err: err, HandedBack: reruns && errors.Is(err, ErrHandedBack)}}, ctx.Err() != nil) {
			c.wake()
		}
	}
}
