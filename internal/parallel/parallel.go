// Package parallel makes many calls, some at once.
package parallel

import (
	"context"
	"sync"
	"sync/atomic"
)

// Each calls f for all of them, up to most at once, and returns when all calls have. The
// first error ends it: it ends the context of the calls that are under way, others are not
// made, and it is returned. So does the end of ctx, whose cause is returned then.
func Each[T any](ctx context.Context, most int, all []T, f func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(most, len(all)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(all) {
					return
				}
				if err := f(ctx, all[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
