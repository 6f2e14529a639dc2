package lock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestLock_KeepsNothingOfAnAcquireThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := memory.New().Client("a")
		defer func() { require.NoError(t, reg.Close(context.Background())) }()
		l := New(reg, "lock")
		defer func() { require.NoError(t, l.Close(context.Background())) }()
		open := func() registry.Session {
			s, err := reg.OpenSession(t.Context(), registry.SessionOptions{})
			require.NoError(t, err)
			return s
		}
		_, err := l.Acquire(t.Context(), open())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Acquire(ctx, open())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		l.mu.Lock()
		defer l.mu.Unlock()
		require.Empty(t, l.acquirers)
	})
}
