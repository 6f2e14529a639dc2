package pool

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/rota-dev/rota/internal/heap"
)

// Task is a claimed run that waits for a worker, or has one.
type Task struct {
	Job   string
	Kind  string // of a defined job, which shares the lane of its kind; empty: the job has a lane of its own
	Shard int
	Fire  time.Time
	Since time.Time       // when it was added, by the clock of this instance
	Added time.Time       // the same instant, to measure how long it waits
	Ctx   context.Context // of the session: once it has ended, the handler is not called
	Do    func()

	// Joined has the task begin and end with the one that was added before it in the same call of Add, for the same job and
	// fire: Do of that one runs both. They count as one for the bounds.
	Joined bool

	// For AddDelayed:
	HandsBack bool        // the run may be handed back
	End       func(error) // reports the end of a run that did not begin
	Delay     time.Duration
	Behind    string // the reason of the delay; empty: its instant of Schedule.Spread

	order   uint64    // of arrival
	next    *Task     // in a chain of taskQueue
	begin   time.Time // when the delay ends
	delayed int       // its place in delays.tasks
}

// compare orders tasks by fire, then by arrival.
func (t *Task) compare(o *Task) int {
	if c := t.Fire.Compare(o.Fire); c != 0 {
		return c
	}
	return cmp.Compare(t.order, o.order)
}

// Lane names a job, or a kind of jobs, whose tasks have one bound.
type Lane struct {
	Name   string
	IsKind bool
}

// String returns the lane as texts for people name it.
func (l Lane) String() string {
	if l.IsKind {
		return "kind " + l.Name
	}
	return l.Name
}

// lane returns the lane of t.
func (t *Task) lane() Lane {
	if t.Kind != "" {
		return Lane{t.Kind, true}
	}
	return Lane{t.Job, false}
}

// queue decides which task runs next. Each lane has a bound of its own, and there may be a
// bound over all lanes. Under the latter, the lane with the fewest running tasks goes first, so
// that a job of many long runs gets no worker that a job with none could use. Within a lane,
// earlier fires go first, whichever job they are of.
//
// A queue is plain data: it knows no clock, no lock and no goroutine. An operation takes
// logarithmic time.
type queue struct {
	bound    int // of running tasks over all lanes; 0: none
	running  int
	waiting  int
	arrivals uint64
	lanes    map[Lane]*laneQueue
	ready    heap.Heap[*laneQueue, byFewestRunning]
}

// laneQueue is the tasks of one lane.
type laneQueue struct {
	Lane
	bound   int // of running tasks; 0: none
	running int
	waiting taskQueue
	jobs    map[string]Counts // of a kind: the jobs that have tasks
	place   int               // in queue.ready
}

// ready reports whether the lane's own bound lets another task run.
func (l *laneQueue) ready() bool {
	return l.waiting.count > 0 && (l.bound == 0 || l.running < l.bound)
}

// compare orders ready lanes: fewer running tasks first, then the earlier task.
func (l *laneQueue) compare(o *laneQueue) int {
	if c := cmp.Compare(l.running, o.running); c != 0 {
		return c
	}
	return l.waiting.chains.First().compare(o.waiting.chains.First())
}

// count adds to the numbers of tasks of a job. A kind may have any number of jobs, so those without tasks are forgotten.
func (l *laneQueue) count(job string, running, waiting int) {
	if !l.IsKind {
		return
	}
	c := l.jobs[job]
	c.Running, c.Waiting, c.Kind = c.Running+running, c.Waiting+waiting, l.Name
	if c.Running+c.Waiting == 0 {
		delete(l.jobs, job)
		return
	}
	if l.jobs == nil {
		l.jobs = map[string]Counts{}
	}
	l.jobs[job] = c
}

// laneQueue returns the queue of a lane. It is never removed, as there is one per registered job or kind.
func (q *queue) laneQueue(of Lane) *laneQueue {
	l := q.lanes[of]
	if l == nil {
		if q.lanes == nil {
			q.lanes = map[Lane]*laneQueue{}
		}
		l = &laneQueue{Lane: of}
		q.lanes[of] = l
	}
	return l
}

// setBound bounds the running tasks of a lane. It stops none that runs.
func (q *queue) setBound(of Lane, bound int) {
	l := q.laneQueue(of)
	l.bound = bound
	q.reorder(l)
}

// add queues a task.
func (q *queue) add(t *Task) {
	q.arrivals++
	t.order = q.arrivals
	l := q.laneQueue(t.lane())
	l.waiting.push(t)
	l.count(t.Job, 0, 1)
	q.waiting++
	q.reorder(l)
}

// startNext counts the next task as running and returns it, nil if none may run.
func (q *queue) startNext() *Task {
	if q.ready.Len() == 0 || q.bound > 0 && q.running >= q.bound {
		return nil
	}
	l := q.ready.First()
	t := l.waiting.pop()
	l.count(t.Job, 1, -1)
	q.waiting--
	for l.waiting.count > 0 && l.waiting.chains.First().Joined { // no task is between t and those joined to it
		l.waiting.pop()
		l.count(t.Job, 0, -1)
		q.waiting--
	}
	l.running++
	q.running++
	q.reorder(l)
	return t
}

// finishTask counts a task as no longer running.
func (q *queue) finishTask(t *Task) {
	l := q.lanes[t.lane()]
	l.count(t.Job, -1, 0)
	l.running--
	q.running--
	q.reorder(l)
}

// reorder updates the place of a lane among the ready lanes after a change.
func (q *queue) reorder(l *laneQueue) {
	q.ready.Keep(l, l.ready())
}

// taskQueue holds the waiting tasks of a lane, in order. Tasks of one fire that arrive one after the other form a chain, so
// that the shards of a fire take constant time each.
type taskQueue struct {
	chains heap.Heap[*Task, byArrival] // the first task of each chain
	last   *Task                       // the last task that arrived, nil if it does not wait any more
	count  int
}

// push adds a task.
func (q *taskQueue) push(t *Task) {
	if q.last != nil && q.last.Fire.Equal(t.Fire) {
		q.last.next = t
	} else {
		q.chains.Push(t)
	}
	q.last = t
	q.count++
}

// pop removes the first task and returns it.
func (q *taskQueue) pop() *Task {
	t := q.chains.First()
	if t.next != nil {
		q.chains.ReplaceFirst(t.next)
		t.next = nil
	} else {
		q.chains.Pop()
	}
	if t == q.last {
		q.last = nil
	}
	q.count--
	return t
}

// all returns the tasks, in no order.
func (q *taskQueue) all() iter.Seq[*Task] {
	return func(yield func(*Task) bool) {
		for t := range q.chains.All() {
			for ; t != nil; t = t.next {
				if !yield(t) {
					return
				}
			}
		}
	}
}

type byArrival struct{}

func (byArrival) Before(a, b *Task) bool { return a.compare(b) < 0 }
func (byArrival) Place(*Task) *int       { return nil }

type byFewestRunning struct{}

func (byFewestRunning) Before(a, b *laneQueue) bool { return a.compare(b) < 0 }
func (byFewestRunning) Place(l *laneQueue) *int     { return &l.place }
