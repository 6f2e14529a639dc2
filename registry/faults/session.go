package faults

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// OpenSession is described in registry.Registry.
func (h *handle) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	var inner registry.Session
	open := func(ctx context.Context, _ verdict) (err error) {
		if inner != nil { // the reply to an earlier attempt was lost
			h.abandon(inner)
		}
		inner, err = h.inner.OpenSession(ctx, o)
		return err
	}
	if err := h.repeat(ctx, call{op: OpenSession}, open); err != nil {
		if inner != nil {
			h.abandon(inner)
		}
		return nil, err
	}
	s := &session{h: h, inner: inner, changed: make(chan struct{}), lost: make(chan struct{})}
	s.refresh()
	if !h.addSession(s) { // h.inner has been closed, and the session with it
		return nil, backend.ErrHandleClosed
	}
	return s, nil
}

// addSession registers s, which Close will close, and starts its goroutine. It returns false if
// the handle is closed.
func (h *handle) addSession(s *session) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.base.Go(s.run) {
		return false
	}
	maps.DeleteFunc(h.sessions, func(old *session, _ struct{}) bool { return old.isFinal() })
	h.sessions[s] = struct{}{}
	return true
}

// margin is how long after its safe-until the store ends a session that is not renewed.
func margin(ttl time.Duration) time.Duration { return ttl / 10 }

// abandon makes a session expire that its owner does not know or has given up: the store ends
// it a margin after its safe-until. The inner registry would renew it for ever.
func (h *handle) abandon(inner registry.Session) {
	_, until := inner.State()
	h.base.Go(func() { h.expire(inner, until.Add(margin(inner.TTL()))) })
}

// expire ends a session at the store at an instant.
func (h *handle) expire(inner registry.Session, at time.Time) {
	if sleep(h.base.Context(), time.Until(at)) != nil {
		return // Close ends it
	}
	ctx, cancel := context.WithTimeout(h.base.Context(), inner.TTL())
	defer cancel()
	_ = inner.Close(ctx) // its renewals end in any case, so that it expires
}

// session is a wrapped session.
type session struct {
	h     *handle
	inner registry.Session
	lost  chan struct{} // closed once the state is final

	mu       sync.Mutex
	state    registry.SessionState
	until    time.Time // safe-until
	cut      bool      // renewals are cut, and until is that of the time when the cut began
	changed  chan struct{}
	err      error // the reason of the final state
	outlived bool  // Lost by until, while the store keeps the session
}

// ID is described in registry.Session.
func (s *session) ID() registry.SessionID { return s.inner.ID() }

// TTL is described in registry.Session.
func (s *session) TTL() time.Duration { return s.inner.TTL() }

// State is described in registry.Session.
func (s *session) State() (registry.SessionState, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	return s.state, s.until
}

// Changed is described in registry.Session.
func (s *session) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Lost is described in registry.Session.
func (s *session) Lost() <-chan struct{} { return s.lost }

// Err is described in registry.Session.
func (s *session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	return s.err
}

func (s *session) isFinal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// refresh computes the state from the clock, the cuts and the inner session. s.mu is held.
func (s *session) refresh() {
	if s.err != nil {
		return
	}
	wasCut := s.cut
	s.cut = s.h.in.linkOf(s.h.name, Renewals).replies
	if !wasCut { // else the owner has received no news since, and its clock decides
		s.adopt()
	}
	if s.err == nil && (s.cut || wasCut) && !time.Now().Before(s.until) {
		s.outlived = true
		s.setFinal(registry.SessionLost, fmt.Errorf("%w: no renewal of %s was confirmed until its safe-until: %w",
			registry.ErrSessionLost, s.ID(), errCut))
	}
	switch {
	case s.err != nil:
	case s.cut:
		s.setState(registry.SessionSuspended)
	case wasCut:
		s.adopt()
	}
}

// adopt copies the state of the inner session. s.mu is held.
func (s *session) adopt() {
	state, until := s.inner.State()
	s.until = until
	switch state {
	case registry.SessionLost:
		s.setFinal(state, s.inner.Err())
	case registry.SessionClosed:
		s.setFinal(state, registry.ErrClosed)
	default:
		if !s.cut {
			s.setState(state)
		}
	}
}

func (s *session) setFinal(state registry.SessionState, err error) {
	s.err = err
	s.setState(state)
	close(s.lost)
}

func (s *session) setState(state registry.SessionState) {
	if s.state == state {
		return
	}
	s.state = state
	close(s.changed)
	s.changed = make(chan struct{})
}

// run keeps the state up to date until it is final. If the session was lost by its owner's clock,
// it also ends the session at the store: a margin later, or at the end of the cut.
func (s *session) run() {
	for {
		link := s.h.in.linkOf(s.h.name, Renewals)
		innerChanged := s.inner.Changed()
		s.mu.Lock()
		s.refresh()
		final, outlived := s.err != nil, s.outlived
		cut, wait, changed := s.cut, time.Until(s.until), s.changed
		s.mu.Unlock()
		if final {
			if outlived {
				s.endAtStore()
			}
			return
		}
		timer := time.NewTimer(wait)
		if !cut {
			timer.Stop()
		}
		select {
		case <-link.changed:
		case <-innerChanged:
		case <-changed:
		case <-timer.C:
		case <-s.h.base.Context().Done():
		}
		timer.Stop()
		if s.h.base.Context().Err() != nil {
			return
		}
	}
}

func (s *session) endAtStore() {
	s.mu.Lock()
	at := s.until.Add(margin(s.TTL()))
	s.mu.Unlock()
	ctx, cancel := context.WithDeadline(s.h.base.Context(), at)
	_ = s.h.awaitLink(ctx, Renewals, true)
	cancel()
	s.h.expire(s.inner, time.Now())
}

// finish makes a session Closed because its handle is closed. It reports whether the store may
// still keep it.
func (s *session) finish() (open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	if s.err != nil {
		return s.outlived
	}
	s.setFinal(registry.SessionClosed, registry.ErrClosed)
	return true
}

// Close is described in registry.Session.
func (s *session) Close(ctx context.Context) error {
	s.finish()
	h := s.h
	if !h.in.isActive() || h.base.Context().Err() != nil {
		return s.inner.Close(ctx)
	}
	sent := false
	err := h.repeat(ctx, call{op: CloseSession}, func(ctx context.Context, _ verdict) error {
		sent = true
		return s.inner.Close(ctx)
	})
	if !sent {
		h.abandon(s.inner)
	}
	return err
}
