package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rota-dev/rota/registry"
)

// EndIn records the end of this run in tx, a transaction of the handler on the database that is also the store of the registry, with data for
// Resume unless checkpoint is nil. Use it by the function of the store's package, such as postgres.CompleteTx, which has the conditions.
//
// With the commit of tx, the run has succeeded, also if the handler fails after it. If the handler returns nil and tx was not committed, the run fails with
// ErrNotCommitted. EndIn fails with registry.ErrNoCompleter if the store has no such transactions.
//
// For a Run that is a literal, EndIn keeps the data in the Run.
func (r *Run) EndIn(ctx context.Context, tx any, checkpoint []byte) error {
	if r.gate == nil {
		if checkpoint != nil {
			r.saved = bytes.Clone(checkpoint)
		}
		return nil
	}
	return r.gate.write(ctx, "complete", func(ctx context.Context) error { return r.gate.run.endIn(ctx, tx, checkpoint) })
}

// ErrNotCommitted means that a handler has returned nil, and that the transaction in which it has called Run.EndIn, or a function such as
// postgres.CompleteTx, is not committed in the database of the registry.
var ErrNotCommitted = errors.New("the handler has returned nil, but the transaction that completes its run is not committed in the database of the registry")

func (c *claimedRun) endIn(ctx context.Context, tx any, checkpoint []byte) error {
	reg := c.claim.e.reg
	if most := reg.Limits().ValueBytes; len(checkpoint) > most {
		return fmt.Errorf("%w: a checkpoint of %d bytes, at most %d", registry.ErrTooLarge, len(checkpoint), most)
	}
	c.completing.Store(true)
	end := c.runEnd()
	end.Checkpoint = checkpoint
	err := registry.CompleteRun(ctx, reg, tx, end)
	if errors.Is(err, registry.ErrFenced) {
		return fmt.Errorf("%w: %w", ErrRunOver, err)
	}
	return err
}

// runEnd returns the end of c.
func (c *claimedRun) runEnd() registry.RunEnd {
	r := c.newRun()
	return registry.RunEnd{Shard: r.ShardKey(), Work: r.Key, Fence: r.Fence}
}

// earlier is the knowledge of a run about earlier runs that may have done its work.
type earlier struct {
	known  bool // the others are set
	answer registry.Completion
	err    error
	since  time.Time // when their transaction was first found open; zero: it was not
	warned bool
}

// mayRepeat reports whether an earlier run may have done the work of c: it is another attempt, or an operator wants it again. A run that repeats work without
// that, after a reset or in a store that was set back, finds out when it completes.
func (c *claimedRun) mayRepeat() bool {
	return c.claim.Attempt > 1 || c.claim.Rerun || c.claim.Cause != ""
}

const (
	askPatience  = 100 * time.Millisecond // of a run that has a worker
	askPause     = 10 * time.Millisecond
	askAgain     = 400 * time.Millisecond // after that, without a worker
	warnOpen     = 5 * time.Second        // after which an open transaction is logged
	leakPatience = 5 * time.Second        // for a transaction that a handler has left open
)

// postponed asks whether an earlier run has done the work of c. While its transaction is open, c waits without a worker, so that other shards
// go on.
func (c *claimedRun) postponed() bool {
	if c.gathering() != nil || !c.mayRepeat() || c.signal.isEnding() {
		return false
	}
	err := c.askEarlier(c.task.Ctx, askPatience)
	if err == nil || c.task.Ctx.Err() != nil || !isOpen(err) {
		return false
	}
	c.task.Delay, c.task.Behind, c.task.End = askAgain, "an open transaction of an earlier attempt", c.endUnbegun
	c.claim.e.pool.AddDelayed(&c.task)
	return true
}

// isOpen reports whether an error of registry.FenceRun may be over a moment later.
func isOpen(err error) bool { return errors.Is(err, registry.ErrTxOpen) || registry.Retryable(err) }

// askEarlier asks whether an earlier run has done the work of c, until that is known, ctx ends, or an answer comes after patience.
func (c *claimedRun) askEarlier(ctx context.Context, patience time.Duration) error {
	if c.earlier == nil {
		c.earlier = &earlier{}
	}
	e := c.earlier
	if e.known {
		return e.err
	}
	began := time.Now()
	var answer registry.Completion
	err := c.ask(ctx, c.runEnd(), func(err error) bool {
		if errors.Is(err, registry.ErrTxOpen) {
			c.warnOpen()
		}
		return isOpen(err) && time.Since(began) < patience
	}, &answer)
	if err != nil && isOpen(err) {
		return err
	}
	if errors.Is(err, registry.ErrNoCompleter) {
		err = nil
	}
	e.known, e.answer, e.err = true, answer, err
	return err
}

// ask fences earlier runs and returns whether the work is done. It asks again while again returns true for the error, until ctx ends.
func (c *claimedRun) ask(ctx context.Context, end registry.RunEnd, again func(error) bool, answer *registry.Completion) error {
	for pause := askPause; ; pause = min(2*pause, askAgain) {
		var err error
		*answer, err = registry.FenceRun(ctx, c.claim.e.reg, end)
		if err == nil || !again(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// warnOpen logs once that c waits, if it has for some time.
func (c *claimedRun) warnOpen() {
	e := c.earlier
	if e.since.IsZero() {
		e.since = time.Now()
	}
	if e.warned || time.Since(e.since) < warnOpen {
		return
	}
	e.warned = true
	c.claim.e.runs.logOrCount(c.newRun(), runBlocked, nil)
}

// endAsEarlier ends c without its handler if an earlier run has done its work.
func (c *claimedRun) endAsEarlier(ctx context.Context) (ended bool, err error) {
	if !c.mayRepeat() {
		return false, nil
	}
	if err := c.askEarlier(ctx, math.MaxInt64); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return true, err
	}
	if !c.earlier.answer.Ended {
		return false, nil
	}
	c.claim.e.runs.logOrCount(c.newRun(), runDoneBefore, nil)
	if !c.claim.Rerun {
		return true, nil // an operator's retry: later runs may have stored other checkpoints
	}
	return true, c.saveCheckpoint(c.earlier.answer)
}

// saveCheckpoint stores the checkpoint of work that is done.
func (c *claimedRun) saveCheckpoint(done registry.Completion) error {
	if done.Checkpoint == nil {
		return nil
	}
	if err := c.gate.access().Save(c.task.Ctx, done.Checkpoint); err != nil {
		return fmt.Errorf("the work is done; store its checkpoint: %w", err)
	}
	return nil
}

// settle returns the result of a run whose handler returned err: that of its transaction, if it has called EndIn.
func (c *claimedRun) settle(err error) error {
	if !c.completing.Load() || c.task.Ctx.Err() != nil {
		return err
	}
	end := c.runEnd()
	end.Fence++ // so that this run cannot end later; those to come have at least this fence
	began := time.Now()
	var answer registry.Completion
	unknown := c.ask(c.task.Ctx, end, func(err error) bool {
		return isOpen(err) && !(errors.Is(err, registry.ErrTxOpen) && time.Since(began) > leakPatience)
	}, &answer)
	switch {
	case unknown == nil && answer.Ended:
		if err != nil && !errors.Is(err, registry.ErrRunEnded) {
			c.claim.e.log.Warn("handler failed after the transaction of its run was committed", "job", c.claim.Job, "run", c.newRun().ID, "error", err)
		}
		return c.saveCheckpoint(answer)
	case err != nil:
		return err
	case unknown != nil:
		return fmt.Errorf("%w: %w", ErrNotCommitted, unknown)
	}
	return ErrNotCommitted
}
