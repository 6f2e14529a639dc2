package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// conn is a connection to a server. It is always read, so that its end and the server's farewell are noticed at once,
// and it is pipelined: a request does not wait for the answers to earlier ones, which the server executes in order.
//
// The driver only makes the connection. Its calls would interrupt a statement whose context has ended, and wait for that: a
// statement that was sent is left alone here, and its answer is dropped.
type conn struct {
	raw      net.Conn
	frontend *pgproto3.Frontend // for reading
	address  string
	pooled   bool // a pooler is between this connection and the server
	onNotify func(payload string)
	onEnd    func(*conn)
	writable chan struct{} // one slot: requests are waiting
	ended    chan struct{} // closed when err is set

	mu         sync.Mutex
	waiting    []*request  // not yet written
	unanswered []*request  // written, in order
	heard      time.Time   // when the last message came, or the oldest of unanswered was written if that is later
	retired    bool        // no request is added: it ends when all are answered
	expiry     *time.Timer // ends a retired connection
	err        error
}

// request is one statement, which is one transaction.
type request struct {
	statement
	done    chan struct{} // closed when the others are set
	rows    []row
	err     error // of the server, or of the connection
	sent    bool  // it may have reached the server
	warning error // the server has answered with a warning too
}

// row is a row of an answer: the binary form of each column, nil for null.
type row [][]byte

// errNotSent is wrapped by the errors of requests that have not left the process.
var errNotSent = errors.New("not sent")

// errGone is the error of a connection that was closed on purpose.
var errGone = errors.New("the connection was closed")

func newConn(h *pgconn.HijackedConn, address string, onNotify func(payload string), onEnd func(*conn)) *conn {
	return &conn{
		raw: h.Conn, frontend: h.Frontend, address: address, onNotify: onNotify, onEnd: onEnd,
		writable: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

// do makes a request and waits for the answer, or until ctx ends: a request that was written then is still executed. The error wraps
// errNotSent if the request has certainly not left the process.
func (c *conn) do(ctx context.Context, s statement) ([]row, error) {
	r := &request{statement: s, done: make(chan struct{})}
	if err := c.add(r); err != nil {
		return nil, err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		if c.withdraw(r) {
			return nil, fmt.Errorf("%w: %w", errNotSent, ctx.Err())
		}
		select {
		case <-r.done: // an answer is better than none
		default:
			return nil, ctx.Err()
		}
	}
	switch {
	case r.err != nil && !r.sent:
		return nil, fmt.Errorf("%w: %w", errNotSent, r.err)
	case r.err != nil:
		return nil, r.err
	}
	return r.rows, r.warning
}

func (c *conn) add(r *request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return fmt.Errorf("%w: %w", errNotSent, c.err)
	case c.retired:
		return fmt.Errorf("%w: %w", errNotSent, errGone)
	}
	c.waiting = append(c.waiting, r)
	c.signal()
	return nil
}

// withdraw removes a request that was not written.
func (c *conn) withdraw(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.waiting, r)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	return i >= 0
}

// signal wakes the writer. The lock is held.
func (c *conn) signal() {
	select {
	case c.writable <- struct{}{}:
	default: // a signal is pending
	}
}

// silence returns how long the server has been silent while a request was unanswered.
func (c *conn) silence() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unanswered) == 0 {
		return 0
	}
	return time.Since(c.heard)
}

// oldPatience is how long a retired connection waits for answers. It exceeds the TTLs of sessions, whose renewals may be among them.
const oldPatience = time.Minute

// retire makes the connection end when all requests are answered, or after a while.
func (c *conn) retire() {
	c.mu.Lock()
	if c.err == nil {
		c.retired = true
		c.expiry = time.AfterFunc(oldPatience, func() { c.end(errGone) })
	}
	idle := len(c.waiting)+len(c.unanswered) == 0
	c.mu.Unlock()
	if idle {
		c.end(errGone)
	}
}

// end closes the connection. Requests that were written have an unknown outcome, unless the server has answered.
func (c *conn) end(cause error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = cause
	if c.expiry != nil {
		c.expiry.Stop()
	}
	open := append(c.unanswered, c.waiting...)
	c.unanswered, c.waiting = nil, nil
	close(c.ended)
	c.mu.Unlock()
	for _, r := range open {
		if r.err == nil { // else the server has refused it
			r.err = cause
		}
		close(r.done)
	}
	c.onEnd(c)
}

// write is the goroutine that writes requests, and closes the connection at its end.
func (c *conn) write() {
	defer c.raw.Close()
	for {
		select {
		case <-c.writable:
		case <-c.ended:
			farewell, _ := (&pgproto3.Terminate{}).Encode(nil)
			_ = c.raw.SetWriteDeadline(time.Now().Add(farewellTimeout))
			_, _ = c.raw.Write(farewell)
			return
		}
		for b := c.nextWrite(); len(b) > 0; b = c.nextWrite() {
			if _, err := c.raw.Write(b); err != nil {
				c.end(fmt.Errorf("send to %s: %w", c.address, err))
				return
			}
		}
	}
}

const farewellTimeout = 50 * time.Millisecond

// nextWrite returns the encoded requests that are waiting, which count as sent from now on.
func (c *conn) nextWrite() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || len(c.waiting) == 0 {
		return nil
	}
	if len(c.unanswered) == 0 {
		c.heard = time.Now()
	}
	var b []byte
	for _, r := range c.waiting {
		r.sent = true
		b = r.encode(b)
	}
	c.unanswered = append(c.unanswered, c.waiting...)
	c.waiting = nil
	return b
}

// read is the goroutine that reads answers. Rows come before the commit: a request is answered by ReadyForQuery only.
func (c *conn) read() {
	for {
		message, err := c.frontend.Receive()
		if err != nil {
			c.end(fmt.Errorf("receive from %s: %w", c.address, err))
			return
		}
		switch m := message.(type) {
		case *pgproto3.NotificationResponse:
			c.onNotify(m.Payload)
		case *pgproto3.ErrorResponse:
			err := pgconn.ErrorResponseToPgError(m)
			if isFatal(err) || !c.noteAnswer(func(r *request) { r.err = err }) {
				c.end(err)
				return
			}
		case *pgproto3.NoticeResponse:
			if n := pgconn.ErrorResponseToPgError((*pgproto3.ErrorResponse)(m)); n.SeverityUnlocalized == "WARNING" {
				c.noteAnswer(func(r *request) { r.warning = fmt.Errorf("the server warns: %s", n.Message) })
			}
		case *pgproto3.DataRow:
			copied := make(row, len(m.Values))
			for i, v := range m.Values {
				if v != nil {
					copied[i] = append([]byte{}, v...) // the next message overwrites v; an empty value is not null
				}
			}
			c.noteAnswer(func(r *request) { r.rows = append(r.rows, copied) })
		case *pgproto3.ReadyForQuery:
			c.finishOldest()
		default:
			c.noteAnswer(func(*request) {})
		}
	}
}

// noteAnswer calls f with the request that is being answered, if there is one.
func (c *conn) noteAnswer(f func(*request)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	if len(c.unanswered) == 0 {
		return false
	}
	f(c.unanswered[0])
	return true
}

func (c *conn) finishOldest() {
	c.mu.Lock()
	c.heard = time.Now()
	if len(c.unanswered) > 0 {
		close(c.unanswered[0].done)
		c.unanswered = c.unanswered[1:]
	}
	last := c.retired && len(c.waiting)+len(c.unanswered) == 0
	c.mu.Unlock()
	if last {
		c.end(errGone)
	}
}
