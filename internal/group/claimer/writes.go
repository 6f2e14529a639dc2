package claimer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// PendingWrite is a new version of a job's claims record.
type PendingWrite struct {
	Job        *JobState
	decision   claiming.Decision
	plan       *record.Plan // on which the decision rests
	planRev    registry.Rev
	programs   map[int]due.Program // of plan
	endedCount int                 // how many of Job.Ended it covers
	value      []byte              // the encoded record
	ends       []byte              // the encoded copy for leaders, nil for none
}

// WriteResult is the result of a transaction.
type WriteResult struct {
	Load batch.Load[*PendingWrite]
	Rev  registry.Rev
	Err  error

	seen         uint64    // the newest commit that the claimer knew when the transaction was sent
	namespace    Namespace // as read after a conflict at its record
	namespaceErr error
}

// The items of a transaction before those of jobs.
const (
	aliveItem = iota
	namespaceItem
)

// conflictsAtNamespace reports whether the namespace's record has changed since it was read.
func (w *WriteResult) conflictsAtNamespace() bool {
	refusal, refused := batch.FindConflict(w.Err)
	if !refused || refusal.Index != namespaceItem {
		return false
	}
	_, ofJob := w.Load.PartOf(namespaceItem)
	return !ofJob
}

// startWrites decides on the dirty jobs and sends their writes, while fewer than maxWrites
// transactions are in flight. It decides only on jobs that fit into these, since a later decision
// costs as much again.
func (c *Claimer) startWrites(ctx context.Context, clock time.Time) {
	for c.WritesInFlight < maxWrites {
		if c.allotSlots(time.Now()); len(c.dirty) == 0 {
			return
		}
		ld := c.NextWrite(clock)
		if ld == nil {
			continue
		}
		for _, e := range ld.Parts {
			e.Job.Writing = true
			c.releaseEnds(e.Job)
		}
		c.WritesInFlight++
		w := WriteResult{Load: *ld, seen: c.newestCommit()}
		go func() { // at most maxWrites at once; each ends with ctx
			w.Rev, w.Err = registry.Apply(ctx, c.Reg, ld.Txn)
			if w.conflictsAtNamespace() {
				w.namespace, w.namespaceErr = c.ReadNamespace(ctx)
			}
			c.results <- w
		}()
	}
}

// newestCommit returns the newest commit that the claimer knows of.
func (c *Claimer) newestCommit() uint64 {
	if c.Plans == nil {
		return c.LastCommit
	}
	return max(c.LastCommit, c.Plans.Feed.NewestCommit())
}

// drainWrites waits for the transactions in flight, which end with ctx.
func (c *Claimer) drainWrites() {
	for ; c.WritesInFlight > 0; c.WritesInFlight-- {
		<-c.results
	}
}

// NextWrite decides on dirty jobs in order, until a transaction is full, and returns the
// transaction; nil if no job has anything to write.
func (c *Claimer) NextWrite(clock time.Time) *batch.Load[*PendingWrite] {
	shared := append([]registry.Cond{aliveItem: registry.Alive(c.Session.ID())}, c.Namespace.requirements(c.Keys.Meta())...)
	load := batch.NewPacker[*PendingWrite](shared, c.Reg.Limits())
	decided := 0
	for ; decided < len(c.dirty); decided++ {
		j := c.dirty[decided]
		if e := c.decide(j, clock); e != nil && !load.Add(e, c.composeShare(e)) {
			c.queueAgain(e)
			break // it is decided on again for the next transaction
		}
		j.dirty = false
	}
	if c.dirty = c.dirty[decided:]; len(c.dirty) == 0 {
		c.dirty = nil
	}
	return load.Finish()
}

// decide decides on a job. It returns the job's write, nil if there is none, and puts a job that
// waits for an instant on the agenda.
func (c *Claimer) decide(j *JobState, clock time.Time) *PendingWrite {
	in := claiming.Input{
		Me: c.Me, Plan: j.Plan, Programs: j.programs, Claims: j.Claims, ClaimedAt: j.ClaimedAt, Ended: j.Ended,
		Blocked: c.Blocked.getBlocked(j.Claims.Job), Now: record.InstantOf(clock),
		MayClaim: c.MayClaim && j.StalePlan.IsZero(), AllowedSkew: c.MaxSkew, ReportedAhead: j.reportedAhead,
		FreeSlots: c.freeSlotsFor(j),
	}
	e := &PendingWrite{Job: j, decision: in.Decide(), plan: j.Plan, planRev: j.PlanRev, programs: j.programs, endedCount: len(j.Ended)}
	out := &e.decision
	c.agenda.schedule(j, out.Wake)
	c.setAwaited(j, out.Awaited)
	c.yield(j, out.Overrun, ErrOverlap)
	c.yield(j, out.Outdated, ErrNewDefinition)
	c.reportAhead(j, out.Ahead)
	c.setWaits(j, out.Waits)
	if !out.Changed {
		return nil
	}
	_, moving := c.Frozen[j]
	_, carried := c.carried.jobs[j]
	if c.deferEnds(j, time.Now(), &claiming.Ends{
		Moving: moving, Carried: carried, Flushing: c.Flushing, Draining: c.Draining, Plan: j.Plan, Decision: out,
	}) {
		return nil
	}
	var err error
	if e.value, err = record.Encode(&out.Claims); err == nil {
		err = c.encodeEnds(e)
	}
	if err != nil {
		c.Log.Error("claims record cannot be encoded; no run of the job begins here", "job", j.Claims.Job, "error", err)
		c.setWaits(j, nil) // no slot would help it
		return nil
	}
	c.reserveSlots(e)
	return e
}

// reportAhead logs and publishes a change of the instant that a job's shards wait for.
func (c *Claimer) reportAhead(j *JobState, ahead record.Ahead) {
	if ahead == j.reportedAhead {
		return
	}
	j.reportedAhead = ahead
	job := j.Claims.Job
	if ahead.Epoch != 0 {
		c.Log.Warn("claims are ahead of this clock: this clock or an earlier owner's is wrong; shards wait until the clock has caught up, or Operator.Reset",
			"job", job, "epoch", ahead.Epoch, "until", ahead.At.Time())
	} else {
		c.Log.Info("claims are no longer ahead of this clock; shards are claimed again", "job", job)
	}
	c.PublishAhead(job, ahead)
}

// composeShare returns the conditions and operations that a write adds to a transaction.
func (c *Claimer) composeShare(e *PendingWrite) batch.Items {
	var share batch.Items
	if e.decision.RestsOnPlan {
		share.Conds = []registry.Cond{registry.At(e.Job.planKey, e.planRev)}
	}
	if e.Job.Rev.IsZero() {
		share.Ops = []registry.Op{registry.Create(e.Job.key, e.value)}
	} else {
		share.Ops = []registry.Op{registry.Set(e.Job.key, e.Job.Rev, e.value)}
	}
	if e.ends != nil {
		share.Ops = append(share.Ops, c.writeEnds(e))
	}
	return share
}

// writeEnds returns the operation that writes the copy of a claims record for leaders.
func (c *Claimer) writeEnds(e *PendingWrite) registry.Op {
	key := c.Keys.EndsOf(c.Me, e.Job.Segment)
	if e.Job.EndsRev.IsZero() {
		return registry.CreateOwned(key, e.ends, c.Session.ID())
	}
	return registry.Set(key, e.Job.EndsRev, e.ends)
}

// encodeEnds encodes the copy of a claims record for leaders, if one waits for the ends that the write records.
// A write that records claims only is of no interest to it; one that drops pending attempts at cancelled runs is.
func (c *Claimer) encodeEnds(e *PendingWrite) error {
	if e.plan == nil || e.plan.Fires == nil || e.endedCount == 0 && len(e.decision.Starts) > 0 && len(e.plan.Cancels) == 0 {
		return nil
	}
	var err error
	e.ends, err = record.Encode(record.Ends{Incarnation: c.Me, Claims: e.decision.Claims})
	return err
}

// ApplyResult applies the result of a transaction.
func (c *Claimer) ApplyResult(ctx context.Context, w WriteResult) error {
	c.WritesInFlight--
	for _, e := range w.Load.Parts {
		if e.Job.Writing = false; e.Job.dirty {
			c.queueDirty(e.Job)
		}
	}
	if w.Err != nil {
		for _, e := range w.Load.Parts {
			c.returnSlots(e)
		}
		if cause := findRefusalCause(w); cause != 0 {
			event.Report(c.Events.Refused, event.Refused{Cause: cause})
		}
		return c.handleFailedWrite(w)
	}
	if w.Rev.Seq <= w.seen { // nothing has started: the fences of this commit are too low
		return c.endAtSetBack()
	}
	c.LastCommit = max(c.LastCommit, w.Rev.Seq)
	for _, e := range w.Load.Parts {
		j := e.Job
		j.Rev, j.Claims, j.ClaimedAt = w.Rev, e.decision.Claims, e.decision.ClaimedAt
		if e.ends != nil {
			j.EndsRev = w.Rev
		}
		if j.Ended = j.Ended[e.endedCount:]; len(j.Ended) == 0 {
			j.Ended = nil
		}
		for _, s := range e.decision.Skipped {
			event.Report(c.Events.Skipped, s)
		}
		c.dropRested(j)
		if len(e.decision.Starts) > 0 {
			c.startQueue = append(c.startQueue, startingRuns{e, w.Rev})
		}
	}
	return c.startQueuedRuns(ctx)
}

// handleFailedWrite handles a transaction that was not applied. The job whose condition failed
// waits for a newer plan; the other jobs are written again at once.
func (c *Claimer) handleFailedWrite(w WriteResult) error {
	refusal, refused := batch.FindConflict(w.Err)
	switch {
	case refused:
		if w.conflictsAtNamespace() {
			return c.applyNamespace(w)
		}
		part, ok := w.Load.PartOf(refusal.Index)
		if !ok { // the session is not alive
			return fmt.Errorf("claim: %w: %w", registry.ErrSessionLost, w.Err)
		}
		e := w.Load.Parts[part]
		if refusal.Index >= len(w.Load.Txn.If) {
			return fmt.Errorf("claim %s: %w: %w", e.Job.Claims.Job, record.ErrEdited, w.Err)
		}
		if e.Job.PlanRev == e.planRev {
			e.Job.StalePlan = e.planRev
		}
		for _, e := range w.Load.Parts {
			c.MarkDirty(e.Job)
		}
	case errors.Is(w.Err, registry.ErrUnknownOutcome): // Apply detects its own commit, so another writer changed the record after it
		return fmt.Errorf("claim: %w: %w", record.ErrEdited, w.Err)
	case errors.Is(w.Err, registry.ErrSessionLost), errors.Is(w.Err, registry.ErrClosed):
		return fmt.Errorf("claim: %w", w.Err)
	default:
		c.Log.Error("claims not written; trying again", "error", w.Err)
		c.retryLater(w)
	}
	return nil
}

func (c *Claimer) retryLater(w WriteResult) {
	for _, e := range w.Load.Parts {
		c.agenda.schedule(e.Job, record.InstantOf(c.Clock().Add(RefusedRetryDelay)))
	}
}

// applyNamespace applies the record of the namespace, which has changed since it was read, and has the
// jobs of w written again.
func (c *Claimer) applyNamespace(w WriteResult) error {
	switch err := w.namespaceErr; {
	case errors.Is(err, registry.ErrSessionLost), errors.Is(err, registry.ErrClosed):
		return fmt.Errorf("claim: %w", err)
	case err != nil:
		c.Log.Error("record of the namespace not read; claims wait; trying again", "error", err)
		c.retryLater(w)
		return nil
	}
	read := w.namespace
	if !read.Rev.IsZero() && read.Rev.Seq < w.Load.Txn.If[namespaceItem].Rev.Seq {
		return c.endAtSetBack()
	}
	read.FenceBase = max(read.FenceBase, c.Namespace.FenceBase)
	c.Namespace = read // an outdated answer makes the next write read the record again
	for _, e := range w.Load.Parts {
		c.MarkDirty(e.Job)
	}
	return nil
}

// endAtSetBack ends the incarnation because the store was set back. In one store, each commit has a higher
// number than all that were known when it was requested.
func (c *Claimer) endAtSetBack() error {
	c.SetBack = true
	return fmt.Errorf("claim: %w: the store was set back to an earlier state", registry.ErrSessionLost)
}

// findRefusalCause returns why the store has refused a transaction, 0 if it was given up here.
func findRefusalCause(w WriteResult) event.RefusalCause {
	if refusal, refused := batch.FindConflict(w.Err); refused {
		_, ofJob := w.Load.PartOf(refusal.Index)
		switch {
		case w.conflictsAtNamespace():
			return event.RefusedByRecord
		case !ofJob:
			return event.RefusedBySession
		case refusal.Index < len(w.Load.Txn.If):
			return event.RefusedByPlan
		}
		return event.RefusedByRecord
	}
	switch {
	case errors.Is(w.Err, registry.ErrUnknownOutcome):
		return event.RefusedByRecord
	case errors.Is(w.Err, registry.ErrSessionLost):
		return event.RefusedBySession
	case errors.Is(w.Err, registry.ErrClosed), errors.Is(w.Err, context.Canceled):
		return 0
	}
	return event.RefusedByStore
}

// RefusedRetryDelay is the time until a write is retried that the registry refused for a reason
// of its own, such as a full store or a lost permission.
const RefusedRetryDelay = time.Second
