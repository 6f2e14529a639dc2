package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/remote"
)

// links is the link that a handle has, if it has one now.
type links struct {
	ctx context.Context // ends with the handle, after its sessions
	end context.CancelFunc

	mu      sync.Mutex
	current *link
	trouble error         // why there is none
	changed chan struct{} // closed, and replaced, when that changes
}

func newLinks() *links {
	s := &links{changed: make(chan struct{})}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// set makes l the link, or, if l is nil, trouble the reason why there is none.
func (s *links) set(l *link, trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.trouble = l, trouble
	close(s.changed)
	s.changed = make(chan struct{})
}

// get waits for a link. It does not wait where the credentials are refused: then an
// operator is needed.
func (s *links) get(ctx context.Context) (*link, error) {
	for {
		s.mu.Lock()
		l, trouble, changed := s.current, s.trouble, s.changed
		s.mu.Unlock()
		switch {
		case l != nil:
			return l, nil
		case trouble != nil && remote.Said(trouble):
			return nil, trouble
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, remote.Ended(ctx, fmt.Errorf("no connection: %w", trouble))
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		}
	}
}

// steer keeps the handle linked, beginning with l, until it is closed.
func (c *Client) steer(l *link) {
	var pause time.Duration
	for l != nil {
		c.links.set(l, nil)
		for _, s := range c.opened() {
			s.Reconnected()
		}
		next, why := c.attend(l)
		c.links.set(nil, why)
		for _, s := range c.opened() {
			s.Disconnected() // news long before a renewal goes unanswered
		}
		if !c.calls.Go(l.close) { // that may take its time
			l.close()
		}
		if c.links.ctx.Err() == nil { // else the handle is being closed
			c.log.LogAttrs(c.links.ctx, slog.LevelInfo, "left a member", slog.String("endpoint", c.endpoint(l.member)), cause(why))
		}
		pause = longer(pause)
		if time.Since(l.since) > settled {
			pause = 0
		}
		if next == nil {
			next = c.relink(l, pause)
		}
		l = next
	}
}

// attend returns when l is to be left, and why. A link that is only doubted stays until
// there is a better one, which is returned as well.
func (c *Client) attend(l *link) (next *link, why error) {
	c.calls.Go(l.watch)
	for {
		select {
		case <-l.doubted:
			if next = c.better(l); next != nil {
				return next, errSilent
			}
		case <-l.ctx.Done():
			return nil, context.Cause(l.ctx)
		}
	}
}

// better returns a link to a member that answers while l stays silent, or nil. Slow
// answers are no reason to go: what is under way on l would be lost, and all others are
// perhaps as slow.
func (c *Client) better(l *link) *link {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	if !l.whenHeard(cancel) {
		return nil
	}
	defer l.whenHeard(nil)
	next, _ := c.dialFirst(ctx, c.after(l))
	return next
}

// relink returns a link to the first member after l's that answers, or nil when the handle
// is closed.
func (c *Client) relink(l *link, pause time.Duration) *link {
	for remote.Sleep(c.links.ctx, remote.Jittered(pause)) {
		next, err := c.dialFirst(c.links.ctx, c.after(l))
		if err == nil {
			return next
		}
		c.links.set(nil, err)
		pause = longer(pause)
		if remote.Said(err) {
			pause = pauseRefused
		}
	}
	return nil
}

// after returns the member that comes after l's.
func (c *Client) after(l *link) int { return (l.member + 1) % len(c.options.Endpoints) }

const (
	pauseLow  = 10 * time.Millisecond
	pauseHigh = 250 * time.Millisecond // sessions are suspended meanwhile, and short ones lost
	// pauseRefused is for those who have no rights: a password costs the store to check.
	pauseRefused = time.Second
)

// longer returns the pause after pause.
func longer(pause time.Duration) time.Duration { return min(max(2*pause, pauseLow), pauseHigh) }

func (c *Client) endpoint(member int) string { return c.options.Endpoints[member] }

// headStart is how long a member is tried until the next one is tried as well: one that is
// paused, or has lost its peers, takes its time to say nothing.
const headStart = 250 * time.Millisecond

// dialFirst returns a link to the first member that answers, of all of them, beginning with
// that one. It has the errors of all if there is none, and stops at one by which the
// credentials are refused: the others would say the same.
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
				l, err := c.dial(ctx, member)
				dials <- dialed{l, err}
			}()
		}
	}
	defer func() {
		cancel()
		for ; ended < begun; ended++ {
			if d := <-dials; d.link != nil { // too late
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
			if remote.Said(d.err) {
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
