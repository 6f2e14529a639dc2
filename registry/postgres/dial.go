package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// dialTimeout bounds one attempt to connect to one address.
const dialTimeout = 10 * time.Second

// dial connects to all endpoints at once, and returns the first connection to a primary. A server that is down or silent does not delay it.
func (c *Client) dial(ctx context.Context, endpoints []string, onNotify func(string), onEnd func(*conn)) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	type outcome struct {
		conn *conn
		err  error
	}
	outcomes := make(chan outcome, len(endpoints))
	for _, e := range endpoints {
		go func() {
			made, err := c.dialEndpoint(ctx, e, onNotify, onEnd)
			outcomes <- outcome{made, err}
		}()
	}
	var first *conn
	var errs []error
	for range endpoints { // all, so that no goroutine is left
		switch o := <-outcomes; {
		case o.err != nil:
			errs = append(errs, o.err)
		case first != nil:
			o.conn.end(errGone)
		default:
			first = o.conn
			cancel()
		}
	}
	if first == nil {
		return nil, errors.Join(errs...)
	}
	return first, nil
}

// dialEndpoint connects to one endpoint, and fails unless that is a primary.
func (c *Client) dialEndpoint(ctx context.Context, endpoint string, onNotify func(string), onEnd func(*conn)) (*conn, error) {
	fail := func(err error) (*conn, error) { return nil, fmt.Errorf("connect to %s: %w", endpoint, translate(err)) }
	config, err := c.options.config(endpoint)
	if err != nil {
		return fail(err)
	}
	made, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return fail(err)
	}
	hijacked, err := made.Hijack()
	if err != nil {
		return fail(err)
	}
	l := newConn(hijacked, endpoint, onNotify, onEnd)
	c.links.Go(l.read)
	c.links.Go(l.write)
	rows, err := l.do(ctx, statement{sql: "SELECT pg_is_in_recovery(), pg_backend_pid()"})
	switch {
	case err != nil:
	case len(rows) != 1:
		err = errors.New("an incomplete answer")
	case rows[0].bool(0):
		err = errStandby
	default:
		l.pooled = uint32(rows[0].int4(1)) != hijacked.PID
		return l, nil
	}
	l.end(errGone)
	return fail(err)
}
