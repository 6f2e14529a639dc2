package member

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/leader"
	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Member is the part of a process in a group. It joins, takes part in elections, plans while it
// leads, claims the fires of its shards, and joins again under another incarnation when its
// session is lost.
//
// Some fields are exported only for package explore.
type Member struct {
	Reg            registry.Registry
	Keys           record.Keys
	Name           string
	group          string
	host           string // "": unknown
	ttl            time.Duration
	maxSkew        time.Duration
	Clock          func() time.Time // of day
	comparesClocks bool
	grace          time.Duration
	labels         map[string]string
	weight         int
	strategies     map[string]strategy.Func // by name, with the built-in ones
	Work           claimer.Work
	events         event.Hooks
	Log            *slog.Logger
	Blocked        claimer.BlockedShards
	planning       elector.PlanningCalls
	seen           storeMemory   // owned by the goroutine of Run
	leaveRequested chan struct{} // closed by Leave
	leaveOnce      sync.Once

	superseded        supersededDefinitions // owned by the goroutine that stores definitions
	reportedUnchecked atomic.Bool           // that the clock cannot be checked

	mu            mutex.Mutex
	Defs          map[string]json.RawMessage // offered, by job
	revisions     map[string]int             // of Defs, by job
	kinds         map[string]record.Kind     // of which all jobs are offered, by name
	locals        map[string]string          // what identifies the local parts of Defs, by job
	unsupported   map[string]bool            // jobs with a definition in force that cannot be compiled here
	ahead         map[string]record.Ahead    // by job: the claims that are ahead of this clock
	waiting       map[string]record.Waiting  // by job: runs that have waited long for a worker
	recordVersion int                        // grows with each change that the member record has to show
	offerVersion  int                        // grows with Offer: definitions may have to be stored
	Draining      bool
	current       *Incarnation                // nil: not in the group
	hasJoined     bool                        // there has been an incarnation
	lostAt        time.Time                   // when the last incarnation ended; zero: there was none
	joinStep      string                      // the present step of joining, for the log
	ownSessions   map[registry.SessionID]bool // of this process since it last joined
	reportedMeta  bool                        // an unreadable namespace record has been logged
	changed       chan struct{}               // closed when current, or the published state of it, changes
	runErr        error                       // why Run ended
}

// Incarnation is a member under one session.
type Incarnation struct {
	ID           string
	Session      registry.Session
	Claimer      *claimer.Claimer
	Elector      *elector.Elector
	plans        *feed.Feed[*record.Plan]
	poolSizes    leader.PoolSizes // while it leads
	publishNudge chan struct{}    // one slot: the member record may have to change
	joinCommit   uint64           // the commit that created its records
	metaID       string           // the ID of the namespace's records
	namespace    claimer.Namespace

	// The control records that the incarnation knew at the end of its last term. Written by the loops,
	// read when they have ended.
	controls map[string]*record.Control
	group    *record.GroupControl

	// Guarded by Member.mu.
	publishedVersion int             // the Member.recordVersion that the member record shows
	drainPublished   bool            // the member record shows that it drains
	answeredReading  record.Instant  // the reading of a leader's clock to answer; zero: none
	clockDifference  record.Duration // how far this clock was ahead of answeredReading
	checkRequested   bool            // maintainRecord has to check the incarnation's records
}

// Instance returns the member's name.
func (m *Member) Instance() string { return m.Name }

// Incarnation returns the ID of the present incarnation, "" if the member is not in the group.
func (m *Member) Incarnation() string {
	if in := m.presentIncarnation(); in != nil {
		return in.ID
	}
	return ""
}

// presentIncarnation returns the present incarnation, nil if the member is not in the group.
func (m *Member) presentIncarnation() *Incarnation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

// Run takes part in the group until Leave is called or ctx ends. The end of ctx cancels the
// contexts of runs and closes the session without waiting for the runs to return. For an orderly
// shutdown call Drain, then Leave. After a lost session Run opens another one and joins again.
func (m *Member) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	returned := make(chan struct{})
	defer close(returned)
	go func() {
		select {
		case <-m.leaveRequested:
			defer m.logSlowShutdown("the end of the session", true)()
			cancel(ErrLeft)
			<-returned
		case <-ctx.Done():
		}
	}()
	m.setJoinStep("the store to open a session")
	defer m.logSlowJoin()()
	var err error
	for {
		err = registry.KeepSession(ctx, m.Reg, registry.SessionOptions{TTL: m.ttl}, m.runIncarnation)
		if ctx.Err() != nil || !m.shouldRejoin(err) {
			break
		}
		m.Log.Warn("session cannot be used; joining again under a new one", "error", err)
		if !sleepContext(ctx, claimer.RefusedRetryDelay) {
			break
		}
	}
	m.logLeft(context.Cause(ctx))
	if errors.Is(context.Cause(ctx), ErrLeft) {
		err = nil // Leave canceled whatever failed
	}
	m.mu.Lock()
	if m.runErr = err; err == nil {
		m.runErr = ErrLeft
	}
	m.notifyChangeLocked()
	m.mu.Unlock()
	return err
}

// shouldRejoin reports whether to join again after err. A member that has been in the group also
// waits for a full store to have room again; one that starts fails.
func (m *Member) shouldRejoin(err error) bool {
	if errors.Is(err, registry.ErrSessionLost) {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hasJoined && errors.Is(err, registry.ErrQuota)
}

// runIncarnation joins the group under a session and runs the loops of the incarnation. It
// returns the first error of a loop.
func (m *Member) runIncarnation(ctx context.Context, s registry.Session) error {
	ctx, end := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer end(nil)
	task := func(f func(context.Context) error) {
		tasks.Go(func() { end(f(ctx)) }) // the first to return ends all
	}
	log := m.Log.With("session", string(s.ID()))
	plans := feed.New(m.Keys.Plans(), log, record.DecodePlanEntry)
	plans.UnreadableLevel = slog.LevelDebug // the leader and the owners log unreadable plans
	// The plans are read while the member joins, so that joining takes no longer for it.
	task(func(ctx context.Context) error { return plans.Run(ctx, m.Reg) })

	in := &Incarnation{ID: record.Incarnation(m.Name, s.ID()), Session: s, plans: plans, publishNudge: make(chan struct{}, 1)}
	m.mu.Lock()
	m.ownSessions[s.ID()] = true
	m.mu.Unlock()
	m.Blocked.BeginIncarnation()
	// The claimer of this incarnation finds out anew which definitions and claims are affected.
	m.changeState(func() { m.unsupported, m.ahead = map[string]bool{}, map[string]record.Ahead{} })
	m.setJoinStep("the records of the namespace, the definitions, and the name")
	published, err := m.enterNamespace(ctx, in)
	if err != nil {
		end(err)
		return context.Cause(ctx) // an earlier error of the feed of plans may be the cause
	}
	in.joinCommit = published.Rev.Seq
	in.Claimer = claimer.New(m.configureClaimer(in, log), plans)
	in.Elector = elector.New(m.describeSelf(in), leader.LeadByPlans(plans, &in.poolSizes), log)

	m.logJoined(log, published.Member.Jobs)
	event.Report(m.events.Session, event.Session{ID: s.ID(), State: event.SessionJoined})
	m.setIncarnation(in)
	task(in.Claimer.Run)
	task(in.Elector.RunElections)
	task(func(ctx context.Context) error { return m.maintainRecord(ctx, in, published) })
	task(func(ctx context.Context) error { return m.reportSessionStates(ctx, log, in) })
	<-ctx.Done()
	m.setIncarnation(nil)
	tasks.Wait()
	m.remember(in)
	m.reportIncarnationEnd(log, in, context.Cause(ctx))
	return context.Cause(ctx)
}

// setIncarnation sets the present incarnation; nil means that the member is not in the group.
func (m *Member) setIncarnation(in *Incarnation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current, m.hasJoined = in, true
	m.notifyChangeLocked()
}

// notifyChangeLocked wakes goroutines that wait for the member's state to change.
func (m *Member) notifyChangeLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// awaitCondition waits until ok returns true. It calls ok with m.mu held.
func (m *Member) awaitCondition(ctx context.Context, ok func() bool) error {
	for {
		m.mu.Lock()
		done, failed, changed := ok(), m.runErr, m.changed
		m.mu.Unlock()
		switch {
		case done:
			return nil
		case failed != nil:
			return failed
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// changeState calls change with m.mu held, and has the member record updated to show the change.
func (m *Member) changeState(change func()) {
	m.mu.Lock()
	change()
	m.recordVersion++
	in := m.current
	m.mu.Unlock()
	if in != nil {
		in.requestPublish()
	}
}

// handleUnblocked updates the member record and wakes the claimer when a function of an earlier
// incarnation has returned.
func (m *Member) handleUnblocked() {
	m.changeState(func() {})
	if in := m.presentIncarnation(); in != nil {
		in.Claimer.RecheckBlocked()
	}
}

// configureClaimer returns what the claimer of an incarnation needs of the member.
func (m *Member) configureClaimer(in *Incarnation, log *slog.Logger) claimer.Config {
	cfg := claimer.Config{
		Me: in.ID, Session: in.Session, Reg: m.Reg, Keys: m.Keys, Work: m.Work, Log: log, Blocked: &m.Blocked,
		Namespace: in.namespace, AwaitsReturn: m.grace > 0, Closed: m.isDraining(), Clock: m.Clock,
		SetSupported: m.setSupported, PublishAhead: m.publishAhead, OnClockJump: func() { m.reportClockJump(in) }, Events: m.events,
		ReadNamespace: func(ctx context.Context) (claimer.Namespace, error) { return m.rereadMeta(ctx, in) },
	}
	if m.comparesClocks {
		cfg.JumpLimit, cfg.MaxSkew = m.maxSkew/2, m.maxSkew
	}
	return cfg
}

// describeSelf returns what the elector of an incarnation, and its leaders, need of the member.
func (m *Member) describeSelf(in *Incarnation) elector.Self {
	return elector.Self{
		ID: in.ID, Name: m.Name, Session: in.Session, JoinCommit: in.joinCommit,
		Reg: m.Reg, Keys: m.Keys, Clock: m.Clock, MaxSkew: m.maxSkew, ComparesClocks: m.comparesClocks,
		Strategies: m.strategies, Compile: m.Work.Compile, Planning: &m.planning, Events: m.events,
		IsDraining:           m.isDraining,
		SetSkewed:            in.Claimer.SetSkewed,
		AnswerReading:        func(reading record.Instant) { m.answerReading(in, reading) },
		CheckRecords:         func() { m.requestRecordCheck(in) },
		ReportUncheckedClock: m.reportUncheckedClock,
		KeepIntents: func(controls map[string]*record.Control, group *record.GroupControl) {
			in.controls, in.group = controls, group
		},
	}
}

func (m *Member) isDraining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Draining
}

// handlePlanningReturn wakes the elector: this process may lead again.
func (m *Member) handlePlanningReturn() {
	if in := m.presentIncarnation(); in != nil {
		in.Elector.WakeUp()
	}
}

// readRetryDelay is the time until a read is retried that failed for lack of a connection.
const readRetryDelay = 100 * time.Millisecond

// sleepContext sleeps for d. It returns false if ctx ends first.
func sleepContext(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Fresh are the options of a linearizable read.
var Fresh = registry.ReadOptions{Fresh: true}
