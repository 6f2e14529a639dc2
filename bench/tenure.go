package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// contender competes for something that one contender can hold at a time.
type contender interface {
	// tenure acquires it, calls held, and releases it when held returns.
	tenure(ctx context.Context, held func()) error
	close()
}

// errShared means that two contenders held at the same time.
var errShared = errors.New("two contenders held at the same time")

// handOffs runs contenders that rejoin the queue at once and hold for the given time. It
// measures from the start of a release to the next acquisition.
func handOffs(contenders int, keep time.Duration, join func(context.Context, *store) (contender, error)) func(context.Context, *store, *meter) error {
	return func(ctx context.Context, s *store, m *meter) error {
		var all []contender
		defer func() {
			for _, c := range all {
				c.close()
			}
		}()
		for range contenders {
			c, err := join(ctx, s)
			if err != nil {
				return err
			}
			all = append(all, c)
		}
		var holders atomic.Int32
		var shared atomic.Bool
		var given time.Time // by the previous holder; accessed only by the current one
		held := func() {
			if holders.Add(1) != 1 {
				shared.Store(true)
				return
			}
			defer holders.Add(-1)
			if given.IsZero() {
				m.startClock()
			} else {
				m.add(time.Since(given))
			}
			time.Sleep(keep)
			given = time.Now()
		}
		err := runConcurrently(ctx, all, func(ctx context.Context, c contender) error {
			for !m.isOver() { // waiting contenders finish their turn
				if err := c.tenure(ctx, held); err != nil {
					return err
				}
			}
			return nil
		})
		if shared.Load() {
			return errShared
		}
		return err
	}
}

// runConcurrently calls f for all elements concurrently. The first error cancels the
// others' context.
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
