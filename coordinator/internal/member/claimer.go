package member

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/claiming"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/coordinator/internal/eventlog"
	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/internal/skew"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

const (
	// maxEndsDelay is how long the end of a run may wait for others to share its commit.
	maxEndsDelay = 100 * time.Millisecond
	// clockCheck is how long a timer sleeps at most before it looks at the wall clock
	// again, which may have been set meanwhile.
	ClockCheckInterval = 5 * time.Second
	// maxWrites bounds the transactions of a ledger in flight, so that the jobs that are
	// due at the start of a minute neither queue one behind the other nor flood the store.
	maxWrites = 8
)

// Claimer keeps an incarnation's claims: it claims what is due, starts it, and takes off
// what has ended. One goroutine owns it; what other goroutines tell it waits in inbox.
type Claimer struct {
	Clock          func() time.Time // of day: fires go by it, and nothing else
	jumpDetector   skew.JumpDetector
	onClockJump    func()    // the clock has. Must not block
	clockJudgedAt  time.Time // until then the fleet has not judged a clock that has jumped
	Keys           record.Keys
	Reg            registry.Registry
	Session        registry.Session
	Me             string
	Work           Work
	Log            *slog.Logger
	fenceBase      uint64 // of fences
	Blocked        *BlockedShards
	awaitsReturn   bool                 // its shards wait for its return
	Jobs           map[string]*JobState // by segment
	agenda         agenda
	Dirty          map[*JobState]struct{}
	WritesInFlight int // in flight
	results        chan WriteResult
	Running        int                    // functions that had not returned when the inbox was read
	startQueue     []startingRuns         // claimed, not started: the session was suspended
	Held           map[*JobState]struct{} // whose ends wait for others to share their commit
	Frozen         map[*JobState]struct{} // in which a shard is to move
	flushAt        time.Time              // when they are written at the latest; zero: none wait
	Plans          *feed.Reader[*record.Plan]
	Inbox          inbox
	Closed         bool          // as last read from the inbox
	skewed         bool          // as last read from the inbox
	MayClaim       bool          // new runs may be claimed, as last seen
	Flushing       bool          // ends are written now
	Nudge          chan struct{} // one slot: look at the inbox, the plans and the session

	// setSupported is told when all definitions of a job that are in force can be compiled
	// here, and when they no longer can. It must not block.
	setSupported func(job string, all bool)
	// publishAhead is called when shards of a job begin to wait for an instant ahead of this
	// clock, and with zero when they no longer do. It must not block.
	publishAhead func(job string, is record.Ahead)
	maxSkew      time.Duration // how far clocks may be apart; 0: they are not compared

	ownershipLog *eventlog.OwnershipLog // for the log
}

// inbox is what other goroutines tell a ledger.
type inbox struct {
	mu             sync.Mutex
	Running        int // functions that have not returned
	ended          []endedRun
	batching       bool // ends are taken in by and by: only the last is worth a nudge
	Closed         bool // claim nothing more
	skewed         bool // claim nothing while the clock is off
	stopped        chan struct{}
	emptied        chan struct{}
	recheckBlocked bool
	cutShort       int // functions that returned after the session had been lost
}

type endedRun struct {
	job *JobState
	claiming.EndedRun
}

// JobState is a job in a ledger.
type JobState struct {
	Segment           string
	key               registry.Key // of the claims record
	planKey           registry.Key
	Plan              *record.Plan
	PlanRev           registry.Rev
	programs          map[int]due.Program
	unsupported       bool // some epochs have none
	loggedUnsupported int  // the newest generation of those that was logged
	Claims            record.Claims
	Rev               registry.Rev // of the claims record; zero: there is none yet
	Ended             []claiming.EndedRun
	Writing           bool
	StalePlan         registry.Rev // of the plan that a claim conflicted on: wait for another
	reportedAhead     record.Ahead // what its shards wait for, as it was published last
	wake              record.Instant
	index             int // in the agenda, -1 if not
}

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

// begun is claimed runs that wait to be started.
type startingRuns struct {
	*PendingWrite
	rev registry.Rev // of the commit that claimed them
}

// WriteResult is the result of a transaction.
type WriteResult struct {
	Load batch.Load[*PendingWrite]
	Rev  registry.Rev
	Err  error
}

func (l *Claimer) wake() {
	select {
	case l.Nudge <- struct{}{}:
	default:
	}
}

// run keeps the ledger until ctx ends. An error means that this incarnation is over: its
// session has ended, or somebody else has written its records.
func (l *Claimer) run(ctx context.Context) error {
	defer l.Plans.Close()
	defer l.ownershipLog.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := l.Session.Changed()
		l.ApplyPlans(ctx)
		l.DrainInbox()
		before, clock := time.Now(), l.Clock() // once: what is claimed by it has been looked at for jumps
		l.checkClockJump(before, clock, time.Now())
		if err := l.applySession(ctx); err != nil {
			l.drainWrites()
			return err
		}
		l.markDue(time.Now(), clock)
		l.startWrites(ctx, clock)
		l.NotifyWaiters()
		l.setBatching()
		timer.Reset(l.computeSleep(time.Now(), l.Clock()))
		select {
		case <-ctx.Done():
			l.drainWrites()
			return context.Cause(ctx)
		case w := <-l.results:
			if err := l.ApplyResult(ctx, w); err != nil {
				l.drainWrites()
				return err
			}
		case <-l.Nudge:
		case <-changed:
		case <-timer.C:
		}
	}
}

// drainWrites waits for the transactions in flight, which end with ctx.
func (l *Claimer) drainWrites() {
	for ; l.WritesInFlight > 0; l.WritesInFlight-- {
		<-l.results
	}
}

// StopClaiming makes the ledger claim nothing more. The channel is closed once no write that
// may claim is in flight.
func (l *Claimer) StopClaiming() <-chan struct{} {
	l.Inbox.mu.Lock()
	defer l.Inbox.mu.Unlock()
	l.Inbox.Closed = true
	if l.Inbox.stopped == nil {
		l.Inbox.stopped = make(chan struct{})
	}
	defer l.wake()
	return l.Inbox.stopped
}

// recheckBlocked says that shards which were barred may start.
func (l *Claimer) recheckBlocked() {
	l.Inbox.mu.Lock()
	defer l.Inbox.mu.Unlock()
	l.Inbox.recheckBlocked = true
	l.wake()
}

// notifyEmpty returns a channel that is closed once nothing runs, all ends are on record and
// the plans give this incarnation no shard but those that wait for its return. To be called
// after close.
func (l *Claimer) notifyEmpty() <-chan struct{} {
	l.Inbox.mu.Lock()
	defer l.Inbox.mu.Unlock()
	if l.Inbox.emptied == nil {
		l.Inbox.emptied = make(chan struct{})
	}
	defer l.wake()
	return l.Inbox.emptied
}

// NotifyWaiters closes the channels of those who wait for a closing ledger.
func (l *Claimer) NotifyWaiters() {
	l.Inbox.mu.Lock()
	defer l.Inbox.mu.Unlock()
	if !l.Inbox.Closed || l.WritesInFlight > 0 {
		return
	}
	closeOnce(l.Inbox.stopped)
	if l.Inbox.emptied == nil || l.Running > 0 {
		return
	}
	for _, a := range l.Jobs {
		if !a.IsEmpty(l.Me, l.awaitsReturn) {
			return
		}
	}
	closeOnce(l.Inbox.emptied)
}

// IsEmpty reports that an account holds nothing but what goes with the session.
func (a *JobState) IsEmpty(me string, returns bool) bool {
	var owned shardset.Set
	if a.Plan != nil && !returns {
		owned = a.Plan.Owners[me]
	}
	return len(a.Ended) == 0 && owned.IsZero() && len(a.Claims.Running) == 0
}

func closeOnce(c chan struct{}) {
	if c == nil {
		return
	}
	select {
	case <-c:
	default:
		close(c)
	}
}

// ApplyPlans takes in the plans that have changed.
func (l *Claimer) ApplyPlans(ctx context.Context) {
	l.Plans.Drain(func(n feed.Update[*record.Plan]) {
		a := l.Jobs[n.Name]
		if n.Deleted || n.Unreadable {
			if a != nil {
				l.ownershipLog.Lose(ctx, a.Claims.Job, a.planKey, n.Err)
				a.Plan, a.PlanRev = nil, registry.Rev{}
				delete(l.Frozen, a)
				if n.Deleted {
					l.setUnsupported(a, false)
				}
			}
			return
		}
		mine := n.Value.Owners[l.Me]
		if a == nil {
			if mine.IsZero() {
				return // other members' business
			}
			a = &JobState{
				Segment: n.Name, key: l.Keys.Claims(l.Me, n.Name), planKey: l.Keys.Plan(n.Name),
				index: -1, Claims: record.Claims{Job: n.Value.Job},
			}
			l.Jobs[n.Name] = a
		}
		a.Plan, a.PlanRev, a.StalePlan = n.Value, n.Rev, registry.Rev{}
		l.ownershipLog.Set(a.Claims.Job, mine)
		if delete(l.Frozen, a); !a.Plan.Frozen.IsZero() {
			l.Frozen[a] = struct{}{}
		}
		l.compileEpochs(a)
		l.MarkDirty(a)
		l.yieldShards(a, a.Claims.Running.Shards())
	})
}

// yieldShards says which of running shards are to move, or are disabled.
func (l *Claimer) yieldShards(a *JobState, running shardset.Set) {
	if a.Plan == nil {
		return
	}
	for s := range running.Intersect(a.Plan.Frozen).All() {
		l.Work.Yield(a.Claims.Job, s, ErrMoving)
	}
	for s := range running.Intersect(a.Plan.Disabled).All() {
		l.Work.Yield(a.Claims.Job, s, ErrDisabled)
	}
}

// compileEpochs makes programs of the definitions in a plan, and keeps those that it has.
func (l *Claimer) compileEpochs(a *JobState) {
	programs := make(map[int]due.Program, len(a.Plan.Epochs))
	for i := range a.Plan.Epochs {
		e := &a.Plan.Epochs[i]
		if p, ok := a.programs[e.Number]; ok {
			programs[e.Number] = p
			continue
		}
		p, err := l.Work.Compile(e.Def)
		if err != nil {
			if e.Number > a.loggedUnsupported { // not at each change of the plan
				a.loggedUnsupported = e.Number
				l.Log.Error("definition not understood: its fires are left to other instances",
					"job", a.Plan.Job, "epoch", e.Number, "error", err)
			}
			continue
		}
		programs[e.Number] = p
	}
	a.programs = programs
	l.setUnsupported(a, len(programs) < len(a.Plan.Epochs))
}

// setUnsupported takes note of whether an account's plan holds what cannot be compiled here.
func (l *Claimer) setUnsupported(a *JobState, puzzled bool) {
	if puzzled != a.unsupported {
		a.unsupported = puzzled
		l.setSupported(a.Claims.Job, !puzzled)
	}
}

// DrainInbox takes in what has ended.
func (l *Claimer) DrainInbox() {
	l.Inbox.mu.Lock()
	ends := l.Inbox.ended
	l.Inbox.ended = nil
	l.Inbox.batching = false
	l.Running = l.Inbox.Running
	closed, clockOff := l.Inbox.Closed, l.Inbox.skewed
	unbarred := l.Inbox.recheckBlocked
	l.Inbox.recheckBlocked = false
	l.Inbox.mu.Unlock()
	for _, e := range ends {
		a := e.job
		a.Ended = append(a.Ended, e.EndedRun)
		if _, moves := l.Frozen[a]; moves {
			l.MarkDirty(a) // a move waits for it
		} else {
			l.holdEnds(a, time.Now())
		}
	}
	if unbarred || closed != l.Closed || clockOff != l.skewed {
		l.Closed, l.skewed = closed, clockOff
		l.markAllDirty()
	}
	if len(ends) > 0 && l.Running == 0 {
		l.markHeld()
	}
}

// setBatching lets ends wait in the inbox when those that it has taken in wait for others anyway.
func (l *Claimer) setBatching() {
	l.Inbox.mu.Lock()
	defer l.Inbox.mu.Unlock()
	l.Inbox.batching = !l.flushAt.IsZero() && len(l.Frozen) == 0 && !l.Closed
}

// markHeld marks those whose ends have waited long enough.
func (l *Claimer) markHeld() {
	for a := range l.Held {
		l.MarkDirty(a)
	}
	clear(l.Held)
	l.flushAt = time.Time{}
}

func (l *Claimer) markDue(now, clock time.Time) {
	for len(l.agenda) > 0 && l.agenda[0].wake <= record.InstantOf(clock) {
		a := heap.Pop(&l.agenda).(*JobState)
		l.MarkDirty(a)
	}
	l.Flushing = l.Running == 0 || l.Closed
	if !l.flushAt.IsZero() && !now.Before(l.flushAt) {
		l.Flushing = true
		l.markHeld()
	}
}

func (l *Claimer) MarkDirty(a *JobState) { l.Dirty[a] = struct{}{} }

func (l *Claimer) markAllDirty() {
	for _, a := range l.Jobs {
		l.MarkDirty(a)
	}
}

// computeSleep returns how long nothing needs to be done.
func (l *Claimer) computeSleep(now, clock time.Time) time.Duration {
	d := ClockCheckInterval
	if len(l.agenda) > 0 {
		d = min(d, l.agenda[0].wake.Time().Sub(clock))
	}
	if unsure := l.clockJudgedAt.Sub(now); unsure > 0 {
		d = min(d, unsure)
	}
	if !l.flushAt.IsZero() {
		d = min(d, l.flushAt.Sub(now))
	}
	return max(d, 0)
}

// applySession takes in whether new runs may be claimed and claimed ones started. It goes by
// what is, not by what was told: a select that has two reasons to go on forgets one.
func (l *Claimer) applySession(ctx context.Context) error {
	state, _ := l.Session.State()
	if open := !l.Closed && !l.skewed && !time.Now().Before(l.clockJudgedAt) && state == registry.SessionConnected; open != l.MayClaim {
		l.MayClaim = open
		l.markAllDirty()
	}
	return l.startQueuedRuns(ctx)
}

// startWrites sends what the dirty accounts have to write, as far as there is room.
func (l *Claimer) startWrites(ctx context.Context, clock time.Time) {
	if l.WritesInFlight >= maxWrites || len(l.Dirty) == 0 {
		return
	}
	entries := l.DecideWrites(clock)
	if len(entries) == 0 {
		return
	}
	for _, ld := range l.PackWrites(entries) {
		if l.WritesInFlight >= maxWrites {
			for _, e := range ld.Parts {
				l.MarkDirty(e.Job) // rides with one of the next
			}
			continue
		}
		for _, e := range ld.Parts {
			e.Job.Writing = true
			delete(l.Held, e.Job)
		}
		l.WritesInFlight++
		go func() { // at most maxWrites at once; each ends with ctx
			rev, err := registry.Apply(ctx, l.Reg, ld.Txn)
			l.results <- WriteResult{ld, rev, err}
		}()
	}
}

// PackWrites returns the transactions that write entries.
func (l *Claimer) PackWrites(entries []*PendingWrite) []batch.Load[*PendingWrite] {
	common := []registry.Cond{registry.Alive(l.Session.ID())}
	return batch.Pack(common, entries, l.Reg.Limits(), l.composeShare, func(*PendingWrite) bool { return false })
}

// DecideWrites returns what there is to write, and puts accounts that wait on the agenda.
func (l *Claimer) DecideWrites(clock time.Time) []*PendingWrite {
	var entries []*PendingWrite
	for a := range l.Dirty {
		if a.Writing {
			continue // it stays dirty
		}
		delete(l.Dirty, a)
		in := claiming.Input{
			Me: l.Me, Plan: a.Plan, Programs: a.programs, Claims: a.Claims, Ended: a.Ended,
			Blocked: l.Blocked.getBlocked(a.Claims.Job), Now: record.InstantOf(clock),
			MayClaim: l.MayClaim && a.StalePlan.IsZero(), Skew: l.maxSkew, ReportedAhead: a.reportedAhead,
		}
		e := &PendingWrite{Job: a, decision: in.Decide(), plan: a.Plan, planRev: a.PlanRev, programs: a.programs, endedCount: len(a.Ended)}
		out := &e.decision
		l.agenda.schedule(a, out.Wake)
		l.reportAhead(a, out.Ahead)
		if !out.Changed {
			continue
		}
		switch _, moves := l.Frozen[a]; {
		case out.RestsOnPlan, moves, l.Closed:
		case !due.RecordsEnds(a.Plan):
			continue // the next claim records the ends
		case !l.Flushing:
			l.holdEnds(a, time.Now())
			continue
		}
		var err error
		if e.value, err = record.Encode(&out.Claims); err != nil {
			l.Log.Error("claims record not written", "job", a.Claims.Job, "error", err)
			continue
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b *PendingWrite) int { return cmp.Compare(a.Job.Segment, b.Job.Segment) })
	return entries
}

// holdEnds lets the ends of an account wait for others.
func (l *Claimer) holdEnds(a *JobState, now time.Time) {
	l.Held[a] = struct{}{}
	if l.flushAt.IsZero() {
		l.flushAt = now.Add(maxEndsDelay)
	}
}

// composeShare returns what an entry adds to a transaction.
func (l *Claimer) composeShare(e *PendingWrite) batch.Share {
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
func (l *Claimer) ApplyResult(ctx context.Context, w WriteResult) error {
	l.WritesInFlight--
	for _, e := range w.Load.Parts {
		e.Job.Writing = false
	}
	if w.Err != nil {
		for _, e := range w.Load.Parts {
			l.MarkDirty(e.Job)
		}
		return l.handleFailedWrite(w)
	}
	for _, e := range w.Load.Parts {
		a := e.Job
		a.Rev, a.Claims = w.Rev, e.decision.Claims
		if a.Ended = a.Ended[e.endedCount:]; len(a.Ended) == 0 {
			a.Ended = nil
		}
		if len(e.decision.Starts) > 0 {
			l.startQueue = append(l.startQueue, startingRuns{e, w.Rev})
		}
	}
	return l.startQueuedRuns(ctx)
}

// handleFailedWrite acts on a transaction that was not applied. The job that it failed for waits
// for a newer plan; the rest is sent again at once.
func (l *Claimer) handleFailedWrite(w WriteResult) error {
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
		l.Log.Error("claims not written; trying again", "error", w.Err)
		for _, e := range w.Load.Parts {
			delete(l.Dirty, e.Job)
			l.agenda.schedule(e.Job, record.InstantOf(l.Clock().Add(refusedRetryDelay)))
		}
	}
	return nil
}

// refusedPause is how long a write that the registry refuses for a reason of its own (it
// is full, or permission was taken away) waits before it is made again.
const refusedRetryDelay = time.Second

// startQueuedRuns starts what has been claimed, unless the session is suspended: then it is
// asked again when that ends. A process may have been paused for any length of time since
// the claim was committed, so the session's own clock is asked, not only its state.
func (l *Claimer) startQueuedRuns(ctx context.Context) error {
	if len(l.startQueue) == 0 {
		return nil
	}
	switch state, safe := l.Session.State(); {
	case state == registry.SessionSuspended && time.Now().Before(safe):
		return nil
	case state != registry.SessionConnected || !time.Now().Before(safe):
		return fmt.Errorf("start: %w", registry.ErrSessionLost)
	}
	for _, b := range l.startQueue {
		l.startRuns(ctx, b)
	}
	l.startQueue = nil
	return nil
}

// startRuns begins the runs of a claim. What it needs to know comes from the plan that the
// claim rests on: the account may know another by now, or none.
func (l *Claimer) startRuns(ctx context.Context, b startingRuns) {
	a := b.Job
	for _, g := range b.decision.Starts {
		e, ok := b.plan.Epoch(g.Epoch)
		if !ok {
			continue // claimed by this very plan, so it is there
		}
		r := Run{
			Job: a.Claims.Job, Program: b.programs[g.Epoch], Shards: e.Job().Shards,
			Fire: g.Fire.Time(), Attempt: g.Attempt, Rerun: g.Attempt > 1, Trigger: g.Trigger, Missed: g.Missed,
			Fence: l.fenceBase + b.rev.Seq, Session: l.Session.ID(),
		}
		for _, t := range b.plan.Triggers {
			if t.Number == g.Trigger {
				r.Param = t.Param
			}
		}
		l.Inbox.addRunning(g.Shards.Len())
		for s := range g.Shards.All() {
			r.Shard = s
			l.Work.Start(ctx, r, l.TrackRun(ctx, a, s, due.WantsReruns(e.Job())))
		}
		l.yieldShards(a, g.Shards)
	}
}

// TrackRun returns the function to call when the function of a run has returned, whose session
// has ended if ctx has. reruns reports whether the definition of the run wants it to be made
// again if it is handed back.
func (l *Claimer) TrackRun(ctx context.Context, a *JobState, shard int, reruns bool) func(error) {
	job := a.Claims.Job
	l.Blocked.addRunning(job, shard)
	return func(err error) {
		l.Blocked.removeRunning(job, shard)
		if l.Inbox.addEnded(endedRun{a, claiming.EndedRun{Shard: shard, Err: err, HandedBack: reruns && errors.Is(err, ErrHandedBack)}}, ctx.Err() != nil) {
			l.wake()
		}
	}
}

// addRunning takes note that n functions are called.
func (in *inbox) addRunning(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.Running += n
}

// addEnded takes note that one has returned, and reports whether the ledger is to be told now.
func (in *inbox) addEnded(e endedRun, cut bool) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.Running--; cut {
		in.cutShort++
	}
	in.ended = append(in.ended, e)
	return in.Running == 0 || !in.batching
}

// countCutShort returns how many runs the end of the session ended, or kept from beginning. To be
// called once run has returned.
func (l *Claimer) countCutShort() int {
	l.Inbox.mu.Lock()
	defer l.Inbox.mu.Unlock()
	n := l.Inbox.Running + l.Inbox.cutShort
	for _, b := range l.startQueue {
		for _, g := range b.decision.Starts {
			n += g.Shards.Len()
		}
	}
	return n
}

// CopyJobState returns an account as a state holds it.
func (l *Claimer) CopyJobState(segment string) *JobState {
	a := l.Jobs[segment]
	if a == nil {
		return nil
	}
	out := *a
	out.wake, out.index = 0, -1
	out.Ended = slices.Clone(a.Ended)
	return &out
}
