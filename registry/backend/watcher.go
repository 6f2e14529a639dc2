package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rota-dev/rota/registry"
)

// ErrMissed is the error of Source.Changes if the changes cannot be continued, because the
// store has forgotten them or some may have been lost. A list then replaces them.
var ErrMissed = errors.New("changes were missed")

// Source is a directory as the store delivers it. All functions are called from one goroutine
// at a time.
type Source struct {
	// List returns the entries that exist, in any order, and a Rev from which Changes can
	// continue: every change that the entries lack is later, and no entry is newer.
	//
	// If the store can only report changes from the present on, List subscribes first and lists
	// then: a change between the two would be lost otherwise.
	List func(ctx context.Context) ([]registry.Entry, registry.Rev, error)

	// Changes waits until there are changes after a Rev, and returns them in the order of their
	// commits, with the Rev up to which they are complete. The changes that one commit makes
	// belong into one answer, as the reader gets them in one batch then. An answer may be empty.
	//
	// An error that wraps ErrMissed makes the watcher list again. ErrPermission and
	// ErrUnauthenticated of package registry end it. After any other error, such as a lost
	// connection, Changes is called again with the same Rev, after a pause (see NextPause).
	//
	// List has the call time-out of the handle, Changes has no deadline: its context ends with the
	// watcher. A Source whose connection may fall silent returns an error when it finds that.
	Changes func(ctx context.Context, after registry.Rev) ([]Change, registry.Rev, error)

	// Close is called once, after the last call of the other two. It may be nil.
	Close func()
}

// Watch makes the call registry.Registry.Watch on a Source. It lists before it returns, so it
// fails if the store cannot be reached. It then follows the Source in a goroutine until ctx
// ends, or until the Watcher or h is closed. Errors are as those of Call.
func (h *Handle) Watch(ctx context.Context, dir registry.Key, s Source) (*Watcher, error) {
	if s.Close == nil {
		s.Close = func() {}
	}
	w, err := h.NewWatcher(ctx, dir, nil)
	if err != nil {
		s.Close()
		return nil, err
	}
	after, err := w.list(ctx, s)
	if err == nil && !h.Go(func() { w.follow(s, after) }) {
		err = ErrHandleClosed
	}
	if err != nil {
		w.Fail(registry.ErrClosed)
		s.Close()
		return nil, fmt.Errorf("watch %q: %w", dir, Unavailable(err))
	}
	return w, nil
}

// list publishes the present entries as a Snapshot.
func (w *Watcher) list(ctx context.Context, s Source) (registry.Rev, error) {
	var rev registry.Rev
	err := w.handle.Call(ctx, func(ctx context.Context) error {
		entries, at, err := s.List(ctx)
		if err == nil {
			rev = at
			w.Snapshot(entries, rev)
		}
		return err
	})
	return rev, err
}

// stableAfter is the time after which a failure no longer lengthens the pause before the next
// attempt.
const stableAfter = time.Second

// follow publishes the changes after a Rev until the watcher ends.
func (w *Watcher) follow(s Source, after registry.Rev) {
	defer w.Fail(registry.ErrClosed) // has no effect if it has failed before
	defer s.Close()
	var pause time.Duration
	for missed := false; Sleep(w.ctx, pause); {
		began := time.Now()
		var err error
		if missed {
			after, err = w.list(w.ctx, s) // on an error, it is called again
		}
		if err == nil {
			after, err = w.publish(s, after)
			missed = errors.Is(err, ErrMissed)
		}
		switch {
		case w.ctx.Err() != nil:
			return
		case errors.Is(err, registry.ErrPermission), errors.Is(err, registry.ErrUnauthenticated):
			w.Fail(err)
			return
		case missed:
			w.handle.config.Logger.LogAttrs(w.ctx, slog.LevelInfo, "watch restarted with a full list", slog.String("dir", string(w.dir)), slog.Any("error", err))
		}
		pause = NextPause(pause)
		if time.Since(began) > stableAfter {
			pause = 0
		}
	}
}

// publish publishes changes until there is an error. It returns the Rev up to which the reader
// has all of them.
func (w *Watcher) publish(s Source, after registry.Rev) (registry.Rev, error) {
	for {
		changes, reached, err := s.Changes(w.ctx, after)
		if err != nil {
			return after, err
		}
		w.Delta(changes...)
		after = reached
	}
}

// Watcher is the reader's end of a watch: it implements registry.Watcher. Between its source,
// which never waits, and a slow reader it keeps one pending entry for each key that exists and
// one name for each key that was delivered.
//
// Handle.Watch keeps a Watcher up to date. A backend whose watchers share a source uses
// Handle.NewWatcher, Snapshot, Delta and Fail instead.
type Watcher struct {
	handle  *Handle
	dir     registry.Key
	batches *batches
	ctx     context.Context // ends with the watcher
	cancel  context.CancelFunc
	detach  func() bool // detaches the watcher from the context given to Watch
	ended   func()
}

var _ registry.Watcher = (*Watcher)(nil)

// NewWatcher returns a Watcher that ends with ctx, with its Close, or with the Close of h, and
// to which no change has been offered. When it has ended, ended is called once, if it is not
// nil, from any goroutine. The error is that of a call of Watch, with the directory named.
func (h *Handle) NewWatcher(ctx context.Context, dir registry.Key, ended func()) (*Watcher, error) {
	if err := registry.CheckDir(dir); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("watch %q: %w", dir, Unavailable(context.Cause(ctx)))
	}
	w := &Watcher{handle: h, dir: dir, batches: newBatches(), ended: ended}
	w.ctx, w.cancel = context.WithCancel(h.ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		w.cancel()
		return nil, fmt.Errorf("watch %q: %w", dir, ErrHandleClosed)
	}
	h.watchers[w] = struct{}{}
	w.detach = context.AfterFunc(ctx, func() {
		w.Fail(fmt.Errorf("%w: %w", registry.ErrClosed, context.Cause(ctx)))
	})
	return w, nil
}

// Snapshot replaces all pending changes by the entries that exist, in any order. No entry is
// newer than rev. The Watcher keeps the entries and their values.
func (w *Watcher) Snapshot(entries []registry.Entry, rev registry.Rev) {
	w.batches.snapshot(entries, rev)
}

// Delta offers changes, those of each key in the order of their commits. It does nothing before
// the first Snapshot, which will contain them. Changes of one call are delivered together. The
// Watcher keeps the entries and their values.
func (w *Watcher) Delta(changes ...Change) { w.batches.delta(changes...) }

// Fail ends the Watcher, unless it has ended: Next returns err from now on.
func (w *Watcher) Fail(err error) {
	if !w.batches.fail(err) {
		return
	}
	w.cancel()
	w.handle.mu.Lock()
	delete(w.handle.watchers, w)
	detach := w.detach
	w.handle.mu.Unlock()
	detach()
	if w.ended != nil {
		w.ended()
	}
}

// Next implements registry.Watcher.
func (w *Watcher) Next(ctx context.Context) (registry.Batch, error) {
	b, err := w.batches.next(ctx)
	if err != nil {
		return registry.Batch{}, fmt.Errorf("watch %q: %w", w.dir, err)
	}
	return b, nil
}

// Close implements registry.Watcher.
func (w *Watcher) Close() error {
	w.Fail(registry.ErrClosed)
	return nil
}
