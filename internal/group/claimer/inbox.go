package claimer

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/internal/shardset"
)

// inbox is the input of a claimer from other goroutines.
type inbox struct {
	mu             mutex.Mutex
	Running        int // runs whose function has not returned
	ended          []endedRun
	batching       bool          // ends wait for other ends: only the last one wakes the claimer
	Closed         bool          // claim nothing more
	skewed         bool          // claim nothing while the clock is skewed
	stopped        chan struct{} // closed when nothing more can be claimed; nil: not asked for
	emptied        chan struct{} // closed when the incarnation may leave; nil: not asked for
	recheckBlocked bool          // blocked shards may have become free
	viewRequests   []chan<- Views
	cutShort       int // functions that returned after the session had been lost
}

// endedRun is a run whose function has returned.
type endedRun struct {
	job *JobState
	claiming.EndedRun
}

// StopClaiming makes the claimer claim nothing more. It returns a channel that is closed once
// no write that may claim is in flight.
func (c *Claimer) StopClaiming() <-chan struct{} {
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	c.Inbox.Closed = true
	if c.Inbox.stopped == nil {
		c.Inbox.stopped = make(chan struct{})
	}
	defer c.wake()
	return c.Inbox.stopped
}

// RecheckBlocked has the claimer decide again on shards that were blocked.
func (c *Claimer) RecheckBlocked() {
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	c.Inbox.recheckBlocked = true
	c.wake()
}

// SetSkewed records whether a leader has found the clock to be skewed.
func (c *Claimer) SetSkewed(skewed bool) {
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	c.Inbox.skewed = skewed
	c.wake()
}

// NotifyEmpty returns a channel that is closed once nothing runs, all ends are on record and
// the plans assign this incarnation no shards but those that wait for its return. It is called
// after StopClaiming.
func (c *Claimer) NotifyEmpty() <-chan struct{} {
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	if c.Inbox.emptied == nil {
		c.Inbox.emptied = make(chan struct{})
	}
	defer c.wake()
	return c.Inbox.emptied
}

// NotifyWaiters closes the channels of StopClaiming and NotifyEmpty when their time has come.
func (c *Claimer) NotifyWaiters() {
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	if !c.Inbox.Closed || c.WritesInFlight > 0 {
		return
	}
	closeOnce(c.Inbox.stopped)
	if c.Inbox.emptied == nil || c.Running > 0 {
		return
	}
	for _, j := range c.Jobs {
		if !j.IsEmpty(c.Me, c.AwaitsReturn) {
			return
		}
	}
	closeOnce(c.Inbox.emptied)
}

// IsEmpty reports whether an incarnation may leave as far as the job is concerned: no run is on record, whose end may
// wait to be written, and it owns no shards, unless they await its return.
func (j *JobState) IsEmpty(me string, awaitsReturn bool) bool {
	var owned shardset.Set
	if j.Plan != nil && !awaitsReturn {
		owned = j.Plan.Owners[me]
	}
	return owned.IsZero() && len(j.Claims.Running) == 0
}

// closeOnce closes a channel that is neither nil nor closed.
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

// DrainInbox applies the input of other goroutines.
func (c *Claimer) DrainInbox() {
	c.Inbox.mu.Lock()
	ends := c.Inbox.ended
	c.Inbox.ended = nil
	c.Inbox.batching = false
	c.Running = c.Inbox.Running
	closed, skewed := c.Inbox.Closed, c.Inbox.skewed
	recheck := c.Inbox.recheckBlocked
	c.Inbox.recheckBlocked = false
	c.Inbox.mu.Unlock()
	now, clock := time.Now(), c.Clock()
	for i, e := range ends {
		j := e.job
		if len(j.Ended) == cap(j.Ended) {
			j.Ended = slices.Grow(j.Ended, countSameJob(ends[i:]))
		}
		j.Ended = append(j.Ended, e.EndedRun)
		if e.Pool != "" {
			c.poolShare(e.Pool).Running--
		}
		c.scheduleEnd(j, &e.EndedRun, now, clock)
	}
	if recheck || closed != c.Draining || skewed != c.skewed {
		c.Draining, c.skewed = closed, skewed
		c.markAllDirty()
	}
	if len(ends) > 0 && c.Running == 0 {
		c.markWaiting(&c.held)
	}
}

// countSameJob returns the number of ends up to the first of another job.
func countSameJob(ends []endedRun) int {
	if i := slices.IndexFunc(ends, func(e endedRun) bool { return e.job != ends[0].job }); i > 0 {
		return i
	}
	return len(ends)
}

// setBatching lets ends stay in the inbox while earlier ends wait for others anyway.
func (c *Claimer) setBatching() {
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	c.Inbox.batching = len(c.held.jobs) > 0 && len(c.Frozen) == 0 && !c.Draining
}

// setAwaited records whether a fire is due for a shard of a job that runs. Such a shard's end wakes
// the claimer at once.
func (c *Claimer) setAwaited(j *JobState, awaited bool) {
	if j.awaited == awaited { // only the claimer writes it
		return
	}
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	j.awaited = awaited
}

// addRunning counts n functions that are about to be called.
func (in *inbox) addRunning(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.Running += n
}

// addEnded records that functions of runs of one job have returned, and reports whether to wake the claimer now.
func (in *inbox) addEnded(sessionLost bool, e endedRun, more ...endedRun) (wake bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := 1 + len(more)
	if in.Running -= n; sessionLost {
		in.cutShort += n
	}
	if len(in.ended)+n > cap(in.ended) {
		in.ended = slices.Grow(in.ended, len(in.ended)+n) // append grows a long slice by a quarter
	}
	in.ended = append(append(in.ended, e), more...)
	return in.Running == 0 || !in.batching || e.job.awaited
}

// CountCutShort returns the number of runs that the loss of the session ended or kept from
// beginning. It is called once Run has returned.
func (c *Claimer) CountCutShort() int {
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	n := c.Inbox.Running + c.Inbox.cutShort
	for _, b := range c.startQueue {
		for _, g := range b.decision.Starts {
			n += g.Shards.Len()
		}
	}
	return n
}

// CountOwned returns the number of shards that the plans assign to this incarnation.
func (c *Claimer) CountOwned() int { return c.ownershipLog.Total() }
