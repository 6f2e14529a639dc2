package memory

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// session is a lease, with the state of the server's side and of the client's side. The
// messages between the two are in renewal.go.
type session struct {
	server *Server
	client *Client
	id     registry.SessionID
	ttl    time.Duration
	lost   chan struct{} // closed once the state is final

	// Guarded by server.mu. The server's side:
	alive   bool
	owned   map[registry.Key]struct{}
	expires time.Time // not updated at rest

	// The client's side:
	state     registry.SessionState // 0 while it is being opened
	changed   chan struct{}         // closed, and replaced, when the state changes
	err       error                 // the reason of the final state
	endKnown  bool                  // the client knows that the server has ended it
	confirmed time.Time             // when the last confirmed renewal was sent
	next      time.Time             // when the next one is due; both are not updated at rest
	flights   []flight

	resting bool
	timer   *time.Timer
}

// OpenSession is described in registry.Registry. It grants any TTL.
func (c *Client) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("open session: %w", backend.Unavailable(err))
	}
	x := &session{
		server:  c.server,
		client:  c,
		id:      registry.SessionID(rand.Text()),
		ttl:     o.TTL,
		lost:    make(chan struct{}),
		changed: make(chan struct{}),
	}
	if x.ttl <= 0 {
		x.ttl = registry.DefaultSessionTTL
	}
	x.confirmed = time.Now()
	x.next = x.confirmed.Add(x.interval())
	// The request is not repeated: a session granted by a lost reply may have expired by then.
	if err := c.open(ctx, x); err != nil {
		return nil, fmt.Errorf("open session: %w", backend.Unavailable(err))
	}
	return x, nil
}

func (c *Client) open(ctx context.Context, x *session) error {
	s := c.server
	s.mu.Lock()
	if c.undisturbed() {
		defer s.mu.Unlock()
		if err := s.beginSession(x); err != nil {
			return err
		}
		x.startClientSide()
		return nil
	}
	s.mu.Unlock()

	err := c.sendOnce(ctx, func() error {
		if err := s.beginSession(x); err != nil {
			return err
		}
		x.runUntil(time.Now())
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		x.finishClientSide(registry.SessionClosed, err) // expires at the server, if granted
		return err
	}
	if x.err == nil { // else the handle was closed meanwhile
		x.startClientSide()
	}
	return nil
}

// startClientSide begins the client's side.
func (x *session) startClientSide() {
	now := time.Now()
	x.state = registry.SessionConnected
	if x.next.Before(now) {
		x.next = now
	}
	x.runUntil(now)
}

func (x *session) ID() registry.SessionID { return x.id }

func (x *session) TTL() time.Duration { return x.ttl }

func (x *session) State() (registry.SessionState, time.Time) {
	x.server.mu.RLock()
	if x.resting {
		defer x.server.mu.RUnlock()
		return x.state, x.lastConfirmed(time.Now()).Add(x.span())
	}
	x.server.mu.RUnlock()

	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	x.runUntil(time.Now()) // a timer that is due may not have fired
	return x.state, x.lastConfirmed(time.Now()).Add(x.span())
}

func (x *session) Changed() <-chan struct{} {
	x.server.mu.RLock()
	defer x.server.mu.RUnlock()
	return x.changed
}

func (x *session) Lost() <-chan struct{} { return x.lost }

func (x *session) Err() error {
	x.server.mu.RLock()
	defer x.server.mu.RUnlock()
	return x.err
}

func (x *session) Close(ctx context.Context) error {
	x.server.mu.Lock()
	x.finishClientSide(registry.SessionClosed, registry.ErrClosed)
	endKnown := x.endKnown
	x.server.mu.Unlock()
	if endKnown {
		return nil
	}
	if err := endSessions(ctx, x.client, []*session{x}); err != nil {
		return fmt.Errorf("close session %s: %w", x.id, backend.Unavailable(err))
	}
	return nil
}

// endSessions asks the server to end sessions that their owner has closed.
func endSessions(ctx context.Context, c *Client, all []*session) error {
	if len(all) == 0 {
		return nil
	}
	s := c.server
	end := func() error {
		for _, x := range all {
			s.dropSession(x)
			x.runUntil(time.Now())
		}
		return nil
	}
	s.mu.Lock()
	if c.machine.undisturbed && s.pauses == 0 {
		_ = end()
		markEndKnown(all)
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()

	// Not bounded by c.closed: Close closes the handle first and its sessions next.
	if err := s.roundTrip(ctx, c.machine, repeatable, end, nil); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	markEndKnown(all)
	return nil
}

func markEndKnown(ended []*session) {
	for _, x := range ended {
		x.endKnown = true
	}
}

// finishClientSide sets a final state, unless the state is final.
func (x *session) finishClientSide(state registry.SessionState, err error) {
	now := time.Now()
	x.stopResting(now)
	x.setFinalState(state, err)
	x.runUntil(now)
}

// setFinalState is finishClientSide for a session that is not at rest.
func (x *session) setFinalState(state registry.SessionState, err error) {
	if x.err != nil {
		return
	}
	x.err = err
	x.setState(state)
	close(x.lost)
}

func (x *session) setState(state registry.SessionState) {
	if x.state == state {
		return
	}
	x.state = state
	close(x.changed)
	x.changed = make(chan struct{})
}

// beginSession begins x at the server, unless the server refuses it.
func (s *Server) beginSession(x *session) error {
	if err := s.permissionError(x.client.machine); err != nil {
		return err
	}
	if err := s.quotaError(); err != nil {
		return err
	}
	x.alive = true
	x.expires = time.Now().Add(x.ttl)
	s.sessions[x.id] = x
	x.client.machine.sessions = append(x.client.machine.sessions, x)
	s.seq++
	s.recordSession(x, Commit{Opened: x.id})
	return nil
}

// dropSession ends x at the server, if it lives, and deletes its owned keys, at one commit. x is
// not at rest.
func (s *Server) dropSession(x *session) {
	if !x.alive {
		return
	}
	x.alive = false
	delete(s.sessions, x.id)
	s.seq++
	gone := slices.Sorted(maps.Keys(x.owned))
	for _, key := range gone {
		s.removeNode(s.nodes[key])
	}
	s.publish()
	s.recordSession(x, Commit{Ended: x.id, Gone: gone})
}

func (x *session) addOwned(key registry.Key) {
	if x.owned == nil {
		x.owned = make(map[registry.Key]struct{})
	}
	x.owned[key] = struct{}{}
}
