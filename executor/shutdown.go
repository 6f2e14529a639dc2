package executor

import (
	"context"
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
// answers, Shutdown waits up to 3 s for the hand-over; the session expires by itself.
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
	e.drain(ctx)
	select {
	case <-e.pool.idle():
		e.leave(ctx)
		return nil
	default:
	}
	abandoned := e.pool.running()
	slices.Sort(abandoned)
	e.log.Error("handlers ignore the end of their context", "runs", abandoned)
	go func() { // lasts as long as the handlers, whose shards it keeps
		<-e.pool.idle()
		e.leave(context.Background())
	}()
	return &AbandonedError{abandoned}
}

// drain stops claiming and waits for the runs, first for them to end and then for them to
// give up. The fleet is told meanwhile: that takes none of the runs' time.
func (e *Executor) drain(ctx context.Context) {
	finish, cancel := context.WithTimeout(ctx, max(e.opts.DrainTimeout, 0))
	defer cancel()
	if err := e.member.Drain(finish); err != nil && e.opts.DrainTimeout > 0 {
		e.log.Warn("the fleet was not told of the drain in time", "error", err)
	}
	select {
	case <-e.pool.idle():
	case <-finish.Done():
	}
	e.pool.cancel(ErrDraining)
	wait(context.WithoutCancel(ctx), cancelGrace, e.pool.idle())
}

// leave waits for others to take over the shards, and goes.
func (e *Executor) leave(ctx context.Context) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := e.member.Leave(bounded); err != nil {
		e.log.Warn("left before the shards were taken over", "error", err)
	}
	<-e.stopped
	e.stop()
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
