package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Get implements registry.Registry. Every read is Fresh: it is made on the primary, which shows a commit before it is acknowledged.
func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	return c.handle.Get(ctx, key, o, func(ctx context.Context) (registry.Entry, error) {
		r, err := c.getRow(ctx, key)
		if err != nil {
			return registry.Entry{}, err
		}
		return toEntry(key, r, 1)
	})
}

// getRow returns the row of a key: written, and the columns that toEntry reads.
func (c *Client) getRow(ctx context.Context, key registry.Key) (row, error) {
	dir, name := splitKey(key)
	rows, err := c.call(ctx, c.reads, statement{
		"SELECT written, value, created, modified, owner, txn FROM " + c.options.Schema + ".get($1, $2)", []param{text(dir), text(name)},
	})
	switch {
	case err != nil:
		return nil, err
	case len(rows) == 0:
		return nil, registry.ErrNotFound
	}
	return rows[0], nil
}

// List implements registry.Registry. The listing is Fresh and atomic.
func (c *Client) List(ctx context.Context, dir registry.Key, _ registry.ReadOptions) (registry.Listing, error) {
	return c.handle.List(ctx, dir, func(ctx context.Context) (registry.Listing, error) {
		entries, rev, err := c.listDir(ctx, dir)
		return registry.Listing{Entries: entries, Rev: rev, Atomic: true}, err
	})
}

// listDir returns the entries of a directory, sorted by bytes as registry does, and the last commit that they reflect.
func (c *Client) listDir(ctx context.Context, dir registry.Key) ([]registry.Entry, registry.Rev, error) {
	rows, err := c.call(ctx, c.reads, statement{
		"SELECT name, value, created, modified, owner, txn FROM " + c.options.Schema + ".list($1)", []param{text(string(dir))},
	})
	if err != nil {
		return nil, registry.Rev{}, err
	}
	if len(rows) == 0 {
		return nil, registry.Rev{}, errors.New("an incomplete answer")
	}
	entries := make([]registry.Entry, 0, len(rows)-1)
	for _, r := range rows[1:] {
		e, err := toEntry(dir.Join(r.text(0)), r, 1)
		if err != nil {
			return nil, registry.Rev{}, err
		}
		entries = append(entries, e)
	}
	return entries, revOf(rows[0].int8(3)), nil
}

var _ registry.Clock = (*Client)(nil)

// epoch is the zero of timestamps, which count microseconds.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// WrittenAt implements registry.Clock, by the server's time of day.
func (c *Client) WrittenAt(ctx context.Context, key registry.Key) (time.Time, error) {
	if err := registry.CheckKey(key); err != nil {
		return time.Time{}, err
	}
	var r row
	err := c.handle.Call(ctx, func(ctx context.Context) (err error) {
		r, err = c.getRow(ctx, key)
		return err
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("read when %s was written: %w", key, err)
	}
	return epoch.Add(time.Duration(r.int8(0)) * time.Microsecond), nil
}
