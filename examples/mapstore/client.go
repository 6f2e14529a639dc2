// Package mapstore is a complete backend over a map with a mutex, as a template: replace store.go
// by requests to a server, and keep the rest. Its test runs the cases of the conformance suite
// that need no fault control.
package mapstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// Client is a handle on a store.
type Client struct {
	store  *Store
	handle *backend.Handle
}

var _ registry.Registry = (*Client)(nil)

// Open returns a handle. With a server, it takes a context, connects first, and fails with the cause if it cannot.
func Open(s *Store) *Client {
	return &Client{store: s, handle: backend.NewHandle(backend.Config{})}
}

// Get implements registry.Registry.
func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	return c.handle.Get(ctx, key, o, func(ctx context.Context) (registry.Entry, error) {
		if err := c.send(ctx); err != nil {
			return registry.Entry{}, err
		}
		r, ok := c.store.get(string(key))
		if !ok {
			return registry.Entry{}, registry.ErrNotFound
		}
		return decodeEntry(key, r)
	})
}

// List implements registry.Registry.
func (c *Client) List(ctx context.Context, dir registry.Key, _ registry.ReadOptions) (registry.Listing, error) {
	return c.handle.List(ctx, dir, func(ctx context.Context) (registry.Listing, error) {
		entries, rev, err := c.children(ctx, dir)
		return registry.Listing{Entries: entries, Rev: rev, Atomic: true}, err
	})
}

// children returns the entries of a directory, sorted, and the Rev of that state.
func (c *Client) children(ctx context.Context, dir registry.Key) ([]registry.Entry, registry.Rev, error) {
	if err := c.send(ctx); err != nil {
		return nil, registry.Rev{}, err
	}
	rows, revision := c.store.scan(func(key string) bool { return registry.Key(key).Dir() == dir })
	entries := make([]registry.Entry, 0, len(rows))
	for key, r := range rows {
		if e, err := decodeEntry(registry.Key(key), r); err == nil { // a foreign value is skipped; log it
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b registry.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries, revOf(revision), nil
}

// latency stands for the network.
const latency = time.Millisecond

// send stands for a request. With a server, each request ends with ctx, also if the server is
// silent: a client library that waits longer needs a goroutine that does not.
func (c *Client) send(ctx context.Context) error {
	if !backend.Sleep(ctx, latency) {
		return ctx.Err()
	}
	return nil
}

// Limits implements registry.Registry.
func (c *Client) Limits() registry.Limits { return c.handle.Limits() }

// Close implements registry.Registry.
func (c *Client) Close(ctx context.Context) error {
	return c.handle.Close(ctx, func(context.Context) {}) // with a server: close the connections
}

func revOf(revision uint64) registry.Rev { return registry.Rev{Seq: revision} }

// decodeEntry returns the entry that a row stores.
func decodeEntry(key registry.Key, r row) (registry.Entry, error) {
	id, value, err := backend.DecodeValue(key, r.value)
	if err != nil {
		return registry.Entry{}, err
	}
	return registry.Entry{
		Key: key, Value: slices.Clone(value), // the caller may change it
		Created: revOf(r.created), Modified: revOf(r.modified),
		Owner: registry.SessionID(r.lease), Txn: id,
	}, nil
}
