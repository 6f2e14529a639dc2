package executor

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator"
)

// delays are the claimed runs that wait for their instants of Schedule.Spread. They need no worker,
// goroutine or timer of their own.
type delays struct {
	tasks   delayHeap
	byShard map[shardOf]*task
	timer   *time.Timer     // for the first task; nil before there was one
	session context.Context // whose end drops its tasks
	over    bool            // the process drains: no task waits any more
}

// errNotBegun is the result of a run that is handed back before its instant.
var errNotBegun = fmt.Errorf("%w before it began", coordinator.ErrHandedBack)

// push adds a task.
func (d *delays) push(t *task) {
	if d.byShard == nil {
		d.byShard = map[shardOf]*task{}
	}
	d.byShard[shardOf{t.job, t.shard}] = t
	heap.Push(&d.tasks, t)
}

// remove removes a task.
func (d *delays) remove(t *task) {
	delete(d.byShard, shardOf{t.job, t.shard})
	heap.Remove(&d.tasks, t.index)
}

// waitingByJob returns the tasks by job, except those whose session has ended.
func (d *delays) waitingByJob() map[string]Waiting {
	out := map[string]Waiting{}
	for _, t := range d.tasks {
		if t.ctx.Err() != nil {
			continue
		}
		w := out[t.job]
		if since := t.since.UTC(); w.Since.IsZero() || since.Before(w.Since) {
			w.Since = since
		}
		w.Shards, w.Behind = append(w.Shards, t.shard), "Spread of this job"
		out[t.job] = w
	}
	return out
}

// addDelayed queues t after its delay. A draining process delays nothing: it hands t back, or queues
// it if it cannot be handed back.
func (p *pool) addDelayed(t *task) {
	p.mu.Lock()
	end := func() {}
	switch {
	case t.ctx.Err() != nil:
		end = func() { t.end(context.Cause(t.ctx)) }
	case p.delays.over:
		end = p.endDelayLocked(t)
	default:
		t.begin = time.Now().Add(t.delay)
		p.delays.push(t)
		p.setTimerLocked()
		if p.delays.session != t.ctx {
			p.delays.session = t.ctx
			context.AfterFunc(t.ctx, p.dropDelayed)
		}
	}
	p.mu.Unlock()
	end()
}

// setTimerLocked sets the timer for the first delayed task. The caller holds p.mu.
func (p *pool) setTimerLocked() {
	d := &p.delays
	switch {
	case len(d.tasks) == 0:
		if d.timer != nil {
			d.timer.Stop()
		}
	case d.timer == nil:
		d.timer = time.AfterFunc(time.Until(d.tasks[0].begin), p.queueDelayed)
	default:
		d.timer.Reset(time.Until(d.tasks[0].begin))
	}
}

// queueDelayed queues the tasks whose instants have come.
func (p *pool) queueDelayed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for len(p.delays.tasks) > 0 && !p.delays.tasks[0].begin.After(now) {
		t := p.delays.tasks[0]
		p.delays.remove(t)
		t.since, t.added = t.since.Add(t.delay), now
		p.addLocked(t)
	}
	p.setTimerLocked()
}

// handBackDelayed hands the run of a shard back if it is delayed and its definition permits it.
func (p *pool) handBackDelayed(job string, shard int) {
	p.endDelays(func() []*task {
		if t := p.delays.byShard[shardOf{job, shard}]; t != nil && t.handsBack {
			return []*task{t}
		}
		return nil
	})
}

// drainDelayed ends all delays, also those to come.
func (p *pool) drainDelayed() {
	p.endDelays(func() []*task {
		p.delays.over = true
		return slices.Clone(p.delays.tasks)
	})
}

// dropDelayed ends the delayed runs whose session has ended. Until then their shards are blocked in the
// next incarnation.
func (p *pool) dropDelayed() {
	p.endDelays(func() []*task {
		return slices.DeleteFunc(slices.Clone(p.delays.tasks), func(t *task) bool { return t.ctx.Err() == nil })
	})
}

// endDelays ends the delays of the tasks that choose returns.
func (p *pool) endDelays(choose func() []*task) {
	p.mu.Lock()
	var ends []func()
	for _, t := range choose() {
		p.delays.remove(t)
		ends = append(ends, p.endDelayLocked(t))
	}
	p.setTimerLocked()
	p.mu.Unlock()
	for _, end := range ends {
		end()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeQuietLocked()
}

// endDelayLocked ends the delay of a task before its instant. It queues the task, or returns a function that
// reports its end, which the caller calls without p.mu.
func (p *pool) endDelayLocked(t *task) (end func()) {
	switch {
	case t.ctx.Err() != nil:
		return func() { t.end(context.Cause(t.ctx)) }
	case t.handsBack:
		return func() { t.end(errNotBegun) }
	}
	t.added = time.Now()
	p.addLocked(t)
	return func() {}
}

// delayHeap is a heap of tasks by the instants at which they begin, for package heap.
type delayHeap []*task

func (h delayHeap) Len() int { return len(h) }

func (h delayHeap) Less(i, j int) bool {
	return cmp.Or(h[i].begin.Compare(h[j].begin), h[i].fire.Compare(h[j].fire), cmp.Compare(h[i].job, h[j].job), cmp.Compare(h[i].shard, h[j].shard)) < 0
}

func (h delayHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for package heap.
func (h *delayHeap) Push(x any) {
	t := x.(*task)
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop is for package heap.
func (h *delayHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
