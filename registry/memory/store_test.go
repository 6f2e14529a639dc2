package memory_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// TestStore checks properties that are not part of the contract, which the conformance suite
// covers.
func TestStore(t *testing.T) {
	bubble(t, "values are copied in and out", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		value := []byte("1")
		rev := apply(t, a, registry.Create("d/k", value))
		value[0] = 'x'
		require.Equal(t, "1", get(t, a, "d/k"))
		value[0] = '2'
		apply(t, a, registry.Set("d/k", rev, value))
		value[0] = 'x'
		for range 2 {
			e, err := a.Get(t.Context(), "d/k", registry.ReadOptions{})
			require.NoError(t, err)
			require.Equal(t, "2", string(e.Value))
			e.Value[0] = 'x'
			l, err := a.List(t.Context(), "d", registry.ReadOptions{})
			require.NoError(t, err)
			require.Equal(t, "2", string(l.Entries[0].Value))
			l.Entries[0].Value[0] = 'x'
		}
	})
	bubble(t, "a buffer is used if it has room", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		create(t, a, "k", "12345")
		for room := range 10 {
			buf := make([]byte, 0, room)
			e, err := a.Get(t.Context(), "k", registry.ReadOptions{Buffer: buf})
			require.NoError(t, err)
			require.Equal(t, "12345", string(e.Value))
			require.Equal(t, room >= 5, room > 0 && &e.Value[0] == &buf[:1][0])
		}
	})
	bubble(t, "commits are numbered without gaps from a random one", func(t *testing.T, s *memory.Server) {
		a, other := connect(t, s, "a"), connect(t, memory.New(), "a")
		rev := create(t, a, "k", "")
		require.NotEqual(t, rev.Seq, create(t, other, "k", "").Seq)
		next := create(t, a, "l", "")
		require.Equal(t, rev.Seq+1, next.Seq)
		require.NotZero(t, rev.Aux)
		_, err := a.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.At("k", registry.Rev{Seq: rev.Seq})}})
		require.ErrorIs(t, err, registry.ErrConflict, "both fields of a Rev are compared")
		check, err := a.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.At("k", rev)}})
		require.NoError(t, err)
		require.Equal(t, next, check, "a check returns the last Rev")
	})
	bubble(t, "conditions are checked in order, against the state before the transaction", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		rev := create(t, a, "k", "")
		_, err := a.Txn(t.Context(), registry.Txn{
			If: []registry.Cond{registry.At("k", rev), registry.Absent("l")},
			Then: []registry.Op{
				registry.Delete("k", rev), registry.Create("l", nil),
				registry.Set("m", rev, nil), registry.CreateOwned("~o", nil, "never was"),
			},
		})
		var conflict *registry.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, 4, conflict.Index)
		require.True(t, has(t, a, "k"))
		require.False(t, has(t, a, "l"))
		_, err = a.Txn(t.Context(), registry.Txn{Then: []registry.Op{
			registry.CreateOwned("~o", nil, "never was"), registry.Create("k", nil),
		}})
		require.ErrorIs(t, err, registry.ErrSessionLost)
	})
	bubble(t, "a deleted key that another session owns now does not expire with its former owner", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x, y := open(t, a, ttl), open(t, a, ttl)
		rev := apply(t, a, registry.CreateOwned("~o", nil, x.ID()), registry.CreateOwned("~gone", nil, x.ID()))
		apply(t, a, registry.Delete("~o", rev), registry.Delete("~gone", rev))
		apply(t, a, registry.CreateOwned("~o", nil, y.ID()))
		require.NoError(t, x.Close(t.Context()))
		require.True(t, has(t, a, "~o"))
		require.NoError(t, y.Close(t.Context()))
		require.False(t, has(t, a, "~o"))
	})
	bubble(t, "only CreateOwned gives a key an owner", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := open(t, a, ttl)
		apply(t, a, registry.Op{Kind: registry.OpCreate, Key: "k", Session: x.ID()})
		e, err := a.Get(t.Context(), "k", registry.ReadOptions{})
		require.NoError(t, err)
		require.Empty(t, e.Owner)
		require.NoError(t, x.Close(t.Context()))
		require.True(t, has(t, a, "k"))
	})
	bubble(t, "no object is left of deleted keys and lost requests", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := open(t, a, ttl)
		rev := apply(t, a, registry.Create("a/b/c/k", nil), registry.CreateOwned("d/~o", nil, x.ID()))
		apply(t, a, registry.Delete("a/b/c/k", rev))
		require.NoError(t, x.Close(t.Context()))
		_, err := a.List(t.Context(), "never/was", registry.ReadOptions{})
		require.NoError(t, err)
		s.Partition("a")
		_, err = a.Get(t.Context(), "k", registry.ReadOptions{})
		require.ErrorIs(t, err, registry.ErrUnavailable)
		require.NoError(t, memory.CheckNothingLeft(s))
	})
	t.Run("a closed watcher can be collected before its context ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a := connect(t, memory.New(), "a")
		collected := make(chan struct{})
		func() {
			w, err := a.Watch(ctx, "d", registry.WatchOptions{})
			require.NoError(t, err)
			memory.OnCollect(w, func() { close(collected) })
			require.NoError(t, w.Close())
		}()
		require.Eventually(t, func() bool {
			runtime.GC()
			select {
			case <-collected:
				return true
			default:
				return false
			}
		}, 5*time.Second, time.Millisecond)
	})
}
