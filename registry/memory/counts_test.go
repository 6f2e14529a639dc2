package memory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestCounts(t *testing.T) {
	bubble(t, "each operation of a client counts once", func(t *testing.T, s *memory.Server) {
		a, again, b := connect(t, s, "a"), connect(t, s, "a"), connect(t, s, "b")
		w := watch(t, b, "d")
		next(t, w)
		x := open(t, a, ttl)

		rev := apply(t, a, registry.Create("d/k", []byte("12345")), registry.CreateOwned("~o", nil, x.ID()))
		apply(t, again, registry.Delete("d/k", rev))
		_, err := a.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Absent("k")}})
		require.NoError(t, err)
		_, err = a.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.At("k", rev)}})
		require.ErrorIs(t, err, registry.ErrConflict)
		_, err = a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k k", nil)}})
		require.ErrorIs(t, err, registry.ErrInvalidKey)
		get(t, a, "~o")
		require.False(t, has(t, a, "d/k"))
		_, err = a.List(t.Context(), "", registry.ReadOptions{})
		require.NoError(t, err)
		create(t, b, "d/l", "1")
		next(t, w)

		ofA := memory.Counts{
			Commits: 2, Checks: 1, Conflicts: 1, Keys: 3, Bytes: 8 + 2 + 3, MaxBytes: 10, Reads: 3, Sessions: 1,
		}
		require.Equal(t, ofA, s.Counts("a"))
		ofB := memory.Counts{Commits: 1, Keys: 1, Bytes: 4, MaxBytes: 4, Events: 2, Watches: 1}
		require.Equal(t, ofB, s.Counts("b"))
		require.Equal(t, memory.Counts{
			Commits: 3, Checks: 1, Conflicts: 1, Keys: 4, Bytes: 17, MaxBytes: 10,
			Reads: 3, Events: 2, Watches: 1, Sessions: 1,
		}, s.Counts(""))
		require.Zero(t, s.Counts("c"))

		s.ResetCounts()
		require.Equal(t, memory.Counts{Watches: 1, Sessions: 1}, s.Counts(""))
	})
	bubble(t, "a lost transaction counts if the server has executed it", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.LoseReply("a", 1)
		s.LoseRequest("a", 1)
		for range 2 {
			_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		}
		require.Equal(t, 1, s.Counts("a").Commits)
		heal := s.Partition("a")
		_, err := a.Get(t.Context(), "k", registry.ReadOptions{})
		require.ErrorIs(t, err, registry.ErrUnavailable)
		require.Zero(t, s.Counts("a").Reads)
		heal()
	})
	bubble(t, "an idle client causes no operation", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := open(t, a, ttl)
		next(t, watch(t, a, "d"))
		s.ResetCounts()
		s.Record()
		time.Sleep(24 * time.Hour)
		require.Equal(t, memory.Counts{Watches: 1, Sessions: 1}, s.Counts("a"))
		require.Empty(t, s.Log())
		require.True(t, memory.AtRest(x))
	})
}

func TestGetAllocatesNothing(t *testing.T) {
	a := connect(t, memory.New(), "a")
	create(t, a, "d/k", "value")
	buf, ctx := make([]byte, 0, 16), t.Context()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		e, err := a.Get(ctx, "d/k", registry.ReadOptions{Buffer: buf, Fresh: true})
		if err != nil || string(e.Value) != "value" {
			panic("wrong value")
		}
	}))
}
