package pool

import (
	"cmp"
	"container/heap"
	"context"
	"iter"
	"time"
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

	// For AddDelayed:
	End       func(error) // reports the end of a run that did not begin
	HandsBack bool        // the run may be handed back
	Delay     time.Duration

	order uint64    // of arrival
	next  *Task     // in a chain of taskQueue
	begin time.Time // when the delay ends
	index int       // in delays.tasks
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
	ready    readyJobs
}

// jobQueue is the tasks of one job.
type jobQueue struct {
	name    string
	bound   int // of running tasks; 0: none
	running int
	waiting taskQueue
	index   int // in queue.ready, -1 if not
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
	return j.waiting.chains[0].compare(o.waiting.chains[0])
}

// jobQueue returns the queue of a job. It is never removed, as there is one per registered job.
func (q *queue) jobQueue(name string) *jobQueue {
	j := q.jobs[name]
	if j == nil {
		if q.jobs == nil {
			q.jobs = map[string]*jobQueue{}
		}
		j = &jobQueue{name: name, index: -1}
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
	if len(q.ready) == 0 || q.bound > 0 && q.running >= q.bound {
		return nil
	}
	j := q.ready[0]
	t := j.waiting.pop()
	j.running++
	q.running++
	q.waiting--
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
	switch ready := j.ready(); {
	case ready && j.index < 0:
		heap.Push(&q.ready, j)
	case ready:
		heap.Fix(&q.ready, j.index)
	case j.index >= 0:
		heap.Remove(&q.ready, j.index)
	}
}

// taskQueue holds the waiting tasks of a job, in order. Tasks of one fire that arrive one after the other form a chain, so
// that the shards of a fire take constant time each.
type taskQueue struct {
	chains taskHeap // the first task of each chain
	last   *Task    // the last task that arrived, nil if it does not wait any more
	count  int
}

// push adds a task.
func (q *taskQueue) push(t *Task) {
	if q.last != nil && q.last.Fire.Equal(t.Fire) {
		q.last.next = t
	} else {
		heap.Push(&q.chains, t)
	}
	q.last = t
	q.count++
}

// pop removes the first task and returns it.
func (q *taskQueue) pop() *Task {
	t := q.chains[0]
	if t.next != nil {
		q.chains[0], t.next = t.next, nil // later than t, and still before the tasks of the other chains
	} else {
		heap.Pop(&q.chains)
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
		for _, t := range q.chains {
			for ; t != nil; t = t.next {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// taskHeap is a heap of tasks, for package heap.
type taskHeap []*Task

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].compare(h[j]) < 0 }
func (h taskHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is for package heap.
func (h *taskHeap) Push(x any) { *h = append(*h, x.(*Task)) }

// Pop is for package heap.
func (h *taskHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}

// readyJobs is a heap of jobs that are ready, for package heap.
type readyJobs []*jobQueue

func (h readyJobs) Len() int           { return len(h) }
func (h readyJobs) Less(i, j int) bool { return h[i].compare(h[j]) < 0 }

func (h readyJobs) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for package heap.
func (h *readyJobs) Push(x any) {
	j := x.(*jobQueue)
	j.index = len(*h)
	*h = append(*h, j)
}

// Pop is for package heap.
func (h *readyJobs) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	last.index = -1
	return last
}
