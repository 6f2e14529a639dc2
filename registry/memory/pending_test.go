package memory_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// TestPendingChanges checks the changes that a watcher holds for its reader.
func TestPendingChanges(t *testing.T) {
	const slack = 64
	for _, kept := range []int{0, 3} {
		bubble(t, fmt.Sprintf("a Snapshot replaces more than %d changes beside %d keys", slack, kept), func(t *testing.T, s *memory.Server) {
			a := connect(t, s, "a")
			for i := range kept {
				create(t, a, registry.Join("d", fmt.Sprint("kept", i)), "")
			}
			w := watch(t, a, "d")
			next(t, w)
			pass := func(n int) {
				for i := range n {
					key := registry.Join("d", fmt.Sprint("passing", i))
					apply(t, a, registry.Delete(key, create(t, a, key, "")))
				}
			}
			pass(kept + slack)
			require.Equal(t, kept+slack, memory.Pending(w))
			b := next(t, w)
			require.Equal(t, registry.Delta, b.Kind)
			require.Len(t, b.Deletes, kept+slack)
			pass(kept + slack + 1)
			require.Zero(t, memory.Pending(w))
			require.Equal(t, registry.Snapshot, next(t, w).Kind)
			requireNoBatch(t, w, time.Second)
		})
	}
	bubble(t, "an ended watcher reads no Snapshot, even if its reader has found it open", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		create(t, a, "d/k", "")
		w := watch(t, a, "d")
		require.NoError(t, w.Close())
		require.Zero(t, memory.TakeSnapshot(w))
		require.Equal(t, registry.Snapshot, memory.TakeSnapshot(watch(t, a, "d")).Kind)
	})
	bubble(t, "changes wait for a timer only while replies are delayed", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		w := watch(t, a, "d")
		next(t, w)
		create(t, a, "d/k", "")
		require.False(t, memory.Delayed(w))
		next(t, w)
		s.Delay("a", 0, 1)
		create(t, a, "d/l", "")
		require.True(t, memory.Delayed(w))
	})
	bubble(t, "entries that were delivered are not kept", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		w := watch(t, a, "d")
		next(t, w)
		rev := apply(t, a, registry.Create("d/k", nil), registry.Create("d/l", nil))
		next(t, w)
		require.Zero(t, memory.RetainedChanges(s))
		apply(t, a, registry.Delete("d/k", rev))
		apply(t, a, registry.Delete("d/l", rev))
		require.NoError(t, w.Close())
		require.NoError(t, memory.CheckNothingLeft(s))
	})
}

// TestWatchBegins begins watches while something else happens.
func TestWatchBegins(t *testing.T) {
	bubble(t, "it fails if the permission is revoked while the answer is under way", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Delay("a", 0, time.Second)
		time.AfterFunc(time.Second/2, func() { s.Revoke("a") })
		checkDuration(t, time.Second, func() {
			_, err := a.Watch(t.Context(), "d", registry.WatchOptions{})
			require.ErrorIs(t, err, registry.ErrPermission)
		})
		require.Zero(t, s.Counts("a").Watches)
	})
	bubble(t, "it fails if the permission was revoked when the request arrived", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Delay("a", time.Second, time.Second)
		restore := s.Revoke("a")
		time.AfterFunc(1500*time.Millisecond, restore)
		checkDuration(t, 2*time.Second, func() {
			_, err := a.Watch(t.Context(), "d", registry.WatchOptions{})
			require.ErrorIs(t, err, registry.ErrPermission)
		})
	})
	bubble(t, "it fails if its handle is closed when the answer arrives", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		resume := s.Pause()
		begun := make(chan error, 1)
		go func() {
			w, err := a.Watch(t.Context(), "d", registry.WatchOptions{})
			if err == nil {
				_, err = w.Next(t.Context())
			}
			begun <- err
		}()
		synctest.Wait()
		resume()
		require.NoError(t, a.Close(context.Background()))
		require.ErrorIs(t, <-begun, registry.ErrClosed)
		require.NoError(t, memory.CheckNothingLeft(s))
	})
	bubble(t, "it receives no change while HoldWatch is in force", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		release := s.HoldWatch("a")
		w := watch(t, a, "d")
		create(t, a, "d/k", "1")
		requireNoBatch(t, w, time.Minute)
		release()
		require.Equal(t, []registry.Key{"d/k"}, keys(next(t, w)))
	})
}

func TestCommitNumbers(t *testing.T) {
	bubble(t, "the beginning and the end of a session are commits", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Record()
		rev := create(t, a, "k", "")
		x := open(t, a, ttl)
		require.NoError(t, x.Close(t.Context()))
		for i, c := range s.Log() {
			require.Equal(t, rev.Seq+uint64(i), c.Rev.Seq)
		}
		require.Equal(t, rev.Seq+3, create(t, a, "l", "").Seq)
	})
}

func TestSessionLostError(t *testing.T) {
	bubble(t, "ErrSessionLost names the operation", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		_, err := a.Txn(t.Context(), registry.Txn{
			If:   []registry.Cond{registry.Absent("k")},
			Then: []registry.Op{registry.Create("l", nil), registry.CreateOwned("~o", nil, "never-was"), registry.Create("m", nil)},
		})
		require.EqualError(t, err, "session lost: create ~o of never-was")
	})
}
