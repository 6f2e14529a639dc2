// Package parallel calls a function for many items, with bounded concurrency.
package parallel

import (
	"context"
	"sync"
	"sync/atomic"
)

// Each calls f for each item, up to limit at once, and returns when all calls have. The first
// error, or the end of ctx, cancels the context of the calls under way and prevents further
// ones. Each then returns that error, or the cause of ctx.
func Each[T any](ctx context.Context, limit int, items []T, f func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(limit, len(items)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(items) {
					return
				}
				if err := f(ctx, items[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
