package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// Client is a handle on a ZooKeeper ensemble. Open makes it.
type Client struct {
	options  Options
	layout   layout
	members  *members
	calls    *remote.Calls
	base     *link // for reads, and for transactions that create no owned key
	versions versionCache

	seen        atomic.Int64 // zxid of the latest state that a caller has observed
	reapedCount atomic.Int32 // last known value of the count at layout.reapedPath

	mu        sync.Mutex
	sessions  map[registry.SessionID]*session
	feeds     map[registry.Key]*feed
	watchConn *watchConn // nil before the first watch
	auditing  bool

	deleted deletedKeys
	closed  chan struct{} // closed when Close is done
}

var _ registry.Registry = (*Client)(nil)

// Limits returns registry.PortableLimits, which are well below the limits of a server in its
// default configuration.
func (c *Client) Limits() registry.Limits { return registry.PortableLimits }

// Get implements registry.Registry.
func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if err := registry.CheckKey(key); err != nil {
		return registry.Entry{}, err
	}
	n, err := c.getZnode(ctx, key, o)
	switch {
	case err != nil:
		return registry.Entry{}, fmt.Errorf("get %s: %w", key, remote.Unavailable(err))
	case n == nil || n.empty:
		return registry.Entry{}, fmt.Errorf("get %s: %w", key, registry.ErrNotFound)
	}
	return n.entry(key, o.Buffer), nil
}

// getZnode returns the znode of key, or nil if there is none.
func (c *Client) getZnode(ctx context.Context, key registry.Key, o registry.ReadOptions) (*znode, error) {
	ctx, end, err := c.calls.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var n *znode
	err = c.onOneConnection(ctx, c.base, func() error {
		if err := c.awaitFreshness(ctx, o); err != nil {
			return err
		}
		n, err = c.readKey(ctx, c.base, key)
		return err
	})
	c.noteSeen(c.base.lastZxid())
	return n, err
}

// List implements registry.Registry. The listing is Atomic if nothing in the directory changed
// while it was read.
func (c *Client) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	if err := registry.CheckDir(dir); err != nil {
		return registry.Listing{}, err
	}
	l, err := c.listDir(ctx, dir, o)
	if err != nil {
		return registry.Listing{}, fmt.Errorf("list %q: %w", dir, remote.Unavailable(err))
	}
	return l, nil
}

func (c *Client) listDir(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	ctx, end, err := c.calls.Begin(ctx)
	if err != nil {
		return registry.Listing{}, err
	}
	defer end()
	var l registry.Listing
	err = c.onOneConnection(ctx, c.base, func() error {
		if err := c.awaitFreshness(ctx, o); err != nil {
			return err
		}
		l, err = c.readDir(ctx, dir)
		return err
	})
	c.noteSeen(c.base.lastZxid())
	return l, err
}

// awaitFreshness returns when a read on the base connection is as fresh as o requires.
func (c *Client) awaitFreshness(ctx context.Context, o registry.ReadOptions) error {
	if o.Fresh {
		return c.commitBarrier(ctx)
	}
	return c.catchUp(ctx, c.base, c.seen.Load())
}

// noteSeen records that a caller observes a state that is at least as new as zxid.
func (c *Client) noteSeen(zxid int64) {
	for {
		old := c.seen.Load()
		if zxid <= old || c.seen.CompareAndSwap(old, zxid) {
			return
		}
	}
}

// Close implements registry.Registry.
func (c *Client) Close(ctx context.Context) error {
	if !c.calls.Close() {
		<-c.closed
		return nil
	}
	defer close(c.closed)
	c.mu.Lock()
	sessions, feeds, v := c.sessions, c.feeds, c.watchConn
	c.sessions, c.feeds = nil, nil
	c.mu.Unlock()

	for _, f := range feeds {
		f.endWatchers(remote.ErrHandleClosed)
	}
	errs := make(chan error, len(sessions))
	for _, s := range sessions {
		go func() { errs <- s.Close(ctx) }()
	}
	var all []error
	for range sessions {
		all = append(all, <-errs)
	}
	if v != nil {
		v.link.shutDown(ctx, false)
	}
	c.base.shutDown(ctx, true)
	c.calls.Wait()
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
