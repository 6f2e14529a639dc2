package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/count"
)

const (
	// cancelGrace bounds the wait for handlers to return once their contexts have ended.
	cancelGrace = 5 * time.Second
	// leaveTimeout bounds the wait for other instances to own the shards. Together with the
	// two waits before, and with deliveryTimeout of the observers, a shutdown lasts at most 29 s by
	// default: the documents ask for a grace period of 40 s.
	leaveTimeout = 3 * time.Second
	// recordTimeout bounds the wait for the store to record the drain once nothing runs. If
	// the store does not answer, waiting longer is useless: the session expires.
	recordTimeout = 2 * time.Second
	// defaultDrainTimeout is the default of Options.DrainTimeout.
	defaultDrainTimeout = 20 * time.Second
)

// AbandonedError is the error of a shutdown whose handlers ignored the end of their contexts.
// Their shards stay with this process until the handlers return or the process ends, so that
// no other instance repeats their runs before.
type AbandonedError struct {
	Runs []string // Run.ID of each, sorted
}

func (e *AbandonedError) Error() string {
	return fmt.Sprintf("%s ignored the end of the context: %s", count.Of(len(e.Runs), "run"), strings.Join(e.Runs, ", "))
}

// Shutdown makes this process leave the fleet, in these steps:
//
//  1. It stops claiming, and hands over leadership and idle shards.
//  2. It waits for runs until they have ended, ctx ends or DrainTimeout has passed.
//  3. It ends the contexts of the remaining runs with ErrDraining, and waits up to 5 s for
//     their handlers to return.
//  4. It waits up to 3 s until other instances own the shards, and closes the session.
//
// In step 3, a run whose handler returns nil has succeeded. If the handler returns an error,
// the run is handed back: the next owner of the shard repeats it at once, as the next attempt
// with Reason Failover. Claimed runs that wait for a worker are handed back, too. Such runs do
// not count as failed, nor against Job.MaxAttempts, and can be handed back by any number of
// shutdowns. Jobs with CountAsFailed or TrackClaims do not hand back: their runs count as
// failed. So do runs whose handler panics. Runs that wait for their instants of Schedule.Spread are
// handed back in step 1; those of jobs that do not hand back begin then.
//
// If handlers do not return in step 3, Shutdown returns an *AbandonedError, and the executor
// leaves the fleet in the background when they have returned. If the store does not answer,
// Shutdown returns about 5 s after the last run, and the session expires.
// Shutdown then waits up to 1 s for the callbacks of the observers.
//
// A further call waits until the first one has returned, and returns its result, or the cause of its own ctx if that
// ends before. Shutdown does nothing if the executor was not started.
//
// A handler or an observer that calls Shutdown waits for itself: call it in a goroutine of its own, as in
// go e.Shutdown(context.WithoutCancel(ctx)).
func (e *Executor) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	was, first := e.state, e.shutdown
	e.state = shutDown
	if was == started {
		first = &shutdown{returned: make(chan struct{})}
		e.shutdown = first
	}
	e.mu.Unlock()
	switch {
	case was == started:
		defer close(first.returned)
		first.err = e.shutDown(ctx)
		return first.err
	case first == nil:
		return nil
	}
	select {
	case <-first.returned:
		return first.err
	default:
	}
	select {
	case <-first.returned:
		return first.err
	case <-ctx.Done():
		return fmt.Errorf("shutdown: wait for an earlier call: %w", context.Cause(ctx))
	}
}

// shutdown is the first call of Shutdown of an executor that was started.
type shutdown struct {
	returned chan struct{} // closed when err is set
	err      error
}

// shutDown makes this process leave the fleet, as Shutdown describes.
func (e *Executor) shutDown(ctx context.Context) error {
	defer e.observers.close()
	handOver := leaveTimeout
	if !e.drainRuns(ctx) {
		handOver = 0
	}
	select {
	case <-e.pool.Idle():
		e.leaveFleet(ctx, handOver)
		return nil
	default:
	}
	running := e.claimed.runningHandlers()
	abandoned := make([]string, 0, len(running))
	for _, h := range running {
		abandoned = append(abandoned, h.run.ID)
	}
	slices.Sort(abandoned)
	for _, h := range running {
		e.observeOutcome(h.run, h.began, Abandoned, ErrDraining)
	}
	e.log.Error("handlers ignore the end of their context", "runs", abandoned)
	go func() { // ends with the last handler; the process owns the shards until then
		<-e.pool.Idle()
		e.leaveFleet(context.Background(), leaveTimeout)
	}()
	return &AbandonedError{abandoned}
}

// drainRuns stops claiming and waits until no run is left: first until they end, then until they
// return from their ended contexts. The drain is recorded meanwhile, so that runs lose no
// time. It reports false if the store did not record it within recordTimeout after the runs.
func (e *Executor) drainRuns(ctx context.Context) (recorded bool) {
	finish, cancel := context.WithTimeout(ctx, max(e.opts.DrainTimeout, 0))
	defer cancel()
	record, giveUp := context.WithCancelCause(finish)
	defer giveUp(nil)
	go func() {
		select {
		case <-e.pool.Idle():
			waitFor(record, recordTimeout, nil)
			giveUp(errNotRecorded)
		case <-record.Done():
		}
	}()
	e.member.StopClaiming() // before any run is asked to yield: this instance would claim again what it hands back
	e.claimed.askAll()
	e.pool.DrainDelayed()
	err := e.member.Drain(record)
	if err != nil && e.opts.DrainTimeout > 0 {
		e.log.Warn("drain not recorded in time", "error", err)
	}
	select {
	case <-e.pool.Idle():
	case <-finish.Done():
	}
	e.claimed.cancelAll(ErrDraining)
	waitFor(context.WithoutCancel(ctx), cancelGrace, e.pool.Idle())
	return !errors.Is(err, errNotRecorded)
}

// errNotRecorded is the cause with which the wait for the record of a drain ends early.
var errNotRecorded = fmt.Errorf("no answer from the store in %v, and nothing runs", recordTimeout)

// leaveFleet waits up to handOver until other instances own the shards, then ends the membership.
func (e *Executor) leaveFleet(ctx context.Context, handOver time.Duration) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), handOver)
	defer cancel()
	if err := e.member.Leave(bounded); err != nil {
		e.log.Warn("left before the shards were taken over", "error", err)
	}
	<-e.stopped
	e.stop()
	e.runs.flush()
}
