package executor

import (
	"iter"
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

	quiet chan struct{} // closed when nothing waits or runs; nil without a caller of idle
}

// add queues tasks, which run as soon as the bounds permit.
func (p *pool) add(tasks iter.Seq[*task]) {
	p.mu.Lock()
	for t := range tasks {
		p.queue.add(t)
	}
	p.mu.Unlock()
	p.startTasks()
}

// startTasks starts all tasks that may run. Workers that have ended a short task meanwhile continue with the next one, so
// that many short tasks need few goroutines.
func (p *pool) startTasks() {
	for t := p.startTask(); t != nil; t = p.startTask() {
		go p.worker(t)
	}
}

// startTask counts the next task as running and returns it, nil if none may run.
func (p *pool) startTask() *task {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.queue.startNext()
	if t == nil {
		p.watchLocked()
	}
	return t
}

// addLocked queues t, and starts it if the bounds permit. The caller holds p.mu.
func (p *pool) addLocked(t *task) {
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
	p.watchLocked()
}

// watchLocked sets the timer of the alarm if tasks wait. The caller holds p.mu.
func (p *pool) watchLocked() {
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

// isQuietLocked reports whether nothing waits or runs.
func (p *pool) isQuietLocked() bool { return p.queue.running+p.queue.waiting+len(p.delays.tasks) == 0 }

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
		if c := (taskCounts{j.running, j.waiting.count}); c != (taskCounts{}) {
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
