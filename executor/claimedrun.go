package executor

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator"
)

// claimedRun is a claimed run until its end. It is one allocation, since thousands of shards may have a run at one instant.
type claimedRun struct {
	e       *Executor
	claim   coordinator.Run
	program *program
	done    func(error) // of coordinator.Work
	task    task
	signal  yieldSignal
	gate    gate
	items   itemCounts

	handler runningHandler // zero unless the handler has been called and has not returned; guarded by claimedRuns.mu
}

// runningHandler is a run whose handler has been called and has not returned.
type runningHandler struct {
	run   *Run
	began time.Time
}

// run runs the handler, in a worker of the pool.
func (c *claimedRun) run() { reportResult(c.callHandler, c.reportEnd) }

// endUnbegun ends a run whose handler was not called.
func (c *claimedRun) endUnbegun(err error) {
	ctx := c.task.ctx
	c.e.observeEnded(ctx, c.e.newRun(c.program, &c.claim), time.Time{}, outcomeOf(ctx, c.program, err), err)
	c.reportEnd(err)
}

// reportEnd reports the end of the run to the coordinator.
func (c *claimedRun) reportEnd(err error) {
	c.e.claimed.remove(c)
	c.done(err)
}

// callHandler calls the handler, unless it may not be called any more, and returns the result to report.
func (c *claimedRun) callHandler() error {
	p, r, began := c.program, c.e.newRun(c.program, &c.claim), time.Now()
	if r.Reason == Scheduled && began.Sub(c.task.added) > misfireGrace {
		r.Reason = Queued
	}
	defer c.gate.close()
	ctx, end := context.WithCancelCause(c.task.ctx)
	defer end(nil)
	c.signal.setCancel(end)
	if p.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(p.Timeout), ErrTimeout)
		defer cancel()
	}
	c.gate.ctx, c.gate.run = ctx, c
	r.gate, r.signal, r.log, r.items = &c.gate, &c.signal, c.e.log, &c.items
	h, err := c.begin(ctx, runningHandler{r, began})
	if err != nil {
		c.e.observeEnded(ctx, r, time.Time{}, outcomeOf(ctx, p, err), err)
		return err
	}
	return c.runHandler(ctx, h, r, began)
}

// begin returns the handler, and records that it is about to be called.
func (c *claimedRun) begin(ctx context.Context, running runningHandler) (Handler, error) {
	job, ok := c.e.findJob(c.claim.Job)
	switch {
	case !ok:
		return nil, fmt.Errorf("run %q: %w", c.claim.Job, ErrUnknownJob)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx) // the run waited until its session was lost or the next fire was due
	case !c.e.claimed.handlerStarts(c, running):
		return nil, errNotBegun
	}
	return job.Handler, nil
}

// runHandler calls h, reports its begin and its end, and returns the result to report.
func (c *claimedRun) runHandler(ctx context.Context, h Handler, r *Run, began time.Time) (err error) {
	e, p := c.e, c.program
	defer e.claimed.handlerReturned(c)
	if p.always {
		c.signal.setDaemon()
	}
	if p.Timeout > 0 {
		defer e.runs.watchTimeout(r, time.Duration(p.Timeout))()
	}
	e.observeBegun(r)
	err = errGoexit
	defer func() {
		how := outcomeOf(ctx, p, err)
		e.runs.logEnd(r, began, how, err)
		e.observeEnded(ctx, r, began, how, err)
	}()
	handed := *r // the handler may change its Run; what is decided, logged and observed rests on r
	if err = p.yieldError(ctx, &c.signal, handBackError(ctx, callHandler(ctx, h, &handed))); err != nil {
		err = p.retryError(ctx, r, time.Since(began), err)
	}
	return err
}

// shardOf names a shard of a job. It has at most one claimed run in a process.
type shardOf struct {
	job   string
	shard int
}

// claimedRuns are all claimed runs that have not ended.
type claimedRuns struct {
	mu      sync.Mutex
	of      map[string][]*claimedRun // by job, then by shard; nil: no run
	count   int
	size    int   // the length of all lists
	closing bool  // all runs are to yield, also those to come
	closed  error // the cause of cancelAll, after which no handler is called
}

// manyRuns is the size of the lists beyond which they are not kept for the next fire.
const manyRuns = 1000

// add adds a run that was claimed.
func (a *claimedRuns) add(c *claimedRun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing {
		c.signal.ask(ErrDraining)
	}
	runs := a.of[c.claim.Job]
	if c.claim.Shard >= len(runs) {
		longer := make([]*claimedRun, max(c.claim.Shards, c.claim.Shard+1))
		a.size += len(longer) - copy(longer, runs)
		runs = longer
		if a.of == nil {
			a.of = map[string][]*claimedRun{}
		}
		a.of[c.claim.Job] = runs
	}
	runs[c.claim.Shard] = c
	a.count++
}

// remove forgets a run that has ended.
func (a *claimedRuns) remove(c *claimedRun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of[c.claim.Job][c.claim.Shard] = nil
	if a.count--; a.count == 0 && a.size > manyRuns {
		a.of, a.size = nil, 0
	}
}

// find returns the run of a shard, nil if there is none. The caller holds a.mu.
func (a *claimedRuns) find(shard shardOf) *claimedRun {
	if runs := a.of[shard.job]; shard.shard < len(runs) {
		return runs[shard.shard]
	}
	return nil
}

// all returns the runs. The caller holds a.mu.
func (a *claimedRuns) all() iter.Seq[*claimedRun] {
	return func(yield func(*claimedRun) bool) {
		for _, runs := range a.of {
			for _, c := range runs {
				if c != nil && !yield(c) {
					return
				}
			}
		}
	}
}

// ask asks the run of a shard to yield, because of cause.
func (a *claimedRuns) ask(shard shardOf, cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.find(shard); c != nil {
		c.signal.ask(cause)
	}
}

// end ends the context of the run of a shard.
func (a *claimedRuns) end(shard shardOf, cause error) {
	a.mu.Lock()
	c := a.find(shard)
	a.mu.Unlock()
	if c != nil {
		c.signal.endContext(cause)
	}
}

// askAll asks all runs to yield, also those to come.
func (a *claimedRuns) askAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closing = true
	for c := range a.all() {
		c.signal.ask(ErrDraining)
	}
}

// handlerStarts records that the handler of a run is about to be called. It reports false if no handler may be called any
// more.
func (a *claimedRuns) handlerStarts(c *claimedRun, h runningHandler) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != nil {
		return false
	}
	c.handler = h
	return true
}

// handlerReturned records that the handler of a run has returned.
func (a *claimedRuns) handlerReturned(c *claimedRun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.handler = runningHandler{}
}

// cancelAll ends the contexts of all runs whose handlers have been called, with cause. No handler is called any more.
func (a *claimedRuns) cancelAll(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = cause
	for c := range a.all() {
		if c.handler.run != nil {
			c.signal.endContext(cause)
		}
	}
}

// runningHandlers returns the runs whose handlers have not returned.
func (a *claimedRuns) runningHandlers() []runningHandler {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []runningHandler
	for c := range a.all() {
		if c.handler.run != nil {
			out = append(out, c.handler)
		}
	}
	return out
}
