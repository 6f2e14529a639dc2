package executor

import (
	"context"
	"sync"
	"time"
)

// pool runs tasks, each in a worker: a goroutine that goes on with the next task if one may
// run then. At rest it has none.
type pool struct {
	mu    sync.Mutex
	queue queue

	alarm   func() // called when tasks have waited for longWait, by a goroutine of its own
	watched bool   // a timer for that is set

	inside map[uint64]inside // the runs whose handlers have been called
	number uint64
	closed error         // why no handler is called any more
	quiet  chan struct{} // closed when nothing waits or runs; nil while nobody asks
}

// inside is a run whose handler has been called and has not returned.
type inside struct {
	id  string
	end context.CancelCauseFunc
}

// add makes t wait, and runs it as soon as the bounds permit.
func (p *pool) add(t *task) {
	t.added = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.add(t)
	p.begin()
}

// setBound bounds the running tasks of a job. Zero is no bound.
func (p *pool) setBound(job string, bound int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.setBound(job, bound)
	p.begin()
}

// begin begins all tasks that may run. p.mu is held.
func (p *pool) begin() {
	for t := p.queue.next(); t != nil; t = p.queue.next() {
		go p.worker(t)
	}
	if p.queue.waiting > 0 && !p.watched && p.alarm != nil {
		p.watched = true
		time.AfterFunc(longWait, p.alarm)
	}
}

// worker runs t and then, as long as there is one, the task whose turn has come by that.
func (p *pool) worker(t *task) {
	defer func() {
		if t == nil {
			return
		}
		if next := p.finish(t); next != nil { // a handler has called Goexit, and this goroutine ends
			go p.worker(next)
		}
	}()
	for t != nil {
		t.do()
		t = p.finish(t)
	}
}

// finish counts t as no longer running. The room that it leaves lets one other task run at
// most, which is returned.
func (p *pool) finish(t *task) (next *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.end(t.job)
	next = p.queue.next()
	if p.quiet != nil && p.queue.running == 0 {
		close(p.quiet)
		p.quiet = nil
	}
	return next
}

// watchAgain has the alarm called again after d. If no task waits, and no report is open that
// the next call is to end, it is called once tasks wait again.
func (p *pool) watchAgain(d time.Duration, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queue.waiting == 0 && !open {
		p.watched = false
		return
	}
	time.AfterFunc(d, p.alarm)
}

// waits returns the tasks that wait, by job.
func (p *pool) waits() map[string]jobWaits {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.waits()
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
	if p.queue.running == 0 { // then nothing waits
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
