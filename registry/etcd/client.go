package etcd

import (
	"context"
	"log/slog"
	"sync"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// Client is a handle on an etcd cluster. Open makes it.
type Client struct {
	namespace string
	options   Options
	log       *slog.Logger
	handle    *backend.Handle
	links     *links
	foreign   foreignLog

	mu       sync.Mutex
	auditing bool
	sources  map[*source]struct{} // of the watchers
}

var _ registry.Registry = (*Client)(nil)

// Limits returns registry.PortableLimits, so a transaction that is accepted here is accepted by
// every backend.
func (c *Client) Limits() registry.Limits { return c.handle.Limits() }

// Get implements registry.Registry. Every read is Fresh: a read from a single member would cost
// nearly as much, and could go back in time when the next read reaches another member.
func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	return c.handle.Get(ctx, key, o, func(ctx context.Context) (registry.Entry, error) { return c.getEntry(ctx, key) })
}

// List implements registry.Registry. The listing is Fresh and atomic.
func (c *Client) List(ctx context.Context, dir registry.Key, _ registry.ReadOptions) (registry.Listing, error) {
	return c.handle.List(ctx, dir, func(ctx context.Context) (registry.Listing, error) {
		resp, err := c.listDir(ctx, dir)
		if err != nil {
			return registry.Listing{}, err
		}
		return registry.Listing{
			Entries: c.decodeChildren(dir, c.childrenPrefix(dir), resp.Kvs), // etcd sorts keys as registry does
			Rev:     revOf(resp.Header.Revision),
			Atomic:  true,
		}, nil
	})
}

// Close implements registry.Registry. If ctx ends first, the remaining sessions are left to
// expire. The connection is closed in either case, which takes a few seconds at worst.
func (c *Client) Close(ctx context.Context) error {
	return c.handle.Close(ctx, func(context.Context) { c.links.end() })
}
