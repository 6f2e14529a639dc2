package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// Client is a handle on a Server. It is made by Server.Client.
type Client struct {
	server  *Server
	machine *machine
	closed  chan struct{} // closed when Close begins
	ended   chan struct{} // closed when Close has ended the sessions

	// Guarded by server.mu.
	isClosed bool
	watchers map[uint64]*watcher // by number
}

var _ registry.Registry = (*Client)(nil)

// Limits returns registry.PortableLimits, so that a transaction accepted here is accepted by
// every backend.
func (c *Client) Limits() registry.Limits { return registry.PortableLimits }

// Get is described in registry.Registry. It allocates nothing if o.Buffer has room.
func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	e, err := c.get(ctx, key, o.Fresh)
	switch {
	case err != nil:
		return registry.Entry{}, fmt.Errorf("get %s: %w", key, backend.Unavailable(err))
	case e != nil:
		return copyEntry(e, o.Buffer), nil
	}
	if err := registry.CheckKey(key); err != nil { // after a miss only: stored keys are valid
		return registry.Entry{}, err
	}
	return registry.Entry{}, fmt.Errorf("get %s: %w", key, registry.ErrNotFound)
}

// get returns the stored entry, or nil if there is none.
func (c *Client) get(ctx context.Context, key registry.Key, fresh bool) (*registry.Entry, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s := c.server
	s.mu.RLock()
	if c.undisturbed() {
		e := s.read(c.machine, key, fresh)
		s.mu.RUnlock()
		return e, nil
	}
	s.mu.RUnlock()

	if registry.CheckKey(key) != nil {
		return nil, nil // nothing is sent
	}
	var e *registry.Entry
	err := c.sendRepeatable(ctx, readKind(fresh), func() error {
		e = s.read(c.machine, key, fresh)
		return s.permissionError(c.machine)
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (s *Server) read(m *machine, key registry.Key, fresh bool) *registry.Entry {
	m.reads.Add(1)
	if v := s.viewOf(m, fresh); v != nil {
		return v.entries[key]
	}
	if n := s.nodes[key]; n != nil {
		return n.entry
	}
	return nil
}

// List is described in registry.Registry. It is atomic.
func (c *Client) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	if err := registry.CheckDir(dir); err != nil {
		return registry.Listing{}, err
	}
	found, rev, err := c.list(ctx, dir, o.Fresh)
	if err != nil {
		return registry.Listing{}, fmt.Errorf("list %s: %w", dir, backend.Unavailable(err))
	}
	return registry.Listing{Entries: copySorted(found), Rev: rev, Atomic: true}, nil
}

func (c *Client) list(ctx context.Context, dir registry.Key, fresh bool) ([]*registry.Entry, registry.Rev, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, registry.Rev{}, err
	}
	s := c.server
	s.mu.RLock()
	if c.undisturbed() {
		defer s.mu.RUnlock()
		found, rev := s.readDir(c.machine, dir, fresh)
		return found, rev, nil
	}
	s.mu.RUnlock()

	var found []*registry.Entry
	var rev registry.Rev
	err := c.sendRepeatable(ctx, readKind(fresh), func() error {
		found, rev = s.readDir(c.machine, dir, fresh)
		return s.permissionError(c.machine)
	})
	if err != nil {
		return nil, registry.Rev{}, err
	}
	return found, rev, nil
}

func (s *Server) readDir(m *machine, dir registry.Key, fresh bool) ([]*registry.Entry, registry.Rev) {
	m.reads.Add(1)
	if v := s.viewOf(m, fresh); v != nil {
		return v.children(dir), v.rev
	}
	return s.children(dir), s.rev()
}

// Txn is described in registry.Registry.
func (c *Client) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	if err := registry.CheckTxn(t, c.Limits()); err != nil {
		return registry.Rev{}, err
	}
	if err := context.Cause(ctx); err != nil {
		return registry.Rev{}, fmt.Errorf("%w: %w", registry.ErrNotApplied, err)
	}
	t.ID = t.ID.OrNew()
	s := c.server
	s.mu.Lock()
	if c.undisturbed() {
		o := s.serveTxn(c.machine, t)
		s.mu.Unlock()
		return o.result(t)
	}
	s.mu.Unlock()
	return c.sendTxn(ctx, t)
}

func (c *Client) sendTxn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	select {
	case <-c.closed: // not unknown: nothing is sent
		return registry.Rev{}, fmt.Errorf("commit: %w", backend.ErrHandleClosed)
	default:
	}
	t = cloneTxn(t) // it may be applied after Txn has returned
	var o outcome
	err := c.sendOnce(ctx, func() error {
		o = c.server.serveTxn(c.machine, t)
		return nil
	})
	if err != nil {
		return registry.Rev{}, fmt.Errorf("commit: %w", backend.Unknown(err))
	}
	return o.result(t)
}

// Close is described in registry.Registry.
func (c *Client) Close(ctx context.Context) error {
	s := c.server
	s.mu.Lock()
	if c.isClosed {
		s.mu.Unlock()
		<-c.ended
		return nil
	}
	c.isClosed = true
	close(c.closed)
	defer close(c.ended)
	for _, w := range c.watchers {
		w.end(backend.ErrHandleClosed)
	}
	var open []*session
	for _, x := range slices.Clone(c.machine.sessions) {
		if x.client == c && !x.endKnown {
			x.finishClientSide(registry.SessionClosed, registry.ErrClosed)
			open = append(open, x)
		}
	}
	s.mu.Unlock()

	if err := endSessions(ctx, c, open); err != nil {
		return fmt.Errorf("close: %w", backend.Unavailable(err))
	}
	return nil
}

// copyEntry returns a copy of e for one reader: stored entries are shared.
func copyEntry(e *registry.Entry, buf []byte) registry.Entry {
	c := *e
	c.Value = append(buf[:0], e.Value...)
	return c
}

// copySorted is copyEntry for several entries. It sorts shared by key.
func copySorted(shared []*registry.Entry) []registry.Entry {
	slices.SortFunc(shared, func(a, b *registry.Entry) int { return cmp.Compare(a.Key, b.Key) })
	copies := make([]registry.Entry, len(shared))
	for i, e := range shared {
		copies[i] = copyEntry(e, nil)
	}
	return copies
}
