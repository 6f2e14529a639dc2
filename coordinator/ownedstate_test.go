package coordinator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// stored returns the value of a key past all faults.
func (h *holders) stored(key registry.Key) (string, bool) {
	for _, e := range h.server.Dump() {
		if e.Key == key {
			return string(e.Value), true
		}
	}
	return "", false
}

// stateOf0 is where the state of shard 0 is.
const stateOf0 registry.Key = "test/groups/default/data/shards/0"

// adds is an Own that appends its name to the state when it begins, and a mark when its
// context ends.
func adds(name string) func(context.Context, Owned) error {
	return func(ctx context.Context, s Owned) error {
		state, err := s.State(ctx)
		if err != nil {
			return err
		}
		if err := s.Save(ctx, append(state, name...)); err != nil {
			return err
		}
		<-ctx.Done()
		return s.Save(context.WithoutCancel(ctx), append(append(state, name...), '.'))
	}
}

func TestOwned_State(t *testing.T) {
	holding(t, "is nil at first, and then what the owner before has saved: by a move, a crash or years later", func(t *testing.T, h *holders) {
		leaveA := h.join("a", 1, adds("a"))
		state, _ := h.stored(stateOf0)
		assert.Equal(t, "a", state)
		leaveB := h.join("b", 1, adds("b"))
		require.NoError(t, leaveA())
		time.Sleep(time.Second)
		state, _ = h.stored(stateOf0)
		assert.Equal(t, "a.b", state)

		leaveC := h.join("c", 1, adds("c"))
		defer h.server.Partition("b")()
		time.Sleep(20 * time.Second)
		state, _ = h.stored(stateOf0)
		assert.Equal(t, "a.bc", state, "b could not save its mark")
		require.NoError(t, leaveC())
		require.NoError(t, leaveB())

		time.Sleep(1000 * 24 * time.Hour)
		leaveD := h.join("d", 1, adds("d"))
		require.NoError(t, leaveD())
		state, _ = h.stored(stateOf0)
		assert.Equal(t, "a.bc.d.", state)
	})
	holding(t, "is that of the shard", func(t *testing.T, h *holders) {
		leave := h.join("a", 3, func(ctx context.Context, s Owned) error {
			return s.Save(ctx, fmt.Append(nil, "shard ", s.Shard))
		})
		require.NoError(t, leave())
		for shard := range 3 {
			state, _ := h.stored(registry.Key(fmt.Sprint("test/groups/default/data/shards/", shard)))
			assert.Equal(t, fmt.Sprint("shard ", shard), state)
		}
	})
	holding(t, "is read past a member of the store that is behind", func(t *testing.T, h *holders) {
		read := make(chan string, 1)
		old := make(chan string, 1)
		reg := h.server.Client("a")
		leave := h.join("a", 1, func(ctx context.Context, s Owned) error {
			if _, err := s.State(ctx); err != nil {
				return err
			}
			defer h.server.Lag("a")()
			_, err := h.server.Client("other").Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create(stateOf0, []byte("new"))}})
			if err != nil {
				return err
			}
			e, _ := reg.Get(ctx, stateOf0, registry.ReadOptions{})
			old <- string(e.Value)
			state, err := s.State(ctx)
			read <- string(state)
			<-ctx.Done()
			return err
		})
		assert.Empty(t, <-old)
		assert.Equal(t, "new", <-read)
		require.NoError(t, leave())
	})
	t.Run("is nil for a literal, whose Save does nothing", func(t *testing.T) {
		var s Owned
		require.NoError(t, s.Save(t.Context(), []byte("state"), registry.Create("a", nil)))
		rev, err := s.Commit(t.Context(), registry.Create("a", nil))
		require.NoError(t, err)
		assert.True(t, rev.IsZero())
		state, err := s.State(t.Context())
		require.NoError(t, err)
		assert.Nil(t, state)
	})
}

func TestOwned_Save(t *testing.T) {
	// owning owns shard 0 until f has returned, which is all that Own does.
	owning := func(h *holders, f func(context.Context, Owned)) (leave func() error) {
		var once sync.Once
		return h.join("a", 1, func(ctx context.Context, s Owned) error {
			once.Do(func() { f(ctx, s) })
			<-ctx.Done()
			return nil
		})
	}
	holding(t, "is refused once Own has returned, though the session lives", func(t *testing.T, h *holders) {
		var kept Owned
		leaveA := h.join("a", 2, func(ctx context.Context, s Owned) error {
			<-ctx.Done()
			if s.Shard == 0 {
				return nil
			}
			kept = s
			return s.Save(context.WithoutCancel(ctx), []byte("last"))
		})
		leaveB := h.join("b", 2, nil)
		require.Equal(t, map[string]string{"a": "0", "b": "1"}, h.now())
		err := kept.Save(t.Context(), []byte("late"))
		require.ErrorIs(t, err, ErrNotOwner)
		assert.ErrorContains(t, err, "save state of shard 1: ")
		_, err = kept.Commit(t.Context(), registry.Create("late", nil))
		require.ErrorIs(t, err, ErrNotOwner)
		state, _ := h.stored("test/groups/default/data/shards/1")
		assert.Equal(t, "last", state)
		require.NoError(t, leaveA())
		require.NoError(t, leaveB())
	})
	holding(t, "that has no answer yet keeps the shard, though Own has returned", func(t *testing.T, h *holders) {
		leaveA := h.join("a", 1, func(ctx context.Context, s Owned) error {
			if _, err := s.State(ctx); err != nil {
				return err
			}
			<-ctx.Done()
			h.server.Delay("a", 2*time.Second, 0)
			defer h.server.Delay("a", 0, 0)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			err := s.Save(ctx, []byte("a"))
			assert.ErrorIs(t, err, registry.ErrUnknownOutcome)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			return err
		})
		var found string
		leaveB := h.join("b", 1, func(ctx context.Context, s Owned) error {
			state, err := s.State(ctx)
			found = string(state)
			<-ctx.Done()
			return err
		})
		require.NoError(t, leaveA())
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string]string{"b": "0"}, h.now())
		assert.Equal(t, "a", found)
		require.NoError(t, leaveB())
	})
	holding(t, "that arrives after the session has ended changes nothing", func(t *testing.T, h *holders) {
		save, saved := make(chan struct{}), make(chan error, 1)
		leaveA := owning(h, func(ctx context.Context, s Owned) {
			_, err := s.State(ctx)
			require.NoError(t, err)
			<-save
			saved <- s.Save(context.WithoutCancel(ctx), []byte("late"))
		})
		leaveB := h.join("b", 1, nil)
		release := h.server.HoldCommit("a")
		close(save)
		synctest.Wait() // it is on its way, and will be sent again in a moment
		heal := h.server.Partition("a")
		time.Sleep(20 * time.Second)
		require.Equal(t, map[string]string{"b": "0"}, h.now())
		release()
		require.Error(t, <-saved)
		_, there := h.stored(stateOf0)
		assert.False(t, there)
		heal()
		require.NoError(t, leaveA())
		require.NoError(t, leaveB())
	})
	holding(t, "comes with what is committed with it, or not at all", func(t *testing.T, h *holders) {
		leave := owning(h, func(ctx context.Context, s Owned) {
			require.NoError(t, s.Save(ctx, []byte("1"), registry.Create("made/1", nil), registry.Create("made/2", nil)))
			err := s.Save(ctx, []byte("2"), registry.Create("made/3", nil), registry.Create("made/2", nil))
			var refusal *registry.ConflictError
			require.ErrorAs(t, err, &refusal)
			assert.Equal(t, 1, refusal.Index)
			require.NoError(t, s.Save(ctx, []byte("3"), registry.Create("made/3", nil)))
		})
		state, _ := h.stored(stateOf0)
		assert.Equal(t, "3", state)
		require.NoError(t, leave())
	})
	holding(t, "does not overwrite the state of another writer, until State has been called", func(t *testing.T, h *holders) {
		leave := owning(h, func(ctx context.Context, s Owned) {
			require.NoError(t, s.Save(ctx, []byte("own")))
			for _, e := range h.server.Dump() {
				if e.Key == stateOf0 {
					_, err := h.server.Client("hand").Txn(ctx, registry.Txn{Then: []registry.Op{registry.Set(stateOf0, e.Modified, []byte("other"))}})
					require.NoError(t, err)
				}
			}
			for range 2 {
				err := s.Save(ctx, []byte("own again"), registry.Create("made", nil))
				require.ErrorIs(t, err, registry.ErrConflict)
				assert.ErrorContains(t, err, "another writer")
			}
			state, err := s.State(ctx)
			require.NoError(t, err)
			assert.Equal(t, "other", string(state))
			require.NoError(t, s.Save(ctx, []byte("own again")))
		})
		require.NoError(t, leave())
	})
	holding(t, "from many goroutines is one after another", func(t *testing.T, h *holders) {
		leave := owning(h, func(ctx context.Context, s Owned) {
			h.server.Delay("a", time.Millisecond, time.Millisecond)
			defer h.server.Delay("a", 0, 0)
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() { assert.NoError(t, s.Save(ctx, fmt.Append(nil, i))) })
				all.Go(func() { _, err := s.State(ctx); assert.NoError(t, err) })
			}
			all.Wait()
		})
		require.NoError(t, leave())
	})
	holding(t, "whose request or answer is lost is settled", func(t *testing.T, h *holders) {
		leave := owning(h, func(ctx context.Context, s Owned) {
			for i, lose := range []func(string, int){h.server.LoseRequest, h.server.LoseReply} {
				lose("a", 2)
				require.NoError(t, s.Save(ctx, fmt.Append(nil, i)))
			}
		})
		state, _ := h.stored(stateOf0)
		assert.Equal(t, "1", state)
		require.NoError(t, leave())
	})
	holding(t, "with a context that has ended, or of too much, says that nothing was written", func(t *testing.T, h *holders) {
		leave := owning(h, func(ctx context.Context, s Owned) {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			require.ErrorIs(t, s.Save(ended, []byte("x")), registry.ErrNotApplied)
			_, err := s.Commit(ended, registry.Create("x", nil))
			require.ErrorIs(t, err, registry.ErrNotApplied)
			require.ErrorIs(t, s.Save(ctx, []byte(strings.Repeat("x", 200<<10))), registry.ErrTooLarge)
			require.NoError(t, s.Save(ctx, []byte("y")))
		})
		require.NoError(t, leave())
	})
}
