package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Grant describes a session that the store has granted.
type Grant struct {
	ID  registry.SessionID
	TTL time.Duration // as granted
	// Sent is when the request that opened the session was sent: the time until which the
	// session is safe is counted from here. The zero Instant means when Handle.OpenSession
	// called its function; set it if the request was repeated since.
	Sent Instant

	// Interval is the time between renewals. 0 means a quarter of the TTL: with answers that
	// take half a TTL, a renewal is then confirmed three quarters of the TTL after the previous
	// one was sent, which leaves a margin for a busy machine.
	Interval time.Duration
	// Patience is the time from the sending of the last confirmed renewal until the session is
	// Suspended. 0 means 0.85 of the TTL.
	Patience time.Duration
	// Span is the time from the sending of the last confirmed renewal until the session is
	// Lost. 0 means 0.9 of the TTL. It must be shorter than the time after which the store may
	// end the session, by a margin for clocks of different rates. A store that rounds its times,
	// or may expire a session early, needs a shorter one.
	Span time.Duration

	// Renew asks the store to renew the session and returns nil when the store has confirmed
	// it. It is called before the previous call has returned, and must not wait for that one. ctx ends
	// after the Span: do not bound the request further, as an answer may take half a TTL. An
	// error that wraps registry.ErrSessionLost means that the store has ended the session; after
	// any other error, the store may or may not have renewed it.
	Renew func(ctx context.Context) error
	// End ends the session at the store and deletes its owned keys. It returns nil if the
	// session has ended there, now or before. It is called after the end of Handle.Context too.
	End func(ctx context.Context) error
}

func (g Grant) withDefaults() Grant {
	g.Interval = cmp.Or(g.Interval, g.TTL/4)
	g.Patience = cmp.Or(g.Patience, g.TTL/20*17)
	g.Span = cmp.Or(g.Span, g.TTL/10*9)
	return g
}

// Session is the client's side of a session: it implements registry.Session. It is renewed on
// its own timer until it ends. If it is lost by its own clock, its goroutine also ends it at the
// store, within one TTL. Only Close waits for the store.
type Session struct {
	c      Grant
	handle *Handle
	clock  func() Instant
	ctx    context.Context // of renewals; ends with the session
	stop   context.CancelFunc
	wake   chan struct{} // one slot: run has to compute the next step again
	lost   chan struct{} // closed once the state is final
	overAt atomic.Int64  // the Unix time, in ns, at which the handle may forget the session; 0 while it lives

	mu        sync.Mutex
	state     registry.SessionState
	changed   chan struct{} // closed, and replaced, when the state changes
	err       error         // the reason of the final state
	ended     bool          // it is known to have ended at the store
	confirmed Instant       // when the last confirmed renewal was sent
	sent      Instant       // when the last renewal was sent, confirmed or not
	pause     time.Duration // between that and the next one
	broken    Instant       // when the connection was last lost
	starved   int
	renewErr  error // of the last renewal that failed
}

var _ registry.Session = (*Session)(nil)

func newSession(h *Handle, g Grant, clock func() Instant) *Session {
	g = g.withDefaults()
	s := &Session{
		c:         g,
		handle:    h,
		clock:     clock,
		wake:      make(chan struct{}, 1),
		lost:      make(chan struct{}),
		state:     registry.SessionConnected,
		changed:   make(chan struct{}),
		confirmed: g.Sent,
		sent:      g.Sent,
		pause:     g.Interval,
	}
	s.ctx, s.stop = context.WithCancel(h.Context())
	return s
}

// isOver reports whether the handle may forget the session: it has ended at the store, or ended
// here so long ago that the store has expired it. It takes no lock.
func (s *Session) isOver() bool {
	at := s.overAt.Load()
	return at != 0 && time.Now().UnixNano() >= at
}

// ID is described in registry.Session.
func (s *Session) ID() registry.SessionID { return s.c.ID }

// TTL is described in registry.Session.
func (s *Session) TTL() time.Duration { return s.c.TTL }

// State is described in registry.Session. It reads the clock itself: after a pause of the
// process it may be called before the timer has fired.
func (s *Session) State() (registry.SessionState, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	s.checkClock(now)
	return s.state, s.confirmed.at.Add(s.c.Span - now.slept(s.confirmed))
}

// Changed is described in registry.Session.
func (s *Session) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Lost is described in registry.Session.
func (s *Session) Lost() <-chan struct{} { return s.lost }

// Err is described in registry.Session.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkClock(s.clock())
	return s.err
}

// Close is described in registry.Session.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.checkClock(s.clock())
	s.setFinalState(registry.SessionClosed, registry.ErrClosed)
	s.mu.Unlock()
	if err := s.end(ctx); err != nil {
		return fmt.Errorf("close session %s: %w", s.c.ID, Unavailable(err))
	}
	return nil
}

// Disconnected suspends the session because the connection to the store has broken. Only a
// renewal that is sent after that makes it Connected again. A backend calls it as soon as it notices: a
// session that is suspended by its own clock, after its Patience, has little time left to connect again.
func (s *Session) Disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	s.checkClock(now)
	s.broken = now
	if s.err == nil {
		s.setState(registry.SessionSuspended)
	}
}

// Reconnected makes the session send a renewal at once, if it is suspended.
func (s *Session) Reconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == registry.SessionSuspended {
		s.pause = 0
		s.signal()
	}
}

// Expired makes the session lost because the store has ended it.
func (s *Session) Expired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setExpired()
}

// Vanished makes the session lost because its record in the store was deleted. The session is
// then ended at the store, which may still keep it alive.
func (s *Session) Vanished() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setFinalState(registry.SessionLost, fmt.Errorf("%w: the record of %s was deleted from the store", registry.ErrSessionLost, s.c.ID))
}

// Starve stops renewals of the session until feed is called, as if the process got no CPU
// time, for tests. Calling feed twice is legal.
func (s *Session) Starve() (feed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starved++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.starved--
		s.signal()
	})
}

// run is the session's goroutine.
func (s *Session) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	logged := registry.SessionConnected
	for {
		wait, ended := s.advanceState()
		logged = s.logState(logged)
		if ended {
			break
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		}
	}
	s.stop()
	s.endAfterLoss()
}

// logState logs the state if it differs from the one logged last, and returns it. The place
// where the state changes cannot log, since a logger may block and the lock is held there. The
// level is INFO even for a loss: the owner observes Lost and logs the consequences. It is
// DEBUG for Close, which the owner itself has called.
func (s *Session) logState(logged registry.SessionState) registry.SessionState {
	s.mu.Lock()
	state, cause := s.state, s.err
	cause = cmp.Or(cause, s.renewErr)
	s.mu.Unlock()
	if state == logged {
		return logged
	}
	level := slog.LevelInfo
	if state == registry.SessionClosed {
		level = slog.LevelDebug
	}
	s.handle.config.Logger.Log(s.ctx, level, "session is "+state.String(), "session", s.c.ID, "cause", cause)
	return state
}

// advanceState updates the state, sends a renewal if one is due, and returns the time until it has to
// be called again. ended reports that the state is final.
func (s *Session) advanceState() (wait time.Duration, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	s.checkClock(now)
	if s.err != nil {
		return 0, true
	}
	since := now.Since(s.confirmed)
	wait = s.c.Span - since
	if s.state == registry.SessionConnected {
		wait = min(wait, s.c.Patience-since)
	}
	if s.starved > 0 {
		return wait, false
	}
	due := s.pause - now.Since(s.sent)
	if due <= 0 {
		s.sent, s.pause, due = now, s.c.Interval, s.c.Interval
		s.handle.Go(func() { s.sendRenewal(now, s.c.Span) })
	}
	return min(wait, due), false
}

// sendRenewal sends a renewal, and waits for its answer no longer than bound: after that, it
// could not keep the session alive.
func (s *Session) sendRenewal(sent Instant, bound time.Duration) {
	ctx, cancel := context.WithTimeout(s.ctx, bound)
	defer cancel()
	err := s.c.Renew(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handleAnswer(sent, err)
}

// handleAnswer handles the answer to the renewal that was sent at that instant. The lock is
// held, as in the methods below.
func (s *Session) handleAnswer(sent Instant, err error) {
	now := s.clock()
	s.checkClock(now)
	switch {
	case s.err != nil:
	case errors.Is(err, registry.ErrSessionLost):
		s.setExpired()
	case err != nil:
		s.renewErr = err
		if sent.at.Equal(s.sent.at) { // no later one is under way: retry before the interval ends
			s.pause = min(s.pause, now.Since(sent)+s.c.Interval/4)
		}
	default:
		if sent.at.After(s.confirmed.at) {
			s.confirmed = sent
		}
		if now.Since(s.confirmed) < s.c.Patience && !sent.at.Before(s.broken.at) {
			s.setState(registry.SessionConnected)
		}
	}
	s.signal()
}

// checkClock suspends or ends the session if its time has run out. It is called before every
// other change or read of the state.
func (s *Session) checkClock(now Instant) {
	if s.err != nil {
		return
	}
	switch since := now.Since(s.confirmed); {
	case since >= s.c.Span:
		s.setFinalState(registry.SessionLost, s.spanError())
	case since >= s.c.Patience:
		s.setState(registry.SessionSuspended)
	}
}

// spanError returns the error of a session that is lost by its own clock.
func (s *Session) spanError() error {
	if s.renewErr == nil {
		return fmt.Errorf("%w: no renewal of %s was confirmed for %v", registry.ErrSessionLost, s.c.ID, s.c.Span)
	}
	return fmt.Errorf("%w: no renewal of %s was confirmed for %v: %w",
		registry.ErrSessionLost, s.c.ID, s.c.Span, s.renewErr)
}

func (s *Session) setExpired() {
	s.setEnded()
	s.setFinalState(registry.SessionLost, fmt.Errorf("%w: the store has ended %s", registry.ErrSessionLost, s.c.ID))
}

// setFinalState sets a final state, unless the state is final.
func (s *Session) setFinalState(state registry.SessionState, err error) {
	if s.err != nil {
		return
	}
	s.err = err
	if !s.ended {
		s.overAt.Store(time.Now().Add(10 * s.c.TTL).UnixNano())
	}
	s.setState(state)
	close(s.lost)
}

func (s *Session) setState(state registry.SessionState) {
	if s.state == state {
		return
	}
	s.state = state
	close(s.changed)
	s.changed = make(chan struct{})
	s.signal()
}

// signal makes run compute the next step again.
func (s *Session) signal() { Signal(s.wake) }

// endAfterLoss ends a session at the store that was lost by its own clock. Otherwise a renewal
// that the network delayed could extend the session at the store, and no other client could
// take over until the TTL has run out again.
func (s *Session) endAfterLoss() {
	ctx, cancel := context.WithTimeout(s.handle.Context(), s.c.TTL)
	defer cancel()
	s.mu.Lock()
	lost := s.state == registry.SessionLost
	s.mu.Unlock()
	if lost {
		_ = s.end(ctx) // if the store cannot be reached, the session expires
	}
}

func (s *Session) end(ctx context.Context) error {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended {
		return nil
	}
	if err := s.c.End(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setEnded()
	return nil
}

// setEnded records that the session has ended at the store. The lock is held.
func (s *Session) setEnded() {
	s.ended = true
	s.overAt.Store(1)
}
