package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestFill(t *testing.T) {
	bubble(t, "creating and setting keys and opening sessions is refused", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := open(t, a, time.Second)
		rev := create(t, a, "k", "v")
		free := s.Fill()
		for _, op := range []registry.Op{
			registry.Create("new", nil), registry.CreateOwned("~new", nil, x.ID()), registry.Set("k", rev, nil),
		} {
			_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{op}})
			require.ErrorIs(t, err, registry.ErrQuota)
			require.False(t, registry.Retryable(err))
		}
		_, err := a.OpenSession(t.Context(), registry.SessionOptions{})
		require.ErrorIs(t, err, registry.ErrQuota)
		require.False(t, registry.Retryable(err))
		require.Len(t, s.Dump(), 1)
		free()
		free()
		create(t, a, "new", "")
	})
	bubble(t, "reads, deletions, watches and open sessions continue", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x, y := open(t, a, time.Second), open(t, a, time.Second)
		apply(t, a, registry.CreateOwned("~k", nil, x.ID()), registry.CreateOwned("~l", nil, y.ID()))
		rev := create(t, a, "d/k", "v")
		w := watch(t, a, "d")
		next(t, w)
		s.Fill()
		time.Sleep(time.Minute)
		require.Equal(t, registry.SessionConnected, state(x))
		require.Equal(t, "v", get(t, a, "d/k"))
		apply(t, a, registry.Delete("d/k", rev))
		require.Equal(t, []registry.Key{"d/k"}, next(t, w).Deletes)
		require.NoError(t, x.Close(t.Context()))
		require.False(t, has(t, a, "~k"))
		_, err := a.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Alive(y.ID())}})
		require.NoError(t, err)
	})
	bubble(t, "refusals are counted and logged", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Fill()
		s.Record()
		_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
		require.Error(t, err)
		require.Equal(t, 1, s.Counts("a").Conflicts)
		log := s.Log()
		require.Len(t, log, 1)
		require.ErrorIs(t, log[0].Err, registry.ErrQuota)
		require.False(t, log[0].Changed())
	})
}

func TestRevoke(t *testing.T) {
	bubble(t, "every call is refused, at once", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		rev := create(t, b, "k", "v")
		restore := s.Revoke("a")
		checkDuration(t, 0, func() {
			for name, call := range map[string]func(context.Context) error{
				"Get":         func(ctx context.Context) error { _, err := a.Get(ctx, "k", registry.ReadOptions{}); return err },
				"fresh Get":   func(ctx context.Context) error { _, err := a.Get(ctx, "k", fresh); return err },
				"List":        func(ctx context.Context) error { _, err := a.List(ctx, "", registry.ReadOptions{}); return err },
				"Watch":       func(ctx context.Context) error { _, err := a.Watch(ctx, "", registry.WatchOptions{}); return err },
				"OpenSession": func(ctx context.Context) error { _, err := a.OpenSession(ctx, registry.SessionOptions{}); return err },
				"Txn": func(ctx context.Context) error {
					_, err := a.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Delete("k", rev)}})
					return err
				},
				"check": func(ctx context.Context) error {
					_, err := a.Txn(ctx, registry.Txn{If: []registry.Cond{registry.Absent("k")}})
					return err
				},
			} {
				err := call(t.Context())
				require.ErrorIs(t, err, registry.ErrPermission, name)
				require.False(t, registry.Retryable(err), name)
			}
		})
		require.Equal(t, "v", get(t, b, "k"))
		restore()
		restore()
		apply(t, a, registry.Delete("k", rev))
	})
	bubble(t, "a watcher ends with ErrPermission", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		w := watch(t, a, "d")
		next(t, w)
		restore := s.Revoke("a")
		_, err := w.Next(t.Context())
		require.ErrorIs(t, err, registry.ErrPermission)
		restore()
		_, err = w.Next(t.Context())
		require.ErrorIs(t, err, registry.ErrPermission, "for good")
		next(t, watch(t, a, "d"))
	})
	bubble(t, "sessions are renewed and can be closed", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		x := open(t, a, time.Second)
		apply(t, a, registry.CreateOwned("~k", nil, x.ID()))
		s.Revoke("a")
		time.Sleep(time.Minute)
		require.Equal(t, registry.SessionConnected, state(x))
		require.True(t, has(t, b, "~k"))
		require.NoError(t, x.Close(t.Context()))
		require.False(t, has(t, b, "~k"))
	})
	bubble(t, "a transaction under way is refused when it arrives", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		release := s.HoldCommit("a")
		_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		s.Revoke("a")
		release()
		require.False(t, has(t, b, "k"))
	})
}
