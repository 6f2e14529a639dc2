package claimer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/group/eventlog"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/skew"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

const (
	// maxEndsDelay bounds how long the end of a run waits for other ends to share its commit.
	maxEndsDelay = 100 * time.Millisecond
	// ClockCheckInterval bounds how long the claimer sleeps before it reads the wall clock
	// again, which may have been set meanwhile.
	ClockCheckInterval = 5 * time.Second
	// maxWrites bounds the transactions in flight of one claimer. Jobs that are due at the
	// start of a minute then neither queue behind each other nor flood the store.
	maxWrites = 8
)

// Config is what a Claimer needs of its incarnation. Its functions must not block.
type Config struct {
	Me           string // the incarnation
	Session      registry.Session
	Reg          registry.Registry
	Keys         record.Keys
	Work         Work
	Log          *slog.Logger
	Blocked      *BlockedShards
	Namespace    Namespace // as read when the incarnation joined
	AwaitsReturn bool      // the member has a restart grace: its shards may wait for its return
	Closed       bool      // the member drains already

	Clock     func() time.Time // of day: fires are due by it, and nothing else uses it
	MaxSkew   time.Duration    // 0: clocks are not compared
	JumpLimit time.Duration    // 0: jumps are not detected

	SetSupported func(job string, all bool)           // records whether all definitions in force of a job can be compiled here
	PublishAhead func(job string, ahead record.Ahead) // publishes the instant ahead of this clock that shards wait for; zero: none wait
	OnClockJump  func()
	// ReadNamespace reads the namespace's record anew. It may block. An error that wraps ErrSessionLost
	// means that the record belongs to other records than those of the join.
	ReadNamespace func(context.Context) (Namespace, error)
	Events        event.Hooks
}

// Namespace is what claims need of the namespace's record.
type Namespace struct {
	FenceBase uint64
	// Claims rest on the record at Rev, so that all of them have the highest fence base that is stored. A
	// zero Rev means that the record has been deleted.
	Rev           registry.Rev
	Unconditional bool // claims do not rest on the record, since its value is foreign
}

// requirements returns the conditions of claims by which the record is as it was read.
func (n Namespace) requirements(key registry.Key) []registry.Cond {
	switch {
	case n.Unconditional:
		return nil
	case n.Rev.IsZero():
		return []registry.Cond{registry.Absent(key)}
	}
	return []registry.Cond{registry.At(key, n.Rev)}
}

// Claimer writes an incarnation's claims records: it claims due fires, starts their runs, and
// records the ends of runs. One goroutine owns it; other goroutines leave input in Inbox.
//
// Some fields and methods are exported only for package explore, which runs the steps of the
// loop one by one.
type Claimer struct {
	Config
	Plans        *feed.Reader[*record.Plan]
	jumpDetector skew.JumpDetector
	ownershipLog *eventlog.OwnershipLog

	Nudge chan struct{} // one slot: check the inbox, the plans and the session
	Inbox inbox

	// As last read from the inbox and the session.
	Running       int       // runs whose function has not returned
	Draining      bool      // nothing more is claimed
	skewed        bool      // the leader reports this clock as skewed
	MayClaim      bool      // new runs may be claimed
	clockJudgedAt time.Time // after a jump: when the fleet has judged the clock

	Jobs   map[string]*JobState // by segment
	agenda agenda
	dirty  []*JobState            // to be decided on, in order
	Frozen map[*JobState]struct{} // with a shard that is to move

	held     waitingEnds // for other ends to share their commit
	carried  waitingEnds // for the next claim of their job
	Flushing bool        // ends are written now

	WritesInFlight int
	LastCommit     uint64 // the newest commit of this claimer
	SetBack        bool   // the store was set back to an earlier state while the session lived
	results        chan WriteResult
	startQueue     []startingRuns // claimed and not started, because the session was suspended
	pools          poolShares
}

// New returns the claimer of an incarnation. plans is the feed of plans, nil if the loop does
// not run.
func New(cfg Config, plans *feed.Feed[*record.Plan]) *Claimer {
	c := &Claimer{
		Config: cfg, Jobs: map[string]*JobState{},
		Frozen:  map[*JobState]struct{}{},
		results: make(chan WriteResult), Nudge: make(chan struct{}, 1),
	}
	c.Inbox.Closed, c.jumpDetector.Limit = cfg.Closed, cfg.JumpLimit
	if plans != nil {
		c.Plans, c.ownershipLog = plans.NewReader(c.wake), eventlog.NewOwnershipLog(cfg.Reg, cfg.Log)
	}
	return c
}

// JobState is a claimer's state of one job.
type JobState struct {
	Segment string
	key     registry.Key // of the claims record
	planKey registry.Key

	life              string // of the last plan
	Plan              *record.Plan
	PlanRev           registry.Rev
	StalePlan         registry.Rev // a claim conflicted on this revision of the plan: await a newer one
	programs          map[int]due.Program
	unsupported       bool // some epochs have no program
	loggedUnsupported int  // the highest epoch number without a program that was logged

	Claims  record.Claims
	Rev     registry.Rev // of the claims record; zero: it does not exist yet
	EndsRev registry.Rev // of its copy for leaders; zero: there is none
	Ended   []claiming.EndedRun
	Writing bool

	ClaimedAt claiming.ClaimTimes // of the runs in Claims

	dirty         bool           // in Claimer.dirty, or to be added when the write in flight has ended
	awaited       bool           // a fire is due for a shard that runs: its end must not wait; guarded by the inbox's mutex
	reportedAhead record.Ahead   // as last published
	wake          record.Instant // when to decide next; zero: not on the agenda
	onAgenda      int            // its place there
	pools         []string       // of the definitions in its plan
}

// wake makes the loop check for input. It does not block.
func (c *Claimer) wake() { parallel.Signal(c.Nudge) }

// Run claims and records until ctx ends. An error means that this incarnation is over: its
// session is lost, or another writer changed its records.
func (c *Claimer) Run(ctx context.Context) error {
	defer c.Plans.Close()
	defer c.reportShardsLost()
	defer c.ownershipLog.Close()
	followed, stopFollowing := context.WithCancel(ctx)
	defer c.closePools()
	defer stopFollowing()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := c.Session.Changed()
		c.ApplyPlans(followed)
		c.applySlots()
		c.DrainInbox()
		before, clock := time.Now(), c.Clock() // read once: claims use a reading that was checked for jumps
		c.checkClockJump(before, clock, time.Now())
		if err := c.applySession(ctx); err != nil {
			c.drainWrites()
			return err
		}
		c.markDue(time.Now(), clock)
		c.startWrites(ctx, clock)
		c.announceDemand(followed, time.Now())
		c.sendViews()
		c.NotifyWaiters()
		c.setBatching()
		timer.Reset(c.computeSleep(time.Now(), c.Clock()))
		select {
		case <-ctx.Done():
			c.drainWrites()
			return context.Cause(ctx)
		case w := <-c.results:
			if err := c.ApplyResult(ctx, w); err != nil {
				c.drainWrites()
				return err
			}
		case r := <-c.pools.sent:
			if err := c.applyDemandResult(r); err != nil {
				c.drainWrites()
				return err
			}
		case err := <-c.pools.failed:
			c.drainWrites()
			return err
		case <-c.Nudge:
		case <-changed:
		case <-timer.C:
		}
	}
}

// applySession updates MayClaim, and starts claimed runs if the session allows it. It reads the
// present state, since a select with two ready channels receives from one of them only.
func (c *Claimer) applySession(ctx context.Context) error {
	state, _ := c.Session.State()
	mayClaim := !c.Draining && !c.skewed && !time.Now().Before(c.clockJudgedAt) && state == registry.SessionConnected
	if mayClaim != c.MayClaim {
		c.MayClaim = mayClaim
		c.markAllDirty()
	}
	return c.startQueuedRuns(ctx)
}

// computeSleep returns the time until the loop has something to do without further input.
func (c *Claimer) computeSleep(now, clock time.Time) time.Duration {
	d := ClockCheckInterval
	if c.agenda.jobs.Len() > 0 {
		d = min(d, c.agenda.jobs.First().wake.Time().Sub(clock))
	}
	if unjudged := c.clockJudgedAt.Sub(now); unjudged > 0 {
		d = min(d, unjudged)
	}
	if at := c.pools.recheck; !at.IsZero() && !c.pools.sending {
		d = min(d, at.Sub(now))
	}
	for _, w := range []*waitingEnds{&c.held, &c.carried} {
		if len(w.jobs) > 0 {
			d = min(d, w.until.Sub(now))
		}
	}
	return max(d, 0)
}

// ClockJudgingTime is the time that the fleet has to judge a clock that has jumped.
const ClockJudgingTime = 2 * time.Second

// checkClockJump detects a jump of the clock. After one, nothing is claimed for
// ClockJudgingTime, and further jumps are detected only after that.
func (c *Claimer) checkClockJump(before, clock, after time.Time) {
	if !after.Before(c.clockJudgedAt) && c.jumpDetector.Jumped(before, clock, after) {
		c.clockJudgedAt = after.Add(ClockJudgingTime)
		c.OnClockJump()
	}
}

// markDue marks jobs that are due on the agenda, and ends that have waited long enough.
func (c *Claimer) markDue(now, clock time.Time) {
	for c.agenda.jobs.Len() > 0 && c.agenda.jobs.First().wake <= record.InstantOf(clock) {
		c.MarkDirty(c.agenda.jobs.Pop())
	}
	c.Flushing = c.Running == 0 || c.Draining
	for _, w := range []*waitingEnds{&c.held, &c.carried} {
		if w.areDue(now) {
			c.Flushing = true
			c.markWaiting(w)
		}
	}
}

// MarkDirty has the claimer decide on a job.
func (c *Claimer) MarkDirty(j *JobState) {
	if !j.dirty {
		j.dirty = true
		c.queueDirty(j)
	}
}

// queueDirty queues a dirty job for a decision. A job of which a write is in flight is queued when
// the result is known.
func (c *Claimer) queueDirty(j *JobState) {
	if !j.Writing {
		c.dirty = append(c.dirty, j)
	}
}

func (c *Claimer) markAllDirty() {
	for _, segment := range slices.Sorted(maps.Keys(c.Jobs)) {
		c.MarkDirty(c.Jobs[segment])
	}
}

// CopyJobState returns a copy of a job's state as an explored state holds it, nil if there is
// none.
func (c *Claimer) CopyJobState(segment string) *JobState {
	j := c.Jobs[segment]
	if j == nil {
		return nil
	}
	out := *j
	out.wake, out.onAgenda, out.dirty, out.awaited = 0, 0, false, false
	out.Ended = slices.Clone(j.Ended)
	return &out
}
