package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// Client is a handle on an etcd cluster. Open makes it.
type Client struct {
	namespace string
	options   Options
	log       *slog.Logger
	calls     *remote.Calls
	links     *links
	foreign   foreignLog

	mu       sync.Mutex
	closing  bool
	auditing bool
	sessions map[*openSession]struct{} // entries are removed after the session has ended
	watchers map[*watcher]struct{}
}

var _ registry.Registry = (*Client)(nil)

// Limits returns registry.PortableLimits, so a transaction that is accepted here is accepted by
// every backend.
func (c *Client) Limits() registry.Limits { return registry.PortableLimits }

// Get implements registry.Registry. Every read is Fresh: a read from a single member would cost
// nearly as much, and could go back in time when the next read reaches another member.
func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if err := registry.CheckKey(key); err != nil {
		return registry.Entry{}, err
	}
	e, err := c.getEntry(ctx, key)
	if err != nil {
		return registry.Entry{}, fmt.Errorf("get %s: %w", key, remote.Unavailable(err))
	}
	if cap(o.Buffer) >= len(e.Value) && o.Buffer != nil {
		e.Value = append(o.Buffer[:0], e.Value...)
	}
	return e, nil
}

// List implements registry.Registry. The listing is Fresh and atomic.
func (c *Client) List(ctx context.Context, dir registry.Key, _ registry.ReadOptions) (registry.Listing, error) {
	if err := registry.CheckDir(dir); err != nil {
		return registry.Listing{}, err
	}
	resp, err := c.listDir(ctx, dir)
	if err != nil {
		return registry.Listing{}, fmt.Errorf("list %s: %w", dir, remote.Unavailable(err))
	}
	return registry.Listing{
		Entries: c.decodeChildren(dir, c.childrenPrefix(dir), resp.Kvs), // etcd sorts keys as registry does
		Rev:     revOf(resp.Header.Revision),
		Atomic:  true,
	}, nil
}

// Close implements registry.Registry. If ctx ends first, the remaining sessions are left to
// expire. The connection is closed in either case, which takes a few seconds at worst.
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
