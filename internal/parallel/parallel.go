// Package parallel calls a function for many items, with bounded concurrency.
package parallel

import (
	"context"
	"sync"
	"sync/atomic"
)

// Each calls f for each item, up to limit at once, and returns when all calls have. The first error, or the end of ctx,
// prevents further calls, and Each returns it, or the cause of ctx. The calls get ctx itself: a context derived from
// it may not be used in a synctest bubble if ctx is that of the test around the bubble.
func Each[T any](ctx context.Context, limit int, items []T, f func(context.Context, T) error) error {
	var calls sync.WaitGroup
	var next atomic.Int64
	var failed atomic.Pointer[error]
	for range min(limit, len(items)) {
		calls.Go(func() {
			for ctx.Err() == nil && failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(items) {
					return
				}
				if err := f(ctx, items[i]); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	calls.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return context.Cause(ctx)
}

// Signal sends to a channel with one slot, which wakes a loop. If a signal is pending there, the two merge.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
