package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/eventlog"
	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/coordinator/internal/skew"
	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// RegularCheck is how often, give or take a fifth, a leader plans without being asked,
// and clears away what has been served.
const RegularCheck = 30 * time.Second

// errTermOver is why a leader stops.
var errTermOver = errors.New("term over")

// Leader is an incarnation in office for one term. One goroutine owns it.
type Leader struct {
	M       *Member
	Me      string
	Elector *Elector
	Log     *slog.Logger
	logs    *eventlog.PlanLog
	Nudge   chan struct{} // one slot: something in the view has changed
	end     context.CancelCauseFunc
	*Progress

	View        planning.View
	synced      bool   // all has been read once: who is new from now on has just joined
	idle        bool   // the last decision was that nothing is to be done, and the view has not changed
	LastCommit  uint64 // the newest commit that is known
	BrokenPlans map[string]bool
	SentAlone   map[string]bool // segments whose last change conflicted: it goes alone

	instances     *feed.Reader[registry.SessionID]
	members       *feed.Reader[record.Member]
	jobs          *feed.Reader[planning.JobRecord]
	controls      *feed.Reader[controls]
	plans         *feed.Reader[*record.Plan]
	PlanFeed      *feed.Feed[*record.Plan]
	WatchedClaims map[string]func() // claims directories of pending moves, and how to stop
	absences      map[string]absence
	skew.Comparison
	incompleteTracker
	*Restorer
	overdue time.Time // when one who is awaited has been so for long enough; zero: nobody is

	panics map[string]string // by job: the panic of its strategy that was logged last
}

// leadTerm is what is true only during this term: it follows the records that planning rests
// on and commits what they call for. It returns when ctx ends or the term is over.
func leadTerm(ctx context.Context, o *Elector, term registry.Rev, p *Progress) error {
	ctx, end := context.WithCancelCause(ctx)
	l := &Leader{
		M: o.M, Me: o.In.ID, Elector: o, Log: o.Log.With("term", term.Seq), Nudge: make(chan struct{}, 1), end: end, Progress: p,
		BrokenPlans: map[string]bool{}, SentAlone: map[string]bool{}, WatchedClaims: map[string]func(){}, PlanFeed: o.plans,
		Restorer: NewRestorer(),
		View: planning.View{
			Keys: o.M.Keys, Term: term, Skew: o.M.maxSkew, Compile: o.M.Work.Compile, Strategies: o.M.strategies,
			OnStrategyCall: func(strategy, job string) { p.setTask("strategy "+strategy, "job "+job) },
			Live:           map[registry.SessionID]bool{}, Members: map[string]planning.MemberRecord{}, JustJoined: map[string]bool{}, Jobs: map[string]planning.JobRecord{},
			Control: map[string]planning.ControlRecord{}, Plans: map[string]planning.PlanRecord{}, Reads: map[string]planning.FreshRead{}, EditedPlans: map[string]bool{},
		},
	}
	l.logs = eventlog.NewPlanLog(l.Log)
	defer l.logs.Flush()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end(nil)
	if o.M.comparesClocks {
		l.Comparison, l.View.Skewed = skew.NewComparison(time.Now(), o.M.Clock(), term.Seq), o.clockNotice().Skewed
	}
	l.instances = followDirectory(ctx, &wg, l, o.M.Keys.Instances(), func(e registry.Entry) (registry.SessionID, error) { return e.Owner, nil })
	l.members = followDirectory(ctx, &wg, l, o.M.Keys.Members(), record.DecodeMemberEntry)
	l.jobs = followDirectory(ctx, &wg, l, o.M.Keys.Jobs(), func(e registry.Entry) (planning.JobRecord, error) {
		def, job, err := record.DecodeDefinition(e.Value)
		if err == nil {
			err = record.CheckJobOf(e.Key, job.Name)
		}
		return planning.JobRecord{Rev: e.Modified, Def: def, Job: job}, err
	})
	l.controls = followDirectory(ctx, &wg, l, o.M.Keys.Controls(), decodeControls)
	l.plans = o.plans.NewReader(l.wakeUp)
	defer l.plans.Close()
	return l.runRounds(ctx, &wg)
}

// followDirectory follows a directory for the length of the term.
func followDirectory[T any](ctx context.Context, wg *sync.WaitGroup, l *Leader, dir registry.Key, decode func(registry.Entry) (T, error)) *feed.Reader[T] {
	f := feed.New(dir, l.Log, decode)
	r := f.NewReader(l.wakeUp)
	wg.Go(func() {
		if err := f.Run(ctx, l.M.Reg); err != nil && ctx.Err() == nil {
			if !errors.Is(err, registry.ErrClosed) { // which ends the whole member, and is logged once
				l.Log.Error("leader cannot follow", "directory", string(dir), "error", err)
			}
			l.end(fmt.Errorf("follow %s: %w", dir, err))
		}
	})
	return r
}

// controls is what the directory of operators' intent holds: of a job, or of the group.
type controls struct {
	job   *record.Control
	group record.GroupControl
}

func decodeControls(e registry.Entry) (controls, error) {
	if e.Key.Name() != record.GroupSegment {
		c, err := record.DecodeControl(e.Value)
		if err == nil {
			err = record.CheckJobOf(e.Key, c.Job)
		}
		return controls{job: c}, err
	}
	c, err := record.DecodeGroupControl(e.Value)
	if err != nil {
		return controls{}, err
	}
	return controls{group: *c}, nil
}

func (l *Leader) wakeUp() {
	select {
	case l.Nudge <- struct{}{}:
	default:
	}
}

func (l *Leader) runRounds(ctx context.Context, wg *sync.WaitGroup) error {
	jitter := newJitter(l.M.Name, "planning unasked")
	tick := time.NewTimer(RegularCheck)
	defer tick.Stop()
	backoff := time.Duration(0)
	for {
		l.markBusy()
		err := l.runRound(ctx, wg)
		l.View.SlowTick = l.View.SlowTick && err != nil // a claim that came between is in the way of clearing
		switch {
		case errors.Is(err, errTermOver) || ctx.Err() != nil:
			return err
		case err != nil:
			backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
			l.recordFailure(err)
			l.Log.Debug("planning again", "after", backoff, "error", err)
			if !sleepContext(ctx, backoff) {
				return context.Cause(ctx)
			}
			continue
		}
		backoff = 0
		var overdue <-chan time.Time
		if !l.overdue.IsZero() {
			overdue = time.After(time.Until(l.overdue))
		}
		var answered <-chan time.Time
		if !l.JudgeAfter.IsZero() {
			answered = time.After(time.Until(l.JudgeAfter))
		}
		var search <-chan time.Time
		if at := earliest(l.rereadClaimsAt, earliest(l.incompleteTracker.nextDue(), l.rereadForeignAt)); !at.IsZero() {
			search = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.Nudge:
		case <-search:
		case <-overdue:
			l.idle, l.overdue = false, time.Time{} // the round that looks may be put off by doubt
		case <-answered:
			l.idle = false
		case <-tick.C:
			l.View.SlowTick = true
			l.requestComparison()
			l.forgetJustJoined()
			tick.Reset(RegularCheck + time.Duration((jitter.Float64()-0.5)*float64(RegularCheck)*2/5))
		}
	}
}

// earliest returns the earlier of two instants of which zero is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// runRound takes in what has changed, decides, and commits. An error asks for another round
// a little later.
func (l *Leader) runRound(ctx context.Context, wg *sync.WaitGroup) error {
	l.rereadForeign(ctx)
	if !l.updateView() {
		l.setTask("the first reading", "the group")
		return nil // the first snapshots are not all there
	}
	if err := l.checkIncomplete(ctx); err != nil {
		return err
	}
	if !l.rereadClaimsAt.IsZero() && !time.Now().Before(l.rereadClaimsAt) {
		l.idle = false
	}
	if l.idle && !l.View.NeedsClearing() {
		if err := l.publishSeat(ctx); err != nil {
			return err
		}
		l.markIdle()
		return nil
	}
	l.idle = false
	l.judgeClocks()
	if l.Doubtful(time.Now()) || !l.Elector.clockNotice().Names(l.View.Skewed) || !l.Elector.hasPublishedIncomplete() {
		if err := l.publishSeat(ctx); err != nil { // first of all: members that are named have to act
			return err
		}
	}
	if l.Doubtful(time.Now()) {
		l.markIdle()
		return nil
	}
	defer func() { clear(l.View.Reads) }() // each round looks for itself
	if err := l.restoreDefinitions(ctx); err != nil {
		return err
	}
	d, err := l.DecideWithReads(ctx, record.InstantOf(l.M.Clock()))
	if err != nil {
		return err
	}
	l.logPanics(d.StrategyErrors)
	l.scheduleReread()
	planned, err := l.CommitDecision(ctx, d)
	l.watchClaims(ctx, wg, d.Follow)
	l.overdue = time.Time{}
	if d.GraceEnds > 0 {
		l.overdue = time.Now().Add(d.GraceEnds)
	}
	if err != nil {
		return err
	}
	if planned {
		l.wakeUp() // what follows from it
	}
	if !planned || l.View.SlowTick { // shards that change hands come first, but not for ever
		if err := l.publishSeat(ctx); err != nil {
			return err
		}
	}
	l.idle = len(d.Changes) == 0 && len(d.Reapings) == 0 && len(d.Follow) == 0
	l.markIdle()
	return nil
}

// logPanics logs the stack of a strategy's panic, once for each text while the strategy fails.
func (l *Leader) logPanics(failed map[string]error) {
	panics := map[string]string{}
	for job, err := range failed {
		var p *strategy.PanicError
		if !errors.As(err, &p) {
			continue
		}
		panics[job] = p.Error()
		if l.panics[job] != p.Error() {
			l.Log.Error("strategy panicked", "job", job, "error", p, "stack", string(p.Stack))
		}
	}
	l.panics = panics
}

// updateView brings the view up to date, and reports whether it is whole.
func (l *Leader) updateView() bool {
	changed := false
	whole := l.instances.Drain(func(n feed.Update[registry.SessionID]) {
		changed = true
		l.observeInstance(n)
	})
	if changed { // few: the instances of a fleet
		l.idle = false
		clear(l.View.Live)
		for _, s := range l.instances.Feed.Values() {
			l.View.Live[s] = true
		}
		maps.DeleteFunc(l.View.JustJoined, func(inc string, _ bool) bool { return l.View.Alive(inc) })
	}
	whole = l.members.Drain(func(n feed.Update[record.Member]) {
		if l.applyWaiting(n) {
			return
		}
		l.noteJustJoined(n)
		l.observeMember(n)
		applyUpdate(l, l.View.Members, n, planning.MemberRecord{Rev: n.Rev, Member: n.Value})
		l.observeClock(n)
	}) && whole
	whole = l.jobs.Drain(func(n feed.Update[planning.JobRecord]) {
		applyUpdate(l, l.View.Jobs, n, n.Value)
		setMembership(l.badJobs, n.Name, n.Unreadable)
	}) && whole
	whole = l.controls.Drain(func(n feed.Update[controls]) {
		if n.Name == record.GroupSegment {
			l.idle = false
			l.View.GroupExclusion = n.Value.group.Exclusion // of nobody if it has gone or cannot be read
			return
		}
		applyUpdate(l, l.View.Control, n, planning.ControlRecord{Rev: n.Rev, Control: n.Value.job})
		setMembership(l.badControls, n.Name, n.Unreadable)
	}) && whole
	whole = l.plans.Drain(func(n feed.Update[*record.Plan]) {
		if l.detectPlanEdit(n) {
			return
		}
		delete(l.View.EditedPlans, n.Name)
		applyUpdate(l, l.View.Plans, n, planning.PlanRecord{Rev: n.Rev, Plan: n.Value})
		delete(l.BrokenPlans, n.Name)
		if n.Unreadable {
			l.BrokenPlans[n.Name] = true
			feed.LogUnreadable(l.Log, slog.LevelError, l.M.Keys.Plan(n.Name), n.Err)
		}
	}) && whole
	l.View.UnreadablePlans, l.View.UnreadableInputs = l.unreadablePlans(), l.unreadableInputs()
	l.synced = l.synced || whole
	return whole
}

// forgetJustJoined is for the slow tick.
func (l *Leader) forgetJustJoined() {
	l.idle = l.idle && len(l.View.JustJoined) == 0
	clear(l.View.JustJoined)
}

// noteJustJoined takes note of a member that was not there before and has not been seen alive. It
// owns nothing: nobody has dealt to it. So nothing is lost if it has died already, which a
// watch may leave out; the slow tick asks.
func (l *Leader) noteJustJoined(n feed.Update[record.Member]) {
	if n.Deleted || n.Unreadable {
		delete(l.View.JustJoined, n.Name)
	} else if _, known := l.View.Members[n.Name]; l.synced && !known && !l.View.Alive(n.Name) {
		l.View.JustJoined[n.Name] = true
	}
}

// setMembership adds a name to a set, or removes it.
func setMembership(set map[string]bool, name string, member bool) {
	if delete(set, name); member {
		set[name] = true
	}
}

func applyUpdate[T, V any](l *Leader, m map[string]V, n feed.Update[T], v V) {
	l.idle = false
	l.LastCommit = max(l.LastCommit, n.Rev.Seq)
	if n.Deleted || n.Unreadable {
		delete(m, n.Name)
		return
	}
	m[n.Name] = v
}

// DecideWithReads runs the planning function until it has seen all it needs to see. What it is sure
// to ask for it is given at once: the claims of the dead, and of those who run shards that
// wait to move.
func (l *Leader) DecideWithReads(ctx context.Context, now record.Instant) (planning.Decision, error) {
	l.View.Now = now
	wanted := l.View.ExpiredMembers()
	for inc := range l.WatchedClaims {
		if l.View.Alive(inc) {
			wanted = append(wanted, inc)
		}
	}
	l.View.Absences = l.measureAbsences()
	for {
		l.setTask("looks at claims", "")
		if err := l.readClaimsOfEach(ctx, wanted); err != nil {
			return planning.Decision{}, err
		}
		l.setTask("planning", "")
		d, err := l.runPlanning(ctx)
		if err != nil {
			return planning.Decision{}, err
		}
		if len(d.Reads) == 0 {
			return d, nil
		}
		wanted = d.Reads
	}
}

// parallelReads is how many incarnations a leader looks at together. One who joins is given
// shards of all others, and waits until all of them have been looked at.
const parallelReads = 16

// readClaimsOfEach looks at incarnations.
func (l *Leader) readClaimsOfEach(ctx context.Context, incarnations []string) error {
	var mu sync.Mutex
	return parallel.Each(ctx, parallelReads, incarnations, func(ctx context.Context, inc string) error {
		look, err := l.readClaims(ctx, inc)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		l.View.Reads[inc] = look
		return nil
	})
}

// readClaims reads an incarnation's claims.
func (l *Leader) readClaims(ctx context.Context, incarnation string) (planning.FreshRead, error) {
	out := planning.FreshRead{Seen: l.LastCommit, Claims: map[string]planning.ClaimsRecord{}, Unreadable: map[string]bool{}}
	listing, err := l.M.Reg.List(ctx, l.M.Keys.ClaimsOf(incarnation), Fresh)
	if err != nil {
		return planning.FreshRead{}, fmt.Errorf("look at claims of %s: %w", incarnation, err)
	}
	for _, e := range listing.Entries {
		claims, err := record.Decode[record.Claims](e.Value)
		if err == nil {
			err = record.CheckJobOf(e.Key, claims.Job)
		}
		if err != nil {
			l.logs.LogUnreadable(e, err)
			out.Unreadable[e.Key.Name()] = true
			continue
		}
		out.Claims[e.Key.Name()] = planning.ClaimsRecord{Rev: e.Modified, Claims: claims}
	}
	for key := range l.foreign {
		if key.Dir() == l.M.Keys.ClaimsOf(incarnation) {
			out.Unreadable[key.Name()] = true
		}
	}
	return out, nil
}

// CommitDecision sends what was decided, as few transactions as possible, and reports whether a
// plan was written. Burials rest on the plans, so they wait until those are written.
func (l *Leader) CommitDecision(ctx context.Context, d planning.Decision) (planned bool, err error) {
	term := []registry.Cond{registry.At(l.M.Keys.Leader(), l.View.Term)}
	shares := make(map[string]batch.Share, len(d.Changes))
	changes := slices.DeleteFunc(slices.Clone(d.Changes), func(c planning.Change) bool {
		c.NoteDecision(record.Decision{At: l.View.Now, Term: l.View.Term.Seq, By: l.M.Name})
		pc, err := c.EncodeShare(l.M.Keys)
		if err != nil {
			l.Log.Error("plan not written", "job", c.Plan.Job, "error", err)
			return true
		}
		shares[c.Segment] = pc
		return false
	})
	loads := batch.Pack(term, changes, l.M.Reg.Limits(),
		func(c planning.Change) batch.Share { return shares[c.Segment] }, func(c planning.Change) bool { return l.SentAlone[c.Segment] })
	var failed error
	l.setTask("the writing", "plans")
	for _, ld := range loads {
		rev, err := registry.Apply(ctx, l.M.Reg, ld.Txn)
		if err == nil {
			l.recordCommit(ld.Parts, rev)
			continue
		}
		if err := l.handleRefusal(ctx, ld, err); err != nil {
			return len(loads) > 0, err
		}
		failed = err
	}
	if len(loads) > 0 {
		return true, failed
	}
	return false, l.reapAll(ctx, d.Reapings, term)
}

// problemBefore returns the problem of a job's plan as it was before the changes of this round.
func (l *Leader) problemBefore(segment string) string {
	if p, ok := l.View.Plans[segment]; ok {
		return p.Problem
	}
	return ""
}

func (l *Leader) recordCommit(changes []planning.Change, rev registry.Rev) {
	l.recordAnswer()
	l.LastCommit = max(l.LastCommit, rev.Seq)
	for _, c := range changes {
		l.logs.RecordPlan(&c, rev.Seq, l.problemBefore(c.Segment))
		l.PlanFeed.RecordWrite(c.Segment, rev, c.Plan)
		l.recordPlan(c, rev)
		delete(l.SentAlone, c.Segment)
	}
}

// handleRefusal returns errTermOver if that is what the refusal means. Otherwise the change
// that it names goes alone next time, so that it holds up no other.
func (l *Leader) handleRefusal(ctx context.Context, ld batch.Load[planning.Change], err error) error {
	refusal, ok := batch.Conflict(err)
	if !ok {
		for _, c := range ld.Parts {
			l.unsure[c.Segment] = true
		}
		return err
	}
	if refusal.Index == 0 {
		return errTermOver
	}
	if part, ok := ld.Owner(refusal.Index); ok {
		c := ld.Parts[part]
		l.SentAlone[c.Segment] = true
		l.logs.LogConflict(ctx, l.M.Reg, c.Segment, c.Plan.Job, l.M.Keys.Plan(c.Segment))
		if refusal.Index < len(ld.Txn.If) && ld.Txn.If[refusal.Index].Kind == registry.CondDead {
			l.suspectOwner(c.Segment, ld.Txn.If[refusal.Index].Session)
		}
		return l.findForeignValue(ctx, ld.Txn, refusal.Index)
	}
	return nil
}

// reapAll removes what dead incarnations left.
func (l *Leader) reapAll(ctx context.Context, burials []planning.Reaping, term []registry.Cond) error {
	for _, b := range burials {
		buried, err := l.reapOne(ctx, b, term)
		if err != nil {
			return err
		}
		if buried {
			l.recordAnswer()
			delete(l.View.Members, b.Incarnation)
			l.logs.RecordReaping(b.Incarnation)
			l.removeIncarnation(b.Incarnation)
		}
	}
	return nil
}

// reapOne reports false for one that turns out to live, or to have left something else: it
// has just joined, and its instance has not been delivered yet. The view will tell; to
// plan again because of it would only delay what is planned.
func (l *Leader) reapOne(ctx context.Context, b planning.Reaping, term []registry.Cond) (buried bool, err error) {
	for _, ld := range b.PackLoads(l.M.Reg.Limits(), term) {
		_, err := registry.Apply(ctx, l.M.Reg, ld.Txn)
		refusal, refused := batch.Conflict(err)
		switch {
		case refused && refusal.Index == 0:
			return false, errTermOver
		case refused:
			l.Log.Debug("not buried", "incarnation", b.Incarnation, "error", err)
			return false, nil
		case err != nil:
			return false, fmt.Errorf("bury %s: %w", b.Incarnation, err)
		}
	}
	return true, nil
}

// watchClaims watches the claims of those who run shards that wait to move, and of no others.
func (l *Leader) watchClaims(ctx context.Context, wg *sync.WaitGroup, pending []string) {
	for inc, stop := range l.WatchedClaims {
		if !slices.Contains(pending, inc) {
			stop()
			delete(l.WatchedClaims, inc)
		}
	}
	for _, inc := range pending {
		if _, ok := l.WatchedClaims[inc]; ok {
			continue
		}
		fctx, stop := context.WithCancel(ctx)
		l.WatchedClaims[inc] = stop
		wg.Go(func() {
			registry.Follow(fctx, l.M.Reg, l.M.Keys.ClaimsOf(inc), func(registry.Batch) error {
				l.wakeUp()
				return nil
			})
		})
	}
}

// Successors returns who should take the office when it falls vacant, in order.
func (l *Leader) Successors() []string {
	var out []string
	for inc, m := range l.View.Members {
		if _, off := l.View.Skewed[inc]; !off && inc != l.Me && !m.Draining && l.View.Alive(inc) {
			out = append(out, inc)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxSuccessors)]
}

// maxSuccessors is how many are named: enough for the first ones to die with the leader.
const maxSuccessors = 3
