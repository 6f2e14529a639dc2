package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/registry"
)

// work is what the coordinator knows of an Executor.
type work struct{ *Executor }

var _ coordinator.Work = work{}

// program is a compiled definition.
type program struct {
	definition
	times timetable
}

// Compile is described in coordinator.Work.
func (w work) Compile(def json.RawMessage) (coordinator.Program, error) { return Compile(def) }

// Compile is the coordinator.Compiler of the jobs of this package, for Operator.WithCompiler.
func Compile(def json.RawMessage) (coordinator.Program, error) {
	d, err := decodeDefinition(def)
	if err != nil {
		return nil, err
	}
	times, err := d.Schedule.compile()
	if err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	return &program{d, times}, nil
}

// Due is described in coordinator.Program.
func (p *program) Due(last, until, now time.Time) coordinator.Due {
	o := owes(p.times, p.OnMisfire, last, until, now)
	return coordinator.Due{Fire: o.fire, Missed: o.missed, Skipped: o.skipped, Through: o.through, Wake: o.next}
}

// SkipDue is described in coordinator.Program.
func (p *program) SkipDue(last, until, now time.Time) coordinator.Due {
	o := owes(p.times, RunOnce, last, until, now) // the policy that settles all that is due at once
	if !o.fire.IsZero() {
		o.skipped++
	}
	return coordinator.Due{Skipped: o.skipped, Through: o.through, Wake: o.next}
}

// Start is described in coordinator.Work.
func (w work) Start(ctx context.Context, c coordinator.Run, done func(error)) {
	t := &task{job: c.Job, shard: c.Shard, fire: c.Fire, since: w.clock(), ctx: ctx}
	t.do = func() {
		queued := time.Since(t.added) > misfireGrace
		conclude(func() error { return w.run(ctx, &c, queued) }, done)
	}
	w.pool.add(t)
}

// Yield is described in coordinator.Work. Handlers run to their end: a move waits for
// them, and what is disabled begins no more.
func (w work) Yield(string, int, error) {}

// run calls the handler for a claimed run, in a worker of the pool, for which it may have
// queued.
func (e *Executor) run(ctx context.Context, c *coordinator.Run, queued bool) error {
	p := c.Program.(*program) // made by Compile
	job, ok := e.job(c.Job)
	if !ok {
		return fmt.Errorf("run %q: %w", c.Job, ErrUnknownJob)
	}
	r := newRun(e.member.Instance(), p, c)
	if queued && r.Reason == Scheduled {
		r.Reason = Queued
	}
	writes := coordinator.NewWrites(ctx, e.reg, c.Session)
	defer writes.Close()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if p.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(p.Timeout), ErrTimeout)
		defer cancel()
	}
	r.commit = (&gate{ctx, writes}).commit
	if ctx.Err() != nil {
		return context.Cause(ctx) // over before it began
	}
	number, ok := e.pool.enter(r.ID, end)
	if !ok {
		return fmt.Errorf("%w before it began", coordinator.ErrHandedBack)
	}
	defer e.pool.leave(number)
	if p.Timeout > 0 {
		defer e.runs.watchTimeout(r, time.Duration(p.Timeout))()
	}
	err, began := errGoexit, time.Now()
	defer func() { e.runs.ended(r, time.Since(began), outcomeOf(ctx, p, err), err) }()
	err = handedBack(ctx, call(ctx, job.Handler, r))
	return err
}

// handedBack returns the error of a run that is to be made again elsewhere, if err is that of
// a handler that gave up because this process shuts down. A handler that panicked failed.
func handedBack(ctx context.Context, err error) error {
	var panicked *PanicError
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), ErrDraining) && !errors.As(err, &panicked):
		return fmt.Errorf("%w: %w", coordinator.ErrHandedBack, err)
	case errors.Is(err, coordinator.ErrHandedBack):
		return errors.New(err.Error()) // the handler's own choice of error must not retry the run
	}
	return err
}

func newRun(instance string, p *program, c *coordinator.Run) *Run {
	id, key := runID(c.Job, c.Shard, c.Fire, c.Trigger, c.Attempt)
	r := &Run{
		ID: id, Key: key, Job: c.Job, Instance: instance,
		Shard: c.Shard, Shards: c.Shards, Param: p.Param, ShardParam: p.ShardParams[c.Shard],
		FireTime: c.Fire, Attempt: c.Attempt, Trigger: c.Trigger, Fence: c.Fence,
	}
	if c.Param != "" {
		r.Param = c.Param
	}
	switch {
	case c.Rerun:
		r.Reason = Failover
	case c.Trigger > 0:
		r.Reason = Triggered
	case c.Missed:
		r.Reason = Misfire
	}
	return r
}

// gate lets a run's writes out while the run lasts, which may end before its function
// returns: by a timeout, for one.
type gate struct {
	ctx    context.Context // the run's
	writes *coordinator.Writes
}

func (g *gate) commit(ctx context.Context, ops []registry.Op) (registry.Rev, error) {
	if g.ctx.Err() != nil {
		return registry.Rev{}, fmt.Errorf("commit: %w: %w", ErrRunOver, context.Cause(g.ctx))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(g.ctx, func() { cancel(context.Cause(g.ctx)) })
	defer stop()
	rev, err := g.writes.Commit(ctx, ops...)
	switch {
	case errors.Is(err, coordinator.ErrNotOwner), errors.Is(err, registry.ErrNotApplied) && g.ctx.Err() != nil:
		return registry.Rev{}, fmt.Errorf("commit: %w: %w", ErrRunOver, err)
	case err != nil:
		return registry.Rev{}, fmt.Errorf("commit: %w", err)
	}
	return rev, nil
}
