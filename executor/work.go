package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rota-dev/rota/executor/internal/pool"
	"github.com/rota-dev/rota/internal/firelist"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/schedule"
)

// work is the claimer.Work of an Executor.
type work struct{ *Executor }

var _ claimer.Work = work{}

// program is a compiled definition.
type program struct {
	definition
	fires *schedule.Timetable // of the schedule
	times timetable           // fires, or the releases of followed fires

	always, countsEnds, follows bool // as of Schedule
}

// Compile is described in claimer.Work.
func (w work) Compile(def json.RawMessage) (due.Program, error) { return Compile(def) }

// Compile is the due.Compiler of the jobs of this package, for Operator.WithCompiler.
func Compile(def json.RawMessage) (due.Program, error) {
	d, err := decodeDefinition(def)
	if err != nil {
		return nil, err
	}
	fires, err := d.Schedule.Timetable()
	if err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	return newProgram(d, fires), nil
}

// newProgram returns the program of a definition. It reads the text of the schedule, so that runs need not.
func newProgram(d definition, fires *schedule.Timetable) *program {
	return &program{d, fires, fires, d.Schedule.IsAlways(), d.Schedule.CountsEnds(), d.Schedule.After() != nil}
}

// Due is described in due.Program.
func (p *program) Due(last, until, now time.Time) due.Due {
	expired, last := p.findExpired(last, until, now)
	o := decideDue(p.times, p.OnMisfire, last, until, now)
	if expired > 0 && o.through.IsZero() {
		o.through = last
	}
	return due.Due{Fire: o.fire, Missed: o.missed, Skipped: o.skipped + expired, Expired: expired, Through: o.through, Wake: o.next}
}

// SkipDue is described in due.Program.
func (p *program) SkipDue(last, until, now time.Time) due.Due {
	o := decideDue(p.times, RunOnce, last, until, now) // a policy that settles all due fires at once
	if !o.fire.IsZero() {
		o.skipped++
		if p.countsEnds {
			o.through = latestBefore(now, until)
			o.next = firelist.Before(p.times.Next(o.through), until)
		}
	}
	return due.Due{Skipped: o.skipped, Through: o.through, Wake: o.next}
}

// Start is described in claimer.Work.
func (w work) Start(ctx context.Context, r claimer.Run, shards iter.Seq[int], done func(shard int, err error)) {
	added, p := time.Now(), r.Program.(*program) // made by Compile
	now := added
	if w.opts.Clock != nil {
		now = w.clock()
	}
	names := record.NewRunNames(w.namespace, w.group, r.Job, r.Fire, r.RunOf, r.Attempt)
	c := &claim{Run: r, e: w.Executor, program: p, names: names, done: done}
	var runs []*claimedRun
	for shard := range shards {
		w.observeClaimed(c, shard, now)
		runs = append(runs, &claimedRun{claim: c, task: pool.Task{
			Job: c.Job, Shard: shard, Fire: c.Fire, Since: now, Added: added, Ctx: ctx, HandsBack: p.handsBack(), Delay: c.startDelay(shard, now),
		}})
	}
	w.claimed.add(c, runs)
	w.pool.Add(undelayed(runs))
	for _, r := range runs {
		if r.task.Delay > 0 {
			r.task.Do, r.task.End = r.run, r.endUnbegun
			w.pool.AddDelayed(&r.task)
		}
	}
}

// undelayed returns the tasks of the runs that may begin at once.
func undelayed(runs []*claimedRun) iter.Seq[*pool.Task] {
	return func(yield func(*pool.Task) bool) {
		for _, r := range runs {
			if r.task.Delay > 0 {
				continue
			}
			if r.task.Do = r.run; !yield(&r.task) {
				return
			}
		}
	}
}

// handsBack reports whether a run that did not end is made again.
func (p *program) handsBack() bool { return p.OnCrash == RerunElsewhere && p.Tracking == TrackRuns }

// handBackError returns the result to report for a handler that returned err. It wraps
// ErrHandedBack if the handler stopped because this process shuts down. A panic is a failure.
func handBackError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), ErrDraining) && !isPanic(err):
		return fmt.Errorf("%w: %w", claimer.ErrHandedBack, err)
	case errors.Is(err, claimer.ErrHandedBack):
		return errors.New(err.Error()) // a handler must not be able to cause a re-run by its error
	}
	return err
}

// newRun returns the run of a shard.
func (c *claim) newRun(shard int) *Run {
	e, p := c.e, c.program
	id, key := c.names.Of(shard)
	r := &Run{RunInfo: RunInfo{
		ID: id, Key: key, Namespace: e.namespace, Group: e.group, Job: c.Job, Instance: e.member.Instance(),
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
