package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/rota-dev/rota/executor/internal/gather"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/mutex"
)

// Together returns a handler that passes all runs of a batch to one call of f, for work that costs little more for many
// shards than for one, such as a query. It has to be the Job.Handler itself: within another Handler, each batch has one run.
//
// A batch is the runs that this process has claimed in one commit, for one fire or trigger, and that differ in their shard only: as
// a rule all shards that the process owns. No run waits for others to be claimed. A shard that is claimed later, or with another Attempt
// or Reason, is in a batch of its own or with its like, which may be passed to f while earlier ones last: it was busy, has moved
// here, failed over, is retried, or was handed back. So f must be ready for a batch of one run. With Schedule.Spread, a run that
// starts after its fire is a batch.
//
// Claims, fences, ends, checkpoints, retries, re-runs, events, logs and the history remain those of each run. Batch.End ends one, and the
// result of f applies to those that End has not ended: they succeed if f returns nil. An error or a panic counts for each of them as
// Handler says: it fails, is retried, or is handed back if its own context has ended with ErrDraining.
//
// Each run has its own context, Batch.Context, with its own Job.Timeout, which ends alone if the run is cancelled. The context ctx
// of f ends when those of all runs have ended that End has not ended, with the cause of the last one. Its values are those of the first run's
// context, and it has no deadline.
//
// Middleware is called for each run, in a goroutine of its own. Then f is called once the middleware of all runs has called its next
// handler, or returned without. It waits a second at most for the slow: their runs are other batches.
//
// Job.MaxRunning and Options.Workers count a batch as one run. In a test, f can be called with a literal:
// &executor.Batch{Runs: []*executor.Run{{RunInfo: executor.RunInfo{Shard: 2}}}}.
func Together(f func(ctx context.Context, b *Batch) error) Handler { return together(f) }

// Batch is the runs that one call of the function of Together makes. Its methods may be called concurrently.
type Batch struct {
	// Runs are the runs of the batch, at least one, in ascending order of their shards. The list is the function's to change.
	Runs []*Run

	mu       mutex.Mutex
	runs     []*batchRun // in the order of shards; nil for a literal before the first call of a method
	open     int         // runs that have not been released
	live     int         // those of them whose contexts have not ended
	cause    error       // of the context that ended last
	cancel   context.CancelCauseFunc
	returned bool // the function has returned
}

// End ends the run of a shard with err, as a Handler does that returns err: nil is success, ErrYield hands a run back that
// was asked to yield, and Permanent, RetryAfter and the cause of the context have their effects. The shard may move, and run
// its next fire, while the function goes on. If the process crashes later, the run is not made again once its end is on record, within
// about 100 ms. The last run of a batch ends when the function returns, with the result that End has been given.
//
// End fails, and changes nothing, with ErrRunOver if the shard was ended before or the function has returned, and with
// ErrInvalidArgument if the batch has no run of the shard. The run must not write after its End.
func (b *Batch) End(shard int, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.findLocked(shard)
	switch {
	case r == nil:
		return errNotInBatch(shard)
	case r.ended:
		return fmt.Errorf("end shard %d: %w: End has been called for it before", shard, ErrRunOver)
	case b.returned:
		return fmt.Errorf("end shard %d: %w: the function of its batch has returned", shard, ErrRunOver)
	}
	r.ended, r.err = true, err
	if b.open > 1 { // so each call of the function has a run: shutdowns, time-outs and operators see it
		b.releaseLocked(r, err)
		b.endContextLocked()
	}
	return nil
}

// Context returns the context of the run of a shard, for work on that shard alone. It ends with that run, as the context of
// a Handler does, and has the values that Middleware has added. A run of a literal has context.Background; the context of a
// shard that is not in the batch has ended.
func (b *Batch) Context(shard int) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.findLocked(shard); r != nil {
		return r.ctx
	}
	ctx, end := context.WithCancelCause(context.Background())
	end(errNotInBatch(shard))
	return ctx
}

// Ended returns the results that End has been given so far, by shard. The map is the caller's.
func (b *Batch) Ended() map[int]error {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[int]error{}
	for _, r := range b.runs {
		if r.ended {
			all[r.shard] = r.err
		}
	}
	return all
}

func errNotInBatch(shard int) error {
	return fmt.Errorf("shard %d: %w: its run is not in the batch", shard, ErrInvalidArgument)
}

// batchRun is a run of a batch. The mutex of the batch guards its fields from open on.
type batchRun struct {
	run     *Run // the function may change it, so the names are kept beside it
	shard   int
	job     string
	id      string
	log     *slog.Logger // of the executor
	ctx     context.Context
	claimed *claimedRun // nil if the run has joined no gathering
	result  chan error  // receives the result of the run, once

	unwatch func() bool // stops the watch of ctx
	open    bool        // the result has not been sent
	live    bool        // ctx has not ended
	ended   bool        // by End
	err     error       // given to End
}

func newBatchRun(ctx context.Context, r *Run) *batchRun {
	log := cmp.Or(r.log, slog.Default())
	return &batchRun{
		run: r, shard: r.Shard, job: r.Job, id: r.ID, log: log, ctx: ctx,
		result: make(chan error, 1), unwatch: func() bool { return true }, open: true, live: true,
	}
}

// join adds the run to the batch of its claim, for f. It reports false if there is none, or if the run has been in it.
func (r *batchRun) join(f together) bool {
	if r.run.gate == nil {
		return false
	}
	c := r.run.gate.run
	g := c.gathering()
	if g == nil {
		return false
	}
	r.claimed = c
	if g.Join(c.task.Shard, r, f.call) {
		return true
	}
	r.claimed = nil
	return false
}

// newBatch returns a batch of runs in progress.
func newBatch(runs []*batchRun) (context.Context, *Batch) {
	slices.SortFunc(runs, func(a, b *batchRun) int { return cmp.Compare(a.shard, b.shard) })
	b := &Batch{runs: runs, open: len(runs), live: len(runs)}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(runs[0].ctx))
	b.cancel = cancel
	for _, r := range runs {
		b.Runs = append(b.Runs, r.run)
	}
	for _, r := range runs {
		r.unwatch = context.AfterFunc(r.ctx, func() { b.noteContextEnded(r) })
	}
	return ctx, b
}

// findLocked returns the run of a shard, nil if there is none. The caller holds b.mu.
func (b *Batch) findLocked(shard int) *batchRun {
	if b.runs == nil {
		b.adoptLiteralLocked()
	}
	i, ok := slices.BinarySearchFunc(b.runs, shard, func(r *batchRun, shard int) int { return cmp.Compare(r.shard, shard) })
	if !ok {
		return nil
	}
	return b.runs[i]
}

// adoptLiteralLocked makes runs of the Runs of a literal. The caller holds b.mu.
func (b *Batch) adoptLiteralLocked() {
	for _, r := range b.Runs {
		b.runs = append(b.runs, newBatchRun(context.Background(), r))
	}
	slices.SortFunc(b.runs, func(a, b *batchRun) int { return cmp.Compare(a.shard, b.shard) })
	b.open, b.live, b.cancel = len(b.runs), len(b.runs), func(error) {}
}

// releaseLocked gives a run its result. The caller holds b.mu.
func (b *Batch) releaseLocked(r *batchRun, err error) {
	r.unwatch()
	b.open--
	if r.live {
		b.live--
	}
	r.open = false
	r.result <- err
}

// noteContextEnded records that the context of a run has ended.
func (b *Batch) noteContextEnded(r *batchRun) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !r.open {
		return
	}
	r.live, b.cause = false, context.Cause(r.ctx)
	b.live--
	b.endContextLocked()
}

// endContextLocked ends the context of the batch if those of all its open runs have ended. The caller holds b.mu.
func (b *Batch) endContextLocked() {
	if b.live == 0 {
		b.cancel(b.cause)
	}
}

// end ends the runs that are left: the function has returned err.
func (b *Batch) end(err error) {
	b.mu.Lock()
	b.returned = true
	left := slices.DeleteFunc(slices.Clone(b.runs), func(r *batchRun) bool { return !r.open })
	b.mu.Unlock()
	if last := left[0]; last.ended && err != nil { // no run has this result
		last.log.Warn("handler failed after it had ended all runs of its batch", "job", last.job, "run", last.id, "error", err)
	}
	endTogether(left)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range left {
		if r.ended {
			b.releaseLocked(r, r.err)
		} else {
			b.releaseLocked(r, err)
		}
	}
	b.cancel(nil)
}

// endTogether has the ends of runs that have joined a gathering reported together.
func endTogether(runs []*batchRun) {
	if runs[0].claimed == nil {
		return // and so the only one
	}
	var shards []int
	for _, r := range runs {
		shards = append(shards, r.claimed.task.Shard)
	}
	runs[0].claimed.gathering().EndTogether(shards)
}

// together is the handler of Together.
type together func(ctx context.Context, b *Batch) error

// Check is described in Checker.
func (f together) Check() error {
	if f == nil {
		return errors.New("the function given to Together is nil")
	}
	return nil
}

// Handle passes the run to f, with the others of its batch, and returns the result of the run.
func (f together) Handle(ctx context.Context, r *Run) error {
	own := newBatchRun(ctx, r)
	if !own.join(f) {
		go f.call([]*batchRun{own}) // a literal, a run that begins alone, or middleware that calls the handler again
	}
	return <-own.result
}

// call calls f with a batch, and ends the runs that f has not ended.
func (f together) call(runs []*batchRun) {
	ctx, b := newBatch(runs)
	err := errGoexit
	defer func() { b.end(err) }()
	err = containHandler(func() error { return f(ctx, b) })
}

// gathering is the runs of a claim that begin together. Each of them runs as others do, in a goroutine of its own within its
// middleware, up to the handler, where it joins the batch. So all that concerns one run is as without a batch. The runs that
// are left when the function returns are reported at once, so that a fire that has come due meanwhile is one batch again.
type gathering struct {
	*gather.Gathering[*batchRun, claimer.End]
	runs    []*claimedRun
	handler Handler // of all runs, though Register may replace that of the job meanwhile; set by run
}

// batchedHandler is the handler of a job, within its middleware, if it is that of Together.
type batchedHandler struct{ Handler }

func isBatched(h Handler) bool {
	_, ok := h.(batchedHandler)
	return ok
}

// gatherRuns makes one task of those runs of a claim that may begin now, if the handler of the job is that of Together.
func (c *claim) gatherRuns(runs []*claimedRun) {
	if h, err := c.findHandler(); err != nil || !isBatched(h) {
		return
	}
	g := &gathering{}
	var shards []int
	for _, r := range runs {
		if r.task.Delay <= 0 {
			r.task.Joined = len(g.runs) > 0
			g.runs, shards = append(g.runs, r), append(shards, r.task.Shard)
		}
	}
	if len(g.runs) == 0 {
		return
	}
	g.Gathering = gather.New[*batchRun](shards, func(ends []claimer.End) { c.done(ends[0].Shard, ends[0].Err, ends[1:]...) })
	c.gathering, g.runs[0].task.Do = g, func() { c.runTogether(g) }
}

// findHandler returns the handler for the runs of a claim.
func (c *claim) findHandler() (Handler, error) { return c.e.findHandler(c.Job, c.program.Kind) }

// runTogether runs the handlers of all runs of a gathering, in a worker of the pool, and returns when all have ended.
func (c *claim) runTogether(g *gathering) {
	g.handler, _ = c.findHandler() // without one, each run fails with the reason
	var all sync.WaitGroup
	for _, r := range g.runs {
		all.Go(r.run)
		if !isBatched(g.handler) {
			all.Wait() // another handler was registered while the batch waited: it has one worker
		}
	}
	all.Wait()
	g.ReportEnds()
}

// gathering returns the gathering of c, nil if c begins alone.
func (c *claimedRun) gathering() *gathering {
	if c.task.Delay > 0 {
		return nil
	}
	return c.claim.gathering
}
