package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// watcher merges the changes of a directory until its reader calls Next. Commits write to it
// and never wait for it.
type watcher struct {
	number uint64
	client *Client
	dir    *directory
	signal chan struct{} // one slot: a batch may be available. Signals merge
	done   chan struct{} // closed when the watcher has ended
	stop   func() bool   // detaches the watcher from the context given to Watch

	// mu guards the fields below. It is locked under server.mu or alone: readers of deltas do
	// not lock the server, or a hundred of them would delay every commit.
	mu      sync.Mutex
	resync  bool // the next batch is a Snapshot of the directory at that time
	pending map[registry.Key]*registry.Entry
	rev     registry.Rev // of the last change in pending
	due     time.Time    // when pending arrives, if replies are delayed
	muted   bool         // no event arrives
	severed bool         // no Snapshot can be read
	err     error        // the reason of the end
}

// slack is by how much pending changes may outnumber the keys of the directory before a
// Snapshot replaces them: so a slow reader costs no more memory than the directory, however
// many keys are created and deleted.
const slack = 64

// Watch is described in registry.Registry. It fails if the server cannot be reached.
func (c *Client) Watch(ctx context.Context, dir registry.Key, _ registry.WatchOptions) (registry.Watcher, error) {
	if err := registry.CheckDir(dir); err != nil {
		return nil, err
	}
	w, err := c.watch(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, backend.Unavailable(err))
	}
	return w, nil
}

func (c *Client) watch(ctx context.Context, dir registry.Key) (*watcher, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s := c.server
	s.mu.Lock()
	if c.undisturbed() {
		defer s.mu.Unlock()
		return c.addWatcher(ctx, dir), nil
	}
	s.mu.Unlock()

	if err := c.sendRepeatable(ctx, repeatable, func() error { return s.permissionError(c.machine) }); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.isClosed {
		return nil, backend.ErrHandleClosed
	}
	if err := s.permissionError(c.machine); err != nil { // it may have been revoked since
		return nil, err
	}
	return c.addWatcher(ctx, dir), nil
}

func (c *Client) addWatcher(ctx context.Context, dir registry.Key) *watcher {
	w := &watcher{
		number: c.server.nextNumber(),
		client: c,
		dir:    c.server.dir(dir),
		signal: make(chan struct{}, 1),
		done:   make(chan struct{}),
		resync: true,
	}
	w.updateFaults()
	w.dir.watchers[w.number] = w
	c.watchers[w.number] = w
	c.machine.watchers[w.number] = w
	w.stop = context.AfterFunc(ctx, func() {
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		w.end(fmt.Errorf("%w: %w", registry.ErrClosed, context.Cause(ctx)))
	})
	return w
}

// Next is described in registry.Watcher.
func (w *watcher) Next(ctx context.Context) (registry.Batch, error) {
	for {
		if err := context.Cause(ctx); err != nil {
			return registry.Batch{}, fmt.Errorf("watch %s: %w", w.dir.path, err)
		}
		b, err := w.takeDelta()
		if b.Kind == 0 {
			b = w.takeSnapshot()
		}
		switch {
		case err != nil:
			return registry.Batch{}, fmt.Errorf("watch %s: %w", w.dir.path, err)
		case b.Kind != 0:
			w.client.machine.events.Add(int64(len(b.Puts) + len(b.Deletes)))
			w.client.server.lockAndRefreshView(w.client.machine)
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

// takeDelta returns and removes the pending changes. If none has arrived, it returns no Batch, and
// the reason of the end if w has ended.
func (w *watcher) takeDelta() (registry.Batch, error) {
	w.mu.Lock()
	if len(w.pending) == 0 || w.muted || time.Now().Before(w.due) {
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
	w.pending = nil // not cleared: it may have been large once
	w.mu.Unlock()

	b.Puts = copySorted(puts)
	slices.Sort(b.Deletes)
	return b, nil
}

// takeSnapshot returns a Snapshot if the next batch has to be one and it can be read, else no
// Batch.
func (w *watcher) takeSnapshot() registry.Batch {
	w.mu.Lock()
	wanted := w.resync
	w.mu.Unlock()
	if !wanted {
		return registry.Batch{}
	}

	s := w.client.server
	s.mu.RLock() // is locked before w.mu
	w.mu.Lock()
	if w.err != nil || w.muted || w.severed {
		w.mu.Unlock()
		s.mu.RUnlock()
		return registry.Batch{}
	}
	w.resync = false
	b := registry.Batch{Kind: registry.Snapshot, Rev: s.rev()}
	found := s.children(w.dir.path)
	w.mu.Unlock()
	s.mu.RUnlock()

	b.Puts = copySorted(found)
	return b
}

// updateFaults applies the faults of the machine to w. The server's lock is held.
func (w *watcher) updateFaults() {
	m := w.client.machine
	w.mu.Lock()
	w.muted = m.watchesHeld > 0 || m.replies.cuts > 0 || m.isolated > 0
	w.severed = m.requests.cuts > 0 || w.client.server.pauses > 0
	if m.replies.delay == 0 {
		w.due = time.Time{}
	}
	w.mu.Unlock()
	w.wake()
}

// restart drops the pending changes; the next batch is a Snapshot.
func (w *watcher) restart() {
	w.mu.Lock()
	w.pending, w.resync = nil, true
	w.mu.Unlock()
}

// merge adds the changes of one commit, which are delivered together or not at all.
func (w *watcher) merge(changes []change, rev registry.Rev) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resync {
		return // the Snapshot will contain them
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

// wake makes Next check for a batch.
func (w *watcher) wake() {
	select {
	case w.signal <- struct{}{}:
	default: // a signal is pending
	}
}
