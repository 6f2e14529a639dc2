package simulate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestStoppable(t *testing.T) {
	bubble := func(sentence string, f func(t *testing.T, s *stoppable, other registry.Registry)) {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := memory.New()
				a, b := server.Client("a"), server.Client("b")
				f(t, newStoppable(a), b)
				require.NoError(t, a.Close(t.Context()))
				require.NoError(t, b.Close(t.Context()))
			})
		})
	}
	create := registry.Txn{Then: []registry.Op{registry.Create("d/k", []byte("1"))}}

	bubble("a pending write is sent when the process continues, even if its context has ended", func(t *testing.T, s *stoppable, other registry.Registry) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.AfterFunc(time.Minute, s.stop())
		begun := time.Now()
		_, err := s.Txn(ctx, create)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(begun))
		_, err = other.Get(t.Context(), "d/k", registry.ReadOptions{})
		require.NoError(t, err)

		_, err = s.Txn(ctx, create)
		require.ErrorIs(t, err, registry.ErrNotApplied, "it checks its context before")
	})
	bubble("events arrive when the process continues", func(t *testing.T, s *stoppable, other registry.Registry) {
		w, err := s.Watch(t.Context(), "d", registry.WatchOptions{})
		require.NoError(t, err)
		_, err = w.Next(t.Context())
		require.NoError(t, err)
		time.AfterFunc(time.Minute, s.stop())
		begun := time.Now()
		_, err = other.Txn(t.Context(), create)
		require.NoError(t, err)
		b, err := w.Next(t.Context())
		require.NoError(t, err)
		assert.Len(t, b.Puts, 1)
		assert.Equal(t, time.Minute, time.Since(begun))
	})
	bubble("the process continues when every stop is undone, each of which counts once", func(t *testing.T, s *stoppable, _ registry.Registry) {
		first, second := s.stop(), s.stop()
		first()
		first()
		time.AfterFunc(time.Minute, second)
		begun := time.Now()
		_, err := s.Txn(t.Context(), create)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(begun))
	})
}
