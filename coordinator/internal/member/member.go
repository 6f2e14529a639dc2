package member

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/eventlog"
	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Member is a process's part in a group: it joins, elects, plans while it leads, claims
// what it owns, and joins again under a new incarnation when its session is lost.
type Member struct {
	Reg            registry.Registry
	Keys           record.Keys
	Name           string
	host           string // "" if it is not known
	ttl            time.Duration
	maxSkew        time.Duration
	Clock          func() time.Time // of day
	comparesClocks bool             // clocks are compared
	grace          time.Duration
	labels         map[string]string
	weight         int
	strategies     map[string]strategy.Func // by name, the built-in ones included
	Work           Work
	Log            *slog.Logger
	Blocked        BlockedShards
	leaveRequested chan struct{} // closed by Leave: run no more
	leaveOnce      sync.Once

	superseded          supersededDefinitions // of the goroutine that stores definitions
	reportUncheckedOnce sync.Once             // the report that this clock cannot be checked

	mu            sync.Mutex
	Defs          map[string]json.RawMessage // offered, by job
	revisions     map[string]int             // of defs, by job
	unsupported   map[string]bool            // jobs of which the present incarnation cannot compile what is in force
	ahead         map[string]record.Ahead    // by job: what the present incarnation finds to be ahead of its clock
	waiting       map[string]record.Waiting  // by job: runs that have waited long for a worker
	recordVersion int                        // grows with defs, puzzled, ahead, draining, waiting and barred
	offerVersion  int                        // grows with Offer: definitions may have to be stored
	Draining      bool
	current       *Incarnation
	hasJoined     bool                        // there has been a current one
	lostAt        time.Time                   // when the last one that had joined was over; zero: there was none
	joinStep      string                      // the present step of joining, for the log
	ownSessions   map[registry.SessionID]bool // that this process has had since it last joined
	planningCalls int                         // calls of the planning function that have not returned
	reportedMeta  bool                        // that the record of the namespace cannot be read
	changed       chan struct{}               // closed at the next change of current or of what it published
	runErr        error                       // why Run ended
}

// Incarnation is a member during one session.
type Incarnation struct {
	ID           string
	Session      registry.Session
	Claimer      *Claimer
	Elector      *Elector
	publishNudge chan struct{} // one slot: the member record may have to change
	joinCommit   uint64        // the commit by which it did

	// guarded by Member.mu
	publishedVersion int            // the Member.version that the registry knows
	drainPublished   bool           // the registry knows that it drains
	answeredReading  record.Instant // the reading of a leader's clock that the record is to answer; zero: none
	checkRequested   bool           // keepRecord has to read the records of the incarnation
}

// Instance returns the member's name.
func (m *Member) Instance() string { return m.Name }

// Incarnation returns the ID of the present incarnation, "" while the member is not in the group.
func (m *Member) Incarnation() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return ""
	}
	return m.current.ID
}

// Run takes part until Leave is called or ctx ends. The end of ctx is abrupt: contexts of
// runs end with it, and the session is closed when they have been told, not when they
// have returned. Use Drain and Leave to go in good order. Losing the session is no
// reason to return: Run opens another and joins again.
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
		if !sleepContext(ctx, refusedRetryDelay) {
			break
		}
	}
	m.logLeft(context.Cause(ctx))
	if errors.Is(context.Cause(ctx), ErrLeft) {
		err = nil // whatever was cut short by that
	}
	m.mu.Lock()
	if m.runErr = err; err == nil {
		m.runErr = ErrLeft
	}
	m.notifyChangeLocked()
	m.mu.Unlock()
	return err
}

// shouldRejoin reports whether another incarnation is to follow one that ended with err: one
// that was in the group comes back also when the store is full for a while.
func (m *Member) shouldRejoin(err error) bool {
	if errors.Is(err, registry.ErrSessionLost) {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hasJoined && errors.Is(err, registry.ErrQuota)
}

// runIncarnation is one incarnation.
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
	plans.Unreadable = slog.LevelDebug                                     // the leader and the owners log it
	task(func(ctx context.Context) error { return plans.Run(ctx, m.Reg) }) // who joins is not to wait for it

	in := &Incarnation{ID: record.Incarnation(m.Name, s.ID()), Session: s, publishNudge: make(chan struct{}, 1)}
	m.mu.Lock()
	m.ownSessions[s.ID()] = true
	m.mu.Unlock()
	m.Blocked.beginIncarnation()
	m.ChangeState(func() { m.unsupported, m.ahead = map[string]bool{}, map[string]record.Ahead{} }) // it will see for itself
	m.setJoinStep("the records of the namespace, the definitions, and the name")
	base, told, err := m.enterNamespace(ctx, in)
	if err != nil {
		end(err)
		return context.Cause(ctx) // it may be that the plans cannot be followed
	}
	in.joinCommit = told.Rev.Seq
	in.Claimer = &Claimer{
		Keys: m.Keys, Reg: m.Reg, Session: s, Me: in.ID, Work: m.Work, Log: log, fenceBase: base, Blocked: &m.Blocked, awaitsReturn: m.grace > 0,
		Clock: m.Clock, onClockJump: func() { m.reportClockJump(in) },
		Jobs: map[string]*JobState{}, Dirty: map[*JobState]struct{}{}, Held: map[*JobState]struct{}{}, Frozen: map[*JobState]struct{}{},
		results: make(chan WriteResult), Nudge: make(chan struct{}, 1), setSupported: m.setSupported,
		publishAhead: m.publishAhead, ownershipLog: eventlog.NewOwnershipLog(m.Reg, log),
	}
	if m.comparesClocks {
		in.Claimer.jumpDetector.Limit, in.Claimer.maxSkew = m.maxSkew/2, m.maxSkew
	}
	m.mu.Lock()
	in.Claimer.Inbox.Closed = m.Draining
	m.mu.Unlock()
	in.Claimer.Plans = plans.NewReader(in.Claimer.wake)
	in.Elector = NewElector(m, in, plans, log)

	m.logJoined(log, told.Member.Jobs)
	m.setIncarnation(in)
	task(in.Claimer.run)
	task(in.Elector.run)
	task(func(ctx context.Context) error { return m.maintainRecord(ctx, in, told) })
	task(func(ctx context.Context) error { return in.logSessionStates(ctx, log) })
	<-ctx.Done()
	m.setIncarnation(nil)
	tasks.Wait()
	m.logSessionLost(log, in, context.Cause(ctx))
	return context.Cause(ctx)
}

func (m *Member) setIncarnation(in *Incarnation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current, m.hasJoined = in, true
	m.notifyChangeLocked()
}

// notifyChangeLocked wakes those who wait for the member's state to change.
func (m *Member) notifyChangeLocked() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// awaitCondition waits for ok, which is called with m.mu held.
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

// ChangeState makes a change that the member record has to follow.
func (m *Member) ChangeState(f func()) {
	m.mu.Lock()
	f()
	m.recordVersion++
	in := m.current
	m.mu.Unlock()
	if in != nil {
		in.requestPublish()
	}
}

// handleUnblocked says that a function of an earlier incarnation has returned.
func (m *Member) handleUnblocked() {
	m.ChangeState(func() {
		if m.current != nil {
			m.current.Claimer.recheckBlocked()
		}
	})
}

func (m *Member) beginPlanning() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.planningCalls++
}

func (m *Member) endPlanning() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.planningCalls--; m.current != nil {
		m.current.Elector.wakeUp()
	}
}

// retryPause is how long to wait before a read that failed for lack of a connection.
const readRetryDelay = 100 * time.Millisecond

// sleepContext waits, and reports whether ctx let it.
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

// Fresh asks for a linearizable read.
var Fresh = registry.ReadOptions{Fresh: true}
