package memory

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/registry"
)

// session is a lease, as the server and as the client see it. What goes on between the
// two is in renewal.go.
type session struct {
	server *Server
	client *Client
	id     registry.SessionID
	ttl    time.Duration
	lost   chan struct{} // closed once the state is final

	// Guarded by server.mu. The server's side:
	alive   bool
	owned   map[registry.Key]struct{}
	expires time.Time // not kept up at rest

	// The client's side:
	state     registry.SessionState // 0 while it is being opened
	changed   chan struct{}         // closed, and replaced, when the state changes
	err       error                 // why the state is final
	told      bool                  // that the server has ended it
	confirmed time.Time             // when the last confirmed renewal was sent
	next      time.Time             // when the next one is due; neither is kept up at rest
	flights   []flight

	resting bool
	timer   *time.Timer
}

// OpenSession is described in registry.Registry. It grants any TTL.
func (c *Client) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open session: %w", unavailable(err))
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
	// The request is not repeated: by the time it could be, the session that a lost reply
	// told of may have expired.
	if err := c.open(ctx, x); err != nil {
		return nil, fmt.Errorf("open session: %w", unavailable(err))
	}
	return x, nil
}

func (c *Client) open(ctx context.Context, x *session) error {
	s := c.server
	s.mu.Lock()
	if c.calm() {
		defer s.mu.Unlock()
		if err := s.beginSession(x); err != nil {
			return err
		}
		x.enter()
		return nil
	}
	s.mu.Unlock()

	err := c.send(ctx, func() error {
		if err := s.beginSession(x); err != nil {
			return err
		}
		x.run(time.Now())
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		x.finish(registry.SessionClosed, err) // it expires, if it was begun
		return err
	}
	if x.err == nil { // else the handle was closed meanwhile
		x.enter()
	}
	return nil
}

// enter begins the client's side.
func (x *session) enter() {
	now := time.Now()
	x.state = registry.SessionConnected
	if x.next.Before(now) {
		x.next = now
	}
	x.run(now)
}

func (x *session) ID() registry.SessionID { return x.id }

func (x *session) TTL() time.Duration { return x.ttl }

func (x *session) State() (registry.SessionState, time.Time) {
	x.server.mu.RLock()
	if x.resting || x.err != nil {
		defer x.server.mu.RUnlock()
		return x.state, x.renewed(time.Now()).Add(x.span())
	}
	x.server.mu.RUnlock()

	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	x.run(time.Now()) // a timer that is due may not have fired
	return x.state, x.renewed(time.Now()).Add(x.span())
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
	x.finish(registry.SessionClosed, registry.ErrClosed)
	told := x.told
	x.server.mu.Unlock()
	if told {
		return nil
	}
	if err := endSessions(ctx, x.client, []*session{x}); err != nil {
		return fmt.Errorf("close session %s: %w", x.id, unavailable(err))
	}
	return nil
}

// endSessions has the server end sessions that their owner has finished with.
func endSessions(ctx context.Context, c *Client, all []*session) error {
	if len(all) == 0 {
		return nil
	}
	s := c.server
	end := func() error {
		for _, x := range all {
			s.endSession(x)
		}
		return nil
	}
	s.mu.Lock()
	if c.machine.calm && s.pauses == 0 {
		_ = end()
		tell(all)
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()

	// Not ended by c.closed: the handle is closed first and its sessions next.
	if err := s.exchange(ctx, c.machine, again, end, nil); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	tell(all)
	return nil
}

func tell(ended []*session) {
	for _, x := range ended {
		x.told = true
	}
}

// finish makes the state final, unless it is.
func (x *session) finish(state registry.SessionState, err error) {
	now := time.Now()
	x.unrest(now)
	x.conclude(state, err)
	x.run(now)
}

// conclude is finish for a session that is not at rest.
func (x *session) conclude(state registry.SessionState, err error) {
	if x.err != nil {
		return
	}
	x.err = err
	x.become(state)
	close(x.lost)
}

func (x *session) become(state registry.SessionState) {
	if x.state == state {
		return
	}
	x.state = state
	close(x.changed)
	x.changed = make(chan struct{})
}

// beginSession begins x at the server, unless that refuses it.
func (s *Server) beginSession(x *session) error {
	if err := s.forbids(x.client.machine); err != nil {
		return err
	}
	if err := s.lacksRoom(); err != nil {
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

// endSession ends x at the server, if it lives: its owned keys go at one commit.
func (s *Server) endSession(x *session) {
	now := time.Now()
	x.unrest(now)
	s.dropSession(x)
	x.run(now)
}

// dropSession is endSession for a session that is not at rest.
func (s *Server) dropSession(x *session) {
	if !x.alive {
		return
	}
	x.alive = false
	delete(s.sessions, x.id)
	s.seq++
	gone := slices.Sorted(maps.Keys(x.owned))
	for _, key := range gone {
		s.remove(s.nodes[key])
	}
	x.owned = nil
	s.publish()
	s.recordSession(x, Commit{Ended: x.id, Gone: gone})
}

func (x *session) own(key registry.Key) {
	if x.owned == nil {
		x.owned = make(map[registry.Key]struct{})
	}
	x.owned[key] = struct{}{}
}
