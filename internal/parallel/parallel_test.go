package parallel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEach(t *testing.T) {
	bubble := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
	seven := []int{0, 1, 2, 3, 4, 5, 6}
	bubble("calls f for all items, as many at once as limit allows", func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var got []int
		require.NoError(t, Each(t.Context(), 3, seven, func(_ context.Context, i int) error {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			got = append(got, i)
			return nil
		}))
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.Equal(t, seven, slices.Sorted(slices.Values(got)))
	})
	bubble("does not call f without items", func(t *testing.T) {
		require.NoError(t, Each(t.Context(), 3, nil, func(context.Context, int) error { panic("called") }))
	})
	bubble("returns the first error after the calls under way have returned, and makes no more", func(t *testing.T) {
		cause := errors.New("cause")
		var calls atomic.Int32
		began := time.Now()
		err := Each(t.Context(), 3, seven, func(_ context.Context, i int) error {
			calls.Add(1)
			if i == 1 {
				time.Sleep(time.Second)
				return cause
			}
			time.Sleep(2 * time.Second)
			return errors.New("later")
		})
		require.Equal(t, cause, err)
		assert.Equal(t, 2*time.Second, time.Since(began))
		assert.EqualValues(t, 3, calls.Load())
	})
	outer := t.Context()
	bubble("takes the context of the test around a bubble", func(t *testing.T) {
		require.NoError(t, Each(outer, 3, seven, func(context.Context, int) error { return nil }))
	})
	bubble("does not call f if the context has ended, and returns its cause", func(t *testing.T) {
		cause := errors.New("cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		require.ErrorIs(t, Each(ctx, 3, seven, func(context.Context, int) error { panic("called") }), cause)
	})
}
