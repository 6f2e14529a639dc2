package simulate

import (
	"sync"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/test/judge"
)

// callLog is the runs' own log. Handlers write to it, the judge reads it.
type callLog struct {
	mu  sync.Mutex
	log []judge.Event
}

// addBegin takes note that a handler was called.
func (l *callLog) addBegin(client string, r *executor.Run) *judge.Call {
	c := &judge.Call{
		Job: r.Job, Shard: r.Shard, Shards: r.Shards, Fire: r.FireTime, Trigger: r.Trigger, Attempt: r.Attempt,
		Fence: r.Fence, Instance: r.Instance, Client: client, Start: time.Now(),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, judge.Event{Call: c})
	return c
}

// addEnd takes note that it returns, and when its context ended if that was before.
func (l *callLog) addEnd(c *judge.Call, told time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, judge.Event{Call: c, End: time.Now(), Canceled: told})
}

// drain returns what has been logged since the last take.
func (l *callLog) drain() []judge.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.log
	l.log = nil
	return log
}
