package postgres

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inBackground returns a function that runs others in goroutines, which end before the test does.
func inBackground(t *testing.T) func(f func()) bool {
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	return func(f func()) bool {
		all.Go(f)
		return true
	}
}

func TestBatcher(t *testing.T) {
	bubble := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
	bubble("sends together what waits, within bounds", func(t *testing.T) {
		var sizes []int
		b := newBatcher(inBackground(t), 1, 3, 100, func() {}, func(qs []int) ([]int, error) {
			sizes = append(sizes, len(qs))
			time.Sleep(time.Second)
			return qs, nil
		})
		var wg sync.WaitGroup
		for i := range 9 {
			wg.Go(func() {
				a, err := b.ask(t.Context(), i, 40)
				assert.NoError(t, err)
				assert.Equal(t, i, a, "each question has its own answer")
			})
			synctest.Wait()
		}
		wg.Wait()
		assert.Equal(t, []int{1, 2, 2, 2, 2}, sizes)
		_, err := b.ask(t.Context(), 0, 1000)
		assert.NoError(t, err, "a question above the bound is sent alone")
	})
	bubble("withdraws a question that was not sent", func(t *testing.T) {
		b := newBatcher(inBackground(t), 1, 3, 100, func() {}, func(qs []int) ([]int, error) {
			time.Sleep(time.Second)
			return qs, nil
		})
		inBackground(t)(func() { _, _ = b.ask(context.Background(), 1, 1) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := b.ask(ctx, 2, 1)
		require.ErrorIs(t, err, errNotSent)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	bubble("does not say that a question was not sent while it may have been", func(t *testing.T) {
		b := newBatcher(inBackground(t), 1, 3, 100, func() {}, func(qs []int) ([]int, error) {
			time.Sleep(time.Second)
			return qs, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := b.ask(ctx, 1, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, errNotSent)
	})
	bubble("withdraws a question while nothing can be sent", func(t *testing.T) {
		b := newBatcher(inBackground(t), 1, 3, 100, func() { time.Sleep(time.Minute) }, func(qs []int) ([]int, error) { return qs, nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.ask(ctx, 1, 1)
		require.ErrorIs(t, err, errNotSent)
	})
	bubble("returns the error of a batch to each", func(t *testing.T) {
		broken := errors.New("broken")
		b := newBatcher(inBackground(t), 1, 3, 100, func() {}, func([]int) ([]int, error) { return nil, broken })
		_, err := b.ask(t.Context(), 1, 1)
		require.ErrorIs(t, err, broken)
	})
	bubble("sends nothing once it is closed", func(t *testing.T) {
		b := newBatcher(func(func()) bool { return false }, 1, 3, 100, func() {}, func(qs []int) ([]int, error) { return qs, nil })
		_, err := b.ask(t.Context(), 1, 1)
		require.ErrorIs(t, err, errNotSent)
	})
}

func TestLeaseView_MeasuresNoMoreThanHasElapsed(t *testing.T) {
	now := time.Now()
	v := leaseView{}
	assert.Zero(t, v.elapsed(now), "nothing is known before the first answer")
	v = v.observe(7, now)
	assert.Equal(t, 3*time.Second, v.elapsed(now.Add(3*time.Second)))
	same := v.observe(7, now.Add(time.Second))
	assert.Equal(t, 3*time.Second, same.elapsed(now.Add(3*time.Second)), "the clock has shown it since the first answer")
	next := v.observe(8, now.Add(time.Second))
	assert.Equal(t, 2*time.Second, next.elapsed(now.Add(3*time.Second)), "counted from the answer, before which it was shown")
	first := leaseView{}.observe(0, now)
	assert.Equal(t, time.Second, first.elapsed(now.Add(time.Second)), "zero is a time too")
}
