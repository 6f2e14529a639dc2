package executor

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/executor/internal/pool"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/ownership"
	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/internal/record"
)

// claim is what the runs of one claim have in common. It does not change once they begin.
type claim struct {
	claimer.Run // without its Shard
	e           *Executor
	program     *program
	names       record.RunNames
	done        claimer.Done
	gathering   *gathering // of the runs that begin at once; nil if each begins alone
}

// startDelay returns how long the run of a shard waits until its instant of Schedule.Spread, from now.
func (c *claim) startDelay(shard int, now time.Time) time.Duration {
	if c.Trigger > 0 {
		return 0
	}
	offset := c.program.fires.Offset(c.Job, shard)
	if offset == 0 {
		return 0
	}
	return min(c.Fire.Add(offset).Sub(now), offset)
}

// errNotBegun is the result of a run that is handed back before its instant.
var errNotBegun = fmt.Errorf("%w before it began", claimer.ErrHandedBack)

// claimedRun is a claimed run until its end. It is one small allocation, since thousands of shards may have a run at one
// instant.
type claimedRun struct {
	claim  *claim
	task   pool.Task
	signal yieldSignal
	gate   gate
	notes  runNotes
	queued bool // it waited for a worker; set before the handler is called

	earlier    *earlier    // nil until it is asked for
	completing atomic.Bool // the handler has called Run.EndIn

	called   time.Time // when the handler was called, zero before that; guarded by claimedRuns.mu
	returned atomic.Bool
}

// runningHandler is a run whose handler has been called and has not returned.
type runningHandler struct {
	run   *Run
	began time.Time
}

// isRunning reports whether the handler has been called and has not returned. The caller holds claimedRuns.mu.
func (c *claimedRun) isRunning() bool { return !c.called.IsZero() && !c.returned.Load() }

// newRun returns another Run of c, since the handler may change the one that it was given.
func (c *claimedRun) newRun() *Run {
	r := c.claim.newRun(c.task.Shard)
	r.notes = &c.notes
	if c.queued && r.Reason == Scheduled {
		r.Reason = Queued
	}
	return r
}

// run runs the handler, in a worker of the pool.
func (c *claimedRun) run() {
	if c.postponed() {
		return
	}
	if g := c.gathering(); g != nil {
		defer g.Leave(c.task.Shard)
	}
	reportResult(c.callHandler, c.reportEnd)
}

// endUnbegun ends a run whose handler was not called.
func (c *claimedRun) endUnbegun(err error) {
	ctx := c.task.Ctx
	c.observeEnded(ctx, time.Time{}, outcomeOf(ctx, c.claim.program, err), err)
	c.reportEnd(err)
}

// reportEnd reports the end of the run to the coordinator.
func (c *claimedRun) reportEnd(err error) {
	c.claim.e.claimed.remove(c)
	if g := c.gathering(); g == nil || !g.End(c.task.Shard, claimer.End{Shard: c.task.Shard, Err: err}) {
		c.claim.done(c.task.Shard, err)
	}
}

// callHandler calls the handler, unless it may not be called any more, and returns the result to report.
func (c *claimedRun) callHandler() error {
	p, began := c.claim.program, time.Now()
	c.queued = began.Sub(c.task.Added) > misfireGrace
	defer c.gate.close()
	ctx, end := context.WithCancelCause(c.task.Ctx)
	defer end(nil)
	c.signal.setCancel(end)
	if p.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(p.Timeout), ErrTimeout)
		defer cancel()
	}
	c.gate.ctx, c.gate.run = ctx, c
	if ended, err := c.endAsEarlier(ctx); ended {
		c.observeEnded(ctx, time.Time{}, outcomeOf(ctx, p, err), err)
		return err
	}
	h, err := c.begin(ctx, began)
	if err != nil {
		c.observeEnded(ctx, time.Time{}, outcomeOf(ctx, p, err), err)
		return err
	}
	return c.runHandler(ctx, h, began)
}

// begin returns the handler, and records that it is about to be called.
func (c *claimedRun) begin(ctx context.Context, began time.Time) (Handler, error) {
	h, err := c.findHandler()
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, context.Cause(ctx) // the run waited until its session was lost or the next fire was due
	case !c.claim.e.claimed.handlerStarts(c, began):
		return nil, errNotBegun
	}
	return h, nil
}

// findHandler returns the handler for the run.
func (c *claimedRun) findHandler() (Handler, error) {
	if g := c.gathering(); g != nil && g.handler != nil {
		return g.handler, nil
	}
	return c.claim.findHandler()
}

// runHandler calls h, reports its begin and its end, and returns the result to report.
func (c *claimedRun) runHandler(ctx context.Context, h Handler, began time.Time) (err error) {
	e, p := c.claim.e, c.claim.program
	defer c.returned.Store(true)
	if p.always {
		c.signal.setDaemon()
	}
	if p.Timeout > 0 {
		defer e.runs.watchTimeout(c.newRun(), time.Duration(p.Timeout))()
	}
	c.observeBegun()
	err = errGoexit
	defer func() {
		how := outcomeOf(ctx, p, err)
		if e.runs.logs(how) {
			e.runs.logEnd(c.newRun(), began, how, err)
		}
		c.observeEnded(ctx, began, how, err)
	}()
	r := c.newRun()
	r.gate, r.signal, r.log = &c.gate, &c.signal, e.log
	if err = p.yieldError(ctx, &c.signal, handBackError(ctx, c.settle(callHandler(ctx, h, r)))); err != nil {
		err = p.retryError(ctx, c.newRun(), time.Since(began), err)
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
	mu      mutex.Mutex
	of      map[string]*runsOfJob // by job
	count   int
	size    int   // the length of all lists
	closing bool  // all runs are to yield, also those to come
	closed  error // the cause of cancelAll, after which no handler is called
}

// runsOfJob are the claimed runs of a job.
type runsOfJob struct {
	of    []*claimedRun // by shard; nil: no run
	count int
}

// manyRuns is the size of the lists beyond which they are not kept for the next fire.
const manyRuns = 1000

// add adds the runs of a claim.
func (a *claimedRuns) add(c *claim, runs []*claimedRun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.of[c.Job]
	if all == nil {
		if all = (&runsOfJob{}); a.of == nil {
			a.of = map[string]*runsOfJob{}
		}
		a.of[c.Job] = all
	}
	if c.Shards > len(all.of) {
		longer := make([]*claimedRun, c.Shards)
		a.size += len(longer) - copy(longer, all.of)
		all.of = longer
	}
	for _, r := range runs {
		if a.closing {
			r.signal.ask(ErrDraining)
		}
		all.of[r.task.Shard] = r
	}
	all.count += len(runs)
	a.count += len(runs)
}

// remove forgets a run that has ended. With the last one of a defined job it forgets the job, of which there may be any number.
func (a *claimedRuns) remove(c *claimedRun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.of[c.claim.Job]
	all.of[c.task.Shard] = nil
	if all.count--; all.count == 0 && c.claim.program.Kind != "" {
		a.size -= len(all.of)
		delete(a.of, c.claim.Job)
	}
	if a.count--; a.count == 0 && a.size > manyRuns {
		a.of, a.size = nil, 0
	}
}

// find returns the run of a shard, nil if there is none. The caller holds a.mu.
func (a *claimedRuns) find(shard shardOf) *claimedRun {
	if runs := a.of[shard.job]; runs != nil && shard.shard < len(runs.of) {
		return runs.of[shard.shard]
	}
	return nil
}

// all returns the runs. The caller holds a.mu.
func (a *claimedRuns) all() iter.Seq[*claimedRun] {
	return func(yield func(*claimedRun) bool) {
		for _, runs := range a.of {
			for _, c := range runs.of {
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
func (a *claimedRuns) handlerStarts(c *claimedRun, at time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != nil {
		return false
	}
	c.called = at
	return true
}

// cancelAll ends the contexts of all runs whose handlers have been called, with cause. No handler is called any more.
func (a *claimedRuns) cancelAll(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = cause
	for c := range a.all() {
		if c.isRunning() {
			c.signal.endContext(cause)
		}
	}
}

// countRunning returns the number of runs whose handlers have not returned, by job.
func (a *claimedRuns) countRunning() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]int{}
	for c := range a.all() {
		if c.isRunning() {
			out[c.claim.Job]++
		}
	}
	return out
}

// runningHandlers returns the runs whose handlers have not returned.
func (a *claimedRuns) runningHandlers() []runningHandler {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []runningHandler
	for c := range a.all() {
		if c.isRunning() {
			out = append(out, runningHandler{c.newRun(), c.called})
		}
	}
	return out
}

// newAccess returns the access of the run to the registry.
func (c *claimedRun) newAccess() *ownership.Access {
	e, key := c.claim.e, record.Segment(c.claim.Job)
	return ownership.NewAccess(c.task.Ctx, e.reg, c.claim.Session, e.keys.Data(key, c.task.Shard))
}

// newRun returns the run of a shard.
func (c *claim) newRun(shard int) *Run {
	e, p := c.e, c.program
	id, key := c.names.Of(shard)
	r := &Run{RunInfo: RunInfo{
		ID: id, Key: key, Namespace: e.namespace, Group: e.group, Job: c.Job, Kind: p.Kind, Created: p.Created, Instance: e.member.Instance(),
		Shard: shard, Shards: c.Shards, Targets: c.Targets, Param: p.Param, ShardParam: p.ShardParams[shard],
		FireTime: c.Fire, Attempt: c.Attempt, Retries: c.Retries, Trigger: c.Trigger, Fence: c.Fence,
	}}
	if c.Param != "" {
		r.Param = c.Param
	}
	switch {
	case c.Retry:
		r.Reason = Retried
	case c.Rerun:
		r.Reason = Failover
	case c.Cause == claimer.CauseRetry:
		r.Reason = Retried
	case c.Cause == claimer.CauseBackfill:
		r.Reason = Backfill
	case c.Trigger > 0:
		r.Reason = Triggered
	case c.Missed:
		r.Reason = Misfire
	}
	return r
}

// observeBegun reports that the handler of a run is about to be called.
func (c *claimedRun) observeBegun() {
	e := c.claim.e
	if e.observers.isEmpty() {
		return
	}
	r, at := c.newRun(), e.clock().UTC()
	observe(&e.observers, func(o *Observer) func(RunBegun) { return o.RunBegun }, func() RunBegun { return RunBegun{r.RunInfo, at} })
}

// observeEnded reports the end of a run with context ctx. Began is when its handler was called, zero
// if it was not.
func (c *claimedRun) observeEnded(ctx context.Context, began time.Time, how outcome, err error) {
	e := c.claim.e
	if e.observers.isEmpty() {
		return
	}
	r := c.newRun()
	retry, retried := asRetry(err)
	if retried {
		err = retry.Err
	}
	e.observeOutcome(r, began, publicOutcome(ctx, how, err), err)
	if retried {
		at := e.clock().UTC()
		observe(&e.observers, func(o *Observer) func(RunRetried) { return o.RunRetried }, func() RunRetried {
			return RunRetried{Run: r.RunInfo, Err: err, At: at, NotBefore: at.Add(retry.In)}
		})
	}
}
