package zookeeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
)

// deletedKeys are the keys that this handle has deleted, oldest first. Their znodes still
// exist, see multiRequest.
type deletedKeys struct {
	mu  sync.Mutex
	all []deletedKey
}

type deletedKey struct {
	key registry.Key
	at  time.Time
}

func (d *deletedKeys) add(key registry.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, deletedKey{key, time.Now()})
}

// takeOlder removes and returns up to n of the keys that were deleted before then.
func (d *deletedKeys) takeOlder(then time.Time, n int) []registry.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []registry.Key
	for len(keys) < n && len(keys) < len(d.all) && d.all[len(keys)].at.Before(then) {
		keys = append(keys, d.all[len(keys)].key)
	}
	d.all = d.all[len(keys):]
	return keys
}

// reapBatchSize is the number of znodes that one commit removes.
const reapBatchSize = 32

// reapLoop removes the znodes of keys that were deleted ReapAfter ago, until the handle is
// closed.
func (c *Client) reapLoop() {
	ctx := c.handle.Context()
	every := max(c.options.ReapAfter/10, time.Millisecond)
	for {
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			keys := c.deleted.takeOlder(time.Now().Add(-c.options.ReapAfter), reapBatchSize)
			if len(keys) == 0 {
				break
			}
			c.reapWithAncestors(ctx, keys)
		}
	}
}

// reapWithAncestors removes those znodes of keys that have neither a value nor children, then
// their parents in the same state, and so on. It gives up at a znode that is in use again.
func (c *Client) reapWithAncestors(ctx context.Context, keys []registry.Key) {
	for len(keys) > 0 && ctx.Err() == nil {
		bound, cancel := context.WithTimeout(ctx, c.options.CallTimeout)
		gone, err := c.reapZnodes(bound, keys)
		cancel()
		if err != nil {
			c.options.Logger.Debug("could not remove znodes of deleted keys", "keys", len(keys), "error", err)
			return
		}
		above := make(map[registry.Key]bool)
		keys = keys[:0]
		for _, key := range gone {
			if dir := key.Dir(); dir != "" && !above[dir] {
				above[dir] = true
				keys = append(keys, dir)
			}
		}
	}
}

// reapZnodes removes the znodes of keys without their ancestors, and returns the keys that it
// did this for.
//
// A client that has cached the version of a znode relies on the znode not being removed and
// created again. The removal therefore increments the version of ":reaped" in the same commit.
// Every commit that checks the old count then fails, including a concurrent removal.
func (c *Client) reapZnodes(ctx context.Context, keys []registry.Key) (gone []registry.Key, err error) {
	reaped := c.reapedCount.Load()
	entries := []any{&zk.SetDataRequest{Path: c.layout.reapedPath(), Data: []byte(noValue), Version: reaped}}
	for _, key := range keys {
		r, err := c.readZnode(ctx, c.base, c.layout.keyPath(key))
		if err != nil {
			return nil, err
		}
		if r.stat == nil || r.stat.NumChildren > 0 {
			continue
		}
		n, err := decode(key, r.data, r.stat)
		if err != nil || !n.empty {
			continue
		}
		entries = append(entries, &zk.DeleteRequest{Path: c.layout.keyPath(key), Version: n.version})
		gone = append(gone, key)
	}
	if len(gone) == 0 {
		return nil, nil
	}
	_, err = callOnce(ctx, c.base, func(conn *zk.Conn) ([]zk.MultiResponse, error) { return conn.Multi(entries...) })
	switch {
	case err == nil:
		c.reapedCount.CompareAndSwap(reaped, reaped+1)
		return gone, nil
	case len(gone) > 1 && (errors.Is(err, zk.ErrNotEmpty) || errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode)):
		return c.reapOneByOne(ctx, gone)
	}
	return nil, err
}

// reapOneByOne removes the znodes one at a time, because one of them is in use again.
func (c *Client) reapOneByOne(ctx context.Context, keys []registry.Key) (gone []registry.Key, err error) {
	if err := c.readReapedCount(ctx); err != nil {
		return nil, err
	}
	for _, key := range keys {
		done, err := c.reapZnodes(ctx, []registry.Key{key})
		if err == nil {
			gone = append(gone, done...)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return gone, nil
}
