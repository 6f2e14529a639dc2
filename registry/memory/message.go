package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/registry/backend"
)

// CallTimeout is how long a call waits for an answer if its context allows more.
const CallTimeout = 3 * time.Second

// The reasons why a call got no answer.
var (
	errReset       = errors.New("connection reset")
	errNoAnswer    = fmt.Errorf("no answer in %v", CallTimeout)
	errRequestLost = errors.New("request lost")
	errReplyLost   = errors.New("reply lost")
	errHeld        = errors.New("request held up")
)

// message is a request that travels to the server, and then the reply to it. It travels
// whether or not the sender still waits.
type message struct {
	number  uint64 // its key in machine.missing
	server  *Server
	machine *machine
	kind    requestKind
	serve   func() error // executes it at the server, under the server's lock
	answer  chan error   // one slot: the result of serve when the reply arrives, or errReset
}

// requestKind determines whether a request is repeated, and who can answer it.
type requestKind int

const (
	sentOnce   requestKind = iota // must not be sent again
	repeatable                    // is sent again if it was lost
	plainRead                     // is repeatable, and an isolated member can answer it
)

// readKind returns the kind of a read.
func readKind(fresh bool) requestKind {
	if fresh {
		return repeatable
	}
	return plainRead
}

// undisturbed reports whether a round trip takes no time and cannot fail. The server's lock
// is held.
func (c *Client) undisturbed() bool {
	return c.machine.undisturbed && c.server.pauses == 0 && !c.isClosed
}

// sendOnce sends a request that must not be repeated. It returns the result of serve when
// the reply arrives. Otherwise the error is the reason why there is no reply, and serve may
// have run, may run later, or never.
func (c *Client) sendOnce(ctx context.Context, serve func() error) error {
	return c.server.roundTrip(ctx, c.machine, sentOnce, serve, c.closed)
}

// sendRepeatable is sendOnce for a request that can be repeated: if it was lost, it is sent
// again when the connection is restored.
func (c *Client) sendRepeatable(ctx context.Context, kind requestKind, serve func() error) error {
	return c.server.roundTrip(ctx, c.machine, kind, serve, c.closed)
}

// roundTrip returns when the reply has arrived, ctx has ended, closed is closed or
// CallTimeout is over. If closed is closed before, it sends nothing.
func (s *Server) roundTrip(ctx context.Context, m *machine, kind requestKind, serve func() error, closed <-chan struct{}) error {
	select {
	case <-closed:
		return backend.ErrHandleClosed
	default:
	}
	timeout := time.NewTimer(CallTimeout)
	defer timeout.Stop()
	for {
		g := &message{server: s, machine: m, kind: kind, serve: serve, answer: make(chan error, 1)}
		s.mu.Lock()
		g.sendRequest()
		s.mu.Unlock()

		var err error
		select {
		case err = <-g.answer:
			if errors.Is(err, errReset) && kind != sentOnce {
				continue
			}
		case <-closed:
			err = backend.ErrHandleClosed
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-timeout.C:
			err = errNoAnswer
		}
		if err != nil {
			s.mu.Lock()
			delete(m.missing, g.number)
			s.mu.Unlock()
		}
		return err
	}
}

// The steps of a message. The server's lock is held.

func (g *message) sendRequest() { g.travel(Requests, g.arrive) }

func (g *message) arrive() {
	if g.machine.isolated > 0 && g.kind != plainRead {
		g.lose()
		return
	}
	if g.server.pauses > 0 {
		g.server.queue = append(g.server.queue, g)
		return
	}
	err := g.serve()
	g.travel(Replies, func() { g.answer <- err })
}

// travel moves the message in direction d and calls then on its arrival.
func (g *message) travel(d Direction, then func()) {
	l := g.machine.link(d)
	switch {
	case l.cuts > 0:
		g.lose()
	case l.delay == 0:
		then()
	default:
		resets := l.resets
		time.AfterFunc(l.delay, func() {
			g.server.mu.Lock()
			defer g.server.mu.Unlock()
			if l.resets != resets {
				g.lose()
				return
			}
			then()
		})
	}
}

// lose drops the message. The sender gets errReset when the machine is connected again:
// until then, a lost message looks like a slow one.
func (g *message) lose() {
	if g.machine.connected() {
		g.answer <- errReset
		return
	}
	g.number = g.server.nextNumber()
	g.machine.missing[g.number] = g
}
