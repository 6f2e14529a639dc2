package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// Client is a handle on etcd. It is made by Open.
type Client struct {
	namespace string
	options   Options
	log       *slog.Logger
	calls     *remote.Calls
	links     *links
	foreign   foreign

	mu       sync.Mutex
	closing  bool
	auditing bool
	sessions map[*session]struct{} // until they have ended
	watchers map[*watcher]struct{}
}

var _ registry.Registry = (*Client)(nil)

// Limits returns registry.PortableLimits, so that what passes here passes anywhere.
func (c *Client) Limits() registry.Limits { return registry.PortableLimits }

// Get is described in registry.Registry. Plain reads are Fresh, too: a read of one member
// alone costs nearly as much and may go back in time when the next one asks another.
func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if err := registry.CheckKey(key); err != nil {
		return registry.Entry{}, err
	}
	e, err := c.get(ctx, key)
	if err != nil {
		return registry.Entry{}, fmt.Errorf("get %s: %w", key, remote.Unavailable(err))
	}
	if cap(o.Buffer) >= len(e.Value) && o.Buffer != nil {
		e.Value = append(o.Buffer[:0], e.Value...)
	}
	return e, nil
}

// List is described in registry.Registry. It is Fresh and atomic.
func (c *Client) List(ctx context.Context, dir registry.Key, _ registry.ReadOptions) (registry.Listing, error) {
	if err := registry.CheckDir(dir); err != nil {
		return registry.Listing{}, err
	}
	resp, err := c.list(ctx, dir)
	if err != nil {
		return registry.Listing{}, fmt.Errorf("list %s: %w", dir, remote.Unavailable(err))
	}
	return registry.Listing{
		Entries: c.readChildren(dir, c.children(dir), resp.Kvs), // in etcd's order, which is ours
		Rev:     revOf(resp.Header.Revision),
		Atomic:  true,
	}, nil
}

// Close is described in registry.Registry. When ctx ends, sessions are left to expire. The
// connection is closed all the same, which takes some seconds at worst.
func (c *Client) Close(ctx context.Context) error {
	if !c.calls.Close() {
		return nil
	}
	c.mu.Lock()
	c.closing = true
	sessions, watchers := c.sessions, c.watchers
	c.sessions, c.watchers = nil, nil
	c.mu.Unlock()

	for w := range watchers {
		w.finish(remote.ErrHandleClosed)
	}
	err := closeSessions(ctx, sessions)
	c.links.end()
	c.calls.Wait()
	if err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
