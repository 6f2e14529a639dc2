package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/eventlog"
	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// ErrNameTaken means that a live instance has the name, and kept it for longer than a
// predecessor that crashed could have. The text names its process and host, and since when.
var ErrNameTaken = errors.New("instance name taken")

// DefaultGroup is the group of those who name none.
const DefaultGroup = "default"

// Options are options of NewMember.
type Options struct {
	Namespace  string
	Group      string        // "" = "default"
	Instance   string        // unique among the live; "" = host name and a random part
	SessionTTL time.Duration // asked for; 0 = registry.DefaultSessionTTL
	// MaxClockSkew is how far clocks of the fleet may be apart; 0 = 5 s, < 0 = none, and nobody
	// looks. A member whose clock is further from the median of the fleet claims nothing. As
	// two cannot tell which of them is wrong, it takes three. Shards whose fires a wrong clock
	// claimed far ahead wait until then; the owner logs that, and Status.Problem shows it.
	MaxClockSkew time.Duration
	// RestartGrace is how long this member's shards wait for an instance of its name to come
	// back, once it has left or died, before they move. It needs Instance. A leader counts it
	// from when it sees that the member is gone; one that comes to lead meanwhile counts anew.
	// 0 = they move at once.
	RestartGrace time.Duration
	Host         string // where this process runs, for operators; "" = the host's name
	// Labels say what kind of instance this is, for as long as it lives: to jobs that run on
	// some only, and to strategies. There may be 64, with keys of 1 to 100 bytes and values of
	// up to 200, of UTF-8 without control characters.
	Labels map[string]string
	// Weight is how many times the shards of a member with weight 1 this one is to have, up to
	// MaxWeight. The strategy "sticky" heeds it, and gives each member its share by weight of
	// every job and of all of them together to within one shard; the others that come with this
	// package do not. It is fixed for as long as the member lives. 0 = 1
	Weight int
	// Strategies are strategies of your own, by the name that jobs ask for. Every process that may
	// come to lead needs them. The built-in names are "sticky", "average", "odevity", "rotate" and
	// "single".
	Strategies map[string]strategy.Func
	// NoClocks means that the work goes by no clock, so clocks are not compared.
	NoClocks bool
	Work     Work
	Logger   *slog.Logger // nil = slog.Default()
	// Clock tells the time of day, for tests of clocks that differ. What has to last for some
	// time goes by package time all the same. nil = time.Now
	Clock func() time.Time
}

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

// New returns a member of a group. Nothing is sent before Run.
func New(reg registry.Registry, o Options) (*Member, error) {
	if o.Group == "" {
		o.Group = DefaultGroup
	}
	switch {
	case o.RestartGrace < 0 || o.RestartGrace > planning.MaxRestartGrace:
		return nil, fmt.Errorf("restart grace is %v, not between 0 and %v", o.RestartGrace, planning.MaxRestartGrace)
	case o.Weight < 0 || o.Weight > planning.MaxWeight:
		return nil, fmt.Errorf("weight is %d, not between 0 and %d", o.Weight, planning.MaxWeight)
	case o.RestartGrace > 0 && o.Instance == "":
		return nil, errors.New("restart grace without a name of the instance to come back under")
	}
	if o.Instance == "" {
		o.Instance = generateName()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.MaxClockSkew == 0 {
		o.MaxClockSkew = 5 * time.Second
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	keys, err := record.NewKeys(o.Namespace, o.Group)
	if err != nil {
		return nil, err
	}
	if reg == nil {
		return nil, ErrNilRegistry
	}
	if err := record.CheckName(o.Instance); err != nil {
		return nil, fmt.Errorf("instance: %w", err)
	}
	if o.Host == "" {
		o.Host = readHostName()
	} else if err := record.CheckHost(o.Host); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	if err := errors.Join(record.CheckLabels(o.Labels, record.MaxLabels)...); err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	strategies, err := strategy.Known(o.Strategies)
	if err != nil {
		return nil, err
	}
	m := &Member{
		Reg: reg, Keys: keys, Name: o.Instance, host: o.Host, ttl: o.SessionTTL,
		maxSkew: max(o.MaxClockSkew, 0), Clock: o.Clock, comparesClocks: o.MaxClockSkew > 0 && !o.NoClocks, grace: o.RestartGrace,
		labels: maps.Clone(o.Labels), weight: o.Weight, strategies: strategies, Work: o.Work,
		Log:            o.Logger.With("namespace", o.Namespace, "group", o.Group, "instance", o.Instance),
		leaveRequested: make(chan struct{}), Defs: map[string]json.RawMessage{}, revisions: map[string]int{}, changed: make(chan struct{}), ownSessions: map[registry.SessionID]bool{},
	}
	m.Blocked.OnUnblocked = m.handleUnblocked
	return m, nil
}

// handleUnblocked says that a function of an earlier incarnation has returned.
func (m *Member) handleUnblocked() {
	m.ChangeState(func() {
		if m.current != nil {
			m.current.Claimer.recheckBlocked()
		}
	})
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
		m.Log.Warn("joining again", "error", err)
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

// ErrLeft is why a member that was told to leave stops.
var ErrLeft = errors.New("left the group")

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

// enterNamespace makes an incarnation a member, of a namespace that this version may touch.
func (m *Member) enterNamespace(ctx context.Context, in *Incarnation) (fenceBase uint64, told PublishedState, err error) {
	if fenceBase, err = m.readFenceBase(ctx); err == nil {
		told, err = m.joinGroup(ctx, in)
	}
	return fenceBase, told, err
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

// readFenceBase reads what is added to commit numbers to make fences, and on the way checks
// that this version may touch the namespace at all.
func (m *Member) readFenceBase(ctx context.Context) (uint64, error) {
	for {
		e, err := m.Reg.Get(ctx, m.Keys.Meta(), Fresh)
		switch {
		case err == nil:
			meta, err := record.DecodeMeta(e.Value)
			if m.shouldRetryMeta(err) && sleepContext(ctx, refusedRetryDelay) {
				continue
			}
			if err != nil {
				return 0, fmt.Errorf("read %s: %w", m.Keys.Meta(), err)
			}
			return meta.FenceBase, nil
		case errors.Is(err, registry.ErrNotFound):
			value, err := record.Encode(record.Meta{Format: record.Format})
			if err != nil {
				return 0, err
			}
			_, err = registry.Apply(ctx, m.Reg, registry.Txn{Then: []registry.Op{registry.Create(m.Keys.Meta(), value)}})
			if err != nil && !errors.Is(err, registry.ErrConflict) {
				return 0, fmt.Errorf("create %s: %w", m.Keys.Meta(), err)
			}
		case m.shouldRetryMeta(err) && sleepContext(ctx, refusedRetryDelay):
		case !registry.Retryable(err) || !sleepContext(ctx, readRetryDelay):
			return 0, fmt.Errorf("read %s: %w", m.Keys.Meta(), err)
		}
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

// PublishedState is what the registry is to know of this process, or knows of it.
type PublishedState struct {
	Member        record.Member
	defs          map[string]json.RawMessage
	recordVersion int          // of Member.version
	offerVersion  int          // of Member.offers
	Rev           registry.Rev // of the member record, once it has been written
}

// ComposeState returns what the registry is to know now.
func (m *Member) ComposeState(in *Incarnation) PublishedState {
	m.mu.Lock()
	defer m.mu.Unlock()
	var offered, puzzling []string
	for _, job := range slices.Sorted(maps.Keys(m.Defs)) {
		if m.unsupported[job] {
			puzzling = append(puzzling, job)
		} else {
			offered = append(offered, job)
		}
	}
	var clock record.Instant
	if m.comparesClocks {
		clock = record.InstantOf(m.Clock())
	}
	told := PublishedState{
		Member: record.Member{
			Name: m.Name, Session: in.Session.ID(), Host: m.host, Jobs: offered, Unsupported: puzzling, Labels: m.labels,
			Weight: m.weight, Draining: m.Draining, Blocked: m.Blocked.copyBlocked(), RestartGrace: record.Duration(m.grace),
			Clock: clock, Answers: in.answeredReading, Ahead: maps.Clone(m.ahead),
			Waiting: m.waiting, // never changed in place
		},
		defs: maps.Clone(m.Defs), recordVersion: m.recordVersion, offerVersion: m.offerVersion,
	}
	told.Member.SetRevisions(m.revisions)
	return told
}

// setSupported says whether the present incarnation can compile all definitions of a job that
// are in force. While it cannot, it does not offer the job: its shards go to those who can.
func (m *Member) setSupported(job string, all bool) {
	m.ChangeState(func() {
		if delete(m.unsupported, job); !all {
			m.unsupported[job] = true
		}
	})
}

// joinGroup stores the definitions that this process offers and enters the fleet. The name
// may still be held by a predecessor whose session has not run out. If that was this
// process itself, nobody else can have the name, however long the store keeps the session:
// one that has lost its leader, or its clients, gives all sessions their full time again.
//
// Each try sends the same transaction. A request that was held up may be applied long
// after a later one was refused, so who holds the name tells whether it was.
func (m *Member) joinGroup(ctx context.Context, in *Incarnation) (PublishedState, error) {
	told := m.ComposeState(in)
	// What fenceBase has read was new, and no read goes back.
	if err := m.storeDefinitions(ctx, told.defs, registry.ReadOptions{}); err != nil {
		return PublishedState{}, err
	}
	told.Member.Differs = m.superseded.listDiffering(told.defs)
	t, err := m.BuildJoinTxn(in, told.Member)
	if err != nil {
		return PublishedState{}, err
	}
	patience := in.Session.TTL() + in.Session.TTL()/4
	began := time.Now()
	saidForeign := false
	for {
		rev, err := registry.Apply(ctx, m.Reg, t)
		refusal, refused := batch.Conflict(err)
		switch {
		case err == nil:
			told.Rev = rev
			m.forgetEarlierSessions(in)
			return told, nil
		case refused && refusal.Index > 0, !refused && !outcomeUnknown(ctx, err):
			return PublishedState{}, fmt.Errorf("join as %s: %w", in.ID, err)
		}
		e, err := m.Reg.Get(ctx, m.Keys.Instance(m.Name), Fresh)
		switch {
		case err == nil && e.Txn == t.ID:
			told.Rev = e.Modified
			m.forgetEarlierSessions(in)
			return told, nil
		case err == nil && !m.heldEarlier(e) && time.Since(began) > patience:
			return PublishedState{}, newNameTakenError(m.Name, e, patience)
		case errors.Is(err, registry.ErrForeign) && !saidForeign:
			saidForeign = true
			m.Log.Error("cannot join: another program wrote the value of the key; delete it", "key", string(m.Keys.Instance(m.Name)), "error", err)
		}
		if !sleepContext(ctx, min(max(in.Session.TTL()/40, 20*time.Millisecond), time.Second)) {
			return PublishedState{}, context.Cause(ctx)
		}
	}
}

// forgetEarlierSessions takes note that the name belongs to an incarnation: no earlier session has it.
func (m *Member) forgetEarlierSessions(in *Incarnation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.ownSessions)
	m.ownSessions[in.Session.ID()] = true
}

// heldEarlier reports whether the record of an instance is of this process, in a session that it
// has lost.
func (m *Member) heldEarlier(e registry.Entry) bool {
	held, err := record.Decode[record.Instance](e.Value)
	m.mu.Lock()
	defer m.mu.Unlock()
	return err == nil && m.ownSessions[held.Session]
}

// BuildJoinTxn is the transaction by which an incarnation enters the fleet.
func (m *Member) BuildJoinTxn(in *Incarnation, member record.Member) (registry.Txn, error) {
	instance, err := record.Encode(record.Instance{
		Session: in.Session.ID(), Host: m.host, PID: os.Getpid(), Started: record.InstantOf(m.Clock()),
	})
	if err != nil {
		return registry.Txn{}, err
	}
	value, err := record.Encode(member)
	return registry.Txn{
		ID: registry.NewTxnID(),
		Then: []registry.Op{
			registry.CreateOwned(m.Keys.Instance(m.Name), instance, in.Session.ID()),
			registry.Create(m.Keys.Member(in.ID), value),
		},
	}, err
}

// outcomeUnknown reports that Apply could not tell what became of a transaction, though it was
// given the time.
func outcomeUnknown(ctx context.Context, err error) bool {
	return errors.Is(err, registry.ErrUnknownOutcome) && ctx.Err() == nil
}

// maintainRecord keeps what the registry knows of this process true. What the registry refuses
// for a reason of its own (it is full, say) is tried again later: what runs here goes on.
func (m *Member) maintainRecord(ctx context.Context, in *Incarnation, told PublishedState) error {
	for {
		m.setPublished(in, told)
		if m.consumeRecordCheck(in) {
			if err := m.checkOwnRecords(ctx, in, told); err != nil {
				return err
			}
		}
		next := m.ComposeState(in)
		if next.recordVersion == told.recordVersion {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-in.publishNudge:
			}
			continue
		}
		err := m.PublishState(ctx, in, told, &next)
		switch {
		case err == nil:
			told = next
		case ctx.Err() != nil, errors.Is(err, registry.ErrSessionLost), errors.Is(err, registry.ErrClosed):
			return err
		default:
			m.Log.Error("member record not written; trying again", "error", err)
			if !sleepContext(ctx, refusedRetryDelay) {
				return context.Cause(ctx)
			}
		}
	}
}

// PublishState makes the registry know next in place of what it has been told.
func (m *Member) PublishState(ctx context.Context, in *Incarnation, told PublishedState, next *PublishedState) error {
	if next.offerVersion != told.offerVersion {
		if err := m.storeDefinitions(ctx, next.defs, Fresh); err != nil {
			return err
		}
	}
	if next.Member.Draining && !told.Member.Draining {
		if err := in.prepareDrain(ctx); err != nil {
			return err
		}
	}
	next.Member.Differs = m.superseded.listDiffering(next.defs)
	value, err := record.Encode(next.Member)
	if err != nil {
		return err
	}
	next.Rev, err = registry.Apply(ctx, m.Reg, registry.Txn{
		If:   []registry.Cond{registry.Alive(in.Session.ID())},
		Then: []registry.Op{registry.Set(m.Keys.Member(in.ID), told.Rev, value)},
	})
	refusal, refused := batch.Conflict(err)
	switch {
	case refused && refusal.Index == 0:
		return fmt.Errorf("update member record: %w: %w", registry.ErrSessionLost, err)
	case refused, outcomeUnknown(ctx, err):
		return fmt.Errorf("update member record: %w: %w", errRecordEdited, err)
	case err != nil:
		return fmt.Errorf("update member record: %w", err)
	}
	return nil
}

// prepareDrain makes an incarnation ready to be known as draining: a leader takes its idle
// shards at once, so it must claim nothing more by then. If it leads, it hands over first.
func (in *Incarnation) prepareDrain(ctx context.Context) error {
	select {
	case <-in.Claimer.StopClaiming():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	in.Elector.Resign(ctx)
	return nil
}

func (m *Member) setPublished(in *Incarnation, told PublishedState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in.publishedVersion, in.drainPublished = told.recordVersion, told.Member.Draining
	m.notifyChangeLocked()
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

// Offer adds definitions, by job name, that this process can run. A definition reaches
// the registry if it is new there or of a higher revision.
func (m *Member) Offer(defs map[string]json.RawMessage) {
	revs := parseRevisions(defs)
	m.ChangeState(func() {
		maps.Copy(m.Defs, defs)
		maps.Copy(m.revisions, revs)
		m.offerVersion++
	})
}

// Withdraw stops offering a job, until the next Offer of it. Its shards move away.
func (m *Member) Withdraw(job string) {
	m.ChangeState(func() { delete(m.Defs, job) })
}

// AwaitJoined waits until the registry knows this process and all that it offers.
func (m *Member) AwaitJoined(ctx context.Context) error {
	return m.awaitCondition(ctx, func() bool { return m.current != nil && m.current.publishedVersion >= m.recordVersion })
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

// Drain makes the member claim nothing more and lets its idle shards go, with a
// RestartGrace only when that has passed. A leader hands its office over first. Runs go on;
// the caller ends them or waits for them. Drain returns when the registry knows, or there
// is no session that could claim. If ctx ends first, the member drains all the same.
func (m *Member) Drain(ctx context.Context) error {
	defer m.logSlowShutdown("the record that this instance drains", true)()
	m.ChangeState(func() {
		m.Draining = true
		if m.current != nil {
			m.current.Claimer.StopClaiming() // it must not claim runs again that are handed back from now on
		}
	})
	return m.awaitCondition(ctx, func() bool { return m.current == nil || m.current.drainPublished })
}

// Leave waits until nothing runs here and all shards have been taken over, or ctx ends,
// and then makes Run return. It is called after Drain. Shards that wait for a return
// (MemberOptions.RestartGrace) are not taken over: then only runs are waited for. Without a
// session there is nothing to wait for: what it had is failed over.
func (m *Member) Leave(ctx context.Context) error {
	stop := m.logSlowShutdown("the ends of runs on record, and other instances to take the shards over", false)
	err := m.awaitNoShards(ctx)
	stop()
	m.leaveOnce.Do(func() { close(m.leaveRequested) })
	return err
}

func (m *Member) awaitNoShards(ctx context.Context) error {
	for {
		m.mu.Lock()
		in, changed := m.current, m.changed
		m.mu.Unlock()
		if in == nil {
			return nil
		}
		select {
		case <-in.Claimer.notifyEmpty():
			return nil
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Fresh asks for a linearizable read.
var Fresh = registry.ReadOptions{Fresh: true}

// storeDefinitions puts into the registry what is newer than what is there, which it reads as
// it is told to.
func (m *Member) storeDefinitions(ctx context.Context, defs map[string]json.RawMessage, read registry.ReadOptions) error {
	foreign := map[registry.Key]bool{}
	for ; ; read = Fresh {
		again, err := m.TryStoreDefinitions(ctx, defs, read, foreign)
		if err != nil {
			return fmt.Errorf("store definitions: %w", err)
		}
		if !again {
			return nil
		}
		if !sleepContext(ctx, readRetryDelay) {
			return context.Cause(ctx)
		}
	}
}

func (m *Member) TryStoreDefinitions(ctx context.Context, defs map[string]json.RawMessage, read registry.ReadOptions, foreign map[registry.Key]bool) (again bool, err error) {
	if len(defs) == 0 {
		return false, nil
	}
	listing, err := m.Reg.List(ctx, m.Keys.Jobs(), read)
	if err != nil {
		if registry.Retryable(err) {
			return true, nil
		}
		return false, err
	}
	stored := make(map[string]registry.Entry, len(listing.Entries))
	for _, e := range listing.Entries {
		stored[e.Key.Name()] = e
	}
	var ops []registry.Op
	for _, name := range slices.Sorted(maps.Keys(defs)) {
		op, ok, err := m.decideDefinitionWrite(stored, name, defs[name])
		if err != nil {
			return false, err
		}
		if ok && !foreign[op.Key] {
			ops = append(ops, op)
		}
	}
	m.superseded.logNew(m.Log)
	loads := batch.Pack(nil, ops, m.Reg.Limits(),
		func(o registry.Op) batch.Share { return batch.Share{Ops: []registry.Op{o}} }, func(registry.Op) bool { return false })
	for _, l := range loads {
		_, err := registry.Apply(ctx, m.Reg, l.Txn)
		if errors.Is(err, registry.ErrConflict) {
			again = true // another instance stores the same: compare again
			m.findForeignDefinition(ctx, l.Txn, err, foreign)
		} else if err != nil {
			return false, err
		}
	}
	return again, nil
}

// decideDefinitionWrite returns the write that a definition calls for, if any.
func (m *Member) decideDefinitionWrite(stored map[string]registry.Entry, name string, def json.RawMessage) (registry.Op, bool, error) {
	mine, err := record.ParseJob(def)
	if err != nil {
		return registry.Op{}, false, fmt.Errorf("job %q: %w", name, err)
	}
	value, err := record.Encode(def)
	if err != nil {
		return registry.Op{}, false, fmt.Errorf("job %q: %w", name, err)
	}
	segment := record.Segment(name)
	key := m.Keys.Job(segment)
	e, ok := stored[segment]
	if !ok {
		return registry.Create(key, value), true, nil
	}
	old, theirs, err := record.DecodeDefinition(e.Value)
	switch {
	case err != nil:
		feed.LogUnreadable(m.Log, slog.LevelError, key, err)
		return registry.Op{}, false, nil
	case theirs.Revision < mine.Revision:
		return registry.Set(key, e.Modified, value), true, nil
	default:
		m.superseded.compareDefinition(mine, theirs, def, old, e.Modified)
	}
	return registry.Op{}, false, nil
}

// ErrNilRegistry is returned at once: a nil registry panics in a goroutine otherwise.
var ErrNilRegistry = errors.New("registry is nil")
