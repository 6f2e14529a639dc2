package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// watcher is what one caller of Watch reads.
type watcher struct {
	*remote.Batches
	feed *feed
	stop func() bool // forgets the context given to Watch
}

// feed follows a directory for all watchers of it. Its goroutine runs while there are any.
type feed struct {
	c      *Client
	dir    registry.Key
	ctx    context.Context // ends with the last watcher, or with Close
	cancel context.CancelFunc
	signal chan struct{} // one slot: there are new watchers
	turn   chan struct{} // one slot: a read of an audit may be made

	// Guarded by c.mu:
	auditDue time.Time
	joining  map[*watcher]struct{} // have had no Snapshot of the present view
	watchers map[*watcher]struct{}
}

// Watch is described in registry.Registry. It waits for nothing: what keeps the watcher
// from being had, its Next tells.
func (c *Client) Watch(ctx context.Context, dir registry.Key, _ registry.WatchOptions) (registry.Watcher, error) {
	if err := registry.CheckDir(dir); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("watch %q: %w", dir, remote.Unavailable(context.Cause(ctx)))
	}
	w := &watcher{Batches: remote.NewBatches()}
	if !c.join(dir, w) {
		return nil, fmt.Errorf("watch %q: %w", dir, remote.ErrHandleClosed)
	}
	w.stop = context.AfterFunc(ctx, func() {
		w.leave(fmt.Errorf("%w: %w", registry.ErrClosed, context.Cause(ctx)))
	})
	return w, nil
}

// join adds w to the feed of dir. It returns false if the handle is closed.
func (c *Client) join(dir registry.Key, w *watcher) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.feeds == nil {
		return false
	}
	f := c.feeds[dir]
	if f == nil {
		f = &feed{
			c: c, dir: dir, signal: make(chan struct{}, 1), turn: make(chan struct{}, 1),
			auditDue: time.Now().Add(remote.Jittered(max(c.o.AuditEvery, 0))),
			joining:  make(map[*watcher]struct{}), watchers: make(map[*watcher]struct{}),
		}
		f.ctx, f.cancel = context.WithCancel(c.calls.Context())
		if !c.calls.Go(f.run) {
			f.cancel()
			return false
		}
		c.feeds[dir] = f
		if !c.auditing && c.o.AuditEvery > 0 {
			c.auditing = c.calls.Go(c.audit)
		}
	}
	w.feed = f
	f.joining[w] = struct{}{}
	select {
	case f.signal <- struct{}{}:
	default:
	}
	return true
}

// Next is described in registry.Watcher.
func (w *watcher) Next(ctx context.Context) (registry.Batch, error) {
	b, err := w.Batches.Next(ctx)
	if err != nil {
		return registry.Batch{}, fmt.Errorf("watch %q: %w", w.feed.dir, err)
	}
	w.feed.c.saw(int64(b.Rev.Seq))
	return b, nil
}

// Close is described in registry.Watcher.
func (w *watcher) Close() error {
	w.leave(registry.ErrClosed)
	w.stop()
	return nil
}

// leave ends w, and the feed if w is its last watcher.
func (w *watcher) leave(err error) {
	w.Fail(err)
	f := w.feed
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	delete(f.joining, w)
	delete(f.watchers, w)
	if len(f.joining)+len(f.watchers) == 0 && f.c.feeds[f.dir] == f {
		delete(f.c.feeds, f.dir)
		f.cancel()
	}
}

// fail ends all watchers.
func (f *feed) fail(err error) {
	f.c.mu.Lock()
	all := slices.AppendSeq(slices.Collect(maps.Keys(f.joining)), maps.Keys(f.watchers))
	f.c.mu.Unlock()
	for _, w := range all {
		w.leave(err)
	}
}

// betweenViews is a pause for members that break connections as soon as they are made.
const betweenViews = 20 * time.Millisecond

// run is the feed's goroutine.
func (f *feed) run() {
	defer f.cancel()
	for f.ctx.Err() == nil {
		v, err := f.c.watchingView(f.ctx)
		if err == nil {
			err = f.follow(v)
		}
		switch {
		case f.ctx.Err() != nil:
		case errors.Is(err, registry.ErrPermission), errors.Is(err, registry.ErrUnauthenticated):
			v.forget(f.dir)
			f.fail(err)
		default: // the connection broke, and what was missed is not known
			f.c.mu.Lock()
			for w := range f.watchers {
				f.joining[w] = struct{}{}
			}
			clear(f.watchers)
			f.c.mu.Unlock()
			remote.Sleep(f.ctx, betweenViews)
		}
	}
}

// follow tells the watchers of what a view is told, until that breaks.
func (f *feed) follow(v *view) error {
	m := v.mirror(f.dir)
	defer v.rest(m)
	pass := audit{mirror: m}
	for {
		changed, since, err := m.update(f.ctx)
		if err != nil {
			return err
		}
		f.tell(changed, since)
		if err := f.welcome(m); err != nil {
			return err
		}
		select {
		case <-m.signal:
		case <-f.signal:
		case <-f.turn:
			done, err := pass.take(f.ctx)
			if err != nil {
				return err
			}
			if done {
				pass = audit{mirror: m}
				f.audited()
			}
		case <-v.link.ctx.Done():
			return errLinkOver
		case <-f.ctx.Done():
			return f.ctx.Err()
		}
	}
}

// tell passes changes on to those who have had a Snapshot.
func (f *feed) tell(changed map[registry.Key]*node, since int64) {
	if len(changed) == 0 {
		return
	}
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	for w := range f.watchers {
		w.Delta(changes(changed, since)...)
	}
}

// changes makes copies, which are the buffer's. What is gone is told as of a state in which
// it may still have been there, so that it does not seem newer than what came after it.
func changes(changed map[registry.Key]*node, since int64) []remote.Change {
	all := make([]remote.Change, 0, len(changed))
	for key, n := range changed {
		switch {
		case n == nil:
			all = append(all, remote.Change{Key: key, Rev: registry.Rev{Seq: uint64(since)}})
		case n.none:
			all = append(all, remote.Change{Key: key, Rev: registry.Rev{Seq: uint64(n.mzxid)}})
		default:
			e := n.entry(key, nil)
			all = append(all, remote.Change{Key: key, Rev: e.Modified, Entry: &e})
		}
	}
	return all
}

// welcome gives a Snapshot to those who have had none.
//
// The order loses nothing: what a new watcher must not miss, because its handle was told
// of it, is behind the answer to the question that catchUp asks; the events that come
// before that answer are marked when it is there; and then the mirror is brought up to
// date.
func (f *feed) welcome(m *mirror) error {
	f.c.mu.Lock()
	all := slices.Collect(maps.Keys(f.joining))
	f.c.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	if err := m.mayBeRead(f.ctx); err != nil { // which another watcher was allowed, in its time
		return err
	}
	if err := f.c.catchUp(f.ctx, m.view.link, f.c.seen.Load()); err != nil {
		return err
	}
	changed, since, err := m.update(f.ctx)
	if err != nil {
		return err
	}
	f.tell(changed, since)

	rev := registry.Rev{Seq: uint64(m.view.link.zxid())}
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	for _, w := range all {
		if _, still := f.joining[w]; !still {
			continue
		}
		delete(f.joining, w)
		f.watchers[w] = struct{}{}
		var entries []registry.Entry
		for key, n := range m.nodes {
			if n != nil && !n.none {
				entries = append(entries, n.entry(key, nil))
			}
		}
		w.Snapshot(entries, rev)
	}
	return nil
}
