package memory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

var fresh = registry.ReadOptions{Fresh: true}

func TestIsolate(t *testing.T) {
	bubble(t, "plain reads return the last state of the member", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		rev := create(t, b, "d/k", "old")
		heal := s.Isolate("a")
		apply(t, b, registry.Set("d/k", rev, []byte("new")), registry.Create("d/k2", nil))
		checkDuration(t, 0, func() {
			require.Equal(t, "old", get(t, a, "d/k"))
			require.False(t, has(t, a, "d/k2"))
			l, err := a.List(t.Context(), "d", registry.ReadOptions{})
			require.NoError(t, err)
			require.Len(t, l.Entries, 1)
			require.Equal(t, rev, l.Rev)
		})
		heal()
		heal()
		require.Equal(t, "new", get(t, a, "d/k"))
	})
	bubble(t, "plain reads return that state if the member also falls behind", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		rev := create(t, b, "k", "old")
		s.Isolate("a")
		apply(t, b, registry.Set("k", rev, []byte("new")))
		s.Lag("a")
		require.Equal(t, "old", get(t, a, "k"))
	})
	bubble(t, "other calls fail after CallTimeout", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		s.Isolate("a")
		checkDuration(t, memory.CallTimeout, func() {
			_, err := a.Get(t.Context(), "k", fresh)
			require.ErrorIs(t, err, registry.ErrUnavailable)
		})
		checkDuration(t, memory.CallTimeout, func() {
			_, err := a.List(t.Context(), "", fresh)
			require.ErrorIs(t, err, registry.ErrUnavailable)
		})
		checkDuration(t, memory.CallTimeout, func() {
			_, err := a.Watch(t.Context(), "", registry.WatchOptions{})
			require.ErrorIs(t, err, registry.ErrUnavailable)
		})
		checkDuration(t, memory.CallTimeout, func() {
			_, err := a.OpenSession(t.Context(), registry.SessionOptions{})
			require.ErrorIs(t, err, registry.ErrUnavailable)
		})
		checkDuration(t, memory.CallTimeout, func() {
			_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		})
		require.False(t, has(t, b, "k"))
	})
	bubble(t, "a waiting read succeeds on heal", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		heal := s.Isolate("a")
		create(t, b, "k", "v")
		time.AfterFunc(time.Second, heal)
		checkDuration(t, time.Second, func() {
			e, err := a.Get(t.Context(), "k", fresh)
			require.NoError(t, err)
			require.Equal(t, "v", string(e.Value))
		})
	})
	bubble(t, "a session is lost before its keys are deleted", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		x := open(t, a, 10*time.Second)
		apply(t, a, registry.CreateOwned("~k", nil, x.ID()))
		begin := time.Now()
		s.Isolate("a")
		sleepUntil(begin.Add(8 * time.Second))
		require.Equal(t, registry.SessionConnected, state(x))
		sleepUntil(begin.Add(9 * time.Second))
		require.Equal(t, registry.SessionLost, state(x))
		require.True(t, has(t, b, "~k"))
		sleepUntil(begin.Add(10 * time.Second))
		require.False(t, has(t, b, "~k"))
		require.True(t, has(t, a, "~k"), "as far as its member knows")
	})
	bubble(t, "a session stays alive when it is healed in time", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		x := open(t, a, 10*time.Second)
		apply(t, a, registry.CreateOwned("~k", nil, x.ID()))
		heal := s.Isolate("a")
		time.Sleep(8 * time.Second)
		heal()
		time.Sleep(20 * time.Second)
		require.Equal(t, registry.SessionConnected, state(x))
		require.True(t, has(t, b, "~k"))
	})
	bubble(t, "a session that expires meanwhile is lost on heal", func(t *testing.T, s *memory.Server) {
		x := open(t, connect(t, s, "a"), 10*time.Second)
		heal := s.Isolate("a")
		s.ExpireSession(x.ID())
		synctest.Wait()
		require.Equal(t, registry.SessionConnected, state(x))
		heal()
		synctest.Wait()
		require.Equal(t, registry.SessionLost, state(x))
	})
	bubble(t, "watchers pause, and miss no change", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		w := watch(t, a, "d")
		next(t, w)
		heal := s.Isolate("a")
		create(t, b, "d/k", "v")
		requireNoBatch(t, w, time.Minute)
		heal()
		require.Equal(t, []registry.Key{"d/k"}, keys(next(t, w)))
	})
	bubble(t, "other machines are not affected", func(t *testing.T, s *memory.Server) {
		b := connect(t, s, "b")
		x := open(t, b, time.Second)
		s.Isolate("a")
		create(t, b, "k", "v")
		time.Sleep(time.Minute)
		require.Equal(t, registry.SessionConnected, state(x))
	})
}

func TestLag(t *testing.T) {
	plain := func(t *testing.T, c *memory.Client) []registry.Key {
		l, err := c.List(t.Context(), "d", registry.ReadOptions{})
		require.NoError(t, err)
		return keys(registry.Batch{Puts: l.Entries})
	}
	bubble(t, "plain reads return the last state of the member", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		catchUp := s.Lag("a")
		create(t, b, "d/k", "v")
		require.False(t, has(t, a, "d/k"))
		require.Empty(t, plain(t, a))
		require.True(t, has(t, b, "d/k"))
		catchUp()
		catchUp()
		require.True(t, has(t, a, "d/k"))
		create(t, b, "d/k2", "v")
		require.True(t, has(t, a, "d/k2"))
	})
	for _, c := range []struct {
		name   string
		newest func(*testing.T, *memory.Client)
	}{
		{"a fresh Get", func(t *testing.T, a *memory.Client) {
			_, err := a.Get(t.Context(), "d/k", fresh)
			require.NoError(t, err)
		}},
		{"a fresh List", func(t *testing.T, a *memory.Client) {
			_, err := a.List(t.Context(), "d", fresh)
			require.NoError(t, err)
		}},
		{"a write of its own", func(t *testing.T, a *memory.Client) { create(t, a, "elsewhere", "") }},
		{"a batch", func(t *testing.T, a *memory.Client) { next(t, watch(t, a, "d")) }},
	} {
		bubble(t, "the member catches up on "+c.name, func(t *testing.T, s *memory.Server) {
			a, b := connect(t, s, "a"), connect(t, s, "b")
			s.Lag("a")
			create(t, b, "d/k", "v")
			require.Empty(t, plain(t, a))
			c.newest(t, a)
			require.Equal(t, []registry.Key{"d/k"}, plain(t, a))
			create(t, b, "d/k2", "v")
			require.Equal(t, []registry.Key{"d/k"}, plain(t, a), "it falls behind again")
		})
	}
	bubble(t, "transactions are checked against the current state", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		s.Lag("a")
		create(t, b, "k", "v")
		_, err := a.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Absent("k")}})
		require.ErrorIs(t, err, registry.ErrConflict)
	})
	bubble(t, "no call waits", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Lag("a")
		checkDuration(t, 0, func() {
			x := open(t, a, time.Second)
			apply(t, a, registry.CreateOwned("~k", nil, x.ID()))
			require.True(t, has(t, a, "~k"))
			require.NoError(t, x.Close(context.Background()))
		})
	})
}
