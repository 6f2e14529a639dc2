package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// watcher is a wrapped watcher. Next is called by one goroutine at a time, so only Close needs
// care.
type watcher struct {
	h      *handle
	dir    registry.Key
	inner  registry.Watcher
	ctx    context.Context // given to Watch
	once   sync.Once
	closed chan struct{}

	pending *registry.Batch // received, but delayed or cut off
	due     time.Time       // when pending may be delivered
	reset   bool            // the next batch has to be a Snapshot, since a cut has ended
	known   map[registry.Key]registry.Entry
}

func newWatcher(ctx context.Context, h *handle, dir registry.Key, inner registry.Watcher) *watcher {
	return &watcher{
		h: h, dir: dir, inner: inner, ctx: ctx, closed: make(chan struct{}),
		known: make(map[registry.Key]registry.Entry),
	}
}

// Next is described in registry.Watcher. A batch that it does not return, because ctx ends, is
// kept for the next call.
func (w *watcher) Next(ctx context.Context) (registry.Batch, error) {
	if w.pending == nil {
		b, err := w.inner.Next(ctx)
		if err != nil {
			return registry.Batch{}, err
		}
		v := w.h.in.decide(&call{client: w.h.name, op: Events, key: w.dir, hasKey: true})
		w.pending, w.due = &b, time.Now().Add(v.reply)
	}
	if err := w.awaitDelivery(ctx); err != nil {
		return registry.Batch{}, err
	}
	b := *w.pending
	w.pending = nil
	w.apply(b)
	if w.reset {
		w.reset = false
		b = w.snapshot(b.Rev)
	}
	w.h.view.catchUp(w.h, b.Rev)
	return b, nil
}

// awaitDelivery waits until the pending batch is due and events reach the client.
func (w *watcher) awaitDelivery(ctx context.Context) error {
	for {
		l := w.h.in.linkOf(w.h.name, Events)
		wait := time.Until(w.due)
		if !l.replies && wait <= 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		if l.replies {
			if !w.reset {
				w.h.in.countCut(l)
			}
			w.reset = true
			timer.Stop()
		}
		err := error(nil)
		select {
		case <-timer.C:
		case <-l.changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-w.closed:
			err = fmt.Errorf("watch %s: %w", w.dir, registry.ErrClosed)
		case <-w.ctx.Done():
			err = fmt.Errorf("watch %s: %w: %w", w.dir, registry.ErrClosed, context.Cause(w.ctx))
		case <-w.h.base.Context().Done():
			err = context.Cause(w.h.base.Context())
		}
		timer.Stop()
		if err != nil {
			return err
		}
	}
}

// apply applies b to the known entries, with values of their own: batches are the reader's.
func (w *watcher) apply(b registry.Batch) {
	if b.Kind == registry.Snapshot {
		clear(w.known)
	}
	for _, e := range b.Puts {
		e.Value = slices.Clone(e.Value)
		w.known[e.Key] = e
	}
	for _, key := range b.Deletes {
		delete(w.known, key)
	}
}

// snapshot returns the known entries as a batch.
func (w *watcher) snapshot(rev registry.Rev) registry.Batch {
	b := registry.Batch{Kind: registry.Snapshot, Rev: rev}
	for _, key := range slices.Sorted(maps.Keys(w.known)) {
		e := w.known[key]
		e.Value = slices.Clone(e.Value)
		b.Puts = append(b.Puts, e)
	}
	return b
}

// Close is described in registry.Watcher.
func (w *watcher) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.inner.Close()
}
