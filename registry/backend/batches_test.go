package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func rev(seq uint64) registry.Rev { return registry.Rev{Seq: seq} }

func entry(key registry.Key, seq uint64) registry.Entry {
	return registry.Entry{Key: key, Value: fmt.Append(nil, seq), Created: rev(seq), Modified: rev(seq)}
}

func put(key registry.Key, seq uint64) Change {
	e := entry(key, seq)
	return Change{Key: key, Rev: e.Modified, Entry: &e}
}

func gone(key registry.Key, seq uint64) Change { return Change{Key: key, Rev: rev(seq)} }

func next(t *testing.T, b *batches) registry.Batch {
	t.Helper()
	batch, err := b.next(t.Context())
	require.NoError(t, err)
	return batch
}

// requireWaiting requires that no batch is pending.
func requireWaiting(t *testing.T, b *batches) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	batch, err := b.next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "%v", batch)
}

func delta(seq uint64, puts []registry.Entry, deletes ...registry.Key) registry.Batch {
	return registry.Batch{Kind: registry.Delta, Rev: rev(seq), Puts: puts, Deletes: deletes}
}

func TestWatcher(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, b *batches){
		"changes before the first Snapshot are ignored": func(t *testing.T, b *batches) {
			b.delta(put("a", 1))
			requireWaiting(t, b)
			b.snapshot(nil, rev(2))
			require.Equal(t, registry.Batch{Kind: registry.Snapshot, Rev: rev(2), Puts: []registry.Entry{}}, next(t, b))
			requireWaiting(t, b)
		},
		"a reader that waits gets the Snapshot first": func(t *testing.T, b *batches) {
			requireWaiting(t, b)
			b.delta(put("a", 1))
			requireWaiting(t, b)
			b.snapshot(nil, rev(2))
			require.Equal(t, registry.Snapshot, next(t, b).Kind)
		},
		"a delete with the Rev of the last write is delivered": func(t *testing.T, b *batches) {
			b.snapshot([]registry.Entry{entry("read", 1)}, rev(1))
			next(t, b)
			b.delta(put("unread", 2), gone("read", 1))
			b.delta(gone("unread", 2))
			require.Equal(t, delta(2, nil, "read"), next(t, b))
			b.delta(put("read", 3))
			next(t, b)
			b.delta(gone("read", 3))
			b.delta(put("read", 3))
			require.Equal(t, delta(3, []registry.Entry{entry("read", 3)}), next(t, b))
		},
		"deletes are sorted": func(t *testing.T, b *batches) {
			var entries []registry.Entry
			var all []registry.Key
			for i := range 50 {
				all = append(all, registry.Key(fmt.Sprintf("k%02d", i)))
				entries = append(entries, entry(all[i], 1))
			}
			b.snapshot(entries, rev(1))
			next(t, b)
			for _, key := range all {
				b.delta(gone(key, 2))
			}
			require.Equal(t, all, next(t, b).Deletes)
		},
		"changes after an unread Snapshot are merged into it": func(t *testing.T, b *batches) {
			b.snapshot([]registry.Entry{entry("b", 2), entry("a", 1), entry("c", 3)}, rev(3))
			b.delta(put("b", 4), gone("a", 5), put("d", 6), gone("d", 7))
			require.Equal(t, registry.Batch{
				Kind: registry.Snapshot, Rev: rev(7), Puts: []registry.Entry{entry("b", 4), entry("c", 3)},
			}, next(t, b))
			requireWaiting(t, b)
		},
		"changes to one key are merged": func(t *testing.T, b *batches) {
			b.snapshot([]registry.Entry{entry("a", 1), entry("b", 2)}, rev(3))
			next(t, b)
			b.delta(put("c", 4), put("a", 5))
			b.delta(put("a", 6), gone("b", 7))
			require.Equal(t, delta(7, []registry.Entry{entry("a", 6), entry("c", 4)}, "b"), next(t, b))
			b.delta(gone("a", 8), put("a", 9))
			require.Equal(t, delta(9, []registry.Entry{entry("a", 9)}), next(t, b))
			requireWaiting(t, b)
		},
		"a delete whose Rev is not known bounds its batch, and precedes a later creation": func(t *testing.T, b *batches) {
			b.snapshot([]registry.Entry{entry("a", 1), entry("b", 1)}, rev(1))
			next(t, b)
			lost := Change{Key: "a", Rev: rev(2), Bound: rev(9)} // deleted at 3 to 9
			b.delta(lost)
			require.Equal(t, delta(9, nil, "a"), next(t, b))
			b.delta(put("a", 5))
			require.Equal(t, delta(9, []registry.Entry{entry("a", 5)}), next(t, b))
			b.delta(lost) // older than the creation
			b.delta(put("b", 12))
			require.Equal(t, delta(12, []registry.Entry{entry("b", 12)}), next(t, b))
		},
		"an older state is never delivered after a newer one": func(t *testing.T, b *batches) {
			b.snapshot([]registry.Entry{entry("a", 5)}, rev(5))
			b.delta(put("a", 4), gone("a", 3))
			require.Equal(t, []registry.Entry{entry("a", 5)}, next(t, b).Puts)
			b.delta(put("a", 4), gone("a", 3), put("a", 5))
			requireWaiting(t, b)
			b.delta(gone("a", 8))
			b.delta(put("a", 7), gone("a", 8))
			require.Equal(t, delta(8, nil, "a"), next(t, b))
		},
		"a key that is created and deleted between reads costs nothing": func(t *testing.T, b *batches) {
			b.snapshot([]registry.Entry{entry("a", 1)}, rev(1))
			next(t, b)
			for seq := uint64(2); seq < 1000; seq += 2 {
				key := registry.Join(fmt.Sprint(seq))
				b.delta(put(key, seq))
				b.delta(gone(key, seq+1))
			}
			require.Empty(t, b.pending)
			requireWaiting(t, b)
		},
		"a Snapshot replaces pending and delivered entries": func(t *testing.T, b *batches) {
			b.snapshot([]registry.Entry{entry("a", 1), entry("b", 1)}, rev(1))
			next(t, b)
			b.delta(put("c", 2))
			b.snapshot([]registry.Entry{entry("b", 4)}, rev(5))
			require.Equal(t, []registry.Entry{entry("b", 4)}, next(t, b).Puts)
			b.delta(gone("a", 6), gone("c", 6))
			requireWaiting(t, b)
			b.delta(gone("b", 7))
			require.Equal(t, delta(7, nil, "b"), next(t, b))
		},
		"a change after a Snapshot of a store that was set back is delivered": func(t *testing.T, b *batches) {
			b.snapshot([]registry.Entry{entry("a", 50)}, rev(60))
			next(t, b)
			b.snapshot(nil, rev(5))
			b.delta(put("a", 6))
			require.Equal(t, []registry.Entry{entry("a", 6)}, next(t, b).Puts)
			b.delta(put("a", 7))
			require.Equal(t, delta(7, []registry.Entry{entry("a", 7)}), next(t, b))
		},
		"no batch is older than the one before it": func(t *testing.T, b *batches) {
			b.snapshot([]registry.Entry{entry("a", 5), entry("b", 6)}, rev(9))
			next(t, b)
			b.delta(put("b", 8)) // committed between the reads of the Snapshot
			require.Equal(t, delta(9, []registry.Entry{entry("b", 8)}), next(t, b))
		},
		"the reader may keep batches": func(t *testing.T, b *batches) {
			b.snapshot([]registry.Entry{entry("a", 1)}, rev(1))
			first := next(t, b)
			b.delta(put("a", 2))
			second := next(t, b)
			b.delta(put("a", 3))
			next(t, b)
			require.Equal(t, []registry.Entry{entry("a", 1)}, first.Puts)
			require.Equal(t, []registry.Entry{entry("a", 2)}, second.Puts)
		},
		"the end wakes the reader": func(t *testing.T, b *batches) {
			time.AfterFunc(time.Second, func() { b.fail(registry.ErrClosed) })
			_, err := b.next(t.Context())
			require.ErrorIs(t, err, registry.ErrClosed)
		},
		"the first error counts, and no batch is delivered after it": func(t *testing.T, b *batches) {
			b.snapshot([]registry.Entry{entry("a", 1)}, rev(1))
			cause := errors.New("cause")
			require.True(t, b.fail(cause))
			require.False(t, b.fail(registry.ErrClosed))
			<-b.done
			b.snapshot(nil, rev(2))
			b.delta(put("a", 3))
			for range 2 {
				_, err := b.next(t.Context())
				require.Equal(t, cause, err)
			}
		},
		"Next ends with its context, and pending changes stay": func(t *testing.T, b *batches) {
			requireWaiting(t, b)
			b.snapshot([]registry.Entry{entry("a", 1)}, rev(1))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := b.next(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.Len(t, next(t, b).Puts, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newBatches()) })
		})
	}
}

// TestWatcher_ConvergeForEveryReader compares the entries of a reader with the entries that
// exist, over random changes, repetitions, Snapshots and times of reading.
func TestWatcher_ConvergeForEveryReader(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, seed))
		b := newBatches()
		exists := map[registry.Key]registry.Entry{}
		has := map[registry.Key]registry.Entry{}
		read := func() {
			batch, err := b.takePending()
			require.NoError(t, err)
			if batch.Kind == registry.Snapshot {
				clear(has)
			}
			for _, e := range batch.Puts {
				require.GreaterOrEqual(t, e.Modified.Seq, has[e.Key].Modified.Seq, "seed %d", seed)
				require.LessOrEqual(t, e.Modified.Seq, batch.Rev.Seq, "seed %d", seed)
				has[e.Key] = e
			}
			for _, key := range batch.Deletes {
				require.Contains(t, has, key, "seed %d: the reader does not have the deleted key", seed)
				delete(has, key)
			}
		}
		b.snapshot(nil, rev(1))
		for seq := uint64(2); seq < 300; seq++ {
			key := registry.Join(string(rune('a' + random.IntN(6))))
			_, there := exists[key]
			switch n := random.IntN(20); {
			case n == 0:
				b.snapshot(slices.Collect(maps.Values(exists)), rev(seq))
			case n < 8 && there:
				delete(exists, key)
				b.delta(gone(key, seq))
			default:
				exists[key] = entry(key, seq)
				for range 1 + random.IntN(2) { // a source may offer a change twice
					b.delta(put(key, seq))
				}
			}
			require.LessOrEqual(t, len(b.pending), len(exists)+len(has), "seed %d: memory is bounded", seed)
			if random.IntN(5) == 0 {
				read()
				require.Equal(t, exists, has, "seed %d", seed)
			}
		}
	}
}
