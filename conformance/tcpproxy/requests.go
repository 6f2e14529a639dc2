package tcpproxy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Frame describes one frame of a protocol.
type Frame struct {
	Kind Kind
	// ID is the same in a request and in its reply, and differs from those of other requests on
	// the connection that are not answered yet.
	ID uint64
	// Data is what the frame contributes to a transaction, and More reports that another frame
	// with the same ID continues it. Only Hold with a replay function needs them.
	Data []byte
	More bool
}

// Kind is the kind of a Frame.
type Kind int

const (
	// Other is any frame that is neither of the kinds below.
	Other Kind = iota
	// Transaction is the first frame of a request that carries a Txn of a user of the registry.
	Transaction
	// Renewal is a request that renews a session, or keeps one alive in another way.
	Renewal
)

// Parser recognizes the frames of one connection. Calls for one direction are sequential; calls
// for both directions may overlap.
type Parser interface {
	// Parse parses the first frame of b, which travels in direction d. n is the length of the
	// frame, or 0 if b ends within it: Parse is then called again with more. An error resets the
	// connection. b and Frame.Data are not kept.
	Parse(d Direction, b []byte) (n int, f Frame, err error)
}

// Requests injects faults into single requests of one client host. The faults act on the wire:
// the client and its library have to handle them. Its Filter belongs into the proxies of the
// host: p.SetFilter(r.Filter).
//
// LoseRequest, LoseReply and Hold each act on one transaction, in the order of the calls.
type Requests struct {
	newParser func() Parser

	mu      sync.Mutex
	orders  []*order // for the next transactions
	starved int
}

// NewRequests returns Requests without a fault. newParser is called for each connection.
func NewRequests(newParser func() Parser) *Requests { return &Requests{newParser: newParser} }

// order is a fault of one transaction.
type order struct {
	fault   fault
	replay  func([]byte)  // of a hold that breaks the connection, or nil
	release chan struct{} // closed when a held transaction may continue
	done    chan struct{} // closed when the transaction was answered, or its connection has ended

	mu   sync.Mutex
	body []byte // of a transaction to be replayed
	all  bool   // body is complete
}

type fault int

const (
	loseRequest fault = iota
	loseReply
	hold
)

func (r *Requests) arm(f fault, replay func([]byte)) *order {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &order{fault: f, replay: replay, release: make(chan struct{}), done: make(chan struct{})}
	r.orders = append(r.orders, o)
	return o
}

// LoseRequest breaks the connection of the next transaction before its first frame is forwarded.
func (r *Requests) LoseRequest() { r.arm(loseRequest, nil) }

// LoseReply forwards the next transaction, and breaks its connection before the reply is
// forwarded.
func (r *Requests) LoseReply() { r.arm(loseReply, nil) }

// releaseTimeout bounds how long release waits for the held transaction to take effect.
const releaseTimeout = time.Second

// Hold holds back the next transaction, and what follows it on its connection, until release. If
// replay is nil, release forwards it and waits, for a second at most, until it is answered or its
// connection has ended.
//
// A server that drops a request when its connection ends needs a replay function: the connection
// is then broken as soon as the transaction is complete, and release calls replay with its Data.
//
// If no transaction came, release cancels the hold. Calling it twice is legal.
func (r *Requests) Hold(replay func(txn []byte)) (release func()) {
	o := r.arm(hold, replay)
	return sync.OnceFunc(func() {
		close(o.release)
		if r.cancel(o) {
			return
		}
		if replay == nil {
			select {
			case <-o.done:
			case <-time.After(releaseTimeout): // the server may be stalled
			}
			return
		}
		o.mu.Lock()
		body, all := o.body, o.all
		o.mu.Unlock()
		if all {
			replay(body)
		}
	})
}

// Starve drops renewals until feed, as if the process got no CPU time for them. The protocol must
// allow that a request is missing. Several faults add up; calling feed twice is legal.
func (r *Requests) Starve() (feed func()) {
	r.addStarved(1)
	return sync.OnceFunc(func() { r.addStarved(-1) })
}

func (r *Requests) addStarved(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starved += n
}

func (r *Requests) isStarved() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.starved > 0
}

// cancel reports whether no transaction has received the order.
func (r *Requests) cancel(o *order) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.orders, o)
	if i >= 0 {
		r.orders = slices.Delete(r.orders, i, i+1)
	}
	return i >= 0
}

// nextOrder removes and returns the order for the next transaction, or nil.
func (r *Requests) nextOrder() *order {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.orders) == 0 {
		return nil
	}
	o := r.orders[0]
	r.orders = r.orders[1:]
	return o
}

// errFault makes the proxy reset the connection.
var errFault = errors.New("connection reset by a fault of a request")

// Filter returns the Filter of a new connection.
func (r *Requests) Filter() Filter {
	c := &requestFilter{requests: r, parser: r.newParser(), pending: make(map[uint64]*order)}
	return c.filter
}

// requestFilter applies orders to a connection.
type requestFilter struct {
	requests *Requests
	parser   Parser
	rest     [2][]byte // by direction: the start of an incomplete frame

	mu        sync.Mutex
	attached  bool              // endPending is called when the connection ends
	pending   map[uint64]*order // orders of transactions that were sent, by ID
	capturing uint64            // ID of the transaction to be replayed
	captured  *order            // its order, or nil
}

func (c *requestFilter) filter(ctx context.Context, d Direction, b []byte) (passed []byte, err error) {
	c.attach(ctx)
	c.rest[d] = append(c.rest[d], b...)
	for {
		n, f, err := c.parser.Parse(d, c.rest[d])
		if err != nil || n == 0 {
			return passed, err
		}
		frame := c.rest[d][:n:n]
		c.rest[d] = c.rest[d][n:]
		pass := true
		if d == ToServer {
			pass, err = c.onRequest(ctx, f)
		} else {
			err = c.onReply(f)
		}
		if err != nil {
			return nil, err
		}
		if pass {
			passed = append(passed, frame...)
		}
	}
}

// attach makes the end of the connection end its orders.
func (c *requestFilter) attach(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.attached {
		c.attached = true
		context.AfterFunc(ctx, c.endPending)
	}
}

// endPending ends the orders that wait for a reply.
func (c *requestFilter) endPending() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, o := range c.pending {
		delete(c.pending, id)
		close(o.done)
	}
}

func (c *requestFilter) onRequest(ctx context.Context, f Frame) (pass bool, err error) {
	if captured, err := c.capture(f); captured {
		return false, err
	}
	switch f.Kind {
	case Renewal:
		return !c.requests.isStarved(), nil
	case Transaction:
		return c.applyOrder(ctx, f)
	}
	return true, nil
}

// applyOrder applies the next order, if there is one, to a transaction.
func (c *requestFilter) applyOrder(ctx context.Context, f Frame) (pass bool, err error) {
	o := c.requests.nextOrder()
	switch {
	case o == nil:
		return true, nil
	case o.fault == loseRequest:
		return false, errFault
	case o.fault == hold && o.replay != nil:
		c.mu.Lock()
		c.captured, c.capturing = o, f.ID
		c.mu.Unlock()
		_, err := c.capture(f)
		return false, err
	}
	c.mu.Lock()
	c.pending[f.ID] = o
	c.mu.Unlock()
	if ctx.Err() != nil { // endPending may have been called before
		c.endPending()
		return false, ctx.Err()
	}
	if o.fault == hold {
		select {
		case <-o.release:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return true, nil
}

// capture reports whether the connection has a transaction to be replayed: nothing passes then.
// It adds the frame to the transaction, and resets the connection when that is complete.
func (c *requestFilter) capture(f Frame) (captured bool, err error) {
	c.mu.Lock()
	o, id := c.captured, c.capturing
	c.mu.Unlock()
	if o == nil || f.ID != id {
		return o != nil, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.body = append(o.body, f.Data...)
	if o.all = !f.More; o.all {
		return true, errFault
	}
	return true, nil
}

func (c *requestFilter) onReply(f Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.pending[f.ID]
	if o == nil {
		return nil
	}
	delete(c.pending, f.ID)
	close(o.done)
	if o.fault == loseReply {
		return errFault
	}
	return nil
}
