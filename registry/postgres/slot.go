package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry/backend"
)

// slot keeps one connection for one purpose. It dials another one when the connection ends, and beside a connection that is silent: that
// one is replaced when the other stands, and may still deliver its answers. So a server that is merely slow loses no answer.
type slot struct {
	ctx     context.Context // ends when the slot is closed
	silence time.Duration   // after which a connection is suspected
	dial    func(ctx context.Context, onEnd func(*conn)) (*conn, error)
	up      func(*conn)         // is called with each connection that comes into use
	down    func()              // is called when the connection in use has ended
	goTask  func(f func()) bool // runs f in a goroutine; false once the slot is closed

	mu      sync.Mutex
	current *conn
	old     map[*conn]struct{} // replaced ones with unanswered requests
	dialing bool
	err     error         // of the last dial
	changed chan struct{} // closed, and replaced, when current or err changes
}

// newSlot returns a slot without a connection.
func newSlot(ctx context.Context, silence time.Duration, goTask func(func()) bool, dial func(context.Context, func(*conn)) (*conn, error)) *slot {
	return &slot{
		ctx: ctx, silence: silence, dial: dial, goTask: goTask, up: func(*conn) {}, down: func() {},
		old: make(map[*conn]struct{}), changed: make(chan struct{}),
	}
}

// get returns the connection. It waits for one until ctx ends, or until it turns out that none can be made.
func (s *slot) get(ctx context.Context) (*conn, error) {
	for {
		s.mu.Lock()
		c, changed, err := s.current, s.changed, s.err
		if (c == nil || c.silence() > s.silence) && !s.dialing {
			s.dialing = s.goTask(s.connect)
		}
		s.mu.Unlock()
		switch {
		case c != nil:
			return c, nil
		case err != nil && isLasting(err):
			return nil, fmt.Errorf("%w: %w", errNotSent, err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if err == nil {
				err = errors.New("no connection")
			}
			return nil, fmt.Errorf("%w: %w (%v)", errNotSent, ctx.Err(), err)
		case <-s.ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNotSent, errGone)
		}
	}
}

// connect dials until there is a connection, or the silent one answers again.
func (s *slot) connect() {
	for pause := time.Duration(0); backend.Sleep(s.ctx, pause); pause = backend.NextPause(pause) {
		c, err := s.dial(s.ctx, s.dropEnded)
		if err == nil {
			s.use(c)
			return
		}
		s.mu.Lock()
		s.err = err
		answers := s.current != nil && s.current.silence() == 0
		if answers {
			s.dialing = false
		}
		s.announce()
		s.mu.Unlock()
		if answers {
			return
		}
	}
}

// use makes c the connection.
func (s *slot) use(c *conn) {
	s.mu.Lock()
	before := s.current
	s.current, s.dialing, s.err = c, false, nil
	if before != nil {
		s.old[before] = struct{}{}
	}
	s.announce()
	s.mu.Unlock()
	if before != nil {
		before.retire()
	}
	if s.ctx.Err() != nil { // close may not have seen it
		c.end(errGone)
		return
	}
	select {
	case <-c.ended: // perhaps before it was in use
		s.dropEnded(c)
	default:
		s.up(c)
	}
}

// dropEnded drops a connection that has ended, and replaces it if it was in use.
func (s *slot) dropEnded(c *conn) {
	s.mu.Lock()
	delete(s.old, c)
	inUse := s.current == c
	if inUse {
		s.current = nil
		if !s.dialing {
			s.dialing = s.goTask(s.connect)
		}
	}
	s.mu.Unlock()
	if inUse {
		s.down()
	}
}

// announce wakes get. The lock is held.
func (s *slot) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// close ends all connections. No other may be made: the context of the slot has ended, goTask refuses, and use ends one that was being made.
func (s *slot) close() {
	s.mu.Lock()
	all := []*conn{}
	if s.current != nil {
		all = append(all, s.current)
	}
	for c := range s.old {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.end(errGone)
	}
}
