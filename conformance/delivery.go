package conformance

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// deliveryCases test the delivery of changes by size, position and history: commits in
// several directories, hundreds of keys, the root, deletes only, single commits beside the
// beginning of a watch.
var deliveryCases = []Case{
	{
		Code: "W24", Name: "a commit in several directories is delivered to the watchers of each",
		Proves: []Promise{WatchFollowsChanges, LastStateArrives, WatchIsOneLevel}, run: severalDirectories, Safety: true,
	},
	{
		Code: "W25", Name: "watches of the root and of the deepest directory deliver changes",
		Proves: []Promise{WatchFollowsChanges, InvalidKeysAreRefused}, run: outermostDirectories,
	},
	{
		Code: "W26", Name: "a watch continues when the key of its directory is written or deleted",
		Proves: []Promise{WatchFollowsChanges, DirNeedNotExist, DeleteSparesDescendants}, run: directoryKeyChanges,
	},
	{
		Code: "W27", Name: "a stalled reader receives hundreds of changed keys",
		Proves: []Promise{LastStateArrives, ListHoldsValuesOnly, ListIsComplete, BatchesAreSorted, DeltasHoldChanges}, run: manyChangesUnread, Safety: true,
	},
	{
		Code: "W28", Name: "hundreds of changes made while the watcher was disconnected are delivered",
		Proves: []Promise{LastStateArrives, WatchOutlivesConnections}, Needs: []string{Partition}, run: manyChangesWhileAway, Safety: true,
	},
	{
		Code: "W29", Name: "a value written again while the watcher was disconnected is delivered with its new Rev",
		Proves: []Promise{LastStateArrives, WatchedEntriesAreComplete, CreatedStays, CreatedChangesOnRecreation, ModifiedIsTheLastWrite}, Needs: []string{Partition}, run: sameValueWhileAway, Safety: true,
	},
	{
		Code: "W30", Name: "Next with an ended context loses no batch",
		Proves: []Promise{NextEndsWithItsContext, LastStateArrives}, run: endedNextLosesNothing, Safety: true,
	},
	{
		Code: "W31", Name: "a batch is at least as new as the deletes in it",
		Proves: []Promise{BatchRevBoundsChanges}, Needs: []string{Partition}, run: deletesBoundTheBatch, Safety: true,
	},
	{
		Code: "W32", Name: "a single commit beside the beginning of a watch is delivered",
		Proves: []Promise{SnapshotFirst, LastStateArrives}, run: commitBesideBeginning, Safety: true,
	},
	{
		Code: "W33", Name: "a commit that writes and deletes keys of one directory is delivered whole",
		Proves: []Promise{LastStateArrives}, run: writesAndDeletes, Safety: true,
	},
	{
		Code: "W34", Name: "a watch begun while disconnected fails, or begins when the connection is back",
		Proves: []Promise{UnreachableIsErrUnavailable, SnapshotFirst, LastStateArrives}, Needs: []string{Partition}, run: beginWhileAway,
	},
	{
		Code: "W36", Name: "a watcher, a session and a handle that are idle for long work as before",
		Proves: []Promise{WatchFollowsChanges, SessionsAreRenewed, FreshReadsSeeAll}, run: idleForLong,
	},
	{
		Code: "W35", Name: "a commit beside the beginning of a watch is delivered when answers are late",
		Proves: []Promise{SnapshotFirst, LastStateArrives}, Needs: []string{Delay}, run: commitBesideLateBeginning, Safety: true,
	},
}

func severalDirectories(t *test) {
	a := t.handleA()
	dirs := []registry.Key{"x", "y", "", "x/below"}
	var all []*follower
	for _, r := range []registry.Registry{a, t.handleB()} {
		for _, dir := range dirs {
			f := t.follow(r, dir)
			all = append(all, f)
		}
	}
	commit := func(op func(registry.Key) registry.Op, left int) registry.Rev {
		var ops []registry.Op
		for _, dir := range dirs {
			ops = append(ops, op(dir.Join("k")))
		}
		rev := t.commitOps(a, ops...)
		for _, f := range all {
			f.converge(a)
			require.Len(t, f.has, left, "keys in %q", f.dir)
		}
		return rev
	}
	for range 2 {
		rev := commit(func(k registry.Key) registry.Op { return registry.Create(k, nil) }, 1)
		rev = commit(func(k registry.Key) registry.Op { return registry.Set(k, rev, []byte("set")) }, 1)
		commit(func(k registry.Key) registry.Op { return registry.Delete(k, rev) }, 0)
	}
}

func outermostDirectories(t *test) {
	a := t.handleA()
	for _, key := range []registry.Key{
		"k",
		registry.Key(strings.Repeat("s/", t.keySegments()-1) + "s"),
		longKey(t.keyBytes()),
	} {
		f := t.follow(t.handleB(), key.Dir())
		for range 2 {
			rev := t.create(a, key, "created")
			f.awaitValue(key, "created")
			rev = t.commitOps(a, registry.Set(key, rev, []byte("set")))
			f.awaitValue(key, "set")
			t.commitOps(a, registry.Delete(key, rev))
			f.followUntil("the key is gone", func() bool { return len(f.has) == 0 })
		}
	}
}

func directoryKeyChanges(t *test) {
	a := t.handleA()
	f := t.follow(t.handleB(), "d")
	child := t.create(a, "d/k", "0")
	for i := range 3 {
		own := t.create(a, "d", "own")
		child = t.commitOps(a, registry.Set("d/k", child, fmt.Append(nil, i, "created")))
		f.converge(a)
		own = t.commitOps(a, registry.Set("d", own, []byte("set")))
		t.commitOps(a, registry.Delete("d", own))
		child = t.commitOps(a, registry.Set("d/k", child, fmt.Append(nil, i, "deleted")))
		f.converge(a)
	}
	t.commitOps(a, registry.Delete("d/k", child)) // neither the directory's key nor a child is left
	f.converge(a)
	own := t.create(a, "d", "own")
	t.create(a, "d/k", "again")
	f.converge(a)
	t.commitOps(a, registry.Delete("d", own))
	t.create(a, "d/k2", "last")
	f.converge(a)
}

// manyKeys is more than a transaction, a page or a buffer of a few hundred entries holds.
const manyKeys = 300

// commitEach commits one operation for each of n keys of dir, as few commits as possible. It
// returns the Rev of each.
func (t *test) commitEach(r registry.Registry, dir registry.Key, n int, op func(i int, key registry.Key) registry.Op) []registry.Rev {
	t.Helper()
	const perTxn = 100
	revs := make([]registry.Rev, n)
	for start := 0; start < n; start += perTxn {
		end := min(start+perTxn, n)
		var ops []registry.Op
		for i := start; i < end; i++ {
			ops = append(ops, op(i, dir.Join(fmt.Sprintf("k%03d", i))))
		}
		rev := t.commitOps(r, ops...)
		for i := start; i < end; i++ {
			revs[i] = rev
		}
	}
	return revs
}

func manyChangesUnread(t *test) {
	a := t.handleA()
	for i, n := range draw(t, "changed keys", inBubbleOr(t, []int{manyKeys, 1_025, 2_500}, []int{1_025})...) {
		dir := registry.Key(fmt.Sprintf("d%d", i))
		f := t.follow(t.handleB(), dir)
		revs := t.commitEach(a, dir, n, func(_ int, key registry.Key) registry.Op { return registry.Create(key, nil) })
		f.converge(a)
		require.Len(t, f.has, n)
		revs = t.commitEach(a, dir, n, func(i int, key registry.Key) registry.Op {
			return registry.Set(key, revs[i], []byte("set"))
		})
		f.converge(a)
		t.commitEach(a, dir, n-100, func(i int, key registry.Key) registry.Op { return registry.Delete(key, revs[i]) })
		f.converge(a)
		require.Len(t, f.has, 100)
	}
}

func manyChangesWhileAway(t *test) {
	a := t.handleA()
	f := t.follow(t.handleB(), "d")
	revs := t.commitEach(a, "d", manyKeys, func(_ int, key registry.Key) registry.Op { return registry.Create(key, nil) })
	f.converge(a)
	f.changeWhileAway("b", func() {
		t.commitEach(a, "d", manyKeys, func(i int, key registry.Key) registry.Op {
			if i%20 == 0 {
				return registry.Delete(key, revs[i])
			}
			return registry.Set(key, revs[i], []byte("set"))
		})
		t.create(a, "d/zzz", "the last")
	})
	require.Len(t, f.has, manyKeys-manyKeys/20+1)
}

func sameValueWhileAway(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	f := t.follow(t.handleB(), "d")
	set, again, own := t.create(a, "d/set", "same"), t.create(a, "d/again", "same"), t.createOwned(a, "d/~own", s)
	f.converge(a)
	f.changeWhileAway("b", func() { // converges only if the Revs arrive too
		t.commitOps(a, registry.Set("d/set", set, []byte("same")))
		t.commitOps(a, registry.Delete("d/again", again), registry.Delete("d/~own", own))
		t.create(a, "d/again", "same")
		t.createOwned(a, "d/~own", s)
	})
	require.Len(t, f.has, 3)
}

func endedNextLosesNothing(t *test) {
	a := t.handleA()
	ended, cancel := context.WithCancel(t.ctx)
	cancel()
	f := t.follow(a, "d")
	receive := func(ctx context.Context) {
		if _, err := f.receive(ctx); err != nil {
			require.ErrorIs(t, err, ctx.Err(), "the error of Next")
		}
	}
	t.settle(20 * time.Millisecond)
	receive(ended) // the snapshot is ready
	f.converge(a)
	rev := t.create(a, "d/k", "0")
	for i := range 10 {
		rev = t.commitOps(a, registry.Set("d/k", rev, strconv.AppendInt(nil, int64(i), 10)))
		t.settle(5 * time.Millisecond)
		receive(ended)
	}
	f.converge(a)
	t.commitOps(a, registry.Delete("d/k", rev))
	t.settle(20 * time.Millisecond)
	receive(ended) // the last change
	f.converge(a)

	stop := t.spawn(func(ctx context.Context) error { return churn(ctx, a, "d", 0) })
	for i := range 40 { // contexts that end about when a batch arrives
		ctx, cancel := context.WithTimeout(t.ctx, time.Duration(i)*100*time.Microsecond)
		receive(ctx)
		cancel()
	}
	stop()
	f.converge(a)
}

func deletesBoundTheBatch(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	f := t.follow(t.handleB(), "d")
	assertAsNewAs := func(rev registry.Rev, what string) {
		f.converge(a)
		require.GreaterOrEqual(t, f.last.Rev.Seq, rev.Seq, "the Rev of the batch with %s", what)
	}
	for i := range 3 {
		plain, own := t.create(a, "d/k", ""), t.createOwned(a, "d/~own", s)
		f.converge(a)
		t.create(a, registry.Key(fmt.Sprintf("elsewhere/k%d", i)), "")
		assertAsNewAs(t.commitOps(a, registry.Delete("d/k", plain)), "a delete")
		assertAsNewAs(t.commitOps(a, registry.Delete("d/~own", own)), "the delete of an owned key")
	}
	t.createOwned(a, "d/~own", s)
	f.converge(a)
	mark := t.create(a, "elsewhere/last", "") // older than the end of the session
	require.NoError(t, s.Close(t.ctx))
	assertAsNewAs(registry.Rev{Seq: mark.Seq + 1}, "the end of a session")

	plain := t.create(a, "d/k", "")
	f.converge(a)
	f.changeWhileAway("b", func() { plain = t.commitOps(a, registry.Delete("d/k", plain)) })
	assertAsNewAs(plain, "a delete made while the watcher was disconnected")
}

func commitBesideBeginning(t *test) {
	t.commitBesideBeginnings(t.repeats(120, 60), 4*time.Millisecond)
}

func commitBesideLateBeginning(t *test) {
	const late = 3 * time.Millisecond
	t.handleB()
	t.Cleanup(t.store.Delay("b", late))
	t.commitBesideBeginnings(t.repeats(120, 40), 4*late)
}

// commitBesideBeginnings commits once at some moment of the beginning of a watch, n times. The moments
// are spread over a duration. Nothing follows that could make the watcher read the directory again.
func (t *test) commitBesideBeginnings(n int, spread time.Duration) {
	a, b := t.handleA(), t.handleB()
	for i := range n {
		key := registry.Key(fmt.Sprintf("d%03d/k", i))
		op := registry.Create(key, []byte("new"))
		if i%3 > 0 {
			rev := t.create(a, key, "old")
			op = registry.Set(key, rev, []byte("new"))
			if i%3 == 2 {
				op = registry.Delete(key, rev)
			}
		}
		committed := make(chan error, 1)
		t.spawn(func(ctx context.Context) error {
			time.Sleep(time.Duration(i) * spread / time.Duration(n))
			_, err := a.Txn(context.WithoutCancel(ctx), registry.Txn{Then: []registry.Op{op}})
			committed <- err
			return nil
		})
		f := t.follow(b, key.Dir())
		require.NoError(t, <-committed)
		f.converge(a)
		require.NoError(t, f.w.Close())
	}
}

func writesAndDeletes(t *test) {
	a := t.handleA()
	f := t.follow(t.handleB(), "d")
	for writes := range 3 {
		for deletes := range 3 {
			for _, deletesFirst := range []bool{false, true} {
				var creates, ops []registry.Op
				for i := range deletes {
					creates = append(creates, registry.Create(registry.Key(fmt.Sprintf("d/old%d", i)), nil))
				}
				set := t.create(a, "d/set", "old")
				made := t.commitOps(a, append(creates, registry.Create("d/kept", nil))...)
				f.converge(a)
				for i := range writes {
					op := registry.Create(registry.Key(fmt.Sprintf("d/new%d", i)), nil)
					if i == 0 {
						op = registry.Set("d/set", set, []byte("new"))
					}
					ops = append(ops, op)
				}
				for i := range deletes {
					ops = append(ops, registry.Delete(creates[i].Key, made))
				}
				if deletesFirst {
					slices.Reverse(ops)
				}
				if len(ops) > 0 {
					t.commitOps(a, ops...)
				}
				f.converge(a)
				var rest []registry.Op
				for _, e := range t.listFresh(a, "d") {
					rest = append(rest, registry.Delete(e.Key, e.Modified))
				}
				t.commitOps(a, rest...)
				f.converge(a)
			}
		}
	}
}

func beginWhileAway(t *test) {
	a, b := t.handleA(), t.handleB()
	rev := t.create(a, "d/k", "before")
	t.listFresh(b, "d")
	for i, cut := range []Cut{Refuse, Blackhole} {
		heal := t.partition("b", cut)
		var w registry.Watcher
		begun := make(chan error, 1)
		t.spawn(func(context.Context) error {
			var err error
			w, err = b.Watch(t.ctx, "d", registry.WatchOptions{})
			begun <- err
			return nil
		})
		t.settle(20 * time.Millisecond)
		rev = t.commitOps(a, registry.Set("d/k", rev, strconv.AppendInt(nil, int64(i), 10)))
		heal()
		if err := <-begun; err != nil {
			require.NoError(t, checkUnavailable(err))
			t.awaitUsable(b)
			continue
		}
		f := t.followWatcher(w, "d")
		require.Equal(t, registry.Snapshot, f.next().Kind)
		f.converge(a)
		rev = t.commitOps(a, registry.Set("d/k", rev, []byte("after")))
		f.converge(a)
	}
}

// idleForLong leaves a handle without calls, and its watchers without changes, for a day of virtual
// time.
func idleForLong(t *test) {
	naps := []time.Duration{2 * t.ttl}
	if t.bubble {
		naps = draw(t, "idle for", time.Minute, time.Hour, 24*time.Hour)
		t.allow(72 * time.Hour)
	}
	a, b := t.handleA(), t.handleB()
	s := t.longSession(b)
	rev := t.createOwned(b, "d/~own", s)
	k := t.create(a, "d/k", "0")
	reads, waits := t.follow(b, "d"), t.follow(b, "d")
	for i, nap := range naps {
		waiting := make(chan error, 1)
		t.spawn(func(ctx context.Context) error {
			_, err := waits.receive(ctx)
			waiting <- err
			return nil
		})
		t.sleep(nap)
		value := strconv.Itoa(i + 1)
		k = t.commitOps(a, registry.Set("d/k", k, []byte(value)))
		require.NoError(t, <-waiting, "a Next that began %v ago", nap)
		waits.converge(b)
		reads.awaitValue("d/k", value)
		require.Equal(t, value, string(t.getFresh(b, "d/k").Value))
		require.NoError(t, inState(s, registry.SessionConnected))
		t.assertHolds(b, registry.Alive(s.ID()), registry.At("d/~own", rev))
	}
}
