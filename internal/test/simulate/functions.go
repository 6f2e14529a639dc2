package simulate

import (
	"sync"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/test/judge"
)

// callLog is the log of calls. Handlers write to it, the judge reads it.
type callLog struct {
	mu  sync.Mutex
	log []judge.Event
}

// addBegin records the begin of a call.
func (l *callLog) addBegin(client string, r *executor.Run) *judge.Call {
	c := &judge.Call{
		Job: r.Job, Shard: r.Shard, Shards: r.Shards, Fire: r.FireTime, Trigger: r.Trigger, Attempt: r.Attempt,
		Fence: r.Fence, Key: r.Key, Instance: r.Instance, Client: client, Start: time.Now(),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, judge.Event{Call: c})
	return c
}

// addEnd records the end of a call, when its context ended if that was earlier, and whether it returns an error.
func (l *callLog) addEnd(c *judge.Call, canceled time.Time, failed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, judge.Event{Call: c, End: time.Now(), Canceled: canceled, Failed: failed})
}

// drain returns the events since the last call.
func (l *callLog) drain() []judge.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.log
	l.log = nil
	return log
}
