package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/internal/group/ownership"
	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Run is one shard of a job, executed for one fire. Its data are plain: a test of a handler
// writes &executor.Run{RunInfo: executor.RunInfo{Shard: 2, Shards: 3}}.
type Run struct {
	// RunInfo may be kept after the run has ended.
	RunInfo

	gate   *gate        // nil for a literal
	signal *yieldSignal // nil for a literal
	log    *slog.Logger // nil for a literal
	saved  []byte       // the checkpoint of a literal
	notes  *runNotes    // nil for a literal
}

// RunInfo is the data of a Run, which observers get too.
type RunInfo struct {
	// ID identifies the attempt. It is Key and the number of the attempt, with the name of the trigger between them if an
	// operator retries or backfills the work. A run that is made again after Operator.Reset, or after the store went back
	// to an earlier state, has the ID of the earlier run.
	ID string
	// Key identifies the work: NAMESPACE/GROUP/JOB/SHARD/WORK. All runs that do the same work have the same key, and no
	// other work gets it, also if the job is forgotten or the store is emptied. Use it as an idempotency key, such as in a
	// unique column. Fleets on different stores need different namespaces or groups for that.
	//
	// JOB of a defined job is NAME@CREATED, so that a name that is deleted and defined again is other work.
	//
	// WORK of a fire is its instant, as RFC 3339 in UTC, also if an operator retries or backfills it. WORK of a trigger is
	// #NUMBER-TOKEN, with a random token.
	//
	// A key is printable ASCII of at most 255 bytes. In NAMESPACE, GROUP and NAME, bytes other than letters, digits, ".", "_"
	// and "-" are escaped, and a segment of more than 60 bytes has a name that ends in a hash. Upper and lower case differ, so a column has
	// to compare bytes.
	Key string
	// Namespace and Group are those of the executor. Job is the name of the job. Instance is the name of this
	// process.
	Namespace, Group, Job, Instance string
	// Kind is the kind of a defined job, and Created identifies the creation of the job: a name that was deleted and is
	// defined again has another one. Both are empty for a registered job.
	Kind, Created string
	// Shard is from 0 to Shards-1. Shards is the same for all shards of a fire.
	Shard, Shards int
	// Targets is how many shards the fire or trigger runs: Shards, or fewer for a trigger of some shards.
	Targets int
	// Param is the parameter of the job or trigger, ShardParam that of the shard.
	Param, ShardParam string
	// FireTime is the scheduled instant in UTC, equal on every instance. For a triggered run it
	// is the time of the trigger, or the fire that an operator retries or backfills. It is not the time at which the run started.
	FireTime time.Time
	// Attempt is the number of the attempt, from 1. Retries is how many of the attempts before
	// it failed; see Job.Retry. The others crashed or were handed back.
	Attempt, Retries int
	// Reason is the reason why this run was started.
	Reason Reason
	// Trigger is the number of the trigger of this run. It is zero for a scheduled fire.
	Trigger uint64
	// Fence is a fencing token: it is greater than that of any earlier run of this shard, and
	// below 1<<63. A database that refuses smaller fences refuses the late writes of runs
	// that have ended.
	Fence uint64
}

// runNotes are the notes of a handler about its run, for observers.
type runNotes struct {
	fetched, processed atomic.Int64           // items
	trace              atomic.Pointer[string] // nil without a trace
}

func (n *runNotes) traceID() string {
	if id := n.trace.Load(); id != nil {
		return *id
	}
	return ""
}

// CountItems adds to the numbers of items that the run has fetched and processed, for RunEnded and the history.
// handler.Dataflow does so for its items. It may be called concurrently. A Run that is a literal counts nothing.
func (r *Run) CountItems(fetched, processed int) {
	if r.notes != nil {
		r.notes.fetched.Add(int64(fetched))
		r.notes.processed.Add(int64(processed))
	}
}

// SetTraceID sets the trace of the run, for RunEnded, the history and loggers that Logger returns from then on. Middleware
// of package rotaotel does so. The last call counts. It may be called concurrently. A Run that is a literal keeps none.
func (r *Run) SetTraceID(id string) {
	if r.notes != nil {
		r.notes.trace.Store(&id)
	}
}

// String describes the run in one line, for logs and test messages: ID, reason, instance,
// shard and fence. The format is not stable.
func (r Run) String() string {
	shard := fmt.Sprintf("shard %d of %d", r.Shard, r.Shards)
	if r.ID == "" {
		return fmt.Sprintf("run by hand (%s)", shard)
	}
	return fmt.Sprintf("%s (%v on %s, %s, fence %d)", r.ID, r.Reason, r.Instance, shard, r.Fence)
}

// ShardKey returns the beginning of Key, NAMESPACE/GROUP/JOB/SHARD, which identifies the shard over all fleets. Fences of
// runs with the same ShardKey can be compared, so it is the key of a table of fences. It has at most 190 bytes.
func (r *Run) ShardKey() string {
	id := record.JobID{Namespace: r.Namespace, Group: r.Group, Job: r.Job, Created: r.Created}
	return string(id.AppendShardKey(nil, r.Shard))
}

// Reason is the reason why a run was started.
type Reason int

const (
	// Scheduled means that the fire was claimed on time. It is the zero value.
	Scheduled Reason = iota
	// Misfire means that the shard could not run when the fire came due. See MisfirePolicy.
	Misfire
	// Failover means that an earlier attempt crashed or was handed back. That attempt was of a
	// scheduled fire or, if Run.Trigger is not zero, of a trigger.
	Failover
	// Triggered means that this is the first attempt for a trigger.
	Triggered
	// Queued means that the fire was claimed on time, and the run then waited for a worker for
	// more than a second. See Job.MaxRunning and Options.Workers.
	Queued
	// Retried means that the attempt before this one failed (Job.Retry), or that an operator retries the fire
	// (operator.Operator.Retry).
	Retried
	// Backfill means that this is the first attempt at a fire of the past, for an operator's Backfill.
	Backfill
)

// String returns the reason as a word.
func (r Reason) String() string {
	if r < 0 || int(r) >= len(reasonTexts) {
		return "unknown"
	}
	return reasonTexts[r]
}

var reasonTexts = [...]string{
	Scheduled: "scheduled", Misfire: "misfire", Failover: "failover", Triggered: "triggered", Queued: "queued", Retried: "retried", Backfill: "backfill",
}

// gate refuses writes of a run whose context has ended. That may be before its handler
// returns, such as after a timeout.
type gate struct {
	ctx context.Context // the run's
	run *claimedRun

	mu     mutex.Mutex
	owned  *ownership.Access // nil before the first use
	closed bool
}

// access returns the access of the run to the registry.
func (g *gate) access() *ownership.Access {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.owned == nil {
		g.owned = g.run.newAccess()
		if g.closed {
			g.owned.Close()
		}
	}
	return g.owned
}

// close makes further writes fail, and waits for those in flight.
func (g *gate) close() {
	g.mu.Lock()
	owned := g.owned
	g.closed = true
	g.mu.Unlock()
	if owned != nil {
		owned.Close()
	}
}

// write calls do, which writes, unless the run has ended. The context of do ends with the run.
func (g *gate) write(ctx context.Context, what string, do func(context.Context) error) error {
	if g.ctx.Err() != nil {
		return fmt.Errorf("%s: %w: %w", what, ErrRunOver, context.Cause(g.ctx))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(g.ctx, func() { cancel(context.Cause(g.ctx)) })
	defer stop()
	err := do(ctx)
	switch {
	case errors.Is(err, ownership.ErrNotOwner), errors.Is(err, registry.ErrNotApplied) && g.ctx.Err() != nil:
		return fmt.Errorf("%s: %w: %w", what, ErrRunOver, err)
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
