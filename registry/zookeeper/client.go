package zookeeper

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// Client is a handle on a ZooKeeper ensemble. Open makes it.
type Client struct {
	options  Options
	layout   layout
	members  *members
	handle   *backend.Handle
	base     *link // for reads, and for transactions that create no owned key
	versions versionCache

	seen        atomic.Int64 // zxid of the latest state that a caller has observed
	reapedCount atomic.Int32 // last known value of the count at layout.reapedPath

	mu        sync.Mutex
	sessions  map[registry.SessionID]*session
	feeds     map[registry.Key]*feed
	watchConn *watchConn // nil before the first watch
	auditing  bool

	deleted deletedKeys

	malformedAt atomic.Int64 // when reportMalformed last logged, in seconds since 1970
	lossAt      atomic.Int64 // when reportLostCommits last logged, in seconds since 1970
}

var _ registry.Registry = (*Client)(nil)

// Limits returns registry.PortableLimits, which are well below the limits of a server in its
// default configuration.
func (c *Client) Limits() registry.Limits { return c.handle.Limits() }

// Get implements registry.Registry.
func (c *Client) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	return c.handle.Get(ctx, key, o, func(ctx context.Context) (registry.Entry, error) {
		n, err := c.getZnode(ctx, key, o)
		if err != nil {
			return registry.Entry{}, err
		}
		return n.entry(key, o.Buffer), nil
	})
}

// getZnode returns the znode of key, or registry.ErrNotFound if the key does not exist.
func (c *Client) getZnode(ctx context.Context, key registry.Key, o registry.ReadOptions) (*znode, error) {
	var n *znode
	err := c.readBase(ctx, o, func() (err error) {
		n, err = c.readKey(ctx, c.base, key)
		return err
	})
	if err == nil && (n == nil || n.empty) {
		err = registry.ErrNotFound
	}
	return n, err
}

// List implements registry.Registry. The listing is Atomic if nothing in the directory changed
// while it was read.
func (c *Client) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	return c.handle.List(ctx, dir, func(ctx context.Context) (l registry.Listing, err error) {
		err = c.readBase(ctx, o, func() error {
			l, err = c.readDir(ctx, dir)
			return err
		})
		return l, err
	})
}

// readBase calls read until it has run on one base connection that is as fresh as o requires.
func (c *Client) readBase(ctx context.Context, o registry.ReadOptions, read func() error) error {
	err := c.onOneConnection(ctx, c.base, func() error {
		if err := c.awaitFreshness(ctx, o); err != nil {
			return err
		}
		return read()
	})
	c.noteSeen(c.base.lastZxid())
	return err
}

// awaitFreshness returns when a read on the base connection is as fresh as o requires.
func (c *Client) awaitFreshness(ctx context.Context, o registry.ReadOptions) error {
	if o.Fresh {
		return c.commitBarrier(ctx)
	}
	return c.catchUp(ctx, c.base, c.seen.Load())
}

// noteSeen records that a caller observes a state that is at least as new as zxid.
func (c *Client) noteSeen(zxid int64) {
	for {
		old := c.seen.Load()
		if zxid <= old || c.seen.CompareAndSwap(old, zxid) {
			return
		}
	}
}

// verifyStore makes a commit that changes nothing on a new connection of the base link, to find out whether
// the store has lost commits. If it has not, the member has caught up with the handle when it answers.
func (c *Client) verifyStore(conn *zk.Conn, w *memberConn) error {
	seen := c.seen.Load()
	if seen == 0 {
		return nil // Open makes a commit later
	}
	_, err := conn.Multi(&zk.CheckVersionRequest{Path: c.layout.root, Version: -1})
	if err != nil && connectionLost(err) {
		return err
	}
	c.versions.clear()               // it may be another store, in which the same version is another value
	c.compareCommit(c.base, w, seen) // a refusal, as of a namespace that does not exist, is a commit as well
	return nil
}

// compareCommit detects that the store has lost commits. It is called after a commit on l; w was the
// connection, and seen the value of c.seen, before the request was sent.
//
// In one store, a commit has a higher zxid than every state that a client has observed before: a majority
// has stored that state and takes part in the commit. So a lower zxid is a proof. A member that lags, a
// leader that was cut off and an election never cause it.
func (c *Client) compareCommit(l *link, w *memberConn, seen int64) {
	if w == nil || l.currentConn() != w {
		return // the answer may have come over another connection
	}
	commit := w.zxid.Load()
	if commit >= seen || !c.seen.CompareAndSwap(seen, commit) {
		return
	}
	c.versions.clear()
	c.reapedCount.Store(0) // a wrong count is corrected by the first refusal
	c.mu.Lock()
	sessions := slices.Collect(maps.Values(c.sessions))
	c.mu.Unlock()
	for _, s := range sessions {
		s.Vanished() // an earlier state of the store may still contain it
	}
	c.reportLostCommits(seen, commit)
}

// Close implements registry.Registry.
func (c *Client) Close(ctx context.Context) error {
	return c.handle.Close(ctx, func(ctx context.Context) {
		c.mu.Lock()
		v := c.watchConn
		c.mu.Unlock()
		if v != nil {
			v.link.shutDown(ctx, false)
		}
		c.base.shutDown(ctx, true)
	})
}
