package pool

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/heap"
)

// delays are the claimed runs that wait for their instants of Schedule.Spread, or for an open transaction of an earlier attempt. They need no
// worker, goroutine or timer of their own.
type delays struct {
	tasks   heap.Heap[*Task, byBegin]
	byShard map[shardOf]*Task
	timer   *time.Timer     // for the first task; nil before there was one
	session context.Context // whose end drops its tasks
	over    bool            // the process drains: no task waits any more
}

// shardOf names a shard of a job. It has at most one claimed run in a process.
type shardOf struct {
	job   string
	shard int
}

// push adds a task.
func (d *delays) push(t *Task) {
	if d.byShard == nil {
		d.byShard = map[shardOf]*Task{}
	}
	d.byShard[shardOf{t.Job, t.Shard}] = t
	d.tasks.Push(t)
}

// remove removes a task.
func (d *delays) remove(t *Task) {
	delete(d.byShard, shardOf{t.Job, t.Shard})
	d.tasks.Keep(t, false)
}

// waitingByJob returns the tasks by job, except those whose session has ended.
func (d *delays) waitingByJob() map[string]Waits {
	out := map[string]Waits{}
	for t := range d.tasks.All() {
		if t.Ctx.Err() != nil {
			continue
		}
		w := out[t.Job]
		if since := t.Since.UTC(); w.Since.IsZero() || since.Before(w.Since) {
			w.Since = since
		}
		w.Shards, w.Behind = append(w.Shards, t.Shard), cmp.Or(t.Behind, "Spread of this job")
		out[t.Job] = w
	}
	return out
}

// AddDelayed queues t after its delay. A draining process delays nothing: it hands t back, or queues
// it if it cannot be handed back.
func (p *Pool) AddDelayed(t *Task) {
	p.mu.Lock()
	end := func() {}
	switch {
	case t.Ctx.Err() != nil:
		end = func() { t.End(context.Cause(t.Ctx)) }
	case p.delays.over:
		end = p.endDelayLocked(t)
	default:
		t.begin = time.Now().Add(t.Delay)
		p.delays.push(t)
		p.setTimerLocked()
		if p.delays.session != t.Ctx {
			p.delays.session = t.Ctx
			context.AfterFunc(t.Ctx, p.dropDelayed)
		}
	}
	p.mu.Unlock()
	end()
}

// setTimerLocked sets the timer for the first delayed task. The caller holds p.mu.
func (p *Pool) setTimerLocked() {
	d := &p.delays
	switch {
	case d.tasks.Len() == 0:
		if d.timer != nil {
			d.timer.Stop()
		}
	case d.timer == nil:
		d.timer = time.AfterFunc(time.Until(d.tasks.First().begin), p.queueDelayed)
	default:
		d.timer.Reset(time.Until(d.tasks.First().begin))
	}
}

// queueDelayed queues the tasks whose instants have come.
func (p *Pool) queueDelayed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for p.delays.tasks.Len() > 0 && !p.delays.tasks.First().begin.After(now) {
		t := p.delays.tasks.First()
		p.delays.remove(t)
		t.Since, t.Added = t.Since.Add(t.Delay), now
		p.addLocked(t)
	}
	p.setTimerLocked()
}

// HandBackDelayed hands the run of a shard back if it is delayed and its definition permits it.
func (p *Pool) HandBackDelayed(job string, shard int) {
	p.endDelays(func() []*Task {
		if t := p.delays.byShard[shardOf{job, shard}]; t != nil && t.HandsBack {
			return []*Task{t}
		}
		return nil
	})
}

// DrainDelayed ends all delays, also those to come.
func (p *Pool) DrainDelayed() {
	p.endDelays(func() []*Task {
		p.delays.over = true
		return slices.Collect(p.delays.tasks.All())
	})
}

// dropDelayed ends the delayed runs whose session has ended. Until then their shards are blocked in the
// next incarnation.
func (p *Pool) dropDelayed() {
	p.endDelays(func() []*Task {
		return slices.DeleteFunc(slices.Collect(p.delays.tasks.All()), func(t *Task) bool { return t.Ctx.Err() == nil })
	})
}

// endDelays ends the delays of the tasks that choose returns.
func (p *Pool) endDelays(choose func() []*Task) {
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
func (p *Pool) endDelayLocked(t *Task) (end func()) {
	switch {
	case t.Ctx.Err() != nil:
		return func() { t.End(context.Cause(t.Ctx)) }
	case t.HandsBack:
		return func() { t.End(p.NotBegun) }
	}
	t.Added = time.Now()
	p.addLocked(t)
	return func() {}
}

type byBegin struct{}

func (byBegin) Before(a, b *Task) bool {
	return cmp.Or(a.begin.Compare(b.begin), a.Fire.Compare(b.Fire), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Shard, b.Shard)) < 0
}

func (byBegin) Place(t *Task) *int { return &t.delayed }
