package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

var _ registry.Clock = (*Client)(nil)

// WrittenAt is described in registry.Clock. The clock of the server is that of package time.
func (c *Client) WrittenAt(ctx context.Context, key registry.Key) (time.Time, error) {
	if err := registry.CheckKey(key); err != nil {
		return time.Time{}, err
	}
	var at time.Time
	err := c.sendRepeatable(ctx, plainRead, func() error {
		if n := c.server.nodes[key]; n != nil {
			at = n.written
		}
		return c.server.permissionError(c.machine)
	})
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("read when %s was written: %w", key, backend.Unavailable(err))
	case at.IsZero():
		return time.Time{}, fmt.Errorf("read when %s was written: %w", key, registry.ErrNotFound)
	}
	return at, nil
}
