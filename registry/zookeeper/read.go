package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// callWithRetry is callOnce for an idempotent request: it repeats the request after a lost
// connection until ctx ends.
func callWithRetry[T any](ctx context.Context, l *link, f func(*zk.Conn) (T, error)) (T, error) {
	for {
		v, err := callOnce(ctx, l, f)
		if err != nil && ctx.Err() == nil && connectionLost(err) && !l.isOver() {
			if err := l.awaitDisconnect(ctx); err != nil {
				return v, err
			}
			continue
		}
		return v, translate(err)
	}
}

// onOneConnection repeats f until it has run on a single connection of l. After a reconnect in
// the middle, a part of the reads could come from a member that lags behind the other.
func (c *Client) onOneConnection(ctx context.Context, l *link, f func() error) error {
	for {
		w := l.currentConn()
		if err := f(); err != nil || l.currentConn() == w {
			return err
		}
	}
}

// catchUp returns when reads on l reflect zxid or a later state. A member may lag behind
// others, so a change of member must not take the handle back in time.
func (c *Client) catchUp(ctx context.Context, l *link, zxid int64) error {
	if l.lastZxid() >= zxid {
		return l.awaitUp(ctx)
	}
	if err := c.syncMember(ctx, l); err != nil {
		return err
	}
	if l.lastZxid() >= zxid {
		return nil
	}
	// A deposed leader that has not noticed it answers a sync, but cannot commit.
	return c.commitNoChange(ctx, l)
}

// commitBarrier returns when reads on the base connection reflect the present state or a later
// one. It makes a commit that changes nothing, because sync does not involve a majority: a
// leader that was cut off or paused answers it from the past until it notices.
func (c *Client) commitBarrier(ctx context.Context) error { return c.commitNoChange(ctx, c.base) }

func (c *Client) commitNoChange(ctx context.Context, l *link) error {
	seen, w := c.seen.Load(), l.currentConn()
	commit := func() error {
		_, err := callWithRetry(ctx, l, func(conn *zk.Conn) ([]zk.MultiResponse, error) {
			return conn.Multi(&zk.CheckVersionRequest{Path: c.layout.root, Version: -1})
		})
		return err
	}
	err := commit()
	if errors.Is(err, zk.ErrNoNode) {
		err = nil // the refusal is a commit as well
		if !c.options.ReadOnly {
			if err = c.createLayout(ctx); err == nil {
				err = commit()
			}
		}
	}
	if err == nil {
		c.compareCommit(l, w, seen)
	}
	return err
}

func (c *Client) syncMember(ctx context.Context, l *link) error {
	_, err := callWithRetry(ctx, l, func(conn *zk.Conn) (string, error) { return conn.Sync(c.layout.root) })
	return err
}

// rawZnode is the content of a path. stat is nil if there is no znode.
type rawZnode struct {
	data []byte
	stat *zk.Stat
}

func (c *Client) readZnode(ctx context.Context, l *link, path string) (rawZnode, error) {
	r, err := callWithRetry(ctx, l, func(conn *zk.Conn) (rawZnode, error) {
		data, stat, err := conn.Get(path)
		return rawZnode{data, stat}, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return rawZnode{}, nil
	case err != nil:
		return rawZnode{}, err
	}
	return r, nil
}

// readKey returns the znode of key, or nil if there is none, and caches its version.
func (c *Client) readKey(ctx context.Context, l *link, key registry.Key) (*znode, error) {
	reaped := c.reapedCount.Load() // before the read: see cachedZnode.reaped
	r, err := c.readZnode(ctx, l, c.layout.keyPath(key))
	if err != nil {
		return nil, err
	}
	if r.stat == nil {
		c.versions.drop(key)
		return nil, nil
	}
	n, err := decode(key, r.data, r.stat)
	if err != nil {
		c.versions.drop(key)
		return nil, err
	}
	c.versions.put(key, n, reaped)
	return n, nil
}

// readConcurrency is the number of concurrent reads: enough to keep a member busy, few enough
// not to delay other requests on the connection.
const readConcurrency = 64

// readKeys reads many keys and calls each with every result, from one goroutine at a time. An
// error of each ends the reads.
func (c *Client) readKeys(ctx context.Context, l *link, keys []registry.Key, each func(key registry.Key, n *znode, err error) error) error {
	var mu sync.Mutex
	return parallel.Each(ctx, readConcurrency, keys, func(ctx context.Context, key registry.Key) error {
		n, err := c.readKey(ctx, l, key)
		backend.NoteAnswer(ctx)
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil { // err only reflects the end of ctx
			return context.Cause(ctx)
		}
		return each(key, n, err)
	})
}

// listChildren returns the children of dir whose names are valid in keys. A missing directory
// has none.
func (c *Client) listChildren(ctx context.Context, dir registry.Key) ([]registry.Key, *zk.Stat, error) {
	type found struct {
		names []string
		stat  *zk.Stat
	}
	f, err := callWithRetry(ctx, c.base, func(conn *zk.Conn) (found, error) {
		names, stat, err := conn.Children(c.layout.keyPath(dir))
		return found{names, stat}, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil, nil
	}
	return keysBelow(dir, f.names), f.stat, err
}

func keysBelow(dir registry.Key, names []string) []registry.Key {
	keys := make([]registry.Key, 0, len(names))
	for _, name := range names {
		if key := dir.Join(name); registry.CheckKey(key) == nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// readDir lists dir as of the member's present state or a later one.
//
// The listing is atomic if neither the list of children nor any child changed after the zxid
// that the member had reported before the first read. It is then the state at that zxid.
func (c *Client) readDir(ctx context.Context, dir registry.Key) (registry.Listing, error) {
	at := c.base.lastZxid()
	keys, stat, err := c.listChildren(ctx, dir)
	if err != nil {
		return registry.Listing{}, err
	}
	l := registry.Listing{Rev: registry.Rev{Seq: uint64(at)}, Atomic: stat != nil && stat.Pzxid <= at}
	err = c.readKeys(ctx, c.base, keys, func(key registry.Key, n *znode, err error) error {
		l.Atomic = l.Atomic && n != nil && n.mzxid <= at
		switch {
		case isForeign(err): // the key may have held an entry at that zxid
			c.logForeign(key, err)
			return nil
		case n != nil && !n.empty:
			l.Entries = append(l.Entries, n.entry(key, nil))
		}
		return err
	})
	if err != nil {
		return registry.Listing{}, err
	}
	if !l.Atomic {
		l.Rev.Seq = uint64(c.base.lastZxid())
	}
	slices.SortFunc(l.Entries, func(a, b registry.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return l, nil
}
