package member

import (
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/claiming"
	"github.com/rota-dev/rota/internal/shardset"
)

// inbox is what other goroutines tell a ledger.
type inbox struct {
	mu             sync.Mutex
	Running        int // functions that have not returned
	ended          []endedRun
	batching       bool // ends are taken in by and by: only the last is worth a nudge
	Closed         bool // claim nothing more
	skewed         bool // claim nothing while the clock is off
	stopped        chan struct{}
	emptied        chan struct{}
	recheckBlocked bool
	cutShort       int // functions that returned after the session had been lost
}

type endedRun struct {
	job *JobState
	claiming.EndedRun
}

// StopClaiming makes the ledger claim nothing more. The channel is closed once no write that
// may claim is in flight.
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

// recheckBlocked says that shards which were barred may start.
func (c *Claimer) recheckBlocked() {
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	c.Inbox.recheckBlocked = true
	c.wake()
}

// setSkewed says whether the clock is off.
func (c *Claimer) setSkewed(off bool) {
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	c.Inbox.skewed = off
	c.wake()
}

// notifyEmpty returns a channel that is closed once nothing runs, all ends are on record and
// the plans give this incarnation no shard but those that wait for its return. To be called
// after close.
func (c *Claimer) notifyEmpty() <-chan struct{} {
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	if c.Inbox.emptied == nil {
		c.Inbox.emptied = make(chan struct{})
	}
	defer c.wake()
	return c.Inbox.emptied
}

// NotifyWaiters closes the channels of those who wait for a closing ledger.
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
		if !j.IsEmpty(c.Me, c.awaitsReturn) {
			return
		}
	}
	closeOnce(c.Inbox.emptied)
}

// IsEmpty reports that an account holds nothing but what goes with the session.
func (j *JobState) IsEmpty(me string, returns bool) bool {
	var owned shardset.Set
	if j.Plan != nil && !returns {
		owned = j.Plan.Owners[me]
	}
	return len(j.Ended) == 0 && owned.IsZero() && len(j.Claims.Running) == 0
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

// DrainInbox takes in what has ended.
func (c *Claimer) DrainInbox() {
	c.Inbox.mu.Lock()
	ends := c.Inbox.ended
	c.Inbox.ended = nil
	c.Inbox.batching = false
	c.Running = c.Inbox.Running
	closed, clockOff := c.Inbox.Closed, c.Inbox.skewed
	unbarred := c.Inbox.recheckBlocked
	c.Inbox.recheckBlocked = false
	c.Inbox.mu.Unlock()
	for _, e := range ends {
		j := e.job
		j.Ended = append(j.Ended, e.EndedRun)
		if _, moves := c.Frozen[j]; moves {
			c.MarkDirty(j) // a move waits for it
		} else {
			c.holdEnds(j, time.Now())
		}
	}
	if unbarred || closed != c.Closed || clockOff != c.skewed {
		c.Closed, c.skewed = closed, clockOff
		c.markAllDirty()
	}
	if len(ends) > 0 && c.Running == 0 {
		c.markHeld()
	}
}

// setBatching lets ends wait in the inbox when those that it has taken in wait for others anyway.
func (c *Claimer) setBatching() {
	c.Inbox.mu.Lock()
	defer c.Inbox.mu.Unlock()
	c.Inbox.batching = !c.flushAt.IsZero() && len(c.Frozen) == 0 && !c.Closed
}

// addRunning takes note that n functions are called.
func (in *inbox) addRunning(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.Running += n
}

// addEnded takes note that one has returned, and reports whether the ledger is to be told now.
func (in *inbox) addEnded(e endedRun, cut bool) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.Running--; cut {
		in.cutShort++
	}
	in.ended = append(in.ended, e)
	return in.Running == 0 || !in.batching
}

// countCutShort returns how many runs the end of the session ended, or kept from beginning. To be
// called once run has returned.
func (c *Claimer) countCutShort() int {
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
