package member

import (
	"container/heap"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/claiming"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/coordinator/internal/eventlog"
	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/internal/skew"
	"github.com/rota-dev/rota/internal/record"
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

func (c *Claimer) wake() {
	select {
	case c.Nudge <- struct{}{}:
	default:
	}
}

// run keeps the ledger until ctx ends. An error means that this incarnation is over: its
// session has ended, or somebody else has written its records.
func (c *Claimer) run(ctx context.Context) error {
	defer c.Plans.Close()
	defer c.ownershipLog.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := c.Session.Changed()
		c.ApplyPlans(ctx)
		c.DrainInbox()
		before, clock := time.Now(), c.Clock() // once: what is claimed by it has been looked at for jumps
		c.checkClockJump(before, clock, time.Now())
		if err := c.applySession(ctx); err != nil {
			c.drainWrites()
			return err
		}
		c.markDue(time.Now(), clock)
		c.startWrites(ctx, clock)
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
		case <-c.Nudge:
		case <-changed:
		case <-timer.C:
		}
	}
}

// applySession takes in whether new runs may be claimed and claimed ones started. It goes by
// what is, not by what was told: a select that has two reasons to go on forgets one.
func (c *Claimer) applySession(ctx context.Context) error {
	state, _ := c.Session.State()
	if open := !c.Closed && !c.skewed && !time.Now().Before(c.clockJudgedAt) && state == registry.SessionConnected; open != c.MayClaim {
		c.MayClaim = open
		c.markAllDirty()
	}
	return c.startQueuedRuns(ctx)
}

// computeSleep returns how long nothing needs to be done.
func (c *Claimer) computeSleep(now, clock time.Time) time.Duration {
	d := ClockCheckInterval
	if len(c.agenda) > 0 {
		d = min(d, c.agenda[0].wake.Time().Sub(clock))
	}
	if unsure := c.clockJudgedAt.Sub(now); unsure > 0 {
		d = min(d, unsure)
	}
	if !c.flushAt.IsZero() {
		d = min(d, c.flushAt.Sub(now))
	}
	return max(d, 0)
}

// JumpJudged is how long the fleet is given to judge a clock that has jumped.
const ClockJudgingTime = 2 * time.Second

// checkClockJump takes in whether the clock has jumped. If it has, nothing is claimed until the
// fleet has had the time to judge it; what else it does meanwhile is looked at afterwards.
func (c *Claimer) checkClockJump(before, clock, after time.Time) {
	if !after.Before(c.clockJudgedAt) && c.jumpDetector.Jumped(before, clock, after) {
		c.clockJudgedAt = after.Add(ClockJudgingTime)
		c.onClockJump()
	}
}

func (c *Claimer) markDue(now, clock time.Time) {
	for len(c.agenda) > 0 && c.agenda[0].wake <= record.InstantOf(clock) {
		j := heap.Pop(&c.agenda).(*JobState)
		c.MarkDirty(j)
	}
	c.Flushing = c.Running == 0 || c.Closed
	if !c.flushAt.IsZero() && !now.Before(c.flushAt) {
		c.Flushing = true
		c.markHeld()
	}
}

func (c *Claimer) MarkDirty(j *JobState) { c.Dirty[j] = struct{}{} }

func (c *Claimer) markAllDirty() {
	for _, j := range c.Jobs {
		c.MarkDirty(j)
	}
}

// CopyJobState returns an account as a state holds it.
func (c *Claimer) CopyJobState(segment string) *JobState {
	j := c.Jobs[segment]
	if j == nil {
		return nil
	}
	out := *j
	out.wake, out.index = 0, -1
	out.Ended = slices.Clone(j.Ended)
	return &out
}
