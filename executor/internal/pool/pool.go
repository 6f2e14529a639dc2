// Package pool runs the claimed runs of a process in workers, within bounds, after their delays. It knows no registry and no handler.
package pool

import (
	"iter"
	"maps"
	"time"

	"github.com/rota-dev/rota/internal/mutex"
)

// Pool runs tasks in workers. A worker is a goroutine that continues with the next task, and
// ends if none may run. An idle pool has no goroutines.
type Pool struct {
	Options

	mu     mutex.Mutex
	queue  queue
	delays delays

	watched bool // a timer for the alarm is set

	quiet chan struct{} // closed when nothing waits or runs; nil without a caller of idle
}

// Options configure a Pool.
type Options struct {
	Bound    int           // of running tasks over all lanes; 0: none
	Alarm    func()        // called when tasks have waited for LongWait, by a goroutine of its own
	LongWait time.Duration // of Alarm
	NotBegun error         // the result of a run that is handed back before its instant
}

// New returns an idle Pool.
func New(o Options) *Pool { return &Pool{Options: o, queue: queue{bound: o.Bound}} }

// Add queues tasks, which run as soon as the bounds permit.
func (p *Pool) Add(tasks iter.Seq[*Task]) {
	p.mu.Lock()
	for t := range tasks {
		p.queue.add(t)
	}
	p.mu.Unlock()
	p.startTasks()
}

// startTasks starts all tasks that may run. Workers that have ended a short task meanwhile continue with the next one, so
// that many short tasks need few goroutines.
func (p *Pool) startTasks() {
	for t := p.startTask(); t != nil; t = p.startTask() {
		go p.worker(t)
	}
}

// startTask counts the next task as running and returns it, nil if none may run.
func (p *Pool) startTask() *Task {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.queue.startNext()
	if t == nil {
		p.watchLocked()
	}
	return t
}

// addLocked queues t, and starts it if the bounds permit. The caller holds p.mu.
func (p *Pool) addLocked(t *Task) {
	p.queue.add(t)
	p.startTasksLocked()
}

// SetBound bounds the running tasks of a lane. Zero is no bound.
func (p *Pool) SetBound(of Lane, bound int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.setBound(of, bound)
	p.startTasksLocked()
}

// startTasksLocked starts all tasks that may run. The caller holds p.mu.
func (p *Pool) startTasksLocked() {
	for t := p.queue.startNext(); t != nil; t = p.queue.startNext() {
		go p.worker(t)
	}
	p.watchLocked()
}

// watchLocked sets the timer of the alarm if tasks wait. The caller holds p.mu.
func (p *Pool) watchLocked() {
	if p.queue.waiting > 0 && !p.watched && p.Alarm != nil {
		p.watched = true
		time.AfterFunc(p.LongWait, p.Alarm)
	}
}

// worker runs t and then, as long as there is one, the task whose turn has come by that.
func (p *Pool) worker(t *Task) {
	defer func() {
		if t == nil {
			return
		}
		if next := p.finishTask(t); next != nil { // a handler has called Goexit, and this goroutine ends
			go p.worker(next)
		}
	}()
	for t != nil {
		t.Do()
		t = p.finishTask(t)
	}
}

// finishTask counts t as no longer running. At most one other task may run in its place, which is
// returned.
func (p *Pool) finishTask(t *Task) (next *Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.finishTask(t)
	next = p.queue.startNext()
	p.closeQuietLocked()
	return next
}

// closeQuietLocked closes quiet if nothing waits or runs. The caller holds p.mu.
func (p *Pool) closeQuietLocked() {
	if p.quiet != nil && p.isQuietLocked() {
		close(p.quiet)
		p.quiet = nil
	}
}

// isQuietLocked reports whether nothing waits or runs.
func (p *Pool) isQuietLocked() bool { return p.queue.running+p.queue.waiting+p.delays.tasks.Len() == 0 }

// WatchAgain calls the alarm after d. If no task waits and no report is open, it instead
// waits for the next task that must wait.
func (p *Pool) WatchAgain(d time.Duration, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queue.waiting == 0 && !open {
		p.watched = false
		return
	}
	time.AfterFunc(d, p.Alarm)
}

// WaitingByJob returns the tasks that wait, by job.
func (p *Pool) WaitingByJob() map[string]Waits {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.waitingByJob()
}

// Counts is the number of tasks of a job that run, and that wait.
type Counts struct {
	Running, Waiting int
	Kind             string // of a defined job
}

// CountByJob returns the number of tasks of each job that has some.
func (p *Pool) CountByJob() map[string]Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]Counts{}
	for _, l := range p.queue.lanes {
		if l.IsKind {
			maps.Copy(out, l.jobs)
		} else if c := (Counts{Running: l.running, Waiting: l.waiting.count}); c != (Counts{}) {
			out[l.Name] = c
		}
	}
	return out
}

// DelayedByJob returns the delayed tasks, by job.
func (p *Pool) DelayedByJob() map[string]Waits {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delays.waitingByJob()
}

// Idle returns a channel that is closed when nothing waits or runs.
func (p *Pool) Idle() <-chan struct{} {
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
