package executor

import (
	"sync"
)

// shardOf names a shard of a job. It has at most one claimed run in a process.
type shardOf struct {
	job   string
	shard int
}

// yieldSignal asks a claimed run to yield.
type yieldSignal struct {
	asked chan struct{}
	once  sync.Once
}

// yieldSignals are the signals of all claimed runs that have not ended.
type yieldSignals struct {
	mu      sync.Mutex
	of      map[shardOf]*yieldSignal
	closing bool // all runs are to yield, also those to come
}

// add returns the signal of a run that was claimed.
func (y *yieldSignals) add(shard shardOf) *yieldSignal {
	s := &yieldSignal{asked: make(chan struct{})}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.closing {
		s.ask()
	}
	if y.of == nil {
		y.of = map[shardOf]*yieldSignal{}
	}
	y.of[shard] = s
	return s
}

// remove forgets the signal of a run that has ended.
func (y *yieldSignals) remove(shard shardOf) {
	y.mu.Lock()
	defer y.mu.Unlock()
	delete(y.of, shard)
}

// ask asks the run of a shard to yield.
func (y *yieldSignals) ask(shard shardOf) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if s := y.of[shard]; s != nil {
		s.ask()
	}
}

// askAll asks all runs to yield, also those to come.
func (y *yieldSignals) askAll() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.closing = true
	for _, s := range y.of {
		s.ask()
	}
}

func (s *yieldSignal) ask() { s.once.Do(func() { close(s.asked) }) }

// Yield is described in coordinator.Work. Moves wait for handlers, and runs that have begun go on: a
// handler may return early, and make the rest of its work in another run.
func (w work) Yield(job string, shard int, _ error) { w.yields.ask(shardOf{job, shard}) }
