package executor

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/rota-dev/rota/executor/internal/pool"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
)

// work is the claimer.Work of an Executor.
type work struct{ *Executor }

var (
	_ claimer.Work       = work{}
	_ claimer.RunChecker = work{}
)

// Compile is described in claimer.Work.
func (w work) Compile(def json.RawMessage) (due.Program, error) { return Compile(def) }

// CheckRunnable is described in claimer.RunChecker.
func (w work) CheckRunnable(p due.Program) error { return w.checkKind(&p.(*program).definition) }

// Start is described in claimer.Work.
func (w work) Start(ctx context.Context, r claimer.Run, shards iter.Seq[int], done claimer.Done) {
	added, p := time.Now(), r.Program.(*program) // made by Compile
	now := added
	if w.opts.Clock != nil {
		now = w.clock()
	}
	id := record.JobID{Namespace: w.namespace, Group: w.group, Job: r.Job, Created: p.Created}
	names := record.NewRunNames(id, r.Fire, r.RunOf, r.Attempt)
	c := &claim{Run: r, e: w.Executor, program: p, names: names, done: done}
	var runs []*claimedRun
	for shard := range shards {
		w.observeClaimed(c, shard, now)
		r := &claimedRun{claim: c, task: pool.Task{
			Job: c.Job, Kind: p.Kind, Shard: shard, Fire: c.Fire, Since: now, Added: added, Ctx: ctx, HandsBack: p.handsBack(), Delay: c.startDelay(shard, now),
		}}
		r.task.Do = r.run
		runs = append(runs, r)
	}
	c.gatherRuns(runs)
	w.claimed.add(c, runs)
	w.pool.Add(undelayed(runs))
	for _, r := range runs {
		if r.task.Delay > 0 {
			r.task.End = r.endUnbegun
			w.pool.AddDelayed(&r.task)
		}
	}
}

// undelayed returns the tasks of the runs that may begin at once.
func undelayed(runs []*claimedRun) iter.Seq[*pool.Task] {
	return func(yield func(*pool.Task) bool) {
		for _, r := range runs {
			if r.task.Delay <= 0 && !yield(&r.task) {
				return
			}
		}
	}
}

// Yield is described in claimer.Work. Moves wait for handlers, and runs that have begun go on: a
// handler may return early, and make the rest of its work in another run. Only an operator can end a run,
// or a due fire if the job wants that. A run that waits for its instant of Schedule.Spread is handed back, unless the
// cause lets the owner claim it again at once.
func (w work) Yield(job string, shard int, cause error) {
	if errors.Is(cause, claimer.ErrCancelled) {
		w.claimed.end(shardOf{job, shard}, ErrCancelled) // no yield: the rest of the run would not be made
		return
	}
	w.claimed.ask(shardOf{job, shard}, cause)
	switch {
	case errors.Is(cause, claimer.ErrOverlap):
		w.claimed.end(shardOf{job, shard}, ErrOverlap)
	case !errors.Is(cause, claimer.ErrNewDefinition):
		w.pool.HandBackDelayed(job, shard)
	}
}

// observeClaimed reports that the run of a shard was claimed.
func (e *Executor) observeClaimed(c *claim, shard int, at time.Time) {
	if e.observers.isEmpty() {
		return
	}
	observe(&e.observers, func(o *Observer) func(RunClaimed) { return o.RunClaimed }, func() RunClaimed {
		return RunClaimed{Run: c.newRun(shard).RunInfo, At: at.UTC()}
	})
}
