package memory

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/rota-dev/rota/registry"
)

// session is a lease, as the server and as the client see it.
type session struct {
	client *Client
	id     registry.SessionID
	ttl    time.Duration
	lost   chan struct{} // closed once state is final

	// Guarded by server.mu.
	owned   map[registry.Key]struct{}
	state   registry.SessionState
	changed chan struct{} // closed, and replaced, when state changes
	err     error
	opened  time.Time // when the request to open it was sent: renewals follow each interval
}

// OpenSession is described in registry.Registry. It grants the TTL that is asked for.
func (c *Client) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	if err := c.mayRead(ctx); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	ttl := o.TTL
	if ttl <= 0 {
		ttl = registry.DefaultSessionTTL
	}
	x := &session{
		client:  c,
		id:      registry.SessionID(rand.Text()),
		ttl:     ttl,
		lost:    make(chan struct{}),
		state:   registry.SessionConnected,
		changed: make(chan struct{}),
		opened:  time.Now(),
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.isClosed {
		return nil, fmt.Errorf("open session: %w", registry.ErrClosed)
	}
	s.seq++
	s.sessions[x.id] = x
	c.sessions[x] = struct{}{}
	return x, nil
}

func (x *session) ID() registry.SessionID { return x.id }

func (x *session) TTL() time.Duration { return x.ttl }

// interval is the time between renewals.
func (x *session) interval() time.Duration { return max(x.ttl/3, 1) }

// span is how long a confirmed renewal carries the session, counted from its sending. The
// tenth that is left covers clocks that run at different rates.
func (x *session) span() time.Duration { return x.ttl - x.ttl/10 }

func (x *session) State() (registry.SessionState, time.Time) {
	now := time.Now()
	x.client.server.mu.RLock()
	defer x.client.server.mu.RUnlock()
	return x.state, x.renewed(now).Add(x.span())
}

// renewed is when the last renewal was sent.
func (x *session) renewed(now time.Time) time.Time {
	return x.opened.Add(now.Sub(x.opened) / x.interval() * x.interval())
}

func (x *session) Changed() <-chan struct{} {
	x.client.server.mu.RLock()
	defer x.client.server.mu.RUnlock()
	return x.changed
}

func (x *session) Lost() <-chan struct{} { return x.lost }

func (x *session) Err() error {
	x.client.server.mu.RLock()
	defer x.client.server.mu.RUnlock()
	return x.err
}

func (x *session) Close(context.Context) error {
	s := x.client.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.err != nil {
		return nil
	}
	x.state, x.err = registry.SessionClosed, registry.ErrClosed
	close(x.changed)
	x.changed = make(chan struct{})
	close(x.lost)
	s.endSession(x)
	return nil
}

func (x *session) own(key registry.Key) {
	if x.owned == nil {
		x.owned = make(map[registry.Key]struct{})
	}
	x.owned[key] = struct{}{}
}

// endSession ends x at the server: its owned keys go at one commit.
func (s *Server) endSession(x *session) {
	s.seq++
	for key := range x.owned {
		s.remove(s.nodes[key])
	}
	x.owned = nil
	delete(s.sessions, x.id)
	delete(x.client.sessions, x)
}
