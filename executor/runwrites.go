package executor

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/rota-dev/rota/internal/runlog"
	"github.com/rota-dev/rota/registry"
)

// Commit applies ops to the registry in one transaction, on the condition that the session of
// this run is alive. After the run or its session has ended, Commit fails with ErrRunOver and
// changes nothing. If ctx or the run ends during the call, the error wraps
// registry.ErrUnknownOutcome. The shard does not run again before the outcome is known or the
// session has ended, so the next run observes the outcome.
//
// For a Run that is a literal, Commit writes nothing and returns nil.
func (r *Run) Commit(ctx context.Context, ops ...registry.Op) (registry.Rev, error) {
	if r.gate == nil {
		return registry.Rev{}, nil
	}
	var rev registry.Rev
	err := r.gate.write(ctx, "commit", func(ctx context.Context) (err error) {
		rev, err = r.gate.access().Commit(ctx, ops...)
		return err
	})
	return rev, err
}

// Checkpoint stores data for the shard, and applies ops, in one transaction with the conditions
// of Commit. Resume returns the data: in this run, in the next attempt, and in later runs of the
// shard, on whichever instance. Each Checkpoint replaces the one before; it is never deleted.
// Store the fire with the data if a later fire must begin anew.
//
// The data is as large as a value of the registry can be: 128 KiB on every registry, ops
// included. If another writer has changed the stored data, the error wraps registry.ErrConflict,
// and Checkpoint fails until Resume has been called.
//
// For a Run that is a literal, Checkpoint keeps the data in the Run.
func (r *Run) Checkpoint(ctx context.Context, data []byte, ops ...registry.Op) error {
	if r.gate == nil {
		r.saved = bytes.Clone(data)
		return nil
	}
	return r.gate.write(ctx, "checkpoint", func(ctx context.Context) error { return r.gate.access().Save(ctx, data, ops...) })
}

// Resume returns the data of the latest Checkpoint of the shard, nil if there is none. It is a
// linearizable read of the registry, so it includes each Checkpoint of earlier runs. The caller
// owns the slice.
//
// For a Run that is a literal, Resume returns the data of its own Checkpoint.
func (r *Run) Resume(ctx context.Context) ([]byte, error) {
	if r.gate == nil {
		return bytes.Clone(r.saved), nil
	}
	data, err := r.gate.access().State(ctx)
	if err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	return data, nil
}

// Yield returns a channel that is closed when somebody waits for the end of this run: the shard is
// to move or is disabled, the job is paused or has another definition, or this process shuts down.
// A handler may ignore it: the context of the run does not end, and the run keeps its shard.
//
// A long run can store a Checkpoint and return. If it returns nil, it has succeeded. If it returns
// an error that wraps ErrYield, the run is handed back: the next owner makes it again at once, as the
// next attempt. In these cases ErrYield is success instead, and the next fire makes the rest: after a
// pause and with another definition, which begin another epoch, and in a job with CountAsFailed or
// TrackClaims. If nobody waits for the run, ErrYield is an error like any other.
//
// For a Run that is a literal, the channel is nil, which is never closed.
func (r *Run) Yield() <-chan struct{} {
	if r.signal == nil {
		return nil
	}
	return r.signal.channel()
}

// Logger returns the logger of the executor with the attributes job, shard, run and attempt, kind for a defined job, and
// trace_id after SetTraceID. Observers with a RunLog receive its lines too. For a Run that is a literal, it is derived from slog.Default.
func (r *Run) Logger() *slog.Logger {
	log := cmp.Or(r.log, slog.Default())
	log = log.With("job", r.Job, "shard", r.Shard, "run", r.ID, "attempt", r.Attempt)
	if r.Kind != "" {
		log = log.With("kind", r.Kind)
	}
	if r.notes != nil && r.notes.traceID() != "" {
		log = log.With("trace_id", r.notes.traceID())
	}
	if r.gate == nil {
		return log
	}
	c := r.gate.run
	if c.returned.Load() { // observers have seen the end of the run
		return log
	}
	return runlog.Join(log, c.claim.e.observers.runLogs(func() RunInfo { return c.newRun().RunInfo })...)
}
