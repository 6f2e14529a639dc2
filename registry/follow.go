package registry

import "context"

// Follow watches dir and calls f with each batch, in order, from the calling goroutine. A
// watch that cannot be had or fails is opened again, with pauses of up to half a second
// between tries; its first batch is a Snapshot, so f misses nothing but what was undone
// meanwhile.
//
// It returns the cause of ctx when that ends, the error of f as it is when f returns one,
// and otherwise only when there is no sense in trying again: it wraps ErrClosed (the
// registry is), ErrPermission, ErrUnauthenticated or ErrInvalidKey. It never returns nil.
// A call of f that is under way is waited for; f is to look after ctx itself.
func Follow(ctx context.Context, reg Registry, dir Key, f func(Batch) error) error {
	var pause backoff
	for {
		stop, err := followOnce(ctx, reg, dir, &pause, f)
		switch {
		case stop:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case final(err):
			return err
		}
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
}

// followOnce follows dir with one watcher until that fails, or f says stop by an error.
func followOnce(ctx context.Context, reg Registry, dir Key, pause *backoff, f func(Batch) error) (stop bool, err error) {
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
		pause.reset()
		if err := f(b); err != nil {
			return true, err
		}
	}
}
