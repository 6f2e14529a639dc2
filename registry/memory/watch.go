package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// watcher merges the changes of a directory until they are asked for. Commits write to
// it under the server's lock and never wait for it.
type watcher struct {
	client *Client
	dir    *directory
	signal chan struct{} // one slot: there is something to look at. Signals merge
	done   chan struct{} // closed when the watcher has ended
	stop   func() bool   // forgets the context given to Watch

	// Guarded by server.mu, for writing by commits; Next, which holds it for reading,
	// holds mu as well.
	mu      sync.Mutex
	resync  bool // the next batch is a Snapshot, made from the directory as it is then
	pending map[registry.Key]*registry.Entry
	rev     registry.Rev // of the last change in pending
	due     time.Time    // when pending arrives, if replies are delayed
	err     error        // why done is closed
}

// slack is by how much the pending changes may outnumber the directory before they are
// given up for a Snapshot: a reader that sleeps while keys come and go costs no more
// than what is there.
const slack = 64

// Watch is described in registry.Registry. It fails if the server cannot be reached.
func (c *Client) Watch(ctx context.Context, dir registry.Key, _ registry.WatchOptions) (registry.Watcher, error) {
	if err := registry.CheckDir(dir); err != nil {
		return nil, err
	}
	w, err := c.watch(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, unavailable(err))
	}
	return w, nil
}

func (c *Client) watch(ctx context.Context, dir registry.Key) (*watcher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := c.server
	s.mu.Lock()
	if c.calm() {
		defer s.mu.Unlock()
		return c.addWatcher(ctx, dir), nil
	}
	s.mu.Unlock()

	if err := c.ask(ctx, func() {}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.isClosed {
		return nil, registry.ErrClosed
	}
	return c.addWatcher(ctx, dir), nil
}

func (c *Client) addWatcher(ctx context.Context, dir registry.Key) *watcher {
	w := &watcher{
		client: c,
		dir:    c.server.dir(dir),
		signal: make(chan struct{}, 1),
		done:   make(chan struct{}),
		resync: true,
	}
	w.dir.watchers[w] = struct{}{}
	c.watchers[w] = struct{}{}
	c.machine.watchers[w] = struct{}{}
	w.stop = context.AfterFunc(ctx, func() {
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		w.end(fmt.Errorf("%w: %w", registry.ErrClosed, ctx.Err()))
	})
	return w
}

// Next is described in registry.Watcher.
func (w *watcher) Next(ctx context.Context) (registry.Batch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return registry.Batch{}, fmt.Errorf("watch %s: %w", w.dir.path, err)
		}
		b, ok, err := w.take()
		if err != nil {
			return registry.Batch{}, fmt.Errorf("watch %s: %w", w.dir.path, err)
		}
		if ok {
			return b, nil
		}
		select {
		case <-w.signal:
		case <-w.done:
		case <-ctx.Done():
		}
	}
}

// Close is described in registry.Watcher.
func (w *watcher) Close() error {
	w.client.server.mu.Lock()
	defer w.client.server.mu.Unlock()
	w.end(registry.ErrClosed)
	return nil
}

// end ends the watcher, if it has not ended. The server's lock is held.
func (w *watcher) end(err error) {
	if w.err != nil {
		return
	}
	w.err, w.pending = err, nil
	delete(w.dir.watchers, w)
	delete(w.client.watchers, w)
	delete(w.client.machine.watchers, w)
	w.client.server.dropDir(w.dir)
	w.stop()
	close(w.done)
}

// take returns the next batch, if there is one.
func (w *watcher) take() (registry.Batch, bool, error) {
	s := w.client.server
	s.mu.RLock()
	w.mu.Lock()
	b, shared, err := w.takeLocked()
	w.mu.Unlock()
	s.mu.RUnlock()
	if b.Kind == 0 {
		return b, false, err
	}
	b.Puts = copySorted(shared)
	slices.Sort(b.Deletes)
	w.client.machine.events.Add(int64(len(b.Puts) + len(b.Deletes)))
	return b, true, nil
}

func (w *watcher) takeLocked() (b registry.Batch, puts []*registry.Entry, err error) {
	s := w.client.server
	switch {
	case w.err != nil:
		return b, nil, w.err
	case !w.mayDeliver():
		return b, nil, nil
	case w.resync:
		w.resync = false
		return registry.Batch{Kind: registry.Snapshot, Rev: s.rev()}, s.children(w.dir.path), nil
	case len(w.pending) == 0:
		return b, nil, nil
	}
	b = registry.Batch{Kind: registry.Delta, Rev: w.rev}
	for key, e := range w.pending {
		if e == nil {
			b.Deletes = append(b.Deletes, key)
		} else {
			puts = append(puts, e)
		}
	}
	clear(w.pending)
	return b, puts, nil
}

// mayDeliver reports whether the link lets through what there is. A Snapshot has to be
// asked for, which takes both directions and a server that answers.
func (w *watcher) mayDeliver() bool {
	m := w.client.machine
	if m.hushed > 0 || m.replies.cuts > 0 {
		return false
	}
	if w.resync {
		return m.requests.cuts == 0 && w.client.server.pauses == 0
	}
	return m.replies.delay == 0 || !time.Now().Before(w.due)
}

// changed tells the watchers of d that key is now e, or gone if e is nil. It is called
// when d has been changed, under the server's lock.
func (d *directory) changed(key registry.Key, e *registry.Entry, rev registry.Rev) {
	for w := range d.watchers {
		w.merge(key, e, rev)
	}
}

func (w *watcher) merge(key registry.Key, e *registry.Entry, rev registry.Rev) {
	if w.resync {
		return // the Snapshot will have it
	}
	if w.pending == nil {
		w.pending = make(map[registry.Key]*registry.Entry)
	}
	if d := w.client.machine.replies.delay; d > 0 && len(w.pending) == 0 {
		w.due = time.Now().Add(d)
		time.AfterFunc(d, w.wake)
	}
	w.pending[key], w.rev = e, rev
	if len(w.pending) > len(w.dir.nodes)+slack {
		w.pending, w.resync = nil, true
	}
	w.wake()
}

// wake makes Next look again.
func (w *watcher) wake() {
	select {
	case w.signal <- struct{}{}:
	default: // it has been told already
	}
}
