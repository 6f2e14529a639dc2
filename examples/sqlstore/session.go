package sqlstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// OpenSession implements registry.Registry.
func (c *Client) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	s, err := c.handle.OpenSession(ctx, o, c.grant)
	if err != nil {
		return nil, err
	}
	return s, nil
}

const (
	tickEvery = 250 * time.Millisecond
	// maxTick is the most that a tick adds to the lease clock. Deadlines are later by that, since a renewal counts from the tick before it.
	maxTick = 500 * time.Millisecond
)

// grant creates a session. If its answer is lost, the session expires by itself, and the next attempt has another ID.
func (c *Client) grant(ctx context.Context, ttl time.Duration) (g backend.Grant, err error) {
	if err := retry(ctx, func() error { return c.reserveConns(ctx) }); err != nil {
		return g, err
	}
	err = retry(ctx, func() error {
		g = backend.Grant{ID: registry.SessionID(rand.Text()), TTL: ttl, Sent: backend.Now()}
		_, err := c.calls.ExecContext(ctx, "INSERT INTO session SELECT $1, $2::bigint, lease + $2 + $3 FROM state",
			g.ID, ttl.Microseconds()+1, maxTick.Microseconds()) // rounded up
		return err
	})
	g.Renew = func(ctx context.Context) error { return c.renew(ctx, g.ID) }
	g.End = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, backend.DefaultCallTimeout)
		defer cancel()
		return retry(ctx, func() error {
			_, err := c.calls.ExecContext(ctx, "SELECT end_sessions($1)", g.ID)
			return err
		})
	}
	return g, err
}

// reserveConns dials the connections of renewals that are missing: when answers are slow, a renewal has no time left to dial one.
func (c *Client) reserveConns(ctx context.Context) error {
	select {
	case c.reserve <- struct{}{}:
		defer func() { <-c.reserve }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var errs [reserved]error
	var wg, all sync.WaitGroup
	all.Add(reserved)
	for i := range reserved {
		wg.Go(func() {
			conn, err := c.renewals.Conn(ctx)
			errs[i] = err
			all.Done()
			all.Wait() // or the same connection would be used again
			if err == nil {
				conn.Close()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// renew sends a renewal, on a connection of its own. It ends with ctx alone, since an answer may take half a TTL.
func (c *Client) renew(ctx context.Context, id registry.SessionID) error {
	r, err := c.renewals.ExecContext(ctx, "UPDATE session s SET deadline = greatest(s.deadline, c.lease + s.ttl + $2) FROM state c WHERE s.id = $1",
		id, maxTick.Microseconds())
	if err != nil {
		if ctx.Err() == nil && !isRefused(err) { // the connection has broken
			c.handle.Disconnected()
			if retry(ctx, func() error { return c.renewals.PingContext(ctx) }) == nil {
				c.handle.Reconnected() // which sends another renewal
			}
		}
		return translate(err)
	}
	if n, _ := r.RowsAffected(); n == 0 {
		return fmt.Errorf("renew: %w", registry.ErrSessionLost)
	}
	return nil
}

// keepTime advances the lease clock until the handle is closed. The clock is a number. A handle that has seen it, and
// still finds the same number some time later by its own monotonic clock, adds that time. So the clock is never faster than time, whichever handles
// were paused or have crashed, and no time of day is involved.
func (c *Client) keepTime() {
	seen, at := int64(-1), time.Now() // the number, and when this handle first saw it
	for backend.Sleep(c.handle.Context(), tickEvery) {
		_ = c.handle.Call(c.handle.Context(), func(ctx context.Context) error {
			var lease int64
			var advanced bool
			err := c.calls.QueryRowContext(ctx, `
				WITH next AS (UPDATE state SET lease = lease + $2 WHERE lease = $1 RETURNING lease)
				SELECT coalesce(n.lease, s.lease), n.lease IS NOT NULL FROM state s LEFT JOIN next n ON true`,
				seen, min(time.Since(at), maxTick).Microseconds()).Scan(&lease, &advanced)
			if err != nil {
				return err
			}
			if lease != seen {
				seen, at = lease, time.Now()
			}
			if advanced {
				return c.cleanUp(ctx)
			}
			return nil
		})
	}
}

// keptCommits is the length of the log. A watcher that is further behind lists its directory again.
const keptCommits = 10000

// cleanUp ends the sessions that are due, and shortens the log.
func (c *Client) cleanUp(ctx context.Context) error {
	_, err := c.calls.ExecContext(ctx, "SELECT end_sessions(NULL) WHERE EXISTS (SELECT FROM session WHERE deadline < (SELECT lease FROM state))")
	if err == nil {
		_, err = c.calls.ExecContext(ctx, "DELETE FROM log WHERE seq < (SELECT max(seq) FROM log) - $1", keptCommits)
	}
	return err
}
