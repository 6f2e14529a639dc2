package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/claiming"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// PendingWrite is what a ledger writes for an account.
type PendingWrite struct {
	Job        *JobState
	decision   claiming.Decision
	plan       *record.Plan // that it rests on
	planRev    registry.Rev
	programs   map[int]due.Program
	endedCount int // how many of acct.ended it covers
	value      []byte
}

// WriteResult is the result of a transaction.
type WriteResult struct {
	Load batch.Load[*PendingWrite]
	Rev  registry.Rev
	Err  error
}

// startWrites sends what the dirty accounts have to write, as far as there is room.
func (c *Claimer) startWrites(ctx context.Context, clock time.Time) {
	if c.WritesInFlight >= maxWrites || len(c.Dirty) == 0 {
		return
	}
	entries := c.DecideWrites(clock)
	if len(entries) == 0 {
		return
	}
	for _, ld := range c.PackWrites(entries) {
		if c.WritesInFlight >= maxWrites {
			for _, e := range ld.Parts {
				c.MarkDirty(e.Job) // rides with one of the next
			}
			continue
		}
		for _, e := range ld.Parts {
			e.Job.Writing = true
			delete(c.Held, e.Job)
		}
		c.WritesInFlight++
		go func() { // at most maxWrites at once; each ends with ctx
			rev, err := registry.Apply(ctx, c.Reg, ld.Txn)
			c.results <- WriteResult{ld, rev, err}
		}()
	}
}

// drainWrites waits for the transactions in flight, which end with ctx.
func (c *Claimer) drainWrites() {
	for ; c.WritesInFlight > 0; c.WritesInFlight-- {
		<-c.results
	}
}

// DecideWrites returns what there is to write, and puts accounts that wait on the agenda.
func (c *Claimer) DecideWrites(clock time.Time) []*PendingWrite {
	var entries []*PendingWrite
	for j := range c.Dirty {
		if j.Writing {
			continue // it stays dirty
		}
		delete(c.Dirty, j)
		in := claiming.Input{
			Me: c.Me, Plan: j.Plan, Programs: j.programs, Claims: j.Claims, Ended: j.Ended,
			Blocked: c.Blocked.getBlocked(j.Claims.Job), Now: record.InstantOf(clock),
			MayClaim: c.MayClaim && j.StalePlan.IsZero(), Skew: c.maxSkew, ReportedAhead: j.reportedAhead,
		}
		e := &PendingWrite{Job: j, decision: in.Decide(), plan: j.Plan, planRev: j.PlanRev, programs: j.programs, endedCount: len(j.Ended)}
		out := &e.decision
		c.agenda.schedule(j, out.Wake)
		c.reportAhead(j, out.Ahead)
		if !out.Changed {
			continue
		}
		switch _, moves := c.Frozen[j]; {
		case out.RestsOnPlan, moves, c.Closed:
		case !due.RecordsEnds(j.Plan):
			continue // the next claim records the ends
		case !c.Flushing:
			c.holdEnds(j, time.Now())
			continue
		}
		var err error
		if e.value, err = record.Encode(&out.Claims); err != nil {
			c.Log.Error("claims record not written", "job", j.Claims.Job, "error", err)
			continue
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(j, b *PendingWrite) int { return cmp.Compare(j.Job.Segment, b.Job.Segment) })
	return entries
}

// reportAhead logs and publishes a change of the instant that an account's shards wait for.
func (c *Claimer) reportAhead(j *JobState, is record.Ahead) {
	if is == j.reportedAhead {
		return
	}
	job := j.Claims.Job
	switch j.reportedAhead = is; {
	case is.Epoch != 0:
		c.Log.Warn("shards wait until this clock has reached what was claimed: this clock is wrong, or an earlier owner's was; Operator.Reset starts the job afresh",
			"job", job, "epoch", is.Epoch, "until", is.At.Time())
	default:
		c.Log.Info("shards no longer wait for this clock", "job", job)
	}
	c.publishAhead(job, is)
}

// holdEnds lets the ends of an account wait for others.
func (c *Claimer) holdEnds(j *JobState, now time.Time) {
	c.Held[j] = struct{}{}
	if c.flushAt.IsZero() {
		c.flushAt = now.Add(maxEndsDelay)
	}
}

// markHeld marks those whose ends have waited long enough.
func (c *Claimer) markHeld() {
	for j := range c.Held {
		c.MarkDirty(j)
	}
	clear(c.Held)
	c.flushAt = time.Time{}
}

// PackWrites returns the transactions that write entries.
func (c *Claimer) PackWrites(entries []*PendingWrite) []batch.Load[*PendingWrite] {
	common := []registry.Cond{registry.Alive(c.Session.ID())}
	return batch.Pack(common, entries, c.Reg.Limits(), c.composeShare, func(*PendingWrite) bool { return false })
}

// composeShare returns what an entry adds to a transaction.
func (c *Claimer) composeShare(e *PendingWrite) batch.Share {
	var pc batch.Share
	if e.decision.RestsOnPlan {
		pc.Conds = []registry.Cond{registry.At(e.Job.planKey, e.planRev)}
	}
	if e.Job.Rev.IsZero() {
		pc.Ops = []registry.Op{registry.Create(e.Job.key, e.value)}
	} else {
		pc.Ops = []registry.Op{registry.Set(e.Job.key, e.Job.Rev, e.value)}
	}
	return pc
}

// errForeign means that the records of this incarnation were written by another hand. It
// cannot tell what it has claimed any more, so it gives its session up.
var errRecordEdited = fmt.Errorf("%w: given up, for a record of this incarnation was changed by another hand", registry.ErrSessionLost)

// ApplyResult acts on the result of a transaction.
func (c *Claimer) ApplyResult(ctx context.Context, w WriteResult) error {
	c.WritesInFlight--
	for _, e := range w.Load.Parts {
		e.Job.Writing = false
	}
	if w.Err != nil {
		for _, e := range w.Load.Parts {
			c.MarkDirty(e.Job)
		}
		return c.handleFailedWrite(w)
	}
	for _, e := range w.Load.Parts {
		j := e.Job
		j.Rev, j.Claims = w.Rev, e.decision.Claims
		if j.Ended = j.Ended[e.endedCount:]; len(j.Ended) == 0 {
			j.Ended = nil
		}
		if len(e.decision.Starts) > 0 {
			c.startQueue = append(c.startQueue, startingRuns{e, w.Rev})
		}
	}
	return c.startQueuedRuns(ctx)
}

// handleFailedWrite acts on a transaction that was not applied. The job that it failed for waits
// for a newer plan; the rest is sent again at once.
func (c *Claimer) handleFailedWrite(w WriteResult) error {
	refusal, refused := batch.Conflict(w.Err)
	switch {
	case refused:
		part, ok := w.Load.Owner(refusal.Index)
		if !ok { // the condition that all share
			return fmt.Errorf("claim: %w: %w", registry.ErrSessionLost, w.Err)
		}
		e := w.Load.Parts[part]
		if refusal.Index >= len(w.Load.Txn.If) {
			return fmt.Errorf("claim %s: %w: %w", e.Job.Claims.Job, errRecordEdited, w.Err)
		}
		if e.Job.PlanRev == e.planRev {
			e.Job.StalePlan = e.planRev
		}
	case errors.Is(w.Err, registry.ErrUnknownOutcome): // Apply would have told its own work
		return fmt.Errorf("claim: %w: %w", errRecordEdited, w.Err)
	case errors.Is(w.Err, registry.ErrSessionLost), errors.Is(w.Err, registry.ErrClosed):
		return fmt.Errorf("claim: %w", w.Err)
	default:
		c.Log.Error("claims not written; trying again", "error", w.Err)
		for _, e := range w.Load.Parts {
			delete(c.Dirty, e.Job)
			c.agenda.schedule(e.Job, record.InstantOf(c.Clock().Add(refusedRetryDelay)))
		}
	}
	return nil
}

// refusedPause is how long a write that the registry refuses for a reason of its own (it
// is full, or permission was taken away) waits before it is made again.
const refusedRetryDelay = time.Second
