package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry/backend"
)

// links holds the link that the handle uses at present, if there is one.
type links struct {
	ctx context.Context // ends with the handle, after its sessions
	end context.CancelFunc

	mu      sync.Mutex
	current *link
	cause   error         // why there is no link
	changed chan struct{} // closed and replaced when current or cause changes
}

func newLinks() *links {
	s := &links{changed: make(chan struct{})}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// setLink sets the current link or, if l is nil, the cause of having none.
func (s *links) setLink(l *link, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.cause = l, cause
	close(s.changed)
	s.changed = make(chan struct{})
}

// waitForLink waits until there is a link. It fails at once if the credentials were rejected:
// only an operator can correct that.
func (s *links) waitForLink(ctx context.Context) (*link, error) {
	for {
		s.mu.Lock()
		l, cause, changed := s.current, s.cause, s.changed
		s.mu.Unlock()
		switch {
		case l != nil:
			return l, nil
		case cause != nil && backend.IsClassified(cause):
			return nil, cause
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, backend.CallError(ctx, fmt.Errorf("no connection: %w", cause))
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		}
	}
}

// keepConnected keeps the handle connected, starting with l, until the handle is closed.
func (c *Client) keepConnected(l *link) {
	var pause time.Duration
	for l != nil {
		c.links.setLink(l, nil)
		c.handle.Reconnected()
		next, why := c.superviseLink(l)
		c.links.setLink(nil, why)
		c.handle.Disconnected()    // suspends sessions now, not only when a renewal times out
		if !c.handle.Go(l.close) { // close may block for a while
			l.close()
		}
		if c.links.ctx.Err() == nil { // otherwise the handle is being closed
			c.log.LogAttrs(c.links.ctx, slog.LevelInfo, "disconnected from member; reconnecting", slog.String("endpoint", c.endpoint(l.member)), errorAttr(why))
		}
		pause = backend.NextPause(pause)
		if time.Since(l.since) > stableAfter {
			pause = 0
		}
		if next == nil {
			next = c.reconnect(l, pause)
		}
		l = next
	}
}

// superviseLink waits until l has to be given up and returns the reason. A silent link is kept
// until another member answers; next is the link to that member.
func (c *Client) superviseLink(l *link) (next *link, why error) {
	c.handle.Go(l.leaveWhenBroken)
	for {
		select {
		case <-l.suspected:
			if next = c.dialAnsweringMember(l); next != nil {
				return next, errSilent
			}
		case <-l.ctx.Done():
			return nil, context.Cause(l.ctx)
		}
	}
}

// dialAnsweringMember returns a link to a member that answers while l stays silent, or nil as
// soon as l receives something. A slow member is no reason to switch: the calls in flight would
// be lost, and the other members may be just as slow.
func (c *Client) dialAnsweringMember(l *link) *link {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	if !l.setOnReceive(cancel) {
		return nil
	}
	defer l.setOnReceive(nil)
	next, _ := c.dialFirst(ctx, c.memberAfter(l))
	return next
}

// reconnect returns a link to the first member that answers, beginning with the one after l's.
// It returns nil when the handle is closed.
func (c *Client) reconnect(l *link, pause time.Duration) *link {
	for backend.Sleep(c.links.ctx, backend.Jittered(pause)) {
		next, err := c.dialFirst(c.links.ctx, c.memberAfter(l))
		if err == nil {
			return next
		}
		c.links.setLink(nil, err)
		pause = backend.NextPause(pause)
		if backend.IsClassified(err) {
			pause = credentialsBackoff
		}
	}
	return nil
}

// memberAfter returns the index of the member after l's.
func (c *Client) memberAfter(l *link) int { return (l.member + 1) % len(c.options.Endpoints) }

// credentialsBackoff is the pause after rejected credentials: each password check costs the store
// a bcrypt hash.
const credentialsBackoff = time.Second

func (c *Client) endpoint(member int) string { return c.options.Endpoints[member] }

// headStart is the time before the next member is dialed in parallel: a member that is paused,
// or has lost its peers, does not fail but stays silent.
const headStart = 250 * time.Millisecond

// dialFirst dials all members, beginning with the given one, and returns a link to the first
// that answers. If none does, it returns all their errors. Rejected credentials end the search:
// every other member would reject them as well.
func (c *Client) dialFirst(ctx context.Context, member int) (*link, error) {
	ctx, cancel := context.WithCancel(ctx)
	n := len(c.options.Endpoints)
	dials := make(chan dialed, n)
	begun, ended := 0, 0
	next := func() {
		if begun < n {
			member := (member + begun) % n
			begun++
			go func() {
				l, err := c.dialMember(ctx, member)
				dials <- dialed{l, err}
			}()
		}
	}
	defer func() {
		cancel()
		for ; ended < begun; ended++ {
			if d := <-dials; d.link != nil { // it lost the race
				d.link.close()
			}
		}
	}()

	var errs []error
	next()
	for ended < begun {
		select {
		case <-time.After(headStart):
			next()
		case d := <-dials:
			ended++
			if d.err == nil {
				return d.link, nil
			}
			if backend.IsClassified(d.err) {
				return nil, d.err
			}
			errs = append(errs, d.err)
			next()
		}
	}
	return nil, errors.Join(errs...)
}

type dialed struct {
	link *link
	err  error
}
