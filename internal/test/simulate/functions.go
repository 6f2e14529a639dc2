package simulate

import (
	"sync"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/test/judge"
)

// functions is the runs' own log. Handlers write to it, the judge reads it.
type functions struct {
	mu  sync.Mutex
	log []judge.Event
}

// begin takes note that a handler was called.
func (l *functions) begin(client string, r *executor.Run) *judge.Call {
	c := &judge.Call{
		Job: r.Job, Shard: r.Shard, Shards: r.Shards, Fire: r.FireTime, Trigger: r.Trigger, Attempt: r.Attempt,
		Fence: r.Fence, Instance: r.Instance, Client: client, Start: time.Now(),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, judge.Event{Call: c})
	return c
}

// end takes note that it returns, and when its context ended if that was before.
func (l *functions) end(c *judge.Call, told time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, judge.Event{Call: c, End: time.Now(), Canceled: told})
}

// take returns what has been logged since the last take.
func (l *functions) take() []judge.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.log
	l.log = nil
	return log
}
