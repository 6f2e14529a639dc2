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

	"github.com/rota-dev/rota/internal/zkwire"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// session is a session of the registry, on a server session and a link of its own: an ephemeral
// znode belongs to the server session on whose connection it was created. backend.Session keeps
// its state.
type session struct {
	*backend.Session
	client       *Client
	link         *link
	path         string        // of the session's znode
	births       atomic.Uint64 // number of owned keys created so far
	requestedTTL time.Duration
	ready        chan struct{}              // closed when Session is set, or opening has failed
	znodeSeenOn  atomic.Pointer[memberConn] // the last connection on which the znode was found

	mu      sync.Mutex
	endedAt time.Time // when the session was found to be over; zero before
}

// OpenSession implements registry.Registry. In its default configuration, a server grants
// timeouts between 2 and 20 ticks, which are 4 s and 40 s. A longer TTL is an error.
func (c *Client) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	if err := c.handle.CheckWritable(); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	setDefault(&o.TTL, registry.DefaultSessionTTL)
	s, err := c.openSession(ctx, o.TTL)
	switch {
	case errors.Is(err, errTTL):
		return nil, fmt.Errorf("open session: %w", err)
	case err != nil:
		return nil, fmt.Errorf("open session: %w", backend.Unavailable(err))
	}
	return s, nil
}

func (c *Client) openSession(ctx context.Context, ttl time.Duration) (*session, error) {
	ctx, end, err := c.handle.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	s := &session{client: c, requestedTTL: ttl, ready: make(chan struct{})}
	s.link = newLink(c.completeLinkConfig(linkConfig{timeout: ttl, oneSession: true, onState: func(state linkState) {
		<-s.ready // until then there is no Session to inform
		s.onLinkState(state)
	}}))
	if err := s.link.start(); err != nil {
		return nil, err
	}
	sent, id, err := s.createZnode(ctx)
	if err == nil {
		err = c.addSession(s, id, sent)
	}
	close(s.ready)
	if err != nil {
		s.link.shutDown(ctx, true)
		return nil, err
	}
	return s, nil
}

// createZnode creates the znode of the session. sent is the instant of that request, which
// counts as the first renewal.
func (s *session) createZnode(ctx context.Context) (sent backend.Instant, id registry.SessionID, err error) {
	if err := s.link.awaitUp(ctx); err != nil {
		return sent, "", err
	}
	granted := s.link.lastGrant()
	if granted.Timeout < s.requestedTTL {
		return sent, "", fmt.Errorf("%w: requested %v, the server grants %v", errTTL, s.requestedTTL, granted.Timeout)
	}
	// The server's own ID may repeat after a restart with a clock that was set back.
	id = registry.SessionID(fmt.Sprintf("%016x-%s", uint64(granted.Session), rand.Text()[:16]))
	s.path, _ = s.client.layout.sessionPath(id)
	seen, w := s.client.seen.Load(), s.link.currentConn()
	s.znodeSeenOn.Store(w)
	create := func() error {
		sent = backend.Now()
		// Not repeated after a lost connection, which may carry another server session then.
		_, err := callOnce(ctx, s.link, func(conn *zk.Conn) (string, error) {
			return conn.Create(s.path, []byte(sessionValue), zk.FlagEphemeral, s.client.options.ACL)
		})
		return err
	}
	if err = create(); errors.Is(err, zk.ErrNoNode) { // the namespace was deleted
		if err = s.client.createLayout(ctx); err == nil {
			err = create()
		}
	}
	if err == nil {
		s.client.compareCommit(s.link, w, seen)
	}
	if err == nil && s.link.lastGrant().Session != granted.Session {
		err = errors.New("the server has started another session")
	}
	return sent, id, translate(err)
}

// errTTL is permanent: a retry would be granted no more.
var errTTL = errors.New("TTL too long")

// addSession begins the client's side of s, which has sent its request at that instant, and ends
// the link of s when s is lost.
func (c *Client) addSession(s *session, id registry.SessionID, sent backend.Instant) (err error) {
	ttl := s.link.lastGrant().Timeout
	s.Session, err = c.handle.NewSession(backend.Grant{
		ID: id, TTL: ttl, Sent: sent,
		Interval: fraction(intervalFraction, ttl), Patience: fraction(patienceFraction, ttl), Span: fraction(spanFraction, ttl),
		Renew: s.renew, End: s.endAtServer,
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, old := range c.sessions {
		if old.endedLongAgo() {
			delete(c.sessions, id)
		}
	}
	c.sessions[s.ID()] = s
	c.handle.Go(func() {
		<-s.Lost()
		s.mu.Lock()
		s.endedAt = time.Now()
		s.mu.Unlock()
		if st, _ := s.State(); st == registry.SessionLost {
			// The requests in the library's queue must not be sent any more.
			s.link.shutDown(c.handle.Context(), false)
		}
	})
	return nil
}

// endedLongAgo reports whether s ended so long ago that its znode has certainly been deleted.
// The missing znode then has the same information as s.
func (s *session) endedLongAgo() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.endedAt.IsZero() && time.Since(s.endedAt) > 10*s.TTL()
}

// onLinkState informs the session of a change of the link.
func (s *session) onLinkState(state linkState) {
	if s.Session == nil {
		return // opening failed
	}
	switch state {
	case linkDown:
		s.Disconnected()
	case linkUp:
		s.Reconnected()
	case linkOver:
		if s.link.lastGrant().Session == 0 {
			s.Expired()
		}
	}
}

// endedByServer reports whether the server has answered that the session does not exist.
func (s *session) endedByServer() bool { return s.link.isOver() && s.link.lastGrant().Session == 0 }

// endAtServer ends the session at the server. It uses the session's own connection if the
// session was closed and the link is up. Otherwise it makes a new connection, on which no other
// request can be sent.
func (s *session) endAtServer(ctx context.Context) error {
	granted := s.link.lastGrant()
	<-s.ready // for Session, which is nil if opening took longer than the TTL
	closed := false
	if s.Session != nil {
		st, _ := s.State()
		closed = st == registry.SessionClosed
	}
	if granted.Session == 0 { // closed as the server reported its end: nobody else ends the link
		s.link.shutDown(ctx, false)
		return nil
	}
	if s.link.shutDown(ctx, closed) || s.endedByServer() {
		return nil
	}
	return s.client.endSession(ctx, granted)
}

// awaitSurvival waits, after the connection broke, until the session is reconnected or over, or
// ctx ends. survived is false only if the session is known to be over.
func (s *session) awaitSurvival(ctx context.Context) (survived bool) {
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	known := make(chan struct{})
	waiting.Go(func() {
		defer close(known)
		if s.link.awaitDisconnect(ctx) == nil {
			_ = s.link.awaitUp(ctx)
		}
	})
	select {
	case <-known:
	case <-s.Lost():
	}
	return !s.hasEnded()
}

// hasEnded reports whether the session is over.
func (s *session) hasEnded() bool { return s.endedByServer() || s.Err() != nil }

// endSession ends a server session over a connection made for this purpose. It tries one member
// after another until a server confirms the end or ctx ends.
func (c *Client) endSession(ctx context.Context, g zkwire.Grant) error {
	dial := c.options.dialer(c.members)
	err := errors.New("no member found")
	for {
		all, problem := c.members.resolve(ctx)
		if problem != nil {
			err = problem
		}
		for _, address := range all {
			if err = endSessionOn(ctx, dial, address, g, c.options.DialTimeout); err == nil {
				return nil
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
			}
		}
		select {
		case <-time.After(minPause):
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
	}
}

func endSessionOn(ctx context.Context, dial func(context.Context, string) (net.Conn, error), address string, g zkwire.Grant, bound time.Duration) error {
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
