package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// OpenSession implements registry.Registry.
func (c *Client) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	s, err := c.handle.OpenSession(ctx, o, c.beginSession)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// beginSession creates a session. If it fails after it was sent, the session expires by itself.
func (c *Client) beginSession(ctx context.Context, ttl time.Duration) (backend.Grant, error) {
	// The connection has to stand now: if answers are slow, the first renewal has no time left to wait for it.
	if _, err := c.renewals.get(ctx); err != nil {
		return backend.Grant{}, translate(err)
	}
	id, sent, err := c.insertSession(ctx, ttl)
	if err != nil {
		return backend.Grant{}, err
	}
	return backend.Grant{
		ID: registry.SessionID(id), TTL: ttl, Sent: sent,
		Renew: func(ctx context.Context) error { return c.renewSession(ctx, id) },
		End:   func(ctx context.Context) error { return c.endSession(ctx, id) },
	}, nil
}

// insertSession returns the ID of a new session and the instant from which its TTL counts. Each attempt has an ID of its own: one whose answer
// was lost may arrive after the session has ended.
func (c *Client) insertSession(ctx context.Context, ttl time.Duration) (id string, sent backend.Instant, err error) {
	for pause := backend.NextPause(0); ; pause = backend.NextPause(pause) {
		l, err := c.writes.get(ctx)
		if err != nil {
			return "", sent, translate(err)
		}
		id, sent = rand.Text(), backend.Now()
		rows, err := l.do(ctx, statement{"SELECT " + c.options.Schema + ".open_session($1, $2)", []param{text(id), bigint(microseconds(ttl))}})
		switch {
		case err == nil && len(rows) == 1 && rows[0].bool(0):
			return id, sent, nil
		case err == nil:
			return "", sent, fmt.Errorf("%w: the quota in the table state is reached", registry.ErrQuota)
		}
		l.endIfStandby(err)
		if ctx.Err() != nil || !worthRetrying(err) || !backend.Sleep(ctx, pause) {
			return "", sent, backend.CallError(ctx, translate(err))
		}
	}
}

// microseconds returns a duration rounded up.
func microseconds(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// renewSession renews a session with requests that may be repeated. It ends with ctx alone: a bound of its own would give answers up that come
// late, and still in time.
func (c *Client) renewSession(ctx context.Context, id string) error {
	rows, err := c.call(ctx, c.renewals, statement{"SELECT " + c.options.Schema + ".renew_session($1)", []param{text(id)}})
	switch {
	case err != nil:
		return err
	case len(rows) != 1 || !rows[0].bool(0):
		return fmt.Errorf("renew: %w", registry.ErrSessionLost)
	}
	return nil
}

// endSession ends a session and deletes its keys. One that has ended already is no error.
func (c *Client) endSession(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.CallTimeout) // c.handle.Call would end it at once when Close ends the sessions
	defer cancel()
	_, err := c.call(ctx, c.writes, statement{
		"SELECT " + c.options.Schema + ".end_session($1, $2)", []param{boolean(!c.options.PollOnly), text(id)},
	})
	return err
}
