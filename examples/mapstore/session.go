package mapstore

import (
	"context"
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

// grant is called with the TTL that is asked for. The session is safe counted from before the
// call, so nothing has to be measured here.
func (c *Client) grant(ctx context.Context, ttl time.Duration) (backend.Grant, error) {
	if err := c.send(ctx); err != nil {
		return backend.Grant{}, err
	}
	id := c.store.grant(ttl)
	return backend.Grant{
		ID: registry.SessionID(id), TTL: ttl,
		Renew: func(ctx context.Context) error {
			if err := c.send(ctx); err != nil {
				return err
			}
			if !c.store.renew(id) {
				return registry.ErrSessionLost
			}
			return nil
		},
		End: func(ctx context.Context) error {
			err := c.send(ctx)
			if err == nil {
				c.store.revoke(id)
			}
			return err
		},
	}, nil
}
