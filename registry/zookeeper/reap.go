package zookeeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
)

// graves are the keys that this handle has deleted, oldest first. Their znodes are still
// there; see plan.
type graves struct {
	mu  sync.Mutex
	all []grave
}

type grave struct {
	key registry.Key
	dug time.Time
}

func (g *graves) dig(key registry.Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, grave{key, time.Now()})
}

// older takes out up to n of the graves that were dug before then.
func (g *graves) older(then time.Time, n int) []registry.Key {
	g.mu.Lock()
	defer g.mu.Unlock()
	var keys []registry.Key
	for len(keys) < n && len(keys) < len(g.all) && g.all[len(keys)].dug.Before(then) {
		keys = append(keys, g.all[len(keys)].key)
	}
	g.all = g.all[len(keys):]
	return keys
}

// reapBatch is how many znodes are taken away by one commit.
const reapBatch = 32

// reap takes away the znodes of keys that were deleted long ago, until the handle is
// closed.
func (c *Client) reap() {
	ctx := c.calls.Context()
	every := max(c.o.ReapAfter/10, time.Millisecond)
	for {
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			keys := c.graves.older(time.Now().Add(-c.o.ReapAfter), reapBatch)
			if len(keys) == 0 {
				break
			}
			c.bury(ctx, keys)
		}
	}
}

// bury takes away what of the znodes of keys has no value and nothing below it, and then
// what is above them in the same state. It gives up on what is in use again.
func (c *Client) bury(ctx context.Context, keys []registry.Key) {
	for len(keys) > 0 && ctx.Err() == nil {
		bound, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
		gone, err := c.takeAway(bound, keys)
		cancel()
		if err != nil {
			c.o.Logger.Debug("did not take away znodes of deleted keys", "keys", len(keys), "error", err)
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

// takeAway is bury for the keys alone, without what is above them, and returns those that
// it was done for.
//
// Whoever knows a version of a znode relies on its not being taken away and made again.
// So the count of that grows in the same commit, which makes every commit that relies on
// the old count fail, this one included: no two of them can meet.
func (c *Client) takeAway(ctx context.Context, keys []registry.Key) (gone []registry.Key, err error) {
	reaped := c.reaped.Load()
	entries := []any{&zk.SetDataRequest{Path: c.layout.reaped(), Data: []byte(noValue), Version: reaped}}
	for _, key := range keys {
		r, err := c.readRaw(ctx, c.base, c.layout.key(key))
		if err != nil {
			return nil, err
		}
		if r.stat == nil || r.stat.NumChildren > 0 {
			continue
		}
		n, err := decode(key, r.data, r.stat)
		if err != nil || !n.none {
			continue
		}
		entries = append(entries, &zk.DeleteRequest{Path: c.layout.key(key), Version: n.version})
		gone = append(gone, key)
	}
	if len(gone) == 0 {
		return nil, nil
	}
	_, err = call(ctx, c.base, func(conn *zk.Conn) ([]zk.MultiResponse, error) { return conn.Multi(entries...) })
	switch {
	case err == nil:
		c.reaped.CompareAndSwap(reaped, reaped+1)
		return gone, nil
	case len(gone) > 1 && (errors.Is(err, zk.ErrNotEmpty) || errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode)):
		return c.takeAwayEach(ctx, gone)
	}
	return nil, err
}

// takeAwayEach does it one by one, because one of them is in use again.
func (c *Client) takeAwayEach(ctx context.Context, keys []registry.Key) (gone []registry.Key, err error) {
	if err := c.countReaped(ctx); err != nil {
		return nil, err
	}
	for _, key := range keys {
		done, err := c.takeAway(ctx, []registry.Key{key})
		if err == nil {
			gone = append(gone, done...)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return gone, nil
}
