package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/mutex"
)

// yieldSignal asks a claimed run to yield.
type yieldSignal struct {
	mu     mutex.Mutex
	asked  chan struct{}           // closed when the run is asked; nil before the handler has called Run.Yield
	cancel context.CancelCauseFunc // of the run's context; nil before it has one
	ended  error                   // the cause with which the context is to end, or has ended
	daemon bool                    // the context ends when the run is asked

	wasAsked bool
	over     bool // the run's epoch is over, because of a pause or of a new definition
}

// endContext ends the context of the run, at once or when it gets one.
func (s *yieldSignal) endContext(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endContextLocked(cause)
}

// endContextLocked is endContext. The caller holds s.mu.
func (s *yieldSignal) endContextLocked(cause error) {
	if s.ended = cause; s.cancel != nil {
		s.cancel(cause)
	}
}

// setCancel sets the function that ends the context of the run.
func (s *yieldSignal) setCancel(cancel context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel = cancel; s.ended != nil {
		cancel(s.ended)
	}
}

// setDaemon has the context of the run end with ErrYield when the run is asked to yield, or now if it was.
func (s *yieldSignal) setDaemon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon = true; s.wasAsked {
		s.endContextLocked(ErrYield)
	}
}

func (s *yieldSignal) ask(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = s.over || errors.Is(cause, claimer.ErrPaused) || errors.Is(cause, claimer.ErrNewDefinition)
	if s.wasAsked {
		return
	}
	if s.wasAsked = true; s.asked != nil {
		close(s.asked)
	}
	if s.daemon {
		s.endContextLocked(ErrYield)
	}
}

// channel returns the channel that is closed when the run is asked to yield.
func (s *yieldSignal) channel() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		if s.asked = make(chan struct{}); s.wasAsked {
			close(s.asked)
		}
	}
	return s.asked
}

// state reports whether the run was asked to yield, and whether its epoch is over or about to be.
func (s *yieldSignal) state() (asked, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wasAsked, s.over
}

// yieldError returns the error to report for a run that ended with err. A run that was asked to yield, and did, is
// handed back, so that the next owner makes its rest at once. If its epoch is over, it has succeeded instead:
// its owner would make it again at once, and be asked again.
func (p *program) yieldError(ctx context.Context, s *yieldSignal, err error) error {
	asked, over := s.state()
	switch yields := errors.Is(err, ErrYield) || p.always && errors.Is(context.Cause(ctx), ErrYield); {
	case !yields, !asked, isPanic(err), isCancelled(ctx):
		return err
	case over, !p.handsBack():
		return nil
	}
	return fmt.Errorf("%w: %w", claimer.ErrHandedBack, ErrYield)
}

// isCancelled reports whether a due fire or an operator has cancelled the run with context ctx.
func isCancelled(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, ErrOverlap) || errors.Is(cause, ErrCancelled)
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
