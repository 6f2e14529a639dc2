package registry_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func cacheOf(t *testing.T, reg registry.Registry, dir registry.Key) *registry.Cache {
	t.Helper()
	c, err := registry.NewCache(t.Context(), reg, dir)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// listed returns the entries that the cache must hold once it has caught up.
func listed(t *testing.T, reg registry.Registry, dir registry.Key) []registry.Entry {
	t.Helper()
	l, err := reg.List(context.Background(), dir, registry.ReadOptions{Fresh: true})
	require.NoError(t, err)
	return l.Entries
}

func TestNewCache_WaitsForTheFirstSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := client(t)
		commit(t, reg, registry.Create("d/b", []byte("2")), registry.Create("d/a", []byte("1")), registry.Create("d/a/x", nil))
		c := cacheOf(t, reg, "d")
		require.Equal(t, 2, c.Len())
		require.Equal(t, listed(t, reg, "d"), c.Entries(), "sorted by key")
		e, ok := c.Get("d/a")
		require.True(t, ok)
		require.Equal(t, get(t, reg, "d/a"), e)
		_, ok = c.Get("d/a/x")
		require.False(t, ok)
		require.GreaterOrEqual(t, c.Rev().Seq, e.Modified.Seq)
		require.NoError(t, c.Err())
	})
}

func TestCache_FollowsTheDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := client(t)
		c := cacheOf(t, reg, "d")
		for i := range 20 {
			key := registry.Key(fmt.Sprintf("d/%d", i%7))
			changed, before := c.Changed(), c.Rev()
			if e, ok := c.Get(key); !ok {
				commit(t, reg, registry.Create(key, nil))
			} else if i%2 == 0 {
				commit(t, reg, registry.Set(key, e.Modified, []byte("again")))
			} else {
				commit(t, reg, registry.Delete(key, e.Modified))
			}
			<-changed
			require.Equal(t, listed(t, reg, "d"), c.Entries())
			require.Equal(t, len(c.Entries()), c.Len())
			require.Greater(t, c.Rev().Seq, before.Seq)
		}
	})
}

func TestCache_CatchesUp(t *testing.T) {
	t.Run("after a reconnection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			reg, other := clientOf(t, s, "a"), clientOf(t, s, "b")
			gone := commit(t, reg, registry.Create("d/gone", nil))
			c := cacheOf(t, reg, "d")
			heal := s.Partition("a")
			commit(t, other, registry.Delete("d/gone", gone), registry.Create("d/new", nil))
			time.Sleep(time.Hour)
			_, stale := c.Get("d/gone")
			require.True(t, stale, "it lags behind without an error")
			heal()
			time.Sleep(time.Second)
			require.Equal(t, listed(t, other, "d"), c.Entries())
		})
	})

	t.Run("after its watch has failed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &brittle{Registry: client(t), refusals: []error{registry.ErrUnavailable}, breaks: 3}
			commit(t, b, registry.Create("d/k", nil))
			c := cacheOf(t, b, "d")
			time.Sleep(time.Minute)
			require.Equal(t, listed(t, b, "d"), c.Entries())
			require.Equal(t, 4, b.opened)
		})
	})
}

func TestCache_EndsWhenItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		reg := clientOf(t, s, "a")
		commit(t, reg, registry.Create("d/k", nil))
		ctx, cancel := context.WithCancel(t.Context())
		c, err := registry.NewCache(ctx, reg, "d")
		require.NoError(t, err)

		cancel()
		time.Sleep(time.Minute)
		commit(t, reg, registry.Create("d/k2", nil))
		time.Sleep(time.Minute)
		require.Equal(t, 2, c.Len(), "it outlives the context")

		changed := c.Changed()
		var all sync.WaitGroup
		for range 3 {
			all.Go(c.Close)
		}
		c.Close()
		require.ErrorIs(t, c.Err(), registry.ErrClosed, "the goroutine has returned when Close returns")
		require.Zero(t, s.Counts("a").Watches)
		<-changed
		all.Wait()
		require.Equal(t, 2, c.Len(), "the last state can still be read")
		select {
		case <-c.Changed():
			t.Error("no change is signalled after the end")
		default:
		}
	})
}

func TestCache_EndsWithItsRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := client(t)
		c := cacheOf(t, reg, "d")
		changed := c.Changed()
		require.NoError(t, reg.Close(t.Context()))
		<-changed
		require.ErrorIs(t, c.Err(), registry.ErrClosed)
	})
}

func TestNewCache_Fails(t *testing.T) {
	t.Run("when its context ends before the first snapshot", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			reg := clientOf(t, s, "a")
			defer s.Partition("a")()
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errEnough)
			defer cancel()
			_, err := registry.NewCache(ctx, reg, "d")
			require.ErrorIs(t, err, registry.ErrUnavailable)
			require.ErrorIs(t, err, errEnough)
		})
	})

	t.Run("when the registry refuses the watch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &brittle{Registry: client(t), refusals: []error{registry.ErrPermission}}
			_, err := registry.NewCache(t.Context(), b, "d")
			require.ErrorIs(t, err, registry.ErrPermission)
			_, err = registry.NewCache(t.Context(), b, "~d")
			require.ErrorIs(t, err, registry.ErrInvalidKey)
		})
	})
}

func TestCache_AllowsConcurrentReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := client(t)
		c := cacheOf(t, reg, "d")
		const writes = 200
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for n := 0; n < writes; {
					changed := c.Changed()
					n = c.Len()
					require.GreaterOrEqual(t, len(c.Entries()), n, "nothing is deleted")
					if n < writes {
						<-changed
					}
				}
			})
		}
		for i := range writes {
			commit(t, reg, registry.Create(registry.Key(fmt.Sprintf("d/%d", i)), nil))
		}
		readers.Wait()
	})
}
