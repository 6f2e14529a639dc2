package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/registry"
)

// CallTimeout is how long a call waits for an answer when its context would let it wait
// longer.
const CallTimeout = 3 * time.Second

// Why a call got no answer.
var (
	errReset       = errors.New("connection reset")
	errNoAnswer    = fmt.Errorf("no answer in %v", CallTimeout)
	errRequestLost = errors.New("request lost")
	errReplyLost   = errors.New("reply lost")
	errHeld        = errors.New("request held up")
)

// errHandleClosed is registry.ErrClosed with the name of what was closed.
var errHandleClosed = fmt.Errorf("registry %w", registry.ErrClosed)

// unavailable is the error of a read, a watch or a session that was cut short by cause.
func unavailable(cause error) error {
	if errors.Is(cause, registry.ErrClosed) {
		return cause // trying again is of no use
	}
	if errors.Is(cause, registry.ErrPermission) || errors.Is(cause, registry.ErrQuota) {
		return cause // the server has answered
	}
	return fmt.Errorf("%w: %w", registry.ErrUnavailable, cause)
}

// unknown is the error of a transaction that was sent and not answered.
func unknown(cause error) error {
	return fmt.Errorf("commit: %w: %w", registry.ErrUnknownOutcome, cause)
}

// message is a request on its way to the server, and then the reply to it. It goes its
// way whether or not the sender still waits.
type message struct {
	number  uint64 // if it is missing
	server  *Server
	machine *machine
	manner  manner
	serve   func() error // what the server does with it, under the server's lock
	answer  chan error   // one slot: what serve returned when the reply is in, errReset when none will come
}

// manner is what a request allows.
type manner int

const (
	once  manner = iota // it must not be sent twice
	again               // if it was lost it can be sent again
	plain               // that, and the member that gets it can answer without its peers
)

// plainly is the manner of a read.
func plainly(plainRead bool) manner {
	if plainRead {
		return plain
	}
	return again
}

// calm reports that an exchange takes no time and cannot fail. The server's lock is held.
func (c *Client) calm() bool {
	return c.machine.calm && c.server.pauses == 0 && !c.isClosed
}

// send sends a request that must not be repeated. It returns what serve did when the reply
// is in, else why there is none; then serve may have run, may run later, or never.
func (c *Client) send(ctx context.Context, serve func() error) error {
	return c.server.exchange(ctx, c.machine, once, serve, c.closed)
}

// ask is send for a request that can be repeated: if it was lost it is sent again when the
// connection is back.
func (c *Client) ask(ctx context.Context, how manner, serve func() error) error {
	return c.server.exchange(ctx, c.machine, how, serve, c.closed)
}

// exchange lasts until the reply is in, ctx ends, closed is closed or CallTimeout is over.
// Nothing is sent if closed is closed before.
func (s *Server) exchange(ctx context.Context, m *machine, how manner, serve func() error, closed <-chan struct{}) error {
	select {
	case <-closed:
		return errHandleClosed
	default:
	}
	bound := time.NewTimer(CallTimeout)
	defer bound.Stop()
	for {
		g := &message{server: s, machine: m, manner: how, serve: serve, answer: make(chan error, 1)}
		s.mu.Lock()
		g.depart()
		s.mu.Unlock()

		var err error
		select {
		case err = <-g.answer:
			if errors.Is(err, errReset) && how != once {
				continue
			}
		case <-closed:
			err = errHandleClosed
		case <-ctx.Done():
			err = ctx.Err()
		case <-bound.C:
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

func (g *message) depart() { g.travel(Requests, g.arrive) }

func (g *message) arrive() {
	if g.machine.isolated > 0 && g.manner != plain {
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

// travel takes the message one way, to then.
func (g *message) travel(d Direction, then func()) {
	w := g.machine.way(d)
	switch {
	case w.cuts > 0:
		g.lose()
	case w.delay == 0:
		then()
	default:
		resets := w.resets
		time.AfterFunc(w.delay, func() {
			g.server.mu.Lock()
			defer g.server.mu.Unlock()
			if w.resets != resets {
				g.lose()
				return
			}
			then()
		})
	}
}

// lose ends the message on its way. The sender learns of it when the machine is connected
// again: until then it cannot tell this from a slow answer.
func (g *message) lose() {
	if g.machine.connected() {
		g.answer <- errReset
		return
	}
	g.number = g.server.number()
	g.machine.missing[g.number] = g
}
