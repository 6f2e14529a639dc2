package zookeeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// session is a session of the registry's on a session of the server's, which is a link of
// its own: what owns a znode is the session that it was made by. All that it says of its
// state is remote.Session's.
type session struct {
	*remote.Session
	c      *Client
	link   *link
	path   string        // of its znode
	births atomic.Uint64 // counts the owned keys that it made
	asked  time.Duration
	ready  chan struct{}        // closed when Session is set, or will not be
	seen   atomic.Pointer[wire] // the connection on which its znode was last seen

	mu    sync.Mutex
	ended time.Time // when it was seen to be over; zero until then
}

// The figures of a session, as parts of the timeout that was granted.
//
// A follower tells its leader who was heard of only when the leader asks, every half tick;
// the shortest timeout is two ticks. So what the leader knows may be a quarter of a
// timeout old when a follower that has confirmed a renewal is cut off, and the leader
// would end the session three quarters of a timeout after that renewal. Two thirds leave
// room for clocks of different rates.
//
// Renewals that take half a timeout to be answered must not cost the session. They do not
// wait for each other, and are close enough together that one is confirmed in time. Six of
// them go unanswered before the session is suspended; what is left until it is lost is time
// to stop in.
const (
	spanOf     = 2.0 / 3
	patienceOf = 0.5
	intervalOf = 1.0 / 12
)

func part(of float64, d time.Duration) time.Duration { return time.Duration(of * float64(d)) }

// OpenSession is described in registry.Registry. A server grants timeouts between two and
// twenty ticks as it comes, which are 4 s and 40 s; what it would cut short is refused.
func (c *Client) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	or(&o.TTL, registry.DefaultSessionTTL)
	s, err := c.openSession(ctx, o.TTL)
	switch {
	case errors.Is(err, errTTL):
		return nil, fmt.Errorf("open session: %w", err)
	case err != nil:
		return nil, fmt.Errorf("open session: %w", remote.Unavailable(err))
	}
	return s, nil
}

func (c *Client) openSession(ctx context.Context, ttl time.Duration) (*session, error) {
	ctx, end, err := c.calls.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	s := &session{c: c, asked: ttl, ready: make(chan struct{})}
	s.link = newLink(c.link(linkConfig{timeout: ttl, bound: true, state: func(state linkState) {
		<-s.ready // there is nobody to tell before
		s.follow(state)
	}}))
	if err := s.link.start(); err != nil {
		return nil, err
	}
	sent, id, err := s.begin(ctx)
	if err == nil {
		s.Session = s.start(id, sent)
		err = c.keep(s)
	}
	close(s.ready)
	if err != nil {
		s.link.end(ctx, true)
		return nil, err
	}
	return s, nil
}

// begin makes the znode of the session. It returns when that was asked for, which is a
// sign of life that the server has confirmed.
func (s *session) begin(ctx context.Context) (sent remote.Instant, id registry.SessionID, err error) {
	if err := s.link.await(ctx); err != nil {
		return sent, "", err
	}
	granted := s.link.grant()
	if granted.Timeout < s.asked {
		return sent, "", fmt.Errorf("%w: asked for %v, and the server grants %v", errTTL, s.asked, granted.Timeout)
	}
	// The server's own id may come again after a restart with a clock set back.
	id = registry.SessionID(fmt.Sprintf("%016x-%s", uint64(granted.Session), rand.Text()[:16]))
	s.path, _ = s.c.layout.session(id)
	s.seen.Store(s.link.current())
	sent = remote.Now()
	// Not repeated if the connection breaks: the session may be another one then.
	_, err = call(ctx, s.link, func(conn *zk.Conn) (string, error) {
		return conn.Create(s.path, []byte(sessionValue), zk.FlagEphemeral, s.c.o.ACL)
	})
	if err == nil && s.link.grant().Session != granted.Session {
		err = errors.New("the server has begun another session")
	}
	return sent, id, translate(err)
}

// errTTL is not for trying again: the server will not grant more.
var errTTL = errors.New("TTL too long")

func (s *session) start(id registry.SessionID, sent remote.Instant) *remote.Session {
	ttl := s.link.grant().Timeout
	return remote.NewSession(remote.SessionConfig{
		ID:       id,
		TTL:      ttl,
		Opened:   sent,
		Interval: part(intervalOf, ttl),
		Patience: part(patienceOf, ttl),
		Span:     part(spanOf, ttl),
		Renew:    s.renew,
		End:      s.end,
		Calls:    s.c.calls,
		Logger:   s.c.o.Logger,
	})
}

// keep adds s to the sessions that Close closes, and sees to the end of its link.
func (c *Client) keep(s *session) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions == nil {
		return remote.ErrHandleClosed
	}
	for id, old := range c.sessions {
		if old.forgotten() {
			delete(c.sessions, id)
		}
	}
	c.sessions[s.ID()] = s
	c.calls.Go(func() {
		<-s.Lost()
		s.mu.Lock()
		s.ended = time.Now()
		s.mu.Unlock()
		if st, _ := s.State(); st == registry.SessionLost {
			// What is still in the library's queue must not be sent any more.
			s.link.end(c.calls.Context(), false)
		}
	})
	return nil
}

// forgotten reports whether s ended so long ago that its znode is gone for sure, which
// then tells those who ask for it as much as s could.
func (s *session) forgotten() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ended.IsZero() && time.Since(s.ended) > 10*s.TTL()
}

// follow takes in a change of the link.
func (s *session) follow(state linkState) {
	if s.Session == nil {
		return // it was not opened
	}
	switch state {
	case linkDown:
		s.Disconnected()
	case linkUp:
		s.Reconnected()
	case linkOver:
		if s.link.grant().Session == 0 {
			s.Expired()
		}
	}
}

// renew asks the leader, by way of the member: a member that was cut off from its leader
// answers all else by itself, for as long as it takes to notice.
func (s *session) renew(ctx context.Context) error {
	if !s.link.up() {
		return notSent{errors.New("disconnected")}
	}
	w := s.link.current()
	_, err := call(ctx, s.link, func(conn *zk.Conn) (string, error) { return conn.Sync(s.path) })
	if errors.Is(err, zk.ErrSessionExpired) || s.gone() {
		return fmt.Errorf("%w: %w", registry.ErrSessionLost, errExpiredHere)
	}
	if err == nil && s.seen.Load() != w {
		s.look(w)
	}
	return err
}

// look looks, on a new connection that carries the session, whether the session's znode is
// still there. A member leaves a connection open that was made while somebody else, who was
// connected to that member too, had the session ended; and what is asked on it is answered,
// Syncs and all. By the first of them the member has heard of that end.
func (s *session) look(w *wire) {
	s.c.calls.Go(func() {
		ctx, cancel := context.WithTimeout(s.c.calls.Context(), s.link.grant().Timeout)
		defer cancel()
		there, err := call(ctx, s.link, func(conn *zk.Conn) (bool, error) {
			there, _, err := conn.Exists(s.path)
			return there, err
		})
		switch {
		case err != nil: // the next renewal looks again
		case there:
			s.seen.Store(w)
		default:
			<-s.ready
			s.Vanished()
		}
	})
}

// gone reports whether the server has said that it has no such session.
func (s *session) gone() bool { return s.link.over() && s.link.grant().Session == 0 }

// end ends the session at the server, on its own connection if there is one. Otherwise,
// and if it was lost, a connection is made for that alone, on which nothing else can be
// sent.
func (s *session) end(ctx context.Context) error {
	granted := s.link.grant()
	st, _ := s.State()
	if granted.Session == 0 || s.link.end(ctx, st == registry.SessionClosed) || s.gone() {
		return nil
	}
	return s.c.endSession(ctx, granted)
}

// verdict waits until it is known, after the connection broke, whether the session has
// survived that, or ctx ends. What is not known to be over has survived.
func (s *session) verdict(ctx context.Context) (survived bool) {
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	known := make(chan struct{})
	waiting.Go(func() {
		defer close(known)
		if s.link.outlive(ctx) == nil {
			_ = s.link.await(ctx)
		}
	})
	select {
	case <-known:
	case <-s.Lost():
	}
	return !s.over()
}

// over reports whether the session has ended.
func (s *session) over() bool { return s.gone() || s.Err() != nil }
