package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// contender is one of those who want what only one can have at a time.
type contender interface {
	// tenure waits until it has it, calls held, and gives it up when that returns.
	tenure(ctx context.Context, held func()) error
	close()
}

// handOffs has contenders that are always back in line at once, and keep what they get for
// so long. It measures from when one begins to give it up to when the next has it.
func handOffs(contenders int, keep time.Duration, join func(ctx context.Context, p place) (contender, error)) func(context.Context, place, *meter) error {
	return func(ctx context.Context, p place, m *meter) error {
		var all []contender
		defer func() {
			for _, c := range all {
				c.close()
			}
		}()
		for range contenders {
			c, err := join(ctx, p)
			if err != nil {
				return err
			}
			all = append(all, c)
		}
		var given time.Time // by whom it was had last; whoever has it now may touch this
		held := func() {
			if given.IsZero() {
				m.startClock()
			} else {
				m.add(time.Since(given))
			}
			time.Sleep(keep)
			given = time.Now()
		}
		return runConcurrently(ctx, all, func(ctx context.Context, c contender) error {
			for !m.isOver() { // who waits then still has its turn
				if err := c.tenure(ctx, held); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// runConcurrently calls f for all at once. The first error ends the others' context.
func runConcurrently[T any](ctx context.Context, all []T, f func(context.Context, T) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, v := range all {
		wg.Go(func() {
			if errs[i] = f(ctx, v); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
