package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

var watchCases = []Case{
	{
		Code: "W01", Name: "the first batch is a snapshot, even of an empty directory",
		Proves: []Promise{SnapshotFirst}, run: snapshotFirst, Safety: true,
	},
	{
		Code: "W02", Name: "creates, sets and deletes are delivered",
		Proves: []Promise{WatchFollowsChanges, LastStateArrives}, run: changesArrive, Safety: true,
	},
	{
		Code: "W03", Name: "a watch reports only the immediate children of its directory",
		Proves: []Promise{WatchIsOneLevel}, run: watchOneLevel,
	},
	{
		Code: "W04", Name: "watchers of one directory are independent",
		Proves: []Promise{WatchFollowsChanges}, run: independentWatchers,
	},
	{
		Code: "W05", Name: "Next returns when its context ends, and the watcher stays usable",
		Proves: []Promise{NextEndsWithItsContext}, run: nextContext,
	},
	{
		Code: "W06", Name: "a stalled reader blocks no writer and catches up to the last state",
		Proves: []Promise{SlowReaderBlocksNoWriter, LastStateArrives}, run: sleepingReader,
	},
	{
		Code: "W07", Name: "a watcher catches up on changes made while it was disconnected",
		Proves: []Promise{WatchOutlivesConnections, LastStateArrives, CreatedChangesOnRecreation}, Needs: []string{Partition}, run: changedWhileAway, Safety: true,
	},
	{
		Code: "W08", Name: "compacted history leads to a snapshot, not to an error",
		Proves: []Promise{WatchOutlivesConnections}, Needs: []string{Compact, Partition}, run: compactedWhileAway,
	},
	{
		Code: "W09", Name: "a delete made while the watcher was disconnected is delivered",
		Proves: []Promise{WatchOutlivesConnections, LastStateArrives}, Needs: []string{Partition}, run: deletedWhileAway, Safety: true,
	},
	{
		Code: "W10", Name: "a re-created key is delivered with its new Created",
		Proves: []Promise{WatchedEntriesAreComplete, CreatedChangesOnRecreation, OnlyOwnedKeysHaveOwners, EntryNamesItsTxn, LastStateArrives}, run: recreatedArrives,
	},
	{
		Code: "W13", Name: "a directory that never existed can be watched",
		Proves: []Promise{DirNeedNotExist, WatchFollowsChanges}, run: watchNothing,
	},
	{
		Code: "W14", Name: "closed watchers leave no goroutines",
		Proves: []Promise{WatcherCloseFreesAll}, run: watchersLeakNothing,
	},
	{
		Code: "W16", Name: "events arrive promptly, even right after the watch began",
		Proves: []Promise{EventsArePrompt}, run: eventsArePrompt,
	},
	{
		Code: "W17", Name: "callers may keep and modify the batches they receive",
		Proves: []Promise{BatchesBelongToTheReader, ReadsBelongToTheReader}, run: batchesAreCopies,
	},
	{
		Code: "W18", Name: "no older state is delivered after a newer one, under writes and reconnections",
		Proves: []Promise{NeverOlderAfterNewer}, Needs: []string{Partition}, run: orderUnderWrites, Safety: true,
	},
	{
		Code: "W19", Name: "a batch has each key once, sorted, and nothing newer than its Rev",
		Proves: []Promise{BatchesAreSorted, BatchRevBoundsChanges}, run: batchForm,
	},
	{
		Code: "W20", Name: "a watch that begins during writes misses none of them",
		Proves: []Promise{SnapshotFirst, WatchFollowsChanges}, run: beginUnderWrites, Safety: true,
	},
	{
		Code: "W21", Name: "a watcher ends when the context of Watch ends",
		Proves: []Promise{WatchEndsWithItsContext}, run: watchContext,
	},
	{
		Code: "W22", Name: "Close ends a watcher and wakes its reader, and may be called twice",
		Proves: []Promise{WatcherCloseWakesNext}, run: watcherClose,
	},
	{
		Code: "W23", Name: "all keys of one commit are delivered, up to the transaction limit",
		Proves: []Promise{LastStateArrives, TxnCommitsEveryOp}, run: wideCommit,
	},
}

func snapshotFirst(t *test) {
	a, b := t.handleA(), t.handleB()
	f := t.follow(b, "d")
	first := f.last
	require.Equal(t, registry.Snapshot, first.Kind)
	require.Empty(t, first.Puts)

	for i := range 5 {
		t.create(a, registry.Key(fmt.Sprintf("d/k%d", i)), strconv.Itoa(i))
	}
	for _, r := range []registry.Registry{a, b} {
		require.NoError(t, readFreshFirst(t, r, "d"))
		f := t.follow(r, "d")
		first := f.last
		require.Equal(t, registry.Snapshot, first.Kind)
		require.Len(t, first.Puts, 5)
		require.True(t, f.equals(t.listFresh(a, "d")), "the snapshot holds every entry: %v", f.values())
	}

	w, err := b.Watch(t.ctx, "d", registry.WatchOptions{})
	require.NoError(t, err)
	t.commitOps(a, registry.Create("d/new", nil), registry.Delete("d/k0", t.getFresh(a, "d/k0").Modified))
	late := t.followWatcher(w, "d")
	require.Equal(t, registry.Snapshot, late.next().Kind, "of a reader that begins later")
	late.converge(a)
}

// readFreshFirst makes a handle see the writes of others by a fresh read.
func readFreshFirst(t *test, r registry.Registry, dir registry.Key) error {
	_, err := r.List(t.ctx, dir, fresh)
	return err
}

func changesArrive(t *test) {
	a, b := t.handleA(), t.handleB()
	f := t.follow(b, "d")
	for i := range t.repeats(50, 20) {
		key := registry.Key(fmt.Sprintf("d/k%d", i%7))
		rev := t.create(a, key, "created")
		f.awaitValue(key, "created")
		require.Equal(t, rev, f.has[key].Modified)
		rev = t.commitOps(a, registry.Set(key, rev, []byte("set")))
		f.awaitValue(key, "set")
		t.commitOps(a, registry.Delete(key, rev))
		f.followUntil("the key is gone", func() bool { return len(f.has) == 0 })
	}
}

func watchOneLevel(t *test) {
	a := t.handleA()
	dir := t.create(a, "d", "the directory's own key")
	f := t.follow(t.handleB(), "d")
	require.Empty(t, f.has)
	t.create(a, "d/sub/k", "a grandchild")
	t.create(a, "dd/k", "a neighbour's child")
	t.create(a, "d-/k", "a neighbour's child")
	t.create(a, "k", "a neighbour")
	t.commitOps(a, registry.Set("d", dir, []byte("again")))
	f.assertNoEvents(a, "d/mark")
	root := t.follow(a, "")
	root.converge(a)
	require.Len(t, root.has, 2)
}

func independentWatchers(t *test) {
	a := t.handleA()
	for n, watchers := range draw(t, "watchers of a directory", inBubbleOr(t, []int{5, 65, 257}, []int{5, 65})...) {
		dir := registry.Key(fmt.Sprintf("d%d", n))
		var all []*follower
		for range watchers {
			all = append(all, t.follow(a, dir))
		}
		all = append(all, t.follow(t.handleB(), dir), t.follow(a, dir+"/sub"))
		for i := range 10 {
			t.create(a, dir.Join(fmt.Sprintf("k%d", i)), "")
			t.create(a, dir.Join(fmt.Sprintf("sub/k%d", i)), "")
			if i == 5 { // one closes, and the rest continue
				require.NoError(t, all[0].w.Close())
				all = all[1:]
			}
		}
		for _, f := range all {
			f.converge(a)
			require.Len(t, f.has, 10)
		}
	}
}

func nextContext(t *test) {
	a := t.handleA()
	f := t.follow(a, "d")
	for i, form := range contextForms {
		for _, after := range []time.Duration{20 * time.Millisecond, 0} {
			ctx, cause := form.begin(t, after)
			_, err := f.receive(ctx)
			require.ErrorIs(t, err, cause, "the context of Next ended by %s, after %v", form.name, after)
		}
		key := registry.Key(fmt.Sprintf("d/k%d", i))
		t.create(a, key, "v")
		f.awaitValue(key, "v")
	}
}

func sleepingReader(t *test) {
	a := t.handleA()
	f := t.follow(t.handleB(), "d")
	revs := make([]registry.Rev, 10)
	for i := range t.repeats(30_000, 300) {
		key := registry.Key(fmt.Sprintf("d/k%d", i%10))
		op := registry.Create(key, strconv.AppendInt(nil, int64(i), 10))
		if i >= 10 {
			op = registry.Set(key, revs[i%10], op.Value)
		}
		revs[i%10] = t.commitOps(a, op)
	}
	t.commitOps(a, registry.Delete("d/k3", revs[3]))
	f.converge(a)
	require.Len(t, f.has, 9)
}

// changeWhileAway cuts a machine off, calls change and returns when the follower has
// caught up.
func (f *follower) changeWhileAway(machine string, change func()) {
	f.t.Helper()
	heal := f.t.partition(machine, Refuse)
	change()
	heal()
	f.converge(f.t.handleA())
}

func changedWhileAway(t *test) {
	a := t.handleA()
	f := t.follow(t.handleB(), "d")
	kept := t.create(a, "d/kept", "0")
	made := t.create(a, "d/again", "0")
	f.converge(a)
	f.changeWhileAway("b", func() {
		kept = t.commitOps(a, registry.Set("d/kept", kept, []byte("1")))
		t.commitOps(a, registry.Delete("d/again", made))
		made = t.create(a, "d/again", "1")
		rev := t.create(a, "d/passing", "")
		t.commitOps(a, registry.Delete("d/passing", rev))
		rev = t.create(a, "d/twice", "0")
		t.commitOps(a, registry.Delete("d/twice", rev))
		t.create(a, "d/twice", "1")
	})
	require.Len(t, f.has, 3)
	require.Equal(t, made, f.has["d/again"].Created)
	for i := range t.repeats(10, 3) { // it continues as before, and later disconnections are like the first
		kept = t.commitOps(a, registry.Set("d/kept", kept, fmt.Append(nil, "between ", i)))
		f.awaitValue("d/kept", fmt.Sprint("between ", i))
		f.changeWhileAway("b", func() {
			kept = t.commitOps(a, registry.Set("d/kept", kept, fmt.Append(nil, "away ", i)))
			t.commitOps(a, registry.Delete("d/again", made))
			made = t.create(a, "d/again", "")
		})
		require.Equal(t, made, f.has["d/again"].Created)
	}
}

func deletedWhileAway(t *test) {
	a := t.handleA()
	f := t.follow(t.handleB(), "d")
	rev := t.create(a, "d/k", "v")
	t.create(a, "d/stays", "v")
	f.converge(a)
	f.changeWhileAway("b", func() { t.commitOps(a, registry.Delete("d/k", rev)) })
	require.Len(t, f.has, 1)
	f.assertNoEvents(a, "d/mark")
}

func compactedWhileAway(t *test) {
	a := t.handleA()
	f := t.follow(t.handleB(), "d")
	rev := t.create(a, "d/k", "0")
	gone := t.create(a, "d/gone", "0")
	f.converge(a)
	f.changeWhileAway("b", func() {
		for i := range 20 {
			rev = t.commitOps(a, registry.Set("d/k", rev, strconv.AppendInt(nil, int64(i), 10)))
		}
		t.commitOps(a, registry.Delete("d/gone", gone))
		t.store.Compact()
		rev = t.commitOps(a, registry.Set("d/k", rev, []byte("after")))
	})
	require.Equal(t, "after", string(f.has["d/k"].Value))
	t.store.Compact() // under a watcher that is up to date
	t.commitOps(a, registry.Set("d/k", rev, []byte("end")))
	f.awaitValue("d/k", "end")
}

func recreatedArrives(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	f := t.follow(t.handleB(), "d")
	for range 5 {
		rev := t.create(a, "d/k", "same")
		t.createOwned(a, "d/~o", s)
		f.converge(a) // compares whole entries: Created, Modified, Owner and Txn too
		require.Equal(t, rev, f.has["d/k"].Created)
		require.Equal(t, s.ID(), f.has["d/~o"].Owner)
		t.commitOps(a, registry.Delete("d/k", rev), registry.Delete("d/~o", f.has["d/~o"].Modified))
		f.converge(a)
	}
	rev := t.create(a, "d/k", "")
	for _, value := range []string{"", "same", "same", "", ""} { // deleted and re-created between two Next
		f.converge(a)
		t.commitOps(a, registry.Delete("d/passing", t.create(a, "d/passing", value)))
		f.converge(a)
		t.commitOps(a, registry.Delete("d/k", rev))
		rev = t.create(a, "d/k", value)
		f.converge(a)
		if value == "" {
			rev = t.commitOps(a, registry.Set("d/k", rev, nil))
			t.commitOps(a, registry.Delete("d/k", rev))
			rev = t.create(a, "d/k", "")
			t.commitOps(a, registry.Delete("d/~o", t.createOwned(a, "d/~o", s)))
			own := t.createOwned(a, "d/~o", s)
			f.converge(a)
			t.commitOps(a, registry.Delete("d/~o", own))
		}
	}
	f.converge(a)
}

func watchNothing(t *test) {
	a := t.handleA()
	f := t.follow(t.handleB(), "never/was/there")
	require.Empty(t, f.last.Puts)
	rev := t.create(a, "never/was/there/k", "1")
	f.awaitValue("never/was/there/k", "1")
	t.commitOps(a, registry.Delete("never/was/there/k", rev)) // empty again
	f.converge(a)
	t.create(a, "never/was", "in between")
	t.create(a, "never/was/there/k", "2")
	f.awaitValue("never/was/there/k", "2")
}

func watchersLeakNothing(t *test) {
	a := t.handleA()
	t.create(a, "d/k", "v")
	t.follow(a, "d") // goroutines of the first watch may stay until the handle closes
	t.settle(100 * time.Millisecond)
	before := countGoroutines(t)
	for i := range t.repeats(1000, 200) {
		w, err := a.Watch(t.ctx, "d", registry.WatchOptions{})
		require.NoError(t, err)
		if i%2 == 0 {
			_, err = w.Next(t.ctx)
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
	}
	t.eventually(0, "goroutines of closed watchers end", func() error {
		t.settle(0)
		if n := countGoroutines(t); n > before+3 {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
}

func eventsArePrompt(t *test) {
	const atMost = 50 * time.Millisecond
	a, b := t.handleA(), t.handleB()
	var late []time.Duration
	for i := range 11 {
		dir := registry.Key(fmt.Sprintf("d%d", i))
		rev := t.create(a, dir.Join("k"), "0")
		f := t.follow(b, dir)
		for j := range 3 {
			value := strconv.Itoa(j + 1)
			rev = t.commitOps(a, registry.Set(dir.Join("k"), rev, []byte(value)))
			start := time.Now()
			f.awaitValue(dir.Join("k"), value)
			late = append(late, time.Since(start))
		}
	}
	slices.Sort(late)
	require.LessOrEqual(t, late[len(late)/2], atMost, "the median of %v", late)
}

func batchesAreCopies(t *test) {
	a := t.handleA()
	rev := t.create(a, "d/k", "value")
	t.create(a, "d/k2", "other")
	f, g := t.follow(a, "d"), t.follow(a, "d")
	first := f.last
	_ = append(first.Puts[0].Value, "xyz"...)
	require.Equal(t, "other", string(first.Puts[1].Value), "after another value of the batch was appended to")
	clear(first.Puts[0].Value)
	require.Equal(t, "value", string(t.getFresh(a, "d/k").Value))
	require.Equal(t, "value", string(g.last.Puts[0].Value), "the batch of another watcher")

	rev = t.commitOps(a, registry.Set("d/k", rev, []byte("second")))
	second := f.next()
	kept := registry.Batch{Kind: second.Kind, Rev: second.Rev, Puts: slices.Clone(second.Puts)}
	kept.Puts[0].Value = slices.Clone(second.Puts[0].Value)
	t.commitOps(a, registry.Set("d/k", rev, []byte("third!")))
	f.awaitValue("d/k", "third!")
	require.Equal(t, kept.Puts, second.Puts, "a later batch changed an earlier one")
	clear(second.Puts[0].Value)
	require.Equal(t, "third!", string(t.getFresh(a, "d/k").Value))
}

// orderUnderWrites checks every batch while several machines write, create and delete keys
// and the reader's connection breaks.
func orderUnderWrites(t *test) {
	f := t.follow(t.handleB(), "d")
	var stops []func()
	for i, machine := range []string{"a", "c"} {
		r := t.handle(machine)
		stops = append(stops, t.spawn(func(ctx context.Context) error { return churn(ctx, r, "d", i) }))
	}
	done := make(chan error, 1)
	var batches atomic.Int64
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	stopReading := t.spawn(func(context.Context) error {
		for {
			if _, err := f.receive(ctx); err != nil {
				done <- err
				return nil
			}
			batches.Add(1)
		}
	})
	for range t.repeats(10, 3) {
		t.sleep(50 * time.Millisecond)
		heal := t.partition("b", Refuse)
		t.sleep(20 * time.Millisecond)
		heal()
	}
	t.eventually(recovery, "the reader receives changes", func() error {
		if n := batches.Load(); n <= 5 && len(done) == 0 {
			return fmt.Errorf("%d batches", n)
		}
		return nil
	})
	for _, stop := range stops {
		stop()
	}
	cancel()
	stopReading()
	require.ErrorIs(t, <-done, context.Canceled, "a batch broke the contract")
	f.converge(t.handleA())
}

// churn creates, sets and deletes keys of dir until ctx ends.
func churn(ctx context.Context, r registry.Registry, dir registry.Key, seed int) error {
	for i := seed; ; i++ {
		key := dir.Join("k" + strconv.Itoa(i%5))
		e, err := r.Get(ctx, key, registry.ReadOptions{})
		op := registry.Create(key, strconv.AppendInt(nil, int64(i), 10))
		switch {
		case errors.Is(err, registry.ErrNotFound):
		case err != nil:
			return err
		case i%4 == 3:
			op = registry.Delete(key, e.Modified)
		default:
			op = registry.Set(key, e.Modified, op.Value)
		}
		// Not ctx: a canceled transaction could be applied after the case has ended.
		_, err = r.Txn(context.WithoutCancel(ctx), registry.Txn{Then: []registry.Op{op}})
		if err != nil && !errors.Is(err, registry.ErrConflict) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func batchForm(t *test) {
	a := t.handleA()
	f := t.follow(t.handleB(), "d")
	var creates, deletes []registry.Op
	for _, name := range []string{"m", "b", "z", "a", "Q", "0", "_"} {
		creates = append(creates, registry.Create(registry.Join("d", name), nil))
	}
	for range 3 {
		made := t.commitOps(a, creates...)
		f.converge(a) // checks every batch
		require.GreaterOrEqual(t, f.last.Rev.Seq, made.Seq)
		deletes = nil
		for _, op := range creates {
			deletes = append(deletes, registry.Delete(op.Key, made))
		}
		t.commitOps(a, deletes...)
		f.converge(a)
	}
	rev := t.create(a, "d/k", "0") // many changes of a key without a reader
	for i := range 10 {
		rev = t.commitOps(a, registry.Set("d/k", rev, strconv.AppendInt(nil, int64(i), 10)))
	}
	f.converge(a)
}

func beginUnderWrites(t *test) {
	a, b := t.handleA(), t.handleB()
	stop := t.spawn(func(ctx context.Context) error { return churn(ctx, a, "d", 0) })
	t.sleep(10 * time.Millisecond)
	var all []*follower
	for range t.repeats(20, 10) {
		l, err := b.List(t.ctx, "d", fresh)
		require.NoError(t, err)
		f := t.follow(b, "d")
		require.GreaterOrEqual(t, f.last.Rev.Seq, l.Rev.Seq, "the snapshot is older than an earlier read")
		all = append(all, f)
		t.sleep(3 * time.Millisecond)
	}
	stop()
	for _, f := range all {
		f.converge(b)
	}
}

func watchContext(t *test) {
	a := t.handleA()
	for _, form := range contextForms {
		var w registry.Watcher
		var cause, err error
		lasts := 50 * time.Millisecond
		for ; ; lasts *= 4 {
			var ctx context.Context
			ctx, cause = form.begin(t, lasts)
			if w, err = a.Watch(ctx, "d", registry.WatchOptions{}); err == nil || lasts > slack {
				break
			}
			require.ErrorIs(t, err, cause, "Watch, whose context ended by %s before it began", form.name)
		}
		require.NoError(t, err)
		t.Cleanup(func() { w.Close() })
		_, err = w.Next(t.ctx)
		if err == nil { // else the test was slow
			_, err = w.Next(t.within(t.withSlack(lasts)))
		}
		require.ErrorIs(t, err, cause, "the context of Watch ended by %s", form.name)
		require.ErrorIs(t, err, registry.ErrClosed)
		_, err = w.Next(t.ctx)
		require.ErrorIs(t, err, registry.ErrClosed, "the watcher has ended for good")
	}
	t.follow(a, "d") // other watchers can begin
}

func watcherClose(t *test) {
	a := t.handleA()
	w, err := a.Watch(t.ctx, "d", registry.WatchOptions{})
	require.NoError(t, err)
	_, err = w.Next(t.ctx)
	require.NoError(t, err)
	woken := make(chan error, 1)
	t.spawn(func(ctx context.Context) error {
		_, err := w.Next(ctx)
		woken <- err
		return nil
	})
	t.settle(50 * time.Millisecond)
	require.NoError(t, w.Close())
	select {
	case err := <-woken:
		require.ErrorIs(t, err, registry.ErrClosed)
	case <-time.After(slack):
		t.Fatal("Next still waits after Close")
	}
	require.NoError(t, w.Close())
	t.create(a, "d/k", "v")
	_, err = w.Next(t.ctx)
	require.ErrorIs(t, err, registry.ErrClosed, "Next after Close")

	for _, f := range []*follower{t.follow(a, "d"), t.follow(t.handleB(), "d")} {
		rev := t.create(a, "d/pending", "")
		t.settle(20 * time.Millisecond)
		require.NoError(t, f.w.Close())
		_, err = f.w.Next(t.ctx)
		require.ErrorIs(t, err, registry.ErrClosed, "Next after Close, with a change that was not read")
		t.commitOps(a, registry.Delete("d/pending", rev))
	}
}

func wideCommit(t *test) {
	a := t.handleA()
	f := t.follow(t.handleB(), "d")
	n := registry.PortableLimits.TxnItems
	creates := make([]registry.Op, n)
	for i := range creates {
		creates[i] = registry.Create(registry.Key(fmt.Sprintf("d/k%02d", i)), nil)
	}
	rev := t.commitOps(a, creates...)
	f.converge(a)
	require.Len(t, f.has, n)
	sets := make([]registry.Op, n)
	for i, op := range creates {
		sets[i] = registry.Set(op.Key, rev, []byte("set"))
	}
	rev = t.commitOps(a, sets...)
	f.converge(a)
	for i, op := range creates {
		sets[i] = registry.Delete(op.Key, rev)
	}
	t.commitOps(a, sets...)
	f.converge(a)
	require.Empty(t, f.has)
}
