package executor

import (
	"context"
	"errors"

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

// isEnding reports whether the context of the run has ended by endContext, or will at once.
func (s *yieldSignal) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended != nil
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
