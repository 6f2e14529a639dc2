package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// SessionConfig describes a session that the store has granted.
type SessionConfig struct {
	ID     registry.SessionID
	TTL    time.Duration // the granted one
	Opened Instant       // when the request that opened it was sent

	Interval time.Duration // between renewals
	// Counted from when the last confirmed renewal was sent, the session is suspended after
	// Patience and lost after Span. Between Span and the TTL lies what clocks of different
	// rates, and a store that counts coarsely, may differ by.
	Patience time.Duration
	Span     time.Duration

	// Renew asks the store to prolong the session. It is not told to wait for the one
	// before. An error that wraps registry.ErrSessionLost means that the store has ended
	// the session, any other that it is not known to have heard.
	Renew func(ctx context.Context) error
	// End ends the session at the store. It returns nil if it has ended there.
	End func(ctx context.Context) error

	Calls  *Calls // of the handle; not closed yet, or the session is never renewed
	Logger *slog.Logger
}

// Session is the client's side of a session. It is renewed on its own timer until it
// ends; when it is lost by the clock, the store is told for as long as it might still let
// it live. Its methods never wait for the store, but for Close.
type Session struct {
	c     SessionConfig
	clock func() Instant
	ctx   context.Context // of renewals; ends with the session
	stop  context.CancelFunc
	wake  chan struct{} // one slot: look at what is due
	lost  chan struct{} // closed once the state is final

	mu        sync.Mutex
	state     registry.SessionState
	changed   chan struct{} // closed, and replaced, when the state changes
	err       error         // why the state is final
	told      bool          // that the store has ended it, or the other way round
	confirmed Instant       // when the last confirmed renewal was sent
	sent      Instant       // when the last renewal was sent, confirmed or not
	pause     time.Duration // between that and the next one
	broken    Instant       // when the connection was last lost
	starved   int
	trouble   error // the answer to the last renewal that went wrong
}

var _ registry.Session = (*Session)(nil)

// NewSession begins the client's side of a session.
func NewSession(c SessionConfig) *Session { return newSession(c, Now) }

func newSession(c SessionConfig, clock func() Instant) *Session {
	s := &Session{
		c:         c,
		clock:     clock,
		wake:      make(chan struct{}, 1),
		lost:      make(chan struct{}),
		state:     registry.SessionConnected,
		changed:   make(chan struct{}),
		confirmed: c.Opened,
		sent:      c.Opened,
		pause:     c.Interval,
	}
	s.ctx, s.stop = context.WithCancel(c.Calls.Context())
	c.Calls.Go(s.run)
	return s
}

// ID is described in registry.Session.
func (s *Session) ID() registry.SessionID { return s.c.ID }

// TTL is described in registry.Session.
func (s *Session) TTL() time.Duration { return s.c.TTL }

// State is described in registry.Session. It looks at the clock itself: after a pause of
// the process it may be asked before the timer has run.
func (s *Session) State() (registry.SessionState, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	s.look(now)
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
	s.look(s.clock())
	return s.err
}

// Close is described in registry.Session.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.look(s.clock())
	s.conclude(registry.SessionClosed, registry.ErrClosed)
	s.mu.Unlock()
	if err := s.end(ctx); err != nil {
		return fmt.Errorf("close session %s: %w", s.c.ID, Unavailable(err))
	}
	return nil
}

// Disconnected suspends the session because the connection to the store is gone. Only a
// renewal that is sent after this brings it back.
func (s *Session) Disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	s.look(now)
	s.broken = now
	if s.err == nil {
		s.become(registry.SessionSuspended)
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

// Expired tells the session that the store has ended it.
func (s *Session) Expired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired()
}

// Vanished tells the session that what stands for it in the store is gone. It is lost, and
// ended at the store, which may let it live all the same.
func (s *Session) Vanished() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conclude(registry.SessionLost, fmt.Errorf("%w: what stands for %s is gone from the store", registry.ErrSessionLost, s.c.ID))
}

// Starve keeps the session from being renewed, until feed, as if the process got no
// processor for it. It is for tests. Calling feed twice is legal.
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
	said := registry.SessionConnected
	for {
		wait, over := s.step()
		said = s.report(said)
		if over {
			break
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		}
	}
	s.stop()
	s.abandon()
}

// report logs the state, if it is not the one that was logged last, which it returns. It is
// not done where the state changes: a logger may wait, and the lock is held there. The level
// is INFO for a loss as well: the session's user learns of it by Lost, and logs the consequences.
// Closing is the user's own act.
func (s *Session) report(said registry.SessionState) registry.SessionState {
	s.mu.Lock()
	state, cause := s.state, s.err
	if cause == nil {
		cause = s.trouble
	}
	s.mu.Unlock()
	if state == said {
		return said
	}
	level := slog.LevelInfo
	if state == registry.SessionClosed {
		level = slog.LevelDebug
	}
	s.c.Logger.Log(s.ctx, level, "session is "+state.String(), "session", s.c.ID, "cause", cause)
	return state
}

// step does what is due, and returns how long nothing else will be.
func (s *Session) step() (wait time.Duration, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	s.look(now)
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
		s.c.Calls.Go(func() { s.renew(now, s.c.Span) })
	}
	return min(wait, due), false
}

// renew sends a renewal. Its answer is of no use once bound is over.
func (s *Session) renew(sent Instant, bound time.Duration) {
	ctx, cancel := context.WithTimeout(s.ctx, bound)
	defer cancel()
	err := s.c.Renew(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear(sent, err)
}

// hear takes in the answer to the renewal that was sent then. The lock is held, as in all
// that follows.
func (s *Session) hear(sent Instant, err error) {
	now := s.clock()
	s.look(now)
	switch {
	case s.err != nil:
	case errors.Is(err, registry.ErrSessionLost):
		s.expired()
	case err != nil:
		s.trouble = err
		if sent.at.Equal(s.sent.at) { // there is none after it: do not wait the whole interval
			s.pause = min(s.pause, now.Since(sent)+s.c.Interval/4)
		}
	default:
		if sent.at.After(s.confirmed.at) {
			s.confirmed = sent
		}
		if now.Since(s.confirmed) < s.c.Patience && !sent.at.Before(s.broken.at) {
			s.become(registry.SessionConnected)
		}
	}
	s.signal()
}

// look makes true what the clock says. It comes before anything else that is told of the
// session.
func (s *Session) look(now Instant) {
	if s.err != nil {
		return
	}
	switch since := now.Since(s.confirmed); {
	case since >= s.c.Span:
		s.conclude(registry.SessionLost, s.silence())
	case since >= s.c.Patience:
		s.become(registry.SessionSuspended)
	}
}

// silence is why a session is lost that the store has not ended.
func (s *Session) silence() error {
	if s.trouble == nil {
		return fmt.Errorf("%w: no renewal of %s was confirmed for %v", registry.ErrSessionLost, s.c.ID, s.c.Span)
	}
	return fmt.Errorf("%w: no renewal of %s was confirmed for %v: %w",
		registry.ErrSessionLost, s.c.ID, s.c.Span, s.trouble)
}

func (s *Session) expired() {
	s.told = true
	s.conclude(registry.SessionLost, fmt.Errorf("%w: the store has ended %s", registry.ErrSessionLost, s.c.ID))
}

// conclude makes the state final, unless it is.
func (s *Session) conclude(state registry.SessionState, err error) {
	if s.err != nil {
		return
	}
	s.err = err
	s.become(state)
	close(s.lost)
}

func (s *Session) become(state registry.SessionState) {
	if s.state == state {
		return
	}
	s.state = state
	close(s.changed)
	s.changed = make(chan struct{})
	s.signal()
}

// signal makes run look at what is due.
func (s *Session) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// abandon ends at the store a session that was lost by the clock. A renewal that the
// network has held up may reach the store after that and prolong what its owner has given
// up; nobody else could take over before the TTL has run out again.
func (s *Session) abandon() {
	ctx, cancel := context.WithTimeout(s.c.Calls.Context(), s.c.TTL)
	defer cancel()
	s.mu.Lock()
	lost := s.state == registry.SessionLost
	s.mu.Unlock()
	if lost {
		_ = s.end(ctx) // it expires, if it cannot be told
	}
}

func (s *Session) end(ctx context.Context) error {
	s.mu.Lock()
	told := s.told
	s.mu.Unlock()
	if told {
		return nil
	}
	if err := s.c.End(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = true
	return nil
}
