package mapstore

import (
	"context"
	"errors"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// Watch implements registry.Registry.
func (c *Client) Watch(ctx context.Context, dir registry.Key, _ registry.WatchOptions) (registry.Watcher, error) {
	w, err := c.handle.Watch(ctx, dir, backend.Source{
		List: func(ctx context.Context) ([]registry.Entry, registry.Rev, error) { return c.children(ctx, dir) },
		Changes: func(ctx context.Context, after registry.Rev) ([]backend.Change, registry.Rev, error) {
			if err := c.send(ctx); err != nil {
				return nil, after, err
			}
			changes, reached, wait, err := c.store.since(after.Seq)
			switch {
			case errors.Is(err, errCompacted):
				return nil, after, backend.ErrMissed
			case reached > after.Seq:
				return toChanges(dir, changes), revOf(reached), nil
			}
			select {
			case <-wait:
				return nil, after, nil // it is called again
			case <-ctx.Done():
				return nil, after, ctx.Err()
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// toChanges returns those changes that concern children of dir.
func toChanges(dir registry.Key, changes []change) []backend.Change {
	var all []backend.Change
	for _, ch := range changes {
		key := registry.Key(ch.key)
		if key.Dir() != dir {
			continue
		}
		c := backend.Change{Key: key, Rev: revOf(ch.revision)}
		if !ch.deleted {
			if e, err := decodeEntry(key, ch.row); err == nil { // a foreign value counts as a deletion
				c.Entry = &e
			}
		}
		all = append(all, c)
	}
	return all
}
