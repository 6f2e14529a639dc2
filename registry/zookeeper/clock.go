package zookeeper

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

var _ registry.Clock = (*Client)(nil)

// WrittenAt is described in registry.Clock. The clock is that of the ensemble's leader at the
// time, in milliseconds: the mtime of the znode.
func (c *Client) WrittenAt(ctx context.Context, key registry.Key) (time.Time, error) {
	if err := registry.CheckKey(key); err != nil {
		return time.Time{}, err
	}
	n, err := c.get(ctx, key, registry.ReadOptions{})
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("read when %s was written: %w", key, remote.Unavailable(err))
	case n == nil || n.none:
		return time.Time{}, fmt.Errorf("read when %s was written: %w", key, registry.ErrNotFound)
	}
	return time.UnixMilli(n.mtime), nil
}
