package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// cancelGrace is how long handlers have to return once their contexts have ended.
	cancelGrace = 5 * time.Second
	// leaveTimeout bounds the wait for others to take over the shards. Together with the two
	// waits before, a shutdown lasts at most 28 s by default: Kubernetes kills after 30 s.
	leaveTimeout = 3 * time.Second
	// recordTimeout bounds the wait for the store to record the drain once nothing runs. A store
	// that does not answer for so long is not waited for any more: the session expires.
	recordTimeout = 2 * time.Second
	// defaultDrainTimeout is how long runs have to finish before their contexts end.
	defaultDrainTimeout = 20 * time.Second
)

// AbandonedError says that handlers ignored the end of their contexts. Their shards stay
// with this process until they return or it ends, so that nobody reruns them sooner.
type AbandonedError struct {
	Runs []string // Run.ID of each, sorted
}

func (e *AbandonedError) Error() string {
	return fmt.Sprintf("%d runs ignored the end of their context: %s", len(e.Runs), strings.Join(e.Runs, ", "))
}

// Shutdown leaves the fleet. It claims nothing more, hands over leadership and idle shards at
// once, waits for runs until ctx ends or DrainTimeout has passed, ends the contexts of the
// rest with ErrDraining, and returns when their handlers have returned and other instances
// own the shards.
//
// A handler that returns nil after the end of its context has succeeded. One that returns an
// error hands its run back: the next owner of the shard makes it again at once, as the next
// attempt with Reason Failover. The same holds for a run that was claimed and still waits for
// a worker. A run that is handed back is no failure and does not count against
// Job.MaxAttempts; each shutdown hands a run back at most once, and there is no other bound.
// A run of a job that is not made again after a crash either (CountAsFailed, or another
// Tracking than TrackRuns) counts as failed, and so does one whose handler panics.
//
// Handlers that do not return within 5 s of the end of their contexts are reported as
// *AbandonedError; the executor then leaves when they have returned. Without a store that
// answers, Shutdown returns about 5 s after the last run; the session expires by itself.
//
// Shutting down an executor that was not started, or again, does nothing.
func (e *Executor) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	was := e.state
	e.state = shutDown
	e.mu.Unlock()
	if was != started {
		return nil
	}
	handOver := leaveTimeout
	if !e.drain(ctx) {
		handOver = 0
	}
	select {
	case <-e.pool.idle():
		e.leave(ctx, handOver)
		return nil
	default:
	}
	abandoned := e.pool.running()
	slices.Sort(abandoned)
	e.log.Error("handlers ignore the end of their context", "runs", abandoned)
	go func() { // lasts as long as the handlers, whose shards it keeps
		<-e.pool.idle()
		e.leave(context.Background(), leaveTimeout)
	}()
	return &AbandonedError{abandoned}
}

// drain stops claiming and waits for the runs, first for them to end and then for them to
// give up. The drain is recorded meanwhile: that takes none of the runs' time. It reports
// false if the store did not record it though it had recordTimeout after the runs.
func (e *Executor) drain(ctx context.Context) (recorded bool) {
	finish, cancel := context.WithTimeout(ctx, max(e.opts.DrainTimeout, 0))
	defer cancel()
	record, giveUp := context.WithCancelCause(finish)
	defer giveUp(nil)
	go func() {
		select {
		case <-e.pool.idle():
			wait(record, recordTimeout, nil)
			giveUp(errNotRecorded)
		case <-record.Done():
		}
	}()
	err := e.member.Drain(record)
	if err != nil && e.opts.DrainTimeout > 0 {
		e.log.Warn("the fleet was not told of the drain in time", "error", err)
	}
	select {
	case <-e.pool.idle():
	case <-finish.Done():
	}
	e.pool.cancel(ErrDraining)
	wait(context.WithoutCancel(ctx), cancelGrace, e.pool.idle())
	return !errors.Is(err, errNotRecorded)
}

// errNotRecorded is why the wait for the record of a drain ends early.
var errNotRecorded = fmt.Errorf("no answer from the store in %v, and nothing runs", recordTimeout)

// leave waits up to handOver for others to take over the shards, and goes.
func (e *Executor) leave(ctx context.Context, handOver time.Duration) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), handOver)
	defer cancel()
	if err := e.member.Leave(bounded); err != nil {
		e.log.Warn("left before the shards were taken over", "error", err)
	}
	<-e.stopped
	e.stop()
	e.runs.flush()
}

// wait waits until done is closed, ctx ends or d has passed.
func wait(ctx context.Context, d time.Duration, done <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
	case <-ctx.Done():
	case <-t.C:
	}
}
