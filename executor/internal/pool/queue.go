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

// queue decides which task runs next. Each job has a bound of its own, and there may be a
// bound over all jobs. Under the latter, the job with the fewest running tasks goes first, so
// that a job of many long runs gets no worker that a job with none could use. Within a job,
// earlier fires go first.
//
// A queue is plain data: it knows no clock, no lock and no goroutine. An operation takes
// logarithmic time.
type queue struct {
	bound    int // of running tasks over all jobs; 0: none
	running  int
	waiting  int
	arrivals uint64
	jobs     map[string]*jobQueue
	ready    heap.Heap[*jobQueue, byFewestRunning]
}

// jobQueue is the tasks of one job.
type jobQueue struct {
	name    string
	bound   int // of running tasks; 0: none
	running int
	waiting taskQueue
	place   int // in queue.ready
}

// ready reports whether the job's own bound lets another task run.
func (j *jobQueue) ready() bool {
	return j.waiting.count > 0 && (j.bound == 0 || j.running < j.bound)
}

// compare orders ready jobs: fewer running tasks first, then the earlier task.
func (j *jobQueue) compare(o *jobQueue) int {
	if c := cmp.Compare(j.running, o.running); c != 0 {
		return c
	}
	return j.waiting.chains.First().compare(o.waiting.chains.First())
}

// jobQueue returns the queue of a job. It is never removed, as there is one per registered job.
func (q *queue) jobQueue(name string) *jobQueue {
	j := q.jobs[name]
	if j == nil {
		if q.jobs == nil {
			q.jobs = map[string]*jobQueue{}
		}
		j = &jobQueue{name: name}
		q.jobs[name] = j
	}
	return j
}

// setBound bounds the running tasks of a job. It stops none that runs.
func (q *queue) setBound(job string, bound int) {
	j := q.jobQueue(job)
	j.bound = bound
	q.reorder(j)
}

// add queues a task.
func (q *queue) add(t *Task) {
	q.arrivals++
	t.order = q.arrivals
	j := q.jobQueue(t.Job)
	j.waiting.push(t)
	q.waiting++
	q.reorder(j)
}

// startNext counts the next task as running and returns it, nil if none may run.
func (q *queue) startNext() *Task {
	if q.ready.Len() == 0 || q.bound > 0 && q.running >= q.bound {
		return nil
	}
	j := q.ready.First()
	t := j.waiting.pop()
	q.waiting--
	for j.waiting.count > 0 && j.waiting.chains.First().Joined { // no task is between t and those joined to it
		j.waiting.pop()
		q.waiting--
	}
	j.running++
	q.running++
	q.reorder(j)
	return t
}

// finishTask counts a task of a job as no longer running.
func (q *queue) finishTask(job string) {
	j := q.jobs[job]
	j.running--
	q.running--
	q.reorder(j)
}

// reorder updates the place of a job among the ready jobs after a change.
func (q *queue) reorder(j *jobQueue) {
	q.ready.Keep(j, j.ready())
}

// taskQueue holds the waiting tasks of a job, in order. Tasks of one fire that arrive one after the other form a chain, so
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

func (byFewestRunning) Before(a, b *jobQueue) bool { return a.compare(b) < 0 }
func (byFewestRunning) Place(j *jobQueue) *int     { return &j.place }
