package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// board collects the events of runs, and chooses the instances to kill.
type board struct {
	shards int
	kill   func(instance string)

	mu         sync.Mutex
	kills      int                  // instances still to be killed
	killed     map[string]time.Time // by instance
	executions int
	begun      map[string]int   // by shard and attempt: how often
	progress   map[int]progress // by shard: of the run that began last
	stored     map[int]bool     // by shard
	changed    chan struct{}    // closed, and replaced, when a tally has been stored or a run failed
	failed     error
}

// progress is the progress of a run.
type progress struct {
	instance    string
	attempt     int
	done, total int
	stored      bool
}

func newBoard(shards, kills int) *board {
	return &board{
		shards: shards, kills: kills, killed: map[string]time.Time{}, begun: map[string]int{},
		progress: map[int]progress{}, stored: map[int]bool{}, changed: make(chan struct{}),
	}
}

// handleEvent records an event. It kills the event's instance, and reports true, if that is in the
// middle of a run, so that the run must be repeated, and kills remain.
func (b *board) handleEvent(e event) (killed bool) {
	b.mu.Lock()
	b.recordEvent(e)
	_, already := b.killed[e.Instance]
	middle := e.Kind != eventFails && 4*e.Done >= e.Total && (e.Kind != eventStored || e.Total == 0)
	now := b.kills > 0 && !already && middle
	if now {
		b.kills--
		b.killed[e.Instance] = time.Now()
	}
	b.mu.Unlock()
	if now {
		b.kill(e.Instance)
	}
	return now
}

func (b *board) recordEvent(e event) {
	if p := b.progress[e.Shard]; p.attempt <= e.Attempt {
		b.progress[e.Shard] = progress{e.Instance, e.Attempt, e.Done, e.Total, e.Kind == eventStored}
	}
	switch e.Kind {
	case eventBegins:
		b.executions++
		b.begun[fmt.Sprintf("%d/%d", e.Shard, e.Attempt)]++
		return
	case eventCounts:
		return
	case eventStored:
		b.stored[e.Shard] = true
	case eventFails:
		b.failed = errors.Join(b.failed, fmt.Errorf("%s: shard %d: %s", e.Instance, e.Shard, e.Error))
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// await waits until every shard's tally is stored.
func (b *board) await(ctx context.Context) error {
	for {
		b.mu.Lock()
		stored, failed, changed := len(b.stored), b.failed, b.changed
		b.mu.Unlock()
		if failed != nil {
			return failed
		}
		if stored >= b.shards {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %d of %d shards counted", context.Cause(ctx), stored, b.shards)
		case <-changed:
		}
	}
}
