package coordinator

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

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

const (
	// coalesce is how long the end of a run may wait for others to share its commit.
	coalesce = 100 * time.Millisecond
	// clockCheck is how long a timer sleeps at most before it looks at the wall clock
	// again, which may have been set meanwhile.
	clockCheck = 5 * time.Second
	// maxWrites bounds the transactions of a ledger in flight, so that the jobs that are
	// due at the start of a minute neither queue one behind the other nor flood the store.
	maxWrites = 8
)

// ledger keeps an incarnation's claims: it claims what is due, starts it, and takes off
// what has ended. One goroutine owns it; what other goroutines tell it waits in inbox.
type ledger struct {
	clock    func() time.Time // of day: fires go by it, and nothing else
	jumps    jumps
	jumped   func()    // the clock has. Must not block
	unsure   time.Time // until then the fleet has not judged a clock that has jumped
	keys     record.Keys
	reg      registry.Registry
	session  registry.Session
	me       string
	work     Work
	log      *slog.Logger
	base     uint64 // of fences
	barred   *barred
	returns  bool                // its shards wait for its return
	accounts map[string]*account // by segment
	agenda   agenda
	dirty    map[*account]struct{}
	writes   int // in flight
	results  chan written
	running  int                   // functions that had not returned when the inbox was read
	waiting  []begun               // claimed, not started: the session was suspended
	held     map[*account]struct{} // whose ends wait for others to share their commit
	frozen   map[*account]struct{} // in which a shard is to move
	flushAt  time.Time             // when they are written at the latest; zero: none wait
	plans    *reader[*record.Plan]
	inbox    inbox
	closed   bool          // as last read from the inbox
	clockOff bool          // as last read from the inbox
	opened   bool          // new runs may be claimed, as last seen
	flushing bool          // ends are written now
	nudge    chan struct{} // one slot: look at the inbox, the plans and the session

	// understands is told when all definitions of a job that are in force can be compiled
	// here, and when they no longer can. It must not block.
	understands func(job string, all bool)
	// publishAhead is called when shards of a job begin to wait for an instant ahead of this
	// clock, and with zero when they no longer do. It must not block.
	publishAhead func(job string, is record.Ahead)
	skew         time.Duration // how far clocks may be apart; 0: they are not compared

	owned *ownership // for the log
}

// inbox is what other goroutines tell a ledger.
type inbox struct {
	mu       sync.Mutex
	running  int // functions that have not returned
	ended    []endedRun
	patient  bool // ends are taken in by and by: only the last is worth a nudge
	closed   bool // claim nothing more
	clockOff bool // claim nothing while the clock is off
	settled  chan struct{}
	emptied  chan struct{}
	unbarred bool
	cut      int // functions that returned after the session had been lost
}

type endedRun struct {
	acct *account
	ended
}

// account is a job in a ledger.
type account struct {
	segment  string
	key      registry.Key // of the claims record
	planKey  registry.Key
	plan     *record.Plan
	planRev  registry.Rev
	programs map[int]Program
	puzzled  bool // some epochs have none
	unknown  int  // the newest generation of those that was logged
	claims   record.Claims
	rev      registry.Rev // of the claims record; zero: there is none yet
	ended    []ended
	writing  bool
	stale    registry.Rev // of the plan that a claim conflicted on: wait for another
	ahead    record.Ahead // what its shards wait for, as it was published last
	wake     record.Instant
	index    int // in the agenda, -1 if not
}

// entry is what a ledger writes for an account.
type entry struct {
	acct     *account
	out      claimed
	plan     *record.Plan // that it rests on
	planRev  registry.Rev
	programs map[int]Program
	ended    int // how many of acct.ended it covers
	value    []byte
}

// begun is claimed runs that wait to be started.
type begun struct {
	*entry
	rev registry.Rev // of the commit that claimed them
}

// written is the result of a transaction.
type written struct {
	load load[*entry]
	rev  registry.Rev
	err  error
}

func (l *ledger) wakeUp() {
	select {
	case l.nudge <- struct{}{}:
	default:
	}
}

// run keeps the ledger until ctx ends. An error means that this incarnation is over: its
// session has ended, or somebody else has written its records.
func (l *ledger) run(ctx context.Context) error {
	defer l.plans.close()
	defer l.owned.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := l.session.Changed()
		l.takePlans(ctx)
		l.takeInbox()
		before, clock := time.Now(), l.clock() // once: what is claimed by it has been looked at for jumps
		l.takeClock(before, clock, time.Now())
		if err := l.takeSession(ctx); err != nil {
			l.drainWrites()
			return err
		}
		l.takeDue(time.Now(), clock)
		l.write(ctx, clock)
		l.tell()
		l.rest()
		timer.Reset(l.sleep(time.Now(), l.clock()))
		select {
		case <-ctx.Done():
			l.drainWrites()
			return context.Cause(ctx)
		case w := <-l.results:
			if err := l.settle(ctx, w); err != nil {
				l.drainWrites()
				return err
			}
		case <-l.nudge:
		case <-changed:
		case <-timer.C:
		}
	}
}

// drainWrites waits for the transactions in flight, which end with ctx.
func (l *ledger) drainWrites() {
	for ; l.writes > 0; l.writes-- {
		<-l.results
	}
}

// close makes the ledger claim nothing more. The channel is closed once no write that
// may claim is in flight.
func (l *ledger) close() <-chan struct{} {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	l.inbox.closed = true
	if l.inbox.settled == nil {
		l.inbox.settled = make(chan struct{})
	}
	defer l.wakeUp()
	return l.inbox.settled
}

// unbar says that shards which were barred may start.
func (l *ledger) unbar() {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	l.inbox.unbarred = true
	l.wakeUp()
}

// empty returns a channel that is closed once nothing runs, all ends are on record and
// the plans give this incarnation no shard but those that wait for its return. To be called
// after close.
func (l *ledger) empty() <-chan struct{} {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	if l.inbox.emptied == nil {
		l.inbox.emptied = make(chan struct{})
	}
	defer l.wakeUp()
	return l.inbox.emptied
}

// tell closes the channels of those who wait for a closing ledger.
func (l *ledger) tell() {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	if !l.inbox.closed || l.writes > 0 {
		return
	}
	closeOnce(l.inbox.settled)
	if l.inbox.emptied == nil || l.running > 0 {
		return
	}
	for _, a := range l.accounts {
		if !a.empty(l.me, l.returns) {
			return
		}
	}
	closeOnce(l.inbox.emptied)
}

// empty reports that an account holds nothing but what goes with the session.
func (a *account) empty(me string, returns bool) bool {
	var owned shardset.Set
	if a.plan != nil && !returns {
		owned = a.plan.Owners[me]
	}
	return len(a.ended) == 0 && owned.IsZero() && len(a.claims.Running) == 0
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

// takePlans takes in the plans that have changed.
func (l *ledger) takePlans(ctx context.Context) {
	l.plans.take(func(n news[*record.Plan]) {
		a := l.accounts[n.name]
		if n.gone || n.broken {
			if a != nil {
				l.owned.lose(ctx, a.claims.Job, a.planKey, n.err)
				a.plan, a.planRev = nil, registry.Rev{}
				delete(l.frozen, a)
				if n.gone {
					l.puzzle(a, false)
				}
			}
			return
		}
		mine := n.value.Owners[l.me]
		if a == nil {
			if mine.IsZero() {
				return // other members' business
			}
			a = &account{
				segment: n.name, key: l.keys.Claims(l.me, n.name), planKey: l.keys.Plan(n.name),
				index: -1, claims: record.Claims{Job: n.value.Job},
			}
			l.accounts[n.name] = a
		}
		a.plan, a.planRev, a.stale = n.value, n.rev, registry.Rev{}
		l.owned.set(a.claims.Job, mine)
		if delete(l.frozen, a); !a.plan.Frozen.IsZero() {
			l.frozen[a] = struct{}{}
		}
		l.compile(a)
		l.mark(a)
		l.yield(a, a.claims.Running.Shards())
	})
}

// yield says which of running shards are to move, or are disabled.
func (l *ledger) yield(a *account, running shardset.Set) {
	if a.plan == nil {
		return
	}
	for s := range running.Intersect(a.plan.Frozen).All() {
		l.work.Yield(a.claims.Job, s, ErrMoving)
	}
	for s := range running.Intersect(a.plan.Disabled).All() {
		l.work.Yield(a.claims.Job, s, ErrDisabled)
	}
}

// compile makes programs of the definitions in a plan, and keeps those that it has.
func (l *ledger) compile(a *account) {
	programs := make(map[int]Program, len(a.plan.Epochs))
	for i := range a.plan.Epochs {
		e := &a.plan.Epochs[i]
		if p, ok := a.programs[e.Gen]; ok {
			programs[e.Gen] = p
			continue
		}
		p, err := l.work.Compile(e.Def)
		if err != nil {
			if e.Gen > a.unknown { // not at each change of the plan
				a.unknown = e.Gen
				l.log.Error("definition not understood: its fires are left to other instances",
					"job", a.plan.Job, "generation", e.Gen, "error", err)
			}
			continue
		}
		programs[e.Gen] = p
	}
	a.programs = programs
	l.puzzle(a, len(programs) < len(a.plan.Epochs))
}

// puzzle takes note of whether an account's plan holds what cannot be compiled here.
func (l *ledger) puzzle(a *account, puzzled bool) {
	if puzzled != a.puzzled {
		a.puzzled = puzzled
		l.understands(a.claims.Job, !puzzled)
	}
}

// takeInbox takes in what has ended.
func (l *ledger) takeInbox() {
	l.inbox.mu.Lock()
	ends := l.inbox.ended
	l.inbox.ended = nil
	l.inbox.patient = false
	l.running = l.inbox.running
	closed, clockOff := l.inbox.closed, l.inbox.clockOff
	unbarred := l.inbox.unbarred
	l.inbox.unbarred = false
	l.inbox.mu.Unlock()
	for _, e := range ends {
		a := e.acct
		a.ended = append(a.ended, e.ended)
		if _, moves := l.frozen[a]; moves {
			l.mark(a) // a move waits for it
		} else {
			l.hold(a, time.Now())
		}
	}
	if unbarred || closed != l.closed || clockOff != l.clockOff {
		l.closed, l.clockOff = closed, clockOff
		l.markAll()
	}
	if len(ends) > 0 && l.running == 0 {
		l.release()
	}
}

// rest lets ends wait in the inbox when those that it has taken in wait for others anyway.
func (l *ledger) rest() {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	l.inbox.patient = !l.flushAt.IsZero() && len(l.frozen) == 0 && !l.closed
}

// release marks those whose ends have waited long enough.
func (l *ledger) release() {
	for a := range l.held {
		l.mark(a)
	}
	clear(l.held)
	l.flushAt = time.Time{}
}

func (l *ledger) takeDue(now, clock time.Time) {
	for len(l.agenda) > 0 && l.agenda[0].wake <= record.InstantOf(clock) {
		a := heap.Pop(&l.agenda).(*account)
		l.mark(a)
	}
	l.flushing = l.running == 0 || l.closed
	if !l.flushAt.IsZero() && !now.Before(l.flushAt) {
		l.flushing = true
		l.release()
	}
}

func (l *ledger) mark(a *account) { l.dirty[a] = struct{}{} }

func (l *ledger) markAll() {
	for _, a := range l.accounts {
		l.mark(a)
	}
}

// sleep returns how long nothing needs to be done.
func (l *ledger) sleep(now, clock time.Time) time.Duration {
	d := clockCheck
	if len(l.agenda) > 0 {
		d = min(d, l.agenda[0].wake.Time().Sub(clock))
	}
	if unsure := l.unsure.Sub(now); unsure > 0 {
		d = min(d, unsure)
	}
	if !l.flushAt.IsZero() {
		d = min(d, l.flushAt.Sub(now))
	}
	return max(d, 0)
}

// takeSession takes in whether new runs may be claimed and claimed ones started. It goes by
// what is, not by what was told: a select that has two reasons to go on forgets one.
func (l *ledger) takeSession(ctx context.Context) error {
	state, _ := l.session.State()
	if open := !l.closed && !l.clockOff && !time.Now().Before(l.unsure) && state == registry.SessionConnected; open != l.opened {
		l.opened = open
		l.markAll()
	}
	return l.startWaiting(ctx)
}

// write sends what the dirty accounts have to write, as far as there is room.
func (l *ledger) write(ctx context.Context, clock time.Time) {
	if l.writes >= maxWrites || len(l.dirty) == 0 {
		return
	}
	entries := l.entries(clock)
	if len(entries) == 0 {
		return
	}
	for _, ld := range l.loads(entries) {
		if l.writes >= maxWrites {
			for _, e := range ld.parts {
				l.mark(e.acct) // rides with one of the next
			}
			continue
		}
		for _, e := range ld.parts {
			e.acct.writing = true
			delete(l.held, e.acct)
		}
		l.writes++
		go func() { // at most maxWrites at once; each ends with ctx
			rev, err := registry.Apply(ctx, l.reg, ld.txn)
			l.results <- written{ld, rev, err}
		}()
	}
}

// loads returns the transactions that write entries.
func (l *ledger) loads(entries []*entry) []load[*entry] {
	common := []registry.Cond{registry.Alive(l.session.ID())}
	return pack(common, entries, l.reg.Limits(), l.share, func(*entry) bool { return false })
}

// entries returns what there is to write, and puts accounts that wait on the agenda.
func (l *ledger) entries(clock time.Time) []*entry {
	var entries []*entry
	for a := range l.dirty {
		if a.writing {
			continue // it stays dirty
		}
		delete(l.dirty, a)
		in := claiming{
			me: l.me, plan: a.plan, programs: a.programs, claims: a.claims, ended: a.ended,
			barred: l.barred.of(a.claims.Job), now: record.InstantOf(clock),
			open: l.opened && a.stale.IsZero(), skew: l.skew, reported: a.ahead,
		}
		e := &entry{acct: a, out: in.claim(), plan: a.plan, planRev: a.planRev, programs: a.programs, ended: len(a.ended)}
		out := &e.out
		l.agenda.put(a, out.wake)
		l.reportAhead(a, out.ahead)
		if !out.changed {
			continue
		}
		switch _, moves := l.frozen[a]; {
		case out.planned, moves, l.closed:
		case !recordsEnds(a.plan):
			continue // the next claim records the ends
		case !l.flushing:
			l.hold(a, time.Now())
			continue
		}
		var err error
		if e.value, err = record.Encode(&out.claims); err != nil {
			l.log.Error("claims record not written", "job", a.claims.Job, "error", err)
			continue
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.acct.segment, b.acct.segment) })
	return entries
}

// hold lets the ends of an account wait for others.
func (l *ledger) hold(a *account, now time.Time) {
	l.held[a] = struct{}{}
	if l.flushAt.IsZero() {
		l.flushAt = now.Add(coalesce)
	}
}

// share returns what an entry adds to a transaction.
func (l *ledger) share(e *entry) share {
	var pc share
	if e.out.planned {
		pc.conds = []registry.Cond{registry.At(e.acct.planKey, e.planRev)}
	}
	if e.acct.rev.IsZero() {
		pc.ops = []registry.Op{registry.Create(e.acct.key, e.value)}
	} else {
		pc.ops = []registry.Op{registry.Set(e.acct.key, e.acct.rev, e.value)}
	}
	return pc
}

// errForeign means that the records of this incarnation were written by another hand. It
// cannot tell what it has claimed any more, so it gives its session up.
var errForeign = fmt.Errorf("%w: given up, for a record of this incarnation was changed by another hand", registry.ErrSessionLost)

// settle acts on the result of a transaction.
func (l *ledger) settle(ctx context.Context, w written) error {
	l.writes--
	for _, e := range w.load.parts {
		e.acct.writing = false
	}
	if w.err != nil {
		for _, e := range w.load.parts {
			l.mark(e.acct)
		}
		return l.refused(w)
	}
	for _, e := range w.load.parts {
		a := e.acct
		a.rev, a.claims = w.rev, e.out.claims
		if a.ended = a.ended[e.ended:]; len(a.ended) == 0 {
			a.ended = nil
		}
		if len(e.out.starts) > 0 {
			l.waiting = append(l.waiting, begun{e, w.rev})
		}
	}
	return l.startWaiting(ctx)
}

// refused acts on a transaction that was not applied. The job that it failed for waits
// for a newer plan; the rest is sent again at once.
func (l *ledger) refused(w written) error {
	refusal, refused := conflict(w.err)
	switch {
	case refused:
		part, ok := w.load.owner(refusal.Index)
		if !ok { // the condition that all share
			return fmt.Errorf("claim: %w: %w", registry.ErrSessionLost, w.err)
		}
		e := w.load.parts[part]
		if refusal.Index >= len(w.load.txn.If) {
			return fmt.Errorf("claim %s: %w: %w", e.acct.claims.Job, errForeign, w.err)
		}
		if e.acct.planRev == e.planRev {
			e.acct.stale = e.planRev
		}
	case errors.Is(w.err, registry.ErrUnknownOutcome): // Apply would have told its own work
		return fmt.Errorf("claim: %w: %w", errForeign, w.err)
	case errors.Is(w.err, registry.ErrSessionLost), errors.Is(w.err, registry.ErrClosed):
		return fmt.Errorf("claim: %w", w.err)
	default:
		l.log.Error("claims not written; trying again", "error", w.err)
		for _, e := range w.load.parts {
			delete(l.dirty, e.acct)
			l.agenda.put(e.acct, record.InstantOf(l.clock().Add(refusedPause)))
		}
	}
	return nil
}

// refusedPause is how long a write that the registry refuses for a reason of its own (it
// is full, or permission was taken away) waits before it is made again.
const refusedPause = time.Second

// startWaiting starts what has been claimed, unless the session is suspended: then it is
// asked again when that ends. A process may have been paused for any length of time since
// the claim was committed, so the session's own clock is asked, not only its state.
func (l *ledger) startWaiting(ctx context.Context) error {
	if len(l.waiting) == 0 {
		return nil
	}
	switch state, safe := l.session.State(); {
	case state == registry.SessionSuspended && time.Now().Before(safe):
		return nil
	case state != registry.SessionConnected || !time.Now().Before(safe):
		return fmt.Errorf("start: %w", registry.ErrSessionLost)
	}
	for _, b := range l.waiting {
		l.start(ctx, b)
	}
	l.waiting = nil
	return nil
}

// start begins the runs of a claim. What it needs to know comes from the plan that the
// claim rests on: the account may know another by now, or none.
func (l *ledger) start(ctx context.Context, b begun) {
	a := b.acct
	for _, g := range b.out.starts {
		e, ok := b.plan.Epoch(g.Gen)
		if !ok {
			continue // claimed by this very plan, so it is there
		}
		r := Run{
			Job: a.claims.Job, Program: b.programs[g.Gen], Shards: e.Job().Shards,
			Fire: g.Fire.Time(), Attempt: g.Attempt, Rerun: g.Attempt > 1, Trigger: g.Trigger, Missed: g.Missed,
			Fence: l.base + b.rev.Seq, Session: l.session.ID(),
		}
		for _, t := range b.plan.Triggers {
			if t.Number == g.Trigger {
				r.Param = t.Param
			}
		}
		l.inbox.begin(g.Shards.Len())
		for s := range g.Shards.All() {
			r.Shard = s
			l.work.Start(ctx, r, l.done(ctx, a, s, wantsReruns(e.Job())))
		}
		l.yield(a, g.Shards)
	}
}

// done returns the function to call when the function of a run has returned, whose session
// has ended if ctx has. reruns reports whether the definition of the run wants it to be made
// again if it is handed back.
func (l *ledger) done(ctx context.Context, a *account, shard int, reruns bool) func(error) {
	job := a.claims.Job
	l.barred.add(job, shard)
	return func(err error) {
		l.barred.remove(job, shard)
		if l.inbox.end(endedRun{a, ended{shard: shard, err: err, handedBack: reruns && errors.Is(err, ErrHandedBack)}}, ctx.Err() != nil) {
			l.wakeUp()
		}
	}
}

// begin takes note that n functions are called.
func (in *inbox) begin(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.running += n
}

// end takes note that one has returned, and reports whether the ledger is to be told now.
func (in *inbox) end(e endedRun, cut bool) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.running--; cut {
		in.cut++
	}
	in.ended = append(in.ended, e)
	return in.running == 0 || !in.patient
}

// cutShort returns how many runs the end of the session ended, or kept from beginning. To be
// called once run has returned.
func (l *ledger) cutShort() int {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	n := l.inbox.running + l.inbox.cut
	for _, b := range l.waiting {
		for _, g := range b.out.starts {
			n += g.Shards.Len()
		}
	}
	return n
}
