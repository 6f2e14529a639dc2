package executor

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// pool runs tasks in a bounded number of goroutines, those of earlier fires first. At
// rest it has none.
type pool struct {
	mu      sync.Mutex
	room    int // goroutines that may still be begun
	waiting tasks
	added   uint64

	inside map[uint64]inside // the runs whose handlers have been called
	number uint64
	closed error         // why no handler is called any more
	quiet  chan struct{} // closed when nothing waits or runs; nil while nobody asks
	busy   int           // tasks that wait or run
}

// inside is a run whose handler has been called and has not returned.
type inside struct {
	id  string
	end context.CancelCauseFunc
}

type task struct {
	fire  time.Time
	do    func()
	order uint64
}

// add has t done when there is room.
func (p *pool) add(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.added++
	p.busy++
	t.order = p.added
	heap.Push(&p.waiting, t)
	if p.room > 0 {
		p.room--
		go p.worker()
	}
}

func (p *pool) worker() {
	idle := false
	defer func() {
		if !idle { // a handler has called Goexit, and this goroutine ends
			p.finish()
			go p.worker()
		}
	}()
	for {
		p.mu.Lock()
		if len(p.waiting) == 0 {
			p.room++
			p.mu.Unlock()
			idle = true
			return
		}
		t := heap.Pop(&p.waiting).(*task)
		p.mu.Unlock()
		t.do()
		p.finish()
	}
}

func (p *pool) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	if p.busy == 0 && p.quiet != nil {
		close(p.quiet)
		p.quiet = nil
	}
}

// enter says that a handler is called, and numbers it for leave. It reports false if none
// may be called any more.
func (p *pool) enter(id string, end context.CancelCauseFunc) (number uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return 0, false
	}
	if p.inside == nil {
		p.inside = map[uint64]inside{}
	}
	p.number++
	p.inside[p.number] = inside{id, end}
	return p.number, true
}

// leave says that the handler with this number has returned.
func (p *pool) leave(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.inside, number)
}

// cancel ends the contexts of all runs, and of those to come, with cause.
func (p *pool) cancel(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = cause
	for _, r := range p.inside {
		r.end(cause)
	}
}

// idle returns a channel that is closed when nothing waits or runs.
func (p *pool) idle() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if p.quiet == nil {
		p.quiet = make(chan struct{})
	}
	return p.quiet
}

// running returns the ids of the runs whose handlers have not returned.
func (p *pool) running() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]string, 0, len(p.inside))
	for _, r := range p.inside {
		ids = append(ids, r.id)
	}
	return ids
}

// tasks is a heap of tasks by fire, then by arrival.
type tasks []*task

func (t tasks) Len() int { return len(t) }

func (t tasks) Less(i, j int) bool {
	if c := t[i].fire.Compare(t[j].fire); c != 0 {
		return c < 0
	}
	return t[i].order < t[j].order
}

func (t tasks) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

// Push is for package heap.
func (t *tasks) Push(x any) { *t = append(*t, x.(*task)) }

// Pop is for package heap.
func (t *tasks) Pop() any {
	old := *t
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	return last
}
