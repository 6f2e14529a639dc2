package zookeeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/internal/zkwire"
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

// endSession ends a session of the server's on a connection made for it. It tries one
// member after another until one says that the session has ended, or ctx ends.
func (c *Client) endSession(ctx context.Context, g zkwire.Grant) error {
	dial := c.o.dialer(c.hosts)
	err := errors.New("no member was found")
	for {
		all, problem := c.hosts.resolve(ctx)
		if problem != nil {
			err = problem
		}
		for _, address := range all {
			if err = endOn(ctx, dial, address, g, c.o.DialTimeout); err == nil {
				return nil
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
			}
		}
		select {
		case <-time.After(firstPause):
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
	}
}

func endOn(ctx context.Context, dial func(context.Context, string) (net.Conn, error), address string, g zkwire.Grant, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return zkwire.EndSession(conn, g)
}
