package conformance

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// follower reads a watch, maintains the state it delivers and checks every batch against
// the contract of Watch.
type follower struct {
	t   *test
	dir registry.Key
	w   registry.Watcher

	has     map[registry.Key]registry.Entry
	newest  map[registry.Key]uint64 // latest Seq delivered per key, deleted keys included
	last    registry.Batch
	batches int
}

// maxBatches exceeds the batches of any case, so that a watcher which never waits cannot
// hang the suite.
const maxBatches = 1_000_000

// follow watches dir until the end of the case. It receives the snapshot before it returns, so that
// changes made afterwards arrive as deltas: a watcher that is first read later would deliver a
// snapshot that holds them.
func (t *test) follow(r registry.Registry, dir registry.Key) *follower {
	t.Helper()
	w, err := r.Watch(t.ctx, dir, registry.WatchOptions{})
	require.NoError(t, err, "watch %q", dir)
	f := t.followWatcher(w, dir)
	f.next()
	return f
}

// followWatcher follows a watch of dir until the end of the case, and receives nothing yet.
func (t *test) followWatcher(w registry.Watcher, dir registry.Key) *follower {
	t.Cleanup(func() { w.Close() })
	return &follower{
		t: t, dir: dir, w: w,
		has:    map[registry.Key]registry.Entry{},
		newest: map[registry.Key]uint64{},
	}
}

// next returns the next batch and fails the case on an error.
func (f *follower) next() registry.Batch {
	f.t.Helper()
	b, err := f.receive(f.t.within(f.t.ttl + slack))
	require.NoError(f.t, err, "the next batch of %q", f.dir)
	return b
}

// receive returns the next batch. Unlike next it may be called from any goroutine.
func (f *follower) receive(ctx context.Context) (registry.Batch, error) {
	b, err := f.w.Next(ctx)
	if err != nil {
		return b, err
	}
	if f.batches == maxBatches {
		return b, fmt.Errorf("%d batches of %q without an end", maxBatches, f.dir)
	}
	if err := f.checkBatch(b); err != nil {
		return b, fmt.Errorf("batch %d of %q, a %v at %d: %w", f.batches, f.dir, b.Kind, b.Rev.Seq, err)
	}
	f.applyBatch(b)
	return b, nil
}

// followUntil receives batches until ok, for at most the time of a reconnection.
func (f *follower) followUntil(what string, ok func() bool) {
	f.t.Helper()
	ctx := f.t.within(f.t.ttl + slack)
	for !ok() {
		_, err := f.receive(ctx)
		require.NoError(f.t, err, "follow %q until %s; so far %s", f.dir, what, f.values())
	}
}

// converge receives batches until the follower's state equals a Fresh List by r. No
// writer may be active.
func (f *follower) converge(r registry.Registry) {
	f.t.Helper()
	want := f.t.listFresh(r, f.dir)
	listed := map[registry.Key]registry.Entry{}
	for _, e := range want {
		listed[e.Key] = e
	}
	f.followUntil("it equals the list "+describeEntries(listed), func() bool { return f.equals(want) })
}

// awaitValue receives batches until key has value.
func (f *follower) awaitValue(key registry.Key, value string) {
	f.t.Helper()
	f.followUntil(fmt.Sprintf("%s is %q", key, value), func() bool {
		e, ok := f.has[key]
		return ok && string(e.Value) == value
	})
}

func (f *follower) equals(want []registry.Entry) bool {
	if len(want) != len(f.has) {
		return false
	}
	for _, e := range want {
		if !sameEntry(e, f.has[e.Key]) {
			return false
		}
	}
	return true
}

func (f *follower) values() string { return describeEntries(f.has) }

// describeEntries describes the first entries of a directory.
func describeEntries(all map[registry.Key]registry.Entry) string {
	const shown = 10
	var b strings.Builder
	for i, key := range slices.Sorted(maps.Keys(all)) {
		if i == shown {
			fmt.Fprintf(&b, " and %d more", len(all)-shown)
			break
		}
		fmt.Fprintf(&b, " %s=%.20q at %d", key, all[key].Value, all[key].Modified.Seq)
	}
	return "[" + strings.TrimSpace(b.String()) + "]"
}

func (f *follower) applyBatch(b registry.Batch) {
	if b.Kind == registry.Snapshot {
		clear(f.has)
	}
	for _, e := range b.Puts {
		f.has[e.Key] = e
		f.newest[e.Key] = e.Modified.Seq
	}
	for _, k := range b.Deletes {
		delete(f.has, k)
	}
	f.last = b
	f.batches++
}

// checkBatch returns an error if b breaks a rule of Batch or Watch.
func (f *follower) checkBatch(b registry.Batch) error {
	switch {
	case b.Kind != registry.Snapshot && b.Kind != registry.Delta:
		return fmt.Errorf("unknown kind")
	case f.batches == 0 && b.Kind != registry.Snapshot:
		return fmt.Errorf("the first batch is not a snapshot")
	case b.Kind == registry.Snapshot && len(b.Deletes) > 0:
		return fmt.Errorf("a snapshot has deletes: %v", b.Deletes)
	}
	deleted := map[registry.Key]bool{}
	for i, k := range b.Deletes {
		if i > 0 && b.Deletes[i-1] >= k {
			return fmt.Errorf("deletes are not sorted: %s before %s", b.Deletes[i-1], k)
		}
		if k.Dir() != f.dir {
			return fmt.Errorf("delete of %s, which is not in the directory", k)
		}
		deleted[k] = true
	}
	for i, e := range b.Puts {
		if i > 0 && b.Puts[i-1].Key >= e.Key {
			return fmt.Errorf("puts are not sorted: %s before %s", b.Puts[i-1].Key, e.Key)
		}
		if deleted[e.Key] {
			return fmt.Errorf("%s is put and deleted", e.Key)
		}
		if err := f.checkPut(b, e); err != nil {
			return fmt.Errorf("put of %s at %d: %w", e.Key, e.Modified.Seq, err)
		}
	}
	return nil
}

func (f *follower) checkPut(b registry.Batch, e registry.Entry) error {
	_, known := f.has[e.Key]
	switch newest := f.newest[e.Key]; {
	case e.Key.Dir() != f.dir:
		return fmt.Errorf("it is not in the directory")
	case e.Modified.Seq > b.Rev.Seq:
		return fmt.Errorf("it is newer than the batch")
	case e.Modified.Seq < newest:
		return fmt.Errorf("it is older than %d, which was delivered", newest)
	case b.Kind == registry.Delta && e.Modified.Seq == newest:
		return fmt.Errorf("it was delivered before")
	case !known && newest > 0 && e.Created.Seq <= newest:
		return fmt.Errorf("it was deleted after %d, but has Created %d", newest, e.Created.Seq)
	}
	return nil
}

func sameEntry(x, y registry.Entry) bool {
	return x.Key == y.Key && bytes.Equal(x.Value, y.Value) && x.Created == y.Created &&
		x.Modified == y.Modified && x.Owner == y.Owner && x.Txn == y.Txn
}

// assertNoEvents writes mark, a key of the watched directory, and fails the case if
// another change is delivered before it.
func (f *follower) assertNoEvents(r registry.Registry, mark registry.Key) {
	f.t.Helper()
	f.t.create(r, mark, "mark")
	var batches []registry.Batch
	for f.has[mark].Key != mark {
		batches = append(batches, f.next())
	}
	for _, b := range batches {
		if b.Kind == registry.Delta {
			require.Subset(f.t, []registry.Key{mark}, keysOf(b.Puts), "nothing but %s was written", mark)
			require.Empty(f.t, b.Deletes, "nothing was deleted")
		}
	}
}
