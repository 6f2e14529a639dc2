package postgres

import (
	"context"
	"fmt"

	"github.com/rota-dev/rota/registry"
)

var _ registry.Poster = (*Client)(nil)

// Post implements registry.Poster for a pgx.Tx or a *sql.Tx of any driver for PostgreSQL. Its role needs the rights that docs/stores.md lists.
func (c *Client) Post(ctx context.Context, tx any, dir registry.Key, value []byte) error {
	do, err := asQuerier(tx)
	switch {
	case err != nil:
	case c.options.ReadOnly:
		err = registry.ErrReadOnly
	case len(value) > c.Limits().ValueBytes:
		err = fmt.Errorf("%w: a value of %d bytes, at most %d", registry.ErrTooLarge, len(value), c.Limits().ValueBytes)
	default:
		if err = registry.CheckDir(dir); err == nil {
			err = do(ctx, "SELECT "+c.options.Schema+".post($1::uuid, $2::text, $3::bytea)", c.id, string(dir), value)
		}
	}
	if err != nil {
		return fmt.Errorf("post in %s: %w", dir, translateComplete(err))
	}
	return nil
}
