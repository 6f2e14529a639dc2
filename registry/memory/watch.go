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
// it and never wait for it.
type watcher struct {
	number uint64
	client *Client
	dir    *directory
	signal chan struct{} // one slot: there is something to look at. Signals merge
	done   chan struct{} // closed when the watcher has ended
	stop   func() bool   // forgets the context given to Watch

	// mu guards what follows. It is taken under server.mu or alone: readers of deltas keep
	// clear of the server's lock, or a hundred of them would hold up every commit.
	mu      sync.Mutex
	resync  bool // the next batch is a Snapshot, of the directory as it is then
	pending map[registry.Key]*registry.Entry
	rev     registry.Rev // of the last change in pending
	due     time.Time    // when pending arrives, if replies are delayed
	muted   bool         // nothing gets through the link
	severed bool         // no Snapshot can be had
	err     error        // why done is closed
}

// slack is by how much pending changes may outnumber the directory before they are given
// up for a Snapshot: a reader that sleeps while keys come and go costs no more than what
// is there.
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

	if err := c.ask(ctx, again, func() error { return s.forbids(c.machine) }); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.isClosed {
		return nil, errHandleClosed
	}
	if err := s.forbids(c.machine); err != nil { // since it was asked
		return nil, err
	}
	return c.addWatcher(ctx, dir), nil
}

func (c *Client) addWatcher(ctx context.Context, dir registry.Key) *watcher {
	w := &watcher{
		number: c.server.number(),
		client: c,
		dir:    c.server.dir(dir),
		signal: make(chan struct{}, 1),
		done:   make(chan struct{}),
		resync: true,
	}
	w.tune()
	w.dir.watchers[w.number] = w
	c.watchers[w.number] = w
	c.machine.watchers[w.number] = w
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
		b, err := w.delta()
		if b.Kind == 0 && err == nil {
			b, err = w.snapshot()
		}
		switch {
		case err != nil:
			return registry.Batch{}, fmt.Errorf("watch %s: %w", w.dir.path, err)
		case b.Kind != 0:
			w.client.machine.events.Add(int64(len(b.Puts) + len(b.Deletes)))
			w.client.server.advanceFor(w.client.machine)
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
	w.mu.Lock()
	ended := w.err != nil
	if !ended {
		w.err, w.pending = err, nil
	}
	w.mu.Unlock()
	if ended {
		return
	}
	delete(w.dir.watchers, w.number)
	delete(w.client.watchers, w.number)
	delete(w.client.machine.watchers, w.number)
	w.client.server.dropDir(w.dir)
	w.stop()
	close(w.done)
}

// delta returns the pending changes, or no Batch if there are none to be had.
func (w *watcher) delta() (registry.Batch, error) {
	w.mu.Lock()
	if w.err != nil || len(w.pending) == 0 || w.muted || !w.due.IsZero() && time.Now().Before(w.due) {
		defer w.mu.Unlock()
		return registry.Batch{}, w.err
	}
	b := registry.Batch{Kind: registry.Delta, Rev: w.rev}
	var puts []*registry.Entry
	for key, e := range w.pending {
		if e == nil {
			b.Deletes = append(b.Deletes, key)
		} else {
			puts = append(puts, e)
		}
	}
	clear(w.pending)
	w.mu.Unlock()

	b.Puts = copySorted(puts)
	slices.Sort(b.Deletes)
	return b, nil
}

// snapshot returns the directory, or no Batch if that is not wanted or not to be had.
func (w *watcher) snapshot() (registry.Batch, error) {
	w.mu.Lock()
	wanted := w.resync && w.err == nil
	w.mu.Unlock()
	if !wanted {
		return registry.Batch{}, nil
	}

	s := w.client.server
	s.mu.RLock() // comes before w.mu
	w.mu.Lock()
	if w.err != nil || w.muted || w.severed {
		defer s.mu.RUnlock()
		defer w.mu.Unlock()
		return registry.Batch{}, w.err
	}
	w.resync = false
	b := registry.Batch{Kind: registry.Snapshot, Rev: s.rev()}
	found := s.children(w.dir.path)
	w.mu.Unlock()
	s.mu.RUnlock()

	b.Puts = copySorted(found)
	return b, nil
}

// tune takes over the circumstances of the machine. The server's lock is held.
func (w *watcher) tune() {
	m := w.client.machine
	w.mu.Lock()
	w.muted = m.hushed > 0 || m.replies.cuts > 0 || m.isolated > 0
	w.severed = m.requests.cuts > 0 || w.client.server.pauses > 0
	if m.replies.delay == 0 {
		w.due = time.Time{}
	}
	w.mu.Unlock()
	w.wake()
}

// restart makes the watcher begin again, with a Snapshot.
func (w *watcher) restart() {
	w.mu.Lock()
	w.pending, w.resync = nil, true
	w.mu.Unlock()
}

// merge adds changes of one commit, which are told of together or not at all.
func (w *watcher) merge(changes []change, rev registry.Rev) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resync {
		return // the Snapshot will have them
	}
	if d := w.client.machine.replies.delay; d > 0 && len(w.pending) == 0 {
		w.due = time.Now().Add(d)
		time.AfterFunc(d, w.wake)
	}
	if w.pending == nil {
		w.pending = make(map[registry.Key]*registry.Entry)
	}
	for _, c := range changes {
		w.pending[c.key] = c.entry
	}
	w.rev = rev
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
