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
)

// ask is call for a request that changes nothing: it is made again when the connection
// broke, until ctx ends.
func ask[T any](ctx context.Context, l *link, f func(*zk.Conn) (T, error)) (T, error) {
	for {
		v, err := call(ctx, l, f)
		if err != nil && ctx.Err() == nil && lost(err) && !l.over() {
			if err := l.outlive(ctx); err != nil {
				return v, err
			}
			continue
		}
		return v, translate(err)
	}
}

// steady has f read on one connection from beginning to end: if that broke meanwhile, what
// was read may be of a member that lags behind the one that was asked first.
func (c *Client) steady(ctx context.Context, l *link, f func() error) error {
	for {
		w := l.current()
		if err := f(); err != nil || l.current() == w {
			return err
		}
	}
}

// catchUp returns when what l is asked next is answered as of zxid or later. A member may
// lag behind others; one that a handle moves to must not take it back in time.
func (c *Client) catchUp(ctx context.Context, l *link, zxid int64) error {
	if l.zxid() >= zxid {
		return l.await(ctx)
	}
	if err := c.sync(ctx, l); err != nil {
		return err
	}
	if l.zxid() >= zxid {
		return nil
	}
	// A leader that was deposed and does not know it yet answers a sync, but cannot commit.
	return c.commitNothing(ctx, l)
}

// barrier returns when what the base connection is asked next is answered as of now or
// later. A sync would do on most days, but is no question to the majority: a leader that
// was cut off or stood still answers it from the past until it notices. So this is a
// commit, which changes nothing.
func (c *Client) barrier(ctx context.Context) error { return c.commitNothing(ctx, c.base) }

func (c *Client) commitNothing(ctx context.Context, l *link) error {
	_, err := ask(ctx, l, func(conn *zk.Conn) ([]zk.MultiResponse, error) {
		return conn.Multi(&zk.CheckVersionRequest{Path: c.layout.root, Version: -1})
	})
	return err
}

func (c *Client) sync(ctx context.Context, l *link) error {
	_, err := ask(ctx, l, func(conn *zk.Conn) (string, error) { return conn.Sync(c.layout.root) })
	return err
}

// raw is what is at a path; stat is nil if nothing is.
type raw struct {
	data []byte
	stat *zk.Stat
}

func (c *Client) readRaw(ctx context.Context, l *link, path string) (raw, error) {
	r, err := ask(ctx, l, func(conn *zk.Conn) (raw, error) {
		data, stat, err := conn.Get(path)
		return raw{data, stat}, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return raw{}, nil
	case err != nil:
		return raw{}, err
	}
	return r, nil
}

// read returns the znode of key, or nil if there is none, and remembers it.
func (c *Client) read(ctx context.Context, l *link, key registry.Key) (*node, error) {
	reaped := c.reaped.Load() // before the read: see fact
	r, err := c.readRaw(ctx, l, c.layout.key(key))
	if err != nil {
		return nil, err
	}
	if r.stat == nil {
		c.memo.drop(key)
		return nil, nil
	}
	n, err := decode(key, r.data, r.stat)
	if err != nil {
		c.memo.drop(key)
		return nil, err
	}
	c.memo.put(key, n, reaped)
	return n, nil
}

// window is how many reads are under way at once: enough to keep a member busy, and few
// enough that others' requests on the same connection do not wait for long.
const window = 64

// readAll is read for many keys. What came of each is given to each, which is called by
// one goroutine at a time, and whose error ends it all.
func (c *Client) readAll(ctx context.Context, l *link, keys []registry.Key, each func(key registry.Key, n *node, err error) error) error {
	var mu sync.Mutex
	return parallel.Each(ctx, window, keys, func(ctx context.Context, key registry.Key) error {
		n, err := c.read(ctx, l, key)
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil { // then err is about nothing else
			return context.Cause(ctx)
		}
		return each(key, n, err)
	})
}

// children returns the names below dir that can be keys. There are none if dir is not
// there.
func (c *Client) children(ctx context.Context, dir registry.Key) ([]registry.Key, *zk.Stat, error) {
	type found struct {
		names []string
		stat  *zk.Stat
	}
	f, err := ask(ctx, c.base, func(conn *zk.Conn) (found, error) {
		names, stat, err := conn.Children(c.layout.key(dir))
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

// readDir lists dir as of the present state of the member, or later.
//
// The listing is atomic if neither the children nor what they hold changed after what the
// member had told of before the first question: then it stood as it is at that time.
func (c *Client) readDir(ctx context.Context, dir registry.Key) (registry.Listing, error) {
	at := c.base.zxid()
	keys, stat, err := c.children(ctx, dir)
	if err != nil {
		return registry.Listing{}, err
	}
	l := registry.Listing{Rev: registry.Rev{Seq: uint64(at)}, Atomic: stat != nil && stat.Pzxid <= at}
	err = c.readAll(ctx, c.base, keys, func(key registry.Key, n *node, err error) error {
		l.Atomic = l.Atomic && n != nil && n.mzxid <= at
		switch {
		case passedOver(err): // it may have been an entry then
			c.leaveOut(key, err)
			return nil
		case n != nil && !n.none:
			l.Entries = append(l.Entries, n.entry(key, nil))
		}
		return err
	})
	if err != nil {
		return registry.Listing{}, err
	}
	if !l.Atomic {
		l.Rev.Seq = uint64(c.base.zxid())
	}
	slices.SortFunc(l.Entries, func(a, b registry.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return l, nil
}
