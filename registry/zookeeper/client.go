package zookeeper

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// Client is a handle on a ZooKeeper ensemble. Open makes it.
type Client struct {
	options  Options
	layout   layout
	members  *members
	handle   *backend.Handle
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

	malformedAt atomic.Int64 // when reportMalformed last logged, in seconds since 1970
}

var _ registry.Registry = (*Client)(nil)

// Limits returns registry.PortableLimits, which are well below the limits of a server in its
// default configuration.
func (c *Client) Limits() registry.Limits { return c.handle.Limits() }

// Get implements registry.Registry.
func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	return c.handle.Get(ctx, key, o, func(ctx context.Context) (registry.Entry, error) {
		n, err := c.getZnode(ctx, key, o)
		if err != nil {
			return registry.Entry{}, err
		}
		return n.entry(key, o.Buffer), nil
	})
}

// getZnode returns the znode of key, or registry.ErrNotFound if the key does not exist.
func (c *Client) getZnode(ctx context.Context, key registry.Key, o registry.ReadOptions) (*znode, error) {
	var n *znode
	err := c.readBase(ctx, o, func() (err error) {
		n, err = c.readKey(ctx, c.base, key)
		return err
	})
	if err == nil && (n == nil || n.empty) {
		err = registry.ErrNotFound
	}
	return n, err
}

// List implements registry.Registry. The listing is Atomic if nothing in the directory changed
// while it was read.
func (c *Client) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	return c.handle.List(ctx, dir, func(ctx context.Context) (l registry.Listing, err error) {
		err = c.readBase(ctx, o, func() error {
			l, err = c.readDir(ctx, dir)
			return err
		})
		return l, err
	})
}

// readBase calls read until it has run on one base connection that is as fresh as o requires.
func (c *Client) readBase(ctx context.Context, o registry.ReadOptions, read func() error) error {
	err := c.onOneConnection(ctx, c.base, func() error {
		if err := c.awaitFreshness(ctx, o); err != nil {
			return err
		}
		return read()
	})
	c.noteSeen(c.base.lastZxid())
	return err
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
	return c.handle.Close(ctx, func(ctx context.Context) {
		c.mu.Lock()
		v := c.watchConn
		c.mu.Unlock()
		if v != nil {
			v.link.shutDown(ctx, false)
		}
		c.base.shutDown(ctx, true)
	})
}
