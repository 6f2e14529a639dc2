package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"

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
	err     error        // why done is closed
}

// slack is by how much the pending changes may outnumber the directory before they are
// given up for a Snapshot: a reader that sleeps while keys come and go costs no more
// than what is there.
const slack = 64

// Watch is described in registry.Registry.
func (c *Client) Watch(ctx context.Context, dir registry.Key, _ registry.WatchOptions) (registry.Watcher, error) {
	if err := registry.CheckDir(dir); err != nil {
		return nil, err
	}
	if err := c.mayRead(ctx); err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	w := &watcher{client: c, signal: make(chan struct{}, 1), done: make(chan struct{}), resync: true}
	s := c.server
	s.mu.Lock()
	if c.isClosed {
		s.mu.Unlock()
		return nil, fmt.Errorf("watch %s: %w", dir, registry.ErrClosed)
	}
	w.dir = s.dir(dir)
	if w.dir.watchers == nil {
		w.dir.watchers = make(map[*watcher]struct{})
	}
	w.dir.watchers[w] = struct{}{}
	c.watchers[w] = struct{}{}
	w.stop = context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.end(fmt.Errorf("%w: %w", registry.ErrClosed, ctx.Err()))
	})
	s.mu.Unlock()
	return w, nil
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
	w.client.server.dropDir(w.dir)
	w.stop()
	close(w.done)
}

// take returns the next batch if there is one.
func (w *watcher) take() (registry.Batch, bool, error) {
	s := w.client.server
	s.mu.RLock()
	w.mu.Lock()
	b, shared, err := w.takeLocked()
	w.mu.Unlock()
	s.mu.RUnlock()
	b.Puts = copySorted(shared)
	slices.Sort(b.Deletes)
	return b, b.Kind != 0, err
}

func (w *watcher) takeLocked() (b registry.Batch, puts []*registry.Entry, err error) {
	s := w.client.server
	switch {
	case w.err != nil:
		return b, nil, w.err
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

// changed tells the watchers of d that key is now e, or gone if e is nil. It is called
// after d has been changed, under the server's lock.
func (d *directory) changed(key registry.Key, e *registry.Entry, rev registry.Rev) {
	for w := range d.watchers {
		w.merge(key, e, rev)
	}
}

func (w *watcher) merge(key registry.Key, e *registry.Entry, rev registry.Rev) {
	if !w.resync {
		if w.pending == nil {
			w.pending = make(map[registry.Key]*registry.Entry)
		}
		w.pending[key], w.rev = e, rev
		if len(w.pending) > len(w.dir.nodes)+slack {
			w.pending, w.resync = nil, true
		}
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
