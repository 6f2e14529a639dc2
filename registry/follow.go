package registry

import (
	"context"

	"github.com/rota-dev/rota/internal/backoff"
)

// Follow watches dir and calls f with each batch, in order, from the calling goroutine. If
// the watch fails or cannot be opened, Follow opens another, with pauses of up to half a
// second between retries. Each watch begins with a Snapshot, so f misses only changes that
// were undone meanwhile.
//
// Follow returns the cause of ctx when that ends, and an error of f unchanged. Otherwise it
// returns only when a retry cannot succeed: the error then wraps ErrClosed (of the
// registry), ErrPermission, ErrUnauthenticated or ErrInvalidKey. It never returns nil. It
// does not interrupt f when ctx ends; f has to observe ctx itself.
func Follow(ctx context.Context, reg Registry, dir Key, f func(Batch) error) error {
	var pause backoff.Backoff
	for {
		stop, err := followOnce(ctx, reg, dir, &pause, f)
		switch {
		case stop:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isAny(err, finalErrors):
			return err
		}
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}

// followOnce follows dir with one watcher until that fails or f returns an error, which
// stop reports.
func followOnce(ctx context.Context, reg Registry, dir Key, pause *backoff.Backoff, f func(Batch) error) (stop bool, err error) {
	w, err := reg.Watch(ctx, dir, WatchOptions{})
	if err != nil {
		return false, err
	}
	defer w.Close()
	for {
		b, err := w.Next(ctx)
		if err != nil {
			return false, err
		}
		pause.Reset()
		if err := f(b); err != nil {
			return true, err
		}
	}
}
