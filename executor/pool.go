package executor

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// pool runs tasks in workers. A worker is a goroutine that continues with the next task, and
// ends if none may run. An idle pool has no goroutines.
type pool struct {
	mu     sync.Mutex
	queue  queue
	delays delays

	alarm   func() // called when tasks have waited for longWait, by a goroutine of its own
	watched bool   // a timer for that is set

	handlers map[uint64]runningHandler // the runs whose handlers have been called
	number   uint64
	closed   error         // the cause of cancel, after which no handler is called
	quiet    chan struct{} // closed when nothing waits or runs; nil without a caller of idle
}

// runningHandler is a run whose handler has been called and has not returned.
type runningHandler struct {
	run   *Run
	began time.Time
	end   context.CancelCauseFunc
}

// add queues t, which runs as soon as the bounds permit.
func (p *pool) add(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addLocked(t)
}

// addLocked is add. The caller holds p.mu.
func (p *pool) addLocked(t *task) {
	t.added = time.Now()
	p.queue.add(t)
	p.startTasksLocked()
}

// setBound bounds the running tasks of a job. Zero is no bound.
func (p *pool) setBound(job string, bound int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.setBound(job, bound)
	p.startTasksLocked()
}

// startTasksLocked starts all tasks that may run. The caller holds p.mu.
func (p *pool) startTasksLocked() {
	for t := p.queue.startNext(); t != nil; t = p.queue.startNext() {
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
		if next := p.finishTask(t); next != nil { // a handler has called Goexit, and this goroutine ends
			go p.worker(next)
		}
	}()
	for t != nil {
		t.do()
		t = p.finishTask(t)
	}
}

// finishTask counts t as no longer running. At most one other task may run in its place, which is
// returned.
func (p *pool) finishTask(t *task) (next *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.finishTask(t.job)
	next = p.queue.startNext()
	p.closeQuietLocked()
	return next
}

// closeQuietLocked closes quiet if nothing waits or runs. The caller holds p.mu.
func (p *pool) closeQuietLocked() {
	if p.quiet != nil && p.isQuietLocked() {
		close(p.quiet)
		p.quiet = nil
	}
}

// isQuietLocked reports whether nothing waits or runs. If nothing runs, nothing waits for a worker.
func (p *pool) isQuietLocked() bool { return p.queue.running == 0 && len(p.delays.tasks) == 0 }

// watchAgain calls the alarm after d. If no task waits and no report is open, it instead
// waits for the next task that must wait.
func (p *pool) watchAgain(d time.Duration, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queue.waiting == 0 && !open {
		p.watched = false
		return
	}
	time.AfterFunc(d, p.alarm)
}

// waitingByJob returns the tasks that wait, by job.
func (p *pool) waitingByJob() map[string]jobWaits {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.waitingByJob()
}

// taskCounts is the number of tasks of a job that run, and that wait.
type taskCounts struct{ running, waiting int }

// countByJob returns the number of tasks of each job that has some.
func (p *pool) countByJob() map[string]taskCounts {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]taskCounts{}
	for name, j := range p.queue.jobs {
		if c := (taskCounts{j.running, len(j.waiting)}); c != (taskCounts{}) {
			out[name] = c
		}
	}
	return out
}

// delayedByJob returns the delayed tasks, by job.
func (p *pool) delayedByJob() map[string]Waiting {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delays.waitingByJob()
}

// handlerStarts records that a handler is about to be called, and returns a number for handlerReturned. It
// reports false if no handler may be called any more.
func (p *pool) handlerStarts(r *Run, end context.CancelCauseFunc) (number uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return 0, false
	}
	if p.handlers == nil {
		p.handlers = map[uint64]runningHandler{}
	}
	p.number++
	p.handlers[p.number] = runningHandler{r, time.Now(), end}
	return p.number, true
}

// handlerReturned records that the handler with this number has returned.
func (p *pool) handlerReturned(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.handlers, number)
}

// cancelRuns ends the contexts of all runs, and of those to come, with cause.
func (p *pool) cancelRuns(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = cause
	for _, r := range p.handlers {
		r.end(cause)
	}
}

// idle returns a channel that is closed when nothing waits or runs.
func (p *pool) idle() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isQuietLocked() {
		done := make(chan struct{})
		close(done)
		return done
	}
	if p.quiet == nil {
		p.quiet = make(chan struct{})
	}
	return p.quiet
}

// runningHandlers returns the runs whose handlers have not returned.
func (p *pool) runningHandlers() []runningHandler {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.handlers))
}
