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

// RegularCheck is the interval, give or take a fifth, at which a leader plans although nothing has
// changed, and drops entries of plans that are served.
const RegularCheck = 30 * time.Second

// errTermOver ends a term: the leader record has been written since, or this process stops leading.
var errTermOver = errors.New("term over")

// Leader leads a group for one term. It belongs to one goroutine.
type Leader struct {
	M       *Member
	Me      string // its incarnation
	Elector *Elector
	Log     *slog.Logger
	logs    *eventlog.PlanLog
	Nudge   chan struct{} // one slot: the view has changed
	end     context.CancelCauseFunc
	*Progress

	View        planning.View
	synced      bool            // all feeds have delivered a snapshot: a member that appears from now on has just joined
	idle        bool            // the last decision was empty, and the view has not changed since
	LastCommit  uint64          // the newest commit that the view contains
	BrokenPlans map[string]bool // segments whose plan cannot be read
	SentAlone   map[string]bool // segments whose last change conflicted: the next one is sent in a transaction of its own

	instances     *feed.Reader[registry.SessionID]
	members       *feed.Reader[record.Member]
	jobs          *feed.Reader[planning.JobRecord]
	controls      *feed.Reader[controls]
	plans         *feed.Reader[*record.Plan]
	PlanFeed      *feed.Feed[*record.Plan]
	WatchedClaims map[string]func() // by incarnation: ends the watch of its claims, while a move waits for one of its runs
	absences      map[string]absence
	skew.Comparison
	incompleteTracker
	*Restorer
	overdue time.Time // when the next restart grace ends; zero: there is none

	panics map[string]string // by job: the panic of its strategy that was logged last
}

// leadTerm leads for one term: it follows the records that planning depends on, and commits the
// plans that they require. It returns when ctx ends or the term is over.
func leadTerm(ctx context.Context, elector *Elector, term registry.Rev, p *Progress) error {
	ctx, end := context.WithCancelCause(ctx)
	l := &Leader{
		M: elector.M, Me: elector.In.ID, Elector: elector, Log: elector.Log.With("term", term.Seq), Nudge: make(chan struct{}, 1), end: end, Progress: p,
		BrokenPlans: map[string]bool{}, SentAlone: map[string]bool{}, WatchedClaims: map[string]func(){}, PlanFeed: elector.plans,
		Restorer: NewRestorer(),
		View: planning.View{
			Keys: elector.M.Keys, Term: term, Skew: elector.M.maxSkew, Compile: elector.M.Work.Compile, Strategies: elector.M.strategies,
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
	if elector.M.comparesClocks {
		l.Comparison, l.View.Skewed = skew.NewComparison(time.Now(), elector.M.Clock(), term.Seq), elector.clockNotice().Skewed
	}
	l.instances = followDirectory(ctx, &wg, l, elector.M.Keys.Instances(), func(e registry.Entry) (registry.SessionID, error) { return e.Owner, nil })
	l.members = followDirectory(ctx, &wg, l, elector.M.Keys.Members(), record.DecodeMemberEntry)
	l.jobs = followDirectory(ctx, &wg, l, elector.M.Keys.Jobs(), func(e registry.Entry) (planning.JobRecord, error) {
		def, job, err := record.DecodeDefinition(e.Value)
		if err == nil {
			err = record.CheckJobOf(e.Key, job.Name)
		}
		return planning.JobRecord{Rev: e.Modified, Def: def, Job: job}, err
	})
	l.controls = followDirectory(ctx, &wg, l, elector.M.Keys.Controls(), decodeControls)
	l.plans = elector.plans.NewReader(l.wakeUp)
	defer l.plans.Close()
	return l.runRounds(ctx, &wg)
}

// followDirectory follows a directory during the term. If the watch fails for good, the term ends.
func followDirectory[T any](ctx context.Context, wg *sync.WaitGroup, l *Leader, dir registry.Key, decode func(registry.Entry) (T, error)) *feed.Reader[T] {
	f := feed.New(dir, l.Log, decode)
	r := f.NewReader(l.wakeUp)
	wg.Go(func() {
		if err := f.Run(ctx, l.M.Reg); err != nil && ctx.Err() == nil {
			if !errors.Is(err, registry.ErrClosed) { // this ends the whole member, which logs it once
				l.Log.Error("leader cannot watch a directory; its term ends", "directory", string(dir), "error", err)
			}
			l.end(fmt.Errorf("follow %s: %w", dir, err))
		}
	})
	return r
}

// controls is a record of the control directory: the operators' intent for a job or for the group.
type controls struct {
	job   *record.Control // nil: the record is the group's
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

// wakeUp requests a round. It does not block.
func (l *Leader) wakeUp() {
	select {
	case l.Nudge <- struct{}{}:
	default:
	}
}

// runRounds runs rounds until the term is over. Between rounds it waits for a change of the view or
// for the next thing that is due by time.
func (l *Leader) runRounds(ctx context.Context, wg *sync.WaitGroup) error {
	jitter := newJitter(l.M.Name, "planning unasked")
	tick := time.NewTimer(RegularCheck)
	defer tick.Stop()
	backoff := time.Duration(0)
	for {
		l.markBusy()
		err := l.runRound(ctx, wg)
		l.View.SlowTick = l.View.SlowTick && err != nil // a conflict with a claim keeps the dropping of served entries for the next round
		switch {
		case errors.Is(err, errTermOver) || ctx.Err() != nil:
			return err
		case err != nil:
			backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
			l.recordFailure(err)
			l.Log.Debug("round failed; retrying", "after", backoff, "error", err)
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
			l.idle, l.overdue = false, time.Time{} // the next round may be put off while clocks are in doubt
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

// earliest returns the earlier of two instants. A zero instant does not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// runRound updates the view, decides, and commits. After an error runRounds retries with a backoff.
func (l *Leader) runRound(ctx context.Context, wg *sync.WaitGroup) error {
	l.rereadForeign(ctx)
	if !l.updateView() {
		l.setTask("the first snapshot", "the group")
		return nil
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
	if l.HoldsAssignments(time.Now()) || !l.Elector.clockNotice().NamesSame(l.View.Skewed) || !l.Elector.hasPublishedIncomplete() {
		if err := l.publishSeat(ctx); err != nil { // first, since members that the seat record names must react
			return err
		}
	}
	if l.HoldsAssignments(time.Now()) {
		l.markIdle()
		return nil
	}
	defer func() { clear(l.View.Reads) }() // fresh reads serve one round only
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
		l.wakeUp() // the new plans may call for more, such as moves after a freeze
	}
	if !planned || l.View.SlowTick { // moves of shards go first, but cannot keep a successor from being named for longer than a regular check
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

// updateView applies the changes that the feeds have delivered, and reports whether all feeds have
// delivered a snapshot.
func (l *Leader) updateView() bool {
	changed := false
	synced := l.instances.Drain(func(n feed.Update[registry.SessionID]) {
		changed = true
		l.observeInstance(n)
	})
	if changed {
		l.idle = false
		clear(l.View.Live)
		for _, s := range l.instances.Feed.Values() {
			l.View.Live[s] = true
		}
		maps.DeleteFunc(l.View.JustJoined, func(inc string, _ bool) bool { return l.View.Alive(inc) })
	}
	synced = l.members.Drain(func(n feed.Update[record.Member]) {
		if l.applyWaiting(n) {
			return
		}
		l.noteJustJoined(n)
		l.observeMember(n)
		applyUpdate(l, l.View.Members, n, planning.MemberRecord{Rev: n.Rev, Member: n.Value})
		l.observeClock(n)
	}) && synced
	synced = l.jobs.Drain(func(n feed.Update[planning.JobRecord]) {
		applyUpdate(l, l.View.Jobs, n, n.Value)
		setMembership(l.badJobs, n.Name, n.Unreadable)
	}) && synced
	synced = l.controls.Drain(func(n feed.Update[controls]) {
		if n.Name == record.GroupSegment {
			l.idle = false
			l.View.GroupExclusion = n.Value.group.Exclusion // empty if the record was deleted or cannot be read
			return
		}
		applyUpdate(l, l.View.Control, n, planning.ControlRecord{Rev: n.Rev, Control: n.Value.job})
		setMembership(l.badControls, n.Name, n.Unreadable)
	}) && synced
	synced = l.plans.Drain(func(n feed.Update[*record.Plan]) {
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
	}) && synced
	l.View.UnreadablePlans, l.View.UnreadableInputs = l.unreadablePlans(), l.unreadableInputs()
	l.synced = l.synced || synced
	return synced
}

// forgetJustJoined makes the regular check treat members that joined without a live session as
// expired.
func (l *Leader) forgetJustJoined() {
	l.idle = l.idle && len(l.View.JustJoined) == 0
	clear(l.View.JustJoined)
}

// noteJustJoined records a new member whose instance key the other watch has not delivered yet. Such
// a member is not expired. If its session has ended meanwhile, a watch may never show the instance
// key; the regular check covers that, and until then nothing is lost, as the member owns no shard.
func (l *Leader) noteJustJoined(n feed.Update[record.Member]) {
	if n.Deleted || n.Unreadable {
		delete(l.View.JustJoined, n.Name)
	} else if _, known := l.View.Members[n.Name]; l.synced && !known && !l.View.Alive(n.Name) {
		l.View.JustJoined[n.Name] = true
	}
}

// setMembership adds a name to a set if member is true, and removes it otherwise.
func setMembership(set map[string]bool, name string, member bool) {
	if delete(set, name); member {
		set[name] = true
	}
}

// applyUpdate stores the update of a record in a map of the view.
func applyUpdate[T, V any](l *Leader, m map[string]V, n feed.Update[T], v V) {
	l.idle = false
	l.LastCommit = max(l.LastCommit, n.Rev.Seq)
	if n.Deleted || n.Unreadable {
		delete(m, n.Name)
		return
	}
	m[n.Name] = v
}

// DecideWithReads runs the planning function until it requests no more fresh reads. The claims of
// expired members, and of members that run shards which wait to move, are always requested, so they
// are read at the start.
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
		l.setTask("fresh reads", "claims")
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

// parallelReads bounds the concurrent fresh reads. A joining member gets shards of all others, and
// waits until the claims of all of them have been read.
const parallelReads = 16

// readClaimsOfEach makes a fresh read of the claims of each incarnation.
func (l *Leader) readClaimsOfEach(ctx context.Context, incarnations []string) error {
	var mu sync.Mutex
	return parallel.Each(ctx, parallelReads, incarnations, func(ctx context.Context, inc string) error {
		read, err := l.readClaims(ctx, inc)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		l.View.Reads[inc] = read
		return nil
	})
}

// readClaims makes a fresh read of an incarnation's claims. Seen is the newest commit that was known
// before the read began.
func (l *Leader) readClaims(ctx context.Context, incarnation string) (planning.FreshRead, error) {
	out := planning.FreshRead{Seen: l.LastCommit, Claims: map[string]planning.ClaimsRecord{}, Unreadable: map[string]bool{}}
	listing, err := l.M.Reg.List(ctx, l.M.Keys.ClaimsOf(incarnation), Fresh)
	if err != nil {
		return planning.FreshRead{}, fmt.Errorf("read claims of %s: %w", incarnation, err)
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

// CommitDecision commits a decision in as few transactions as possible, and reports whether it sent
// plans. Reapings depend on the plans, so they wait for a round that has none to write.
func (l *Leader) CommitDecision(ctx context.Context, d planning.Decision) (planned bool, err error) {
	term := []registry.Cond{registry.At(l.M.Keys.Leader(), l.View.Term)}
	shares := make(map[string]batch.Items, len(d.Changes))
	changes := slices.DeleteFunc(slices.Clone(d.Changes), func(c planning.Change) bool {
		c.NoteDecision(record.Decision{At: l.View.Now, Term: l.View.Term.Seq, By: l.M.Name})
		pc, err := c.EncodeShare(l.M.Keys)
		if err != nil {
			l.Log.Error("plan cannot be written; the job keeps its present plan", "job", c.Plan.Job, "error", err)
			return true
		}
		shares[c.Segment] = pc
		return false
	})
	loads := batch.Pack(term, changes, l.M.Reg.Limits(),
		func(c planning.Change) batch.Items { return shares[c.Segment] }, func(c planning.Change) bool { return l.SentAlone[c.Segment] })
	var failed error
	l.setTask("writes", "plans")
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

// problemBefore returns the problem of a job's plan before the changes of this round.
func (l *Leader) problemBefore(segment string) string {
	if p, ok := l.View.Plans[segment]; ok {
		return p.Problem
	}
	return ""
}

// recordCommit applies committed changes to the view without waiting for their events.
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

// handleRefusal returns errTermOver if the term's condition failed. Otherwise it has the change that
// conflicted sent alone the next time, so that it holds up no other.
func (l *Leader) handleRefusal(ctx context.Context, ld batch.Load[planning.Change], err error) error {
	refusal, ok := batch.FindConflict(err)
	if !ok {
		for _, c := range ld.Parts {
			l.unsure[c.Segment] = true
		}
		return err
	}
	if refusal.Index == 0 {
		return errTermOver
	}
	if part, ok := ld.PartOf(refusal.Index); ok {
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

// reapAll deletes the records of expired incarnations.
func (l *Leader) reapAll(ctx context.Context, reapings []planning.Reaping, term []registry.Cond) error {
	for _, b := range reapings {
		reaped, err := l.reapOne(ctx, b, term)
		if err != nil {
			return err
		}
		if reaped {
			l.recordAnswer()
			delete(l.View.Members, b.Incarnation)
			l.logs.RecordReaping(b.Incarnation)
			l.removeIncarnation(b.Incarnation)
		}
	}
	return nil
}

// reapOne deletes the records of an incarnation. It reports false if the store refuses, since the
// session lives or the records differ from the view: the incarnation has just joined, and the watch
// has not delivered its instance key yet. That is no error, as a retry would only delay the plans.
func (l *Leader) reapOne(ctx context.Context, b planning.Reaping, term []registry.Cond) (reaped bool, err error) {
	for _, ld := range b.PackLoads(l.M.Reg.Limits(), term) {
		_, err := registry.Apply(ctx, l.M.Reg, ld.Txn)
		refusal, refused := batch.FindConflict(err)
		switch {
		case refused && refusal.Index == 0:
			return false, errTermOver
		case refused:
			l.Log.Debug("not reaped", "incarnation", b.Incarnation, "error", err)
			return false, nil
		case err != nil:
			return false, fmt.Errorf("reap %s: %w", b.Incarnation, err)
		}
	}
	return true, nil
}

// watchClaims watches the claims of the pending incarnations, which run shards that wait to move, and
// of no others.
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

// Successors returns the candidates that act first when the seat is free, in order.
func (l *Leader) Successors() []string {
	var out []string
	for inc, m := range l.View.Members {
		if _, skewed := l.View.Skewed[inc]; !skewed && inc != l.Me && !m.Draining && l.View.Alive(inc) {
			out = append(out, inc)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxSuccessors)]
}

// maxSuccessors is how many successors a leader names. Some may crash with the leader.
const maxSuccessors = 3
