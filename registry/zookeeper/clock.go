package zookeeper

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/registry"
)

var _ registry.Clock = (*Client)(nil)

// WrittenAt implements registry.Clock. It returns the mtime of the znode, in milliseconds, by
// the clock of the server that led the ensemble at the time of the write.
func (c *Client) WrittenAt(ctx context.Context, key registry.Key) (time.Time, error) {
	if err := registry.CheckKey(key); err != nil {
		return time.Time{}, err
	}
	var n *znode
	err := c.handle.Call(ctx, func(ctx context.Context) (err error) {
		n, err = c.getZnode(ctx, key, registry.ReadOptions{})
		return err
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("read when %s was written: %w", key, err)
	}
	return time.UnixMilli(n.mtime), nil
}
