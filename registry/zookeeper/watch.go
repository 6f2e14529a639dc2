package zookeeper

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// watcher is the reader's end of one call of Watch.
type watcher struct {
	*backend.Watcher
	client *Client
	feed   *feed // guarded by client.mu
	ended  bool  // guarded by client.mu
}

// feed follows a directory for all its watchers. Its goroutine runs as long as there are any.
type feed struct {
	client    *Client
	dir       registry.Key
	ctx       context.Context // ends with the last watcher, or with Close
	cancel    context.CancelFunc
	signal    chan struct{} // one slot: there are new watchers
	auditTurn chan struct{} // one slot: the audit may make one read

	// Guarded by client.mu:
	auditDue time.Time
	joining  map[*watcher]struct{} // without a Snapshot from the present connection
	watchers map[*watcher]struct{}
}

// Watch implements registry.Registry. It returns at once; Next returns the error if the
// directory cannot be watched.
func (c *Client) Watch(ctx context.Context, dir registry.Key, _ registry.WatchOptions) (registry.Watcher, error) {
	w := &watcher{client: c}
	var err error
	if w.Watcher, err = c.handle.NewWatcher(ctx, dir, w.leaveFeed); err != nil {
		return nil, err
	}
	c.addWatcher(dir, w)
	return w, nil
}

// addWatcher adds w to the feed of dir, unless w has ended.
func (c *Client) addWatcher(dir registry.Key, w *watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.ended {
		return
	}
	f := c.feeds[dir]
	if f == nil {
		f = &feed{
			client: c, dir: dir, signal: make(chan struct{}, 1), auditTurn: make(chan struct{}, 1),
			auditDue: time.Now().Add(backend.Jittered(max(c.options.AuditEvery, 0))),
			joining:  make(map[*watcher]struct{}), watchers: make(map[*watcher]struct{}),
		}
		f.ctx, f.cancel = context.WithCancel(c.handle.Context())
		if !c.handle.Go(f.run) { // Close ends w
			f.cancel()
			return
		}
		c.feeds[dir] = f
		if !c.auditing && c.options.AuditEvery > 0 {
			c.auditing = c.handle.Go(c.auditLoop)
		}
	}
	w.feed = f
	f.joining[w] = struct{}{}
	backend.Signal(f.signal)
}

// Next implements registry.Watcher.
func (w *watcher) Next(ctx context.Context) (registry.Batch, error) {
	b, err := w.Watcher.Next(ctx)
	if err == nil {
		w.client.noteSeen(int64(b.Rev.Seq))
	}
	return b, err
}

// leaveFeed removes w, which has ended, from its feed, and ends the feed if w is the last
// watcher.
func (w *watcher) leaveFeed() {
	w.client.mu.Lock()
	defer w.client.mu.Unlock()
	w.ended = true
	f := w.feed
	if f == nil {
		return
	}
	delete(f.joining, w)
	delete(f.watchers, w)
	if len(f.joining)+len(f.watchers) == 0 && f.client.feeds[f.dir] == f {
		delete(f.client.feeds, f.dir)
		f.cancel()
	}
}

// endWatchers ends all watchers of the feed.
func (f *feed) endWatchers(err error) {
	f.client.mu.Lock()
	all := slices.AppendSeq(slices.Collect(maps.Keys(f.joining)), maps.Keys(f.watchers))
	f.client.mu.Unlock()
	for _, w := range all {
		w.Fail(err)
	}
}

// reconnectPause is the pause before another connection, for members that accept connections
// and break them at once.
const reconnectPause = 20 * time.Millisecond

// run is the goroutine of the feed.
func (f *feed) run() {
	defer f.cancel()
	for f.ctx.Err() == nil {
		conn, err := f.client.connectedWatchConn(f.ctx)
		if err == nil {
			err = f.followMirror(conn)
		}
		switch {
		case f.ctx.Err() != nil:
		case errors.Is(err, registry.ErrPermission), errors.Is(err, registry.ErrUnauthenticated):
			conn.discardMirror(f.dir)
			f.endWatchers(err)
		default: // the connection broke; each watcher needs a new Snapshot
			f.client.mu.Lock()
			for w := range f.watchers {
				f.joining[w] = struct{}{}
			}
			clear(f.watchers)
			f.client.mu.Unlock()
			backend.Sleep(f.ctx, reconnectPause)
		}
	}
}

// followMirror publishes the changes of the mirror until the connection breaks.
func (f *feed) followMirror(conn *watchConn) error {
	m, err := conn.acquireMirror(f.ctx, f.dir)
	if err != nil {
		return err
	}
	defer conn.releaseMirror(m)
	pass := auditPass{mirror: m}
	for {
		if err := m.update(f.ctx, f.publish); err != nil {
			return err
		}
		if err := f.sendSnapshots(m); err != nil {
			return err
		}
		select {
		case <-m.signal:
		case <-f.signal:
		case <-f.auditTurn:
			done, err := pass.step(f.ctx)
			if err != nil {
				return err
			}
			if done {
				pass = auditPass{mirror: m}
				f.scheduleAudit()
			}
		case <-conn.link.ctx.Done():
			return errLinkOver
		case <-f.ctx.Done():
			return f.ctx.Err()
		}
	}
}

// publish passes changes to the watchers that have had a Snapshot.
func (f *feed) publish(change mirrorChange) {
	if len(change.children) == 0 {
		return
	}
	f.client.mu.Lock()
	defer f.client.mu.Unlock()
	for w := range f.watchers {
		w.Delta(change.toChanges()...)
	}
}

// toChanges returns copies, which the buffer may keep. A deletion gets the zxid since, at which
// the key may still have existed, so that it never seems newer than a later creation, and the
// zxid until as a bound, since readers rely on a batch that is as new as its deletions.
func (c mirrorChange) toChanges() []backend.Change {
	all := make([]backend.Change, 0, len(c.children))
	for key, n := range c.children {
		switch {
		case n == nil:
			all = append(all, backend.Change{Key: key, Rev: registry.Rev{Seq: uint64(c.since)}, Bound: registry.Rev{Seq: uint64(c.until)}})
		case n.empty:
			all = append(all, backend.Change{Key: key, Rev: registry.Rev{Seq: uint64(n.mzxid)}})
		default:
			e := n.entry(key, nil)
			all = append(all, backend.Change{Key: key, Rev: e.Modified, Entry: &e})
		}
	}
	return all
}

// sendSnapshots sends a Snapshot to the watchers that have had none.
//
// The order of the steps prevents the loss of a change. After catchUp, the connection is at least
// as new as every state that the handle has observed, and all events up to that state have set
// their marks. The update then reads all marked znodes.
func (f *feed) sendSnapshots(m *mirror) error {
	f.client.mu.Lock()
	all := slices.Collect(maps.Keys(f.joining))
	f.client.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	if err := m.checkReadable(f.ctx); err != nil { // another watcher may have had the right to read at the time
		return err
	}
	if err := f.client.catchUp(f.ctx, m.conn.link, f.client.seen.Load()); err != nil {
		return err
	}
	if err := m.update(f.ctx, f.publish); err != nil {
		return err
	}

	rev := registry.Rev{Seq: uint64(m.conn.link.lastZxid())}
	f.client.mu.Lock()
	defer f.client.mu.Unlock()
	for _, w := range all {
		if _, still := f.joining[w]; !still {
			continue
		}
		delete(f.joining, w)
		f.watchers[w] = struct{}{}
		var entries []registry.Entry
		for key, n := range m.nodes {
			if n != nil && !n.empty {
				entries = append(entries, n.entry(key, nil))
			}
		}
		w.Snapshot(entries, rev)
	}
	return nil
}
