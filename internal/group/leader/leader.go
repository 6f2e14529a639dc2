package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/eventlog"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/group/skew"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// RegularCheck is the interval, give or take a fifth, at which a leader plans although nothing has
// changed, and drops entries of plans that are served.
const RegularCheck = 30 * time.Second

// Leader leads a group for one term. It belongs to one goroutine.
type Leader struct {
	differing    map[string]record.Duration // the other clock of two, if they differ
	aheadOfStore record.Duration            // of this clock, in a fleet of one or two, if it differs
	Self         elector.Self
	Elector      *elector.Elector
	Log          *slog.Logger
	logs         *eventlog.PlanLog
	Nudge        chan struct{} // one slot: the view has changed
	end          context.CancelCauseFunc
	Progress     *elector.Progress

	View        planning.View
	synced      bool            // all feeds have delivered a snapshot: a member that appears from now on has just joined
	idle        bool            // the last decision was empty, and the view has not changed since
	LastCommit  uint64          // the newest commit that the view contains
	BrokenPlans map[string]bool // segments whose plan cannot be read
	SentAlone   map[string]bool // segments whose last change conflicted: the next one is sent in a transaction of its own

	instances     *feed.Reader[registry.SessionID]
	members       *feed.Reader[record.Member]
	jobs          *feed.Reader[planning.JobRecord]
	defined       definedJobs
	pools         poolDealer
	poolSizes     *PoolSizes
	controls      *feed.Reader[controls]
	ends          *feed.Reader[ends]
	endsByName    map[string]ends
	reportedFires map[string]uint64 // by segment: the number of the last ended fire that was reported
	plans         *feed.Reader[*record.Plan]
	PlanFeed      *feed.Feed[*record.Plan]
	WatchedClaims map[string]func() // by incarnation: ends the watch of its claims, while a move waits for one of its runs
	absences      map[string]absence
	clocks        skew.Comparison
	incomplete    incompleteTracker
	Edits         *Edits
	overdue       time.Time // when the next restart grace or pause ends; zero: there is none

	panics map[string]string // by job: the panic of its strategy that was logged last
}

// LeadByPlans returns the function that leads for one term: it follows the records that planning
// depends on, and commits the plans that they require. It returns when ctx ends or the term is
// over. plans is the feed of plans; sizes receives the sizes of pools during the term.
func LeadByPlans(plans *feed.Feed[*record.Plan], sizes *PoolSizes) elector.Lead {
	return func(ctx context.Context, e *elector.Elector, term registry.Rev, p *elector.Progress) error {
		return leadTerm(ctx, e, term, p, plans, sizes)
	}
}

func leadTerm(ctx context.Context, elector *elector.Elector, term registry.Rev, p *elector.Progress, plans *feed.Feed[*record.Plan], sizes *PoolSizes) error {
	ctx, end := context.WithCancelCause(ctx)
	l := &Leader{
		Self: elector.Self, Elector: elector, Log: elector.Log.With("term", term.Seq), Nudge: make(chan struct{}, 1), end: end, Progress: p,
		BrokenPlans: map[string]bool{}, SentAlone: map[string]bool{}, WatchedClaims: map[string]func(){}, PlanFeed: plans, poolSizes: sizes,
		endsByName: map[string]ends{}, reportedFires: map[string]uint64{},
		View: planning.View{
			Group: planning.GroupRecord{GroupControl: &record.GroupControl{}}, // until one is delivered
			Keys:  elector.Self.Keys, ListByKey: elector.Self.Reg.Limits().ListByKey, Term: term, Skew: elector.Self.MaxSkew, Compile: elector.Self.Compile, Strategies: elector.Self.Strategies,
			OnStrategyCall: func(strategy, job string) { p.SetTask("strategy "+strategy, "job "+job) },
			Live:           map[registry.SessionID]bool{}, Members: map[string]planning.MemberRecord{}, JustJoined: map[string]bool{}, Jobs: map[string]planning.JobRecord{},
			Control: map[string]planning.ControlRecord{}, Plans: map[string]planning.PlanRecord{}, Reads: map[string]planning.FreshRead{}, PartReads: map[string]planning.FreshRead{}, EditedPlans: map[string]bool{},
			Ends: map[string]planning.EndsOfJob{}, Defined: map[string]planning.DefinedRecord{},
		},
	}
	l.Edits = NewEdits(l.Self.Reg, l.Self.Keys, l.Log)
	l.logs = eventlog.NewPlanLog(l.Log)
	defer l.logs.Flush()
	defer sizes.Store(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end(nil)
	if elector.Self.ComparesClocks {
		l.clocks, l.View.Skewed = skew.NewComparison(time.Now(), elector.Self.Clock(), term.Seq), elector.ClockNotice().Skewed
	}
	l.instances = followDirectory(ctx, &wg, l, elector.Self.Keys.Instances(), func(e registry.Entry) (registry.SessionID, error) { return e.Owner, nil })
	l.members = followDirectory(ctx, &wg, l, elector.Self.Keys.Members(), record.DecodeMemberEntry)
	l.jobs = followDirectory(ctx, &wg, l, elector.Self.Keys.Jobs(), func(e registry.Entry) (planning.JobRecord, error) {
		def, job, err := record.DecodeDefinition(e.Value)
		if err == nil {
			err = record.CheckJobOf(e.Key, job.Name)
		}
		return planning.JobRecord{Rev: e.Modified, Def: def, Job: job}, err
	})
	l.controls = followDirectory(ctx, &wg, l, elector.Self.Keys.Controls(), decodeControls)
	l.defined.kinds = followDirectory(ctx, &wg, l, elector.Self.Keys.Kinds(), decodeKindCounts)
	l.ends = followDirectory(ctx, &wg, l, elector.Self.Keys.Ends(), decodeEnds(elector.Self.Keys))
	l.plans = plans.NewReader(l.wakeUp)
	defer l.plans.Close()
	defer l.keepIntents()
	return l.runRounds(ctx, &wg)
}

// followDirectory follows a directory during the term. If the watch fails for good, the term ends.
func followDirectory[T any](ctx context.Context, wg *sync.WaitGroup, l *Leader, dir registry.Key, decode func(registry.Entry) (T, error)) *feed.Reader[T] {
	f := feed.New(dir, l.Log, decode)
	r := f.NewReader(l.wakeUp)
	wg.Go(func() {
		if err := f.Run(ctx, l.Self.Reg); err != nil && ctx.Err() == nil {
			if !errors.Is(err, registry.ErrClosed) { // this ends the whole member, which logs it once
				l.Log.Error("leader cannot watch a directory; its term ends", "directory", string(dir), "error", err)
			}
			l.end(fmt.Errorf("follow %s: %w", dir, err))
		}
	})
	return r
}

// wakeUp requests a round. It does not block.
func (l *Leader) wakeUp() { parallel.Signal(l.Nudge) }

// runRounds runs rounds until the term is over. Between rounds it waits for a change of the view or
// for the next thing that is due by time.
func (l *Leader) runRounds(ctx context.Context, wg *sync.WaitGroup) error {
	jitter := elector.NewJitter(l.Self.Name, "planning unasked")
	tick := time.NewTimer(RegularCheck)
	defer tick.Stop()
	backoff := time.Duration(0)
	for {
		l.Progress.MarkBusy()
		err := l.runRound(ctx, wg)
		l.View.SlowTick = l.View.SlowTick && err != nil // a conflict with a claim keeps the dropping of served entries for the next round
		switch {
		case errors.Is(err, elector.ErrTermOver) || ctx.Err() != nil:
			return err
		case err != nil:
			backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
			l.Progress.RecordFailure(err)
			l.Log.Debug("round failed; retrying", "after", backoff, "error", err)
			select {
			case <-time.After(backoff):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		backoff = 0
		var due <-chan time.Time
		if at := l.nextDue(); !at.IsZero() {
			due = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.Nudge:
		case <-due:
			l.noteDue(time.Now())
		case <-tick.C:
			l.View.SlowTick, l.View.RestTick = true, true
			l.requestComparison()
			l.forgetJustJoined()
			tick.Reset(RegularCheck + time.Duration((jitter.Float64()-0.5)*float64(RegularCheck)*2/5))
		}
	}
}

// nextDue returns when the leader has something to do by time, other than its regular check; zero: never.
func (l *Leader) nextDue() (at time.Time) {
	for _, t := range []time.Time{l.overdue, l.clocks.JudgeAfter, l.Edits.nextDue(), l.incomplete.nextDue(), l.nextStep(), l.pools.next} {
		at = earliest(at, t)
	}
	return at
}

// noteDue makes the next round decide if planning or the comparison of clocks is due. The round itself finds out what else is.
func (l *Leader) noteDue(now time.Time) {
	if !l.overdue.IsZero() && !now.Before(l.overdue) {
		l.idle, l.overdue = false, time.Time{} // the next round may be put off while clocks are in doubt
	}
	if after := l.clocks.JudgeAfter; !after.IsZero() && !now.Before(after) {
		l.idle = false
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
	if l.Edits.reread(ctx, time.Now()) {
		l.idle = false
	}
	if !l.updateView() {
		l.Progress.SetTask("the first snapshot", "the group")
		return nil
	}
	l.updateDefined(ctx, wg)
	if err := l.StepDefined(ctx); err != nil {
		return err
	}
	if err := l.stepPools(ctx, wg); err != nil {
		return err
	}
	if err := l.checkIncomplete(ctx); err != nil {
		return err
	}
	if l.idle && !l.View.NeedsClearing() && !(l.View.RestTick && len(l.View.Defined) > 0) {
		if err := l.publishSeat(ctx); err != nil {
			return err
		}
		l.Progress.MarkIdle()
		return nil
	}
	l.idle = false
	l.judgeClocks()
	if l.clocks.HoldsAssignments(time.Now()) || !l.Elector.ClockNotice().NamesSame(l.clockNotice()) || !l.Elector.HasPublishedIncomplete() {
		if err := l.publishSeat(ctx); err != nil { // first, since members that the seat record names must react
			return err
		}
	}
	if l.clocks.HoldsAssignments(time.Now()) {
		l.Progress.MarkIdle()
		return nil
	}
	defer func() { // fresh reads serve one round only
		clear(l.View.Reads)
		clear(l.View.PartReads)
	}()
	if err := l.restoreRecords(ctx); err != nil {
		return err
	}
	d, err := l.DecideWithReads(ctx, record.InstantOf(l.Self.Clock()))
	if err != nil {
		return err
	}
	l.logPanics(d.StrategyErrors)
	l.Edits.scheduleReread(&l.View)
	l.View.RestTick = d.MoreRests
	planned, err := l.CommitDecision(ctx, d)
	l.watchClaims(ctx, wg, d.Follow)
	l.overdue = time.Time{}
	for _, wait := range []time.Duration{d.GraceEnds, d.PauseEnds} {
		if wait > 0 {
			l.overdue = earliest(l.overdue, time.Now().Add(wait))
		}
	}
	if err != nil {
		return err
	}
	if planned || d.MoreRests {
		l.wakeUp() // the new plans may call for more, such as moves after a freeze
	}
	if !planned || l.View.SlowTick { // moves of shards go first, but cannot keep a successor from being named for longer than a regular check
		if err := l.publishSeat(ctx); err != nil {
			return err
		}
	}
	l.idle = len(d.Changes) == 0 && len(d.Reapings) == 0 && len(d.Follow) == 0 && len(d.EndedPauses) == 0 && len(d.Retirements)+len(d.Rests) == 0 && !l.Edits.refused
	l.Progress.MarkIdle()
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

// Successors returns the candidates that act first when the seat is free, in order.
func (l *Leader) Successors() []string {
	var out []string
	for inc, m := range l.View.Members {
		if _, skewed := l.View.Skewed[inc]; !skewed && inc != l.Self.ID && !m.Draining && l.View.Alive(inc) {
			out = append(out, inc)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxSuccessors)]
}

// maxSuccessors is how many successors a leader names. Some may crash with the leader.
const maxSuccessors = 3
