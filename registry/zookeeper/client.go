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

// Client is a handle on a store. It is made by Open.
type Client struct {
	o      Options
	layout layout
	hosts  *hosts
	calls  *remote.Calls
	base   *link // reads, and writes that own nothing
	memo   memo

	seen   atomic.Int64 // the zxid of the latest state that a caller was told of
	reaped atomic.Int32 // how often znodes of deleted keys were taken away, as far as is known

	mu       sync.Mutex
	sessions map[registry.SessionID]*session
	feeds    map[registry.Key]*feed
	view     *view // the connection that watches; nil before the first watch
	auditing bool

	graves  graves
	closing chan struct{} // closed when Close has done all it does
}

var _ registry.Registry = (*Client)(nil)

// Limits returns registry.PortableLimits: what they let through is well below what a
// server takes that is configured as it comes.
func (c *Client) Limits() registry.Limits { return registry.PortableLimits }

// Get is described in registry.Registry.
func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if err := registry.CheckKey(key); err != nil {
		return registry.Entry{}, err
	}
	n, err := c.get(ctx, key, o)
	switch {
	case err != nil:
		return registry.Entry{}, fmt.Errorf("get %s: %w", key, remote.Unavailable(err))
	case n == nil || n.none:
		return registry.Entry{}, fmt.Errorf("get %s: %w", key, registry.ErrNotFound)
	}
	return n.entry(key, o.Buffer), nil
}

// get returns the znode of key, or nil.
func (c *Client) get(ctx context.Context, key registry.Key, o registry.ReadOptions) (*node, error) {
	ctx, end, err := c.calls.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var n *node
	err = c.steady(ctx, c.base, func() error {
		if err := c.ready(ctx, o); err != nil {
			return err
		}
		n, err = c.read(ctx, c.base, key)
		return err
	})
	c.saw(c.base.zxid())
	return n, err
}

// List is described in registry.Registry. It is Atomic if nothing of the directory
// changed while it was read.
func (c *Client) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	if err := registry.CheckDir(dir); err != nil {
		return registry.Listing{}, err
	}
	l, err := c.list(ctx, dir, o)
	if err != nil {
		return registry.Listing{}, fmt.Errorf("list %q: %w", dir, remote.Unavailable(err))
	}
	return l, nil
}

func (c *Client) list(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	ctx, end, err := c.calls.Begin(ctx)
	if err != nil {
		return registry.Listing{}, err
	}
	defer end()
	var l registry.Listing
	err = c.steady(ctx, c.base, func() error {
		if err := c.ready(ctx, o); err != nil {
			return err
		}
		l, err = c.readDir(ctx, dir)
		return err
	})
	c.saw(c.base.zxid())
	return l, err
}

// ready returns when a read on the base connection is as fresh as it has to be.
func (c *Client) ready(ctx context.Context, o registry.ReadOptions) error {
	if o.Fresh {
		return c.barrier(ctx)
	}
	return c.catchUp(ctx, c.base, c.seen.Load())
}

// saw takes note that a caller is told of a state that is not newer than zxid.
func (c *Client) saw(zxid int64) {
	for {
		old := c.seen.Load()
		if zxid <= old || c.seen.CompareAndSwap(old, zxid) {
			return
		}
	}
}

// Close is described in registry.Registry.
func (c *Client) Close(ctx context.Context) error {
	if !c.calls.Close() {
		<-c.closing
		return nil
	}
	defer close(c.closing)
	c.mu.Lock()
	sessions, feeds, v := c.sessions, c.feeds, c.view
	c.sessions, c.feeds = nil, nil
	c.mu.Unlock()

	for _, f := range feeds {
		f.fail(remote.ErrHandleClosed)
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
		v.link.end(ctx, false)
	}
	c.base.end(ctx, true)
	c.calls.Wait()
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
