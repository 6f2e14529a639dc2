package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/registry"
)

// Client is a handle on a Server. It is made by Server.Client.
type Client struct {
	server  *Server
	machine *machine
	closed  chan struct{} // closed by Close

	// Guarded by server.mu.
	isClosed bool
	watchers map[*watcher]struct{}
	sessions map[*session]struct{}
}

var _ registry.Registry = (*Client)(nil)

// Limits returns registry.PortableLimits, so that what passes here passes anywhere.
func (c *Client) Limits() registry.Limits { return registry.PortableLimits }

// Get is described in registry.Registry. It allocates nothing if o.Buffer has room.
func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if err := c.mayRead(ctx); err != nil {
		return registry.Entry{}, fmt.Errorf("get %s: %w", key, err)
	}
	c.server.mu.RLock()
	n := c.server.nodes[key]
	var e *registry.Entry
	if n != nil {
		e = n.entry
	}
	c.server.mu.RUnlock()
	if e == nil {
		if err := registry.CheckKey(key); err != nil { // a key that is stored is valid
			return registry.Entry{}, err
		}
		return registry.Entry{}, fmt.Errorf("get %s: %w", key, registry.ErrNotFound)
	}
	return copyEntry(e, o.Buffer), nil
}

// List is described in registry.Registry. It is atomic.
func (c *Client) List(ctx context.Context, dir registry.Key, _ registry.ReadOptions) (registry.Listing, error) {
	if err := registry.CheckDir(dir); err != nil {
		return registry.Listing{}, err
	}
	if err := c.mayRead(ctx); err != nil {
		return registry.Listing{}, fmt.Errorf("list %s: %w", dir, err)
	}
	c.server.mu.RLock()
	found, rev := c.server.children(dir), c.server.rev()
	c.server.mu.RUnlock()
	return registry.Listing{Entries: copySorted(found), Rev: rev, Atomic: true}, nil
}

// Txn is described in registry.Registry.
func (c *Client) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	if err := registry.CheckTxn(t, c.Limits()); err != nil {
		return registry.Rev{}, err
	}
	if err := ctx.Err(); err != nil {
		return registry.Rev{}, fmt.Errorf("%w: %w", registry.ErrNotApplied, err)
	}
	t.ID = t.ID.OrNew()
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.isClosed {
		return registry.Rev{}, registry.ErrClosed
	}
	return c.server.commit(t)
}

// Close is described in registry.Registry.
func (c *Client) Close(ctx context.Context) error {
	c.server.mu.Lock()
	if c.isClosed {
		c.server.mu.Unlock()
		return nil
	}
	c.isClosed = true
	close(c.closed)
	for w := range c.watchers {
		w.end(registry.ErrClosed)
	}
	open := make([]*session, 0, len(c.sessions))
	for x := range c.sessions {
		open = append(open, x)
	}
	c.server.mu.Unlock()

	var errs []error
	for _, x := range open {
		errs = append(errs, x.Close(ctx))
	}
	return errors.Join(errs...)
}

func (c *Client) mayRead(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", registry.ErrUnavailable, err)
	}
	select {
	case <-c.closed:
		return registry.ErrClosed
	default:
		return nil
	}
}

// children returns what is in dir, in no order.
func (s *Server) children(dir registry.Key) []*registry.Entry {
	d := s.dirs[dir]
	if d == nil {
		return nil
	}
	found := make([]*registry.Entry, 0, len(d.nodes))
	for _, n := range d.nodes {
		found = append(found, n.entry)
	}
	return found
}

// copyEntry gives a reader an entry of its own: what is stored is shared by all.
func copyEntry(e *registry.Entry, buf []byte) registry.Entry {
	c := *e
	if cap(buf) < len(e.Value) {
		buf = make([]byte, len(e.Value))
	}
	c.Value = append(buf[:0], e.Value...)
	return c
}

// copySorted is copyEntry for many. It sorts shared by key.
func copySorted(shared []*registry.Entry) []registry.Entry {
	slices.SortFunc(shared, func(a, b *registry.Entry) int { return cmp.Compare(a.Key, b.Key) })
	copies := make([]registry.Entry, len(shared))
	for i, e := range shared {
		copies[i] = copyEntry(e, nil)
	}
	return copies
}
