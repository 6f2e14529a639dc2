package memory_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestWatch(t *testing.T) {
	bubble(t, "a Snapshot then Deltas of the children only", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		create(t, a, "d/k", "1")
		create(t, a, "d/k/below", "1")
		create(t, a, "da", "1")
		w := watch(t, a, "d")
		b := next(t, w)
		require.Equal(t, registry.Snapshot, b.Kind)
		require.Equal(t, []registry.Key{"d/k"}, keys(b))
		create(t, a, "d/below/it", "1")
		create(t, a, "d2/k", "1")
		requireNoBatch(t, w, time.Second)
		rev := create(t, a, "d/l", "1")
		b = next(t, w)
		require.Equal(t, registry.Delta, b.Kind)
		require.Equal(t, rev, b.Rev)
		require.Equal(t, []registry.Key{"d/l"}, keys(b))
		require.Empty(t, b.Deletes)
	})
	bubble(t, "the first Snapshot shows the state when Next is called", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		w := watch(t, a, "d")
		rev := create(t, a, "d/k", "1")
		b := next(t, w)
		require.Equal(t, rev, b.Rev)
		require.Equal(t, []registry.Key{"d/k"}, keys(b))
		requireNoBatch(t, w, time.Second)
	})
	bubble(t, "changes of one key merge into the last", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		rev := create(t, a, "d/k", "1")
		w := watch(t, a, "d")
		next(t, w)
		apply(t, a, registry.Delete("d/k", rev))
		again := create(t, a, "d/k", "2")
		set := apply(t, a, registry.Set("d/k", again, []byte("3")))
		b := next(t, w)
		require.Empty(t, b.Deletes)
		require.Len(t, b.Puts, 1)
		require.Equal(t, again, b.Puts[0].Created)
		require.Equal(t, set, b.Puts[0].Modified)
		gone := apply(t, a, registry.Delete("d/k", set))
		b = next(t, w)
		require.Empty(t, b.Puts)
		require.Equal(t, []registry.Key{"d/k"}, b.Deletes)
		require.Equal(t, gone, b.Rev)
	})
	bubble(t, "the changes of a transaction arrive together and sorted", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		w := watch(t, a, "d")
		next(t, w)
		var ops []registry.Op
		var want []registry.Key
		for i := range 50 {
			key := registry.Join("d", fmt.Sprintf("%02d", i))
			want = append(want, key)
			ops = append([]registry.Op{registry.Create(key, nil)}, ops...)
		}
		go apply(t, a, ops...)
		require.Equal(t, want, keys(next(t, w)))
		synctest.Wait()
	})
	bubble(t, "batches are the reader's to keep", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		w, other := watch(t, a, "d"), watch(t, a, "d")
		next(t, w)
		next(t, other)
		create(t, a, "d/k", "1")
		next(t, w).Puts[0].Value[0] = 'x'
		require.Equal(t, "1", string(next(t, other).Puts[0].Value))
		require.Equal(t, "1", get(t, a, "d/k"))
	})
	bubble(t, "the directory need not exist", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		for _, dir := range []registry.Key{"", "x/y/z"} {
			w := watch(t, a, dir)
			require.Empty(t, next(t, w).Puts)
			create(t, a, dir.Join("k"), "1")
			require.Equal(t, []registry.Key{dir.Join("k")}, keys(next(t, w)))
			require.NoError(t, w.Close())
		}
		_, err := a.Watch(t.Context(), "~o", registry.WatchOptions{})
		require.ErrorIs(t, err, registry.ErrInvalidKey)
	})
}

func TestWatchEnds(t *testing.T) {
	bubble(t, "Close wakes Next", func(t *testing.T, s *memory.Server) {
		w := watch(t, connect(t, s, "a"), "d")
		next(t, w)
		time.AfterFunc(time.Second, func() {
			assert.NoError(t, w.Close())
			assert.NoError(t, w.Close())
		})
		checkDuration(t, time.Second, func() {
			_, err := w.Next(t.Context())
			require.ErrorIs(t, err, registry.ErrClosed)
		})
		_, err := w.Next(t.Context())
		require.ErrorIs(t, err, registry.ErrClosed)
	})
	bubble(t, "closing the handle wakes Next", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		w := watch(t, a, "d")
		next(t, w)
		time.AfterFunc(time.Second, func() { a.Close(context.Background()) })
		_, err := w.Next(t.Context())
		require.ErrorIs(t, err, registry.ErrClosed)
		_, err = a.Watch(t.Context(), "d", registry.WatchOptions{})
		require.ErrorIs(t, err, registry.ErrClosed)
	})
	bubble(t, "the context given to Watch ends it", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		ctx, cancel := context.WithCancel(t.Context())
		w, err := a.Watch(ctx, "d", registry.WatchOptions{})
		require.NoError(t, err)
		next(t, w)
		time.AfterFunc(time.Second, cancel)
		checkDuration(t, time.Second, func() {
			_, err := w.Next(t.Context())
			require.ErrorIs(t, err, context.Canceled)
		})
		require.Zero(t, s.Counts("a").Watches)
		_, err = a.Watch(ctx, "d", registry.WatchOptions{})
		require.ErrorIs(t, err, context.Canceled)
	})
	bubble(t, "the context given to Next does not end it", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		w := watch(t, a, "d")
		next(t, w)
		requireNoBatch(t, w, time.Second)
		create(t, a, "d/k", "1")
		require.Equal(t, []registry.Key{"d/k"}, keys(next(t, w)))
	})
	bubble(t, "10,000 watchers leave no object", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 10_000 {
			w, err := a.Watch(ctx, registry.Join("d", fmt.Sprint(i%100)), registry.WatchOptions{})
			require.NoError(t, err)
			next(t, w)
			if i%2 == 0 {
				require.NoError(t, w.Close())
			}
		}
		require.Equal(t, 5000, s.Counts("a").Watches)
		cancel()
		synctest.Wait() // a remaining goroutine would make the bubble panic
		require.Zero(t, s.Counts("").Watches)
		require.NoError(t, memory.CheckNothingLeft(s))
	})
}

func TestWatchFallsBehind(t *testing.T) {
	bubble(t, "1,000,000 writes to 10 keys cost 10 entries", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		w := watch(t, a, "d")
		next(t, w)
		var ops []registry.Op
		for i := range 10 {
			ops = append(ops, registry.Create(registry.Join("d", fmt.Sprint(i)), nil))
		}
		var rev registry.Rev
		for range 100_000 {
			rev = apply(t, a, ops...)
			for i := range ops {
				ops[i] = registry.Set(ops[i].Key, rev, nil)
			}
			require.LessOrEqual(t, memory.Pending(w), 10)
		}
		b := next(t, w)
		require.Len(t, b.Puts, 10)
		for _, e := range b.Puts {
			require.Equal(t, rev, e.Modified)
		}
		require.Equal(t, 10, s.Counts("a").Events)
		requireNoBatch(t, w, time.Second)
	})
	bubble(t, "keys that are created and deleted cost no more than the keys that exist", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		create(t, a, "d/stays", "1")
		w := watch(t, a, "d")
		next(t, w)
		most := 0
		for i := range 10_000 {
			key := registry.Join("d", fmt.Sprint(i))
			apply(t, a, registry.Delete(key, create(t, a, key, "1")))
			most = max(most, memory.Pending(w))
		}
		require.Less(t, most, 100)
		b := next(t, w)
		require.Equal(t, registry.Snapshot, b.Kind)
		require.Equal(t, []registry.Key{"d/stays"}, keys(b))
		requireNoBatch(t, w, time.Second)
	})
}

func TestWatchCutOff(t *testing.T) {
	for _, cut := range cuts {
		bubble(t, cut.name+": it pauses and catches up", func(t *testing.T, s *memory.Server) {
			a, b := connect(t, s, "a"), connect(t, s, "b")
			rev := create(t, b, "d/k", "1")
			create(t, b, "d/l", "1")
			w := watch(t, a, "d")
			next(t, w)
			heal := cut.cut(s)
			apply(t, b, registry.Delete("d/k", rev))
			again := create(t, b, "d/m", "2")
			if cut.name == "requests" { // events still arrive
				got := next(t, w)
				require.Equal(t, registry.Delta, got.Kind)
				require.Equal(t, []registry.Key{"d/m"}, keys(got))
				require.Equal(t, []registry.Key{"d/k"}, got.Deletes)
				return
			}
			requireNoBatch(t, w, time.Hour)
			time.AfterFunc(time.Second, heal)
			checkDuration(t, time.Second, func() {
				got := next(t, w)
				require.Equal(t, registry.Snapshot, got.Kind)
				require.Equal(t, again, got.Rev)
				require.Equal(t, []registry.Key{"d/l", "d/m"}, keys(got))
			})
		})
	}
	bubble(t, "pending changes are replaced by a Snapshot", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		w := watch(t, a, "d")
		next(t, w)
		create(t, b, "d/k", "1")
		heal := s.Partition("a")
		requireNoBatch(t, w, time.Minute)
		heal()
		require.Equal(t, registry.Snapshot, next(t, w).Kind)
	})
	bubble(t, "a Snapshot waits for a connection to a running server", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		w := watch(t, a, "d")
		heal := s.PartitionOneWay("a", memory.Requests)
		requireNoBatch(t, w, time.Minute)
		heal()
		resume := s.Pause()
		requireNoBatch(t, w, time.Minute)
		time.AfterFunc(time.Second, resume)
		checkDuration(t, time.Second, func() { require.Equal(t, registry.Snapshot, next(t, w).Kind) })
	})
}
