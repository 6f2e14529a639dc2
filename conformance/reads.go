package conformance

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

var readCases = []Case{
	{
		Code: "R01", Name: "a plain read sees its own handle's writes",
		Proves: []Promise{ReadYourWrites}, run: readYourWrites,
	},
	{
		Code: "R02", Name: "plain reads do not go back in time across a reconnection",
		Proves: []Promise{PlainReadsNeverGoBack}, Needs: []string{Partition}, run: monotonicOverReconnect,
	},
	{
		Code: "R03", Name: "a fresh read sees every commit of another handle",
		Proves: []Promise{FreshReadsSeeAll, GetReturnsTheEntry}, run: freshSeesOthers, Safety: true,
	},
	{
		Code: "R04", Name: "plain reads never go back in time under concurrent writes",
		Proves: []Promise{PlainReadsNeverGoBack}, run: monotonicUnderWrites,
	},
	{
		Code: "R05", Name: "a plain read after a batch is at least as new as the batch",
		Proves: []Promise{ReadsCatchUpWithBatches}, run: readAfterBatch,
	},
	{
		Code: "R07", Name: "reading an absent key returns ErrNotFound",
		Proves: []Promise{AbsentIsErrNotFound}, run: absentKey,
	},
	{
		Code: "R08", Name: "every entry of a list was committed, and none is newer than the list",
		Proves: []Promise{ListedEntriesWereCommitted, ListingRevBoundsEntries}, run: listedWereCommitted,
	},
	{
		Code: "R09", Name: "a Get fills the buffer it is given if the value fits",
		Proves: []Promise{BufferReceivesTheValue}, run: buffers,
	},
	{
		Code: "R10", Name: "a fresh read sees every commit beside watches and sessions, and after a reconnection",
		Proves: []Promise{FreshReadsSeeAll}, Needs: []string{Partition}, run: freshInEveryHistory, Safety: true,
	},
	{
		Code: "R11", Name: "plain reads of several keys and directories never go back in time",
		Proves: []Promise{PlainReadsNeverGoBack}, run: monotonicOverKeys,
	},
	{
		Code: "R12", Name: "a plain read after a batch is at least as new, in every directory and after deletes",
		Proves: []Promise{ReadsCatchUpWithBatches, AbsentIsErrNotFound}, run: readElsewhereAfterBatch,
	},
	{
		Code: "R13", Name: "plain reads of owned keys never go back over the end of their session",
		Proves: []Promise{PlainReadsNeverGoBack}, run: monotonicOverSessionEnd,
	},
	{
		Code: "R14", Name: "plain reads at a member that is behind keep every promise",
		Proves: []Promise{PlainReadsNeverGoBack, ReadYourWrites, ReadsCatchUpWithBatches}, Needs: []string{Lag}, run: readsOfLaggingMember,
	},
}

func readYourWrites(t *test) {
	a := t.handleA()
	plain := registry.ReadOptions{}
	for i := range t.repeats(50, 30) {
		key := registry.Key(fmt.Sprintf("d/k%02d", i))
		rev := t.create(a, key, "1")
		e, err := a.Get(t.ctx, key, plain)
		require.NoError(t, err)
		require.Equal(t, rev, e.Modified)
		l, err := a.List(t.ctx, "d", plain)
		require.NoError(t, err)
		require.Len(t, l.Entries, 1)
		require.GreaterOrEqual(t, l.Rev.Seq, rev.Seq)

		rev = t.commitOps(a, registry.Set(key, rev, []byte("2")))
		e, err = a.Get(t.ctx, key, plain)
		require.NoError(t, err)
		require.Equal(t, "2", string(e.Value))
		l, err = a.List(t.ctx, "d", plain)
		require.NoError(t, err)
		require.Equal(t, "2", string(l.Entries[0].Value), "in a List")
		require.GreaterOrEqual(t, l.Rev.Seq, rev.Seq)

		t.commitOps(a, registry.Delete(key, rev))
		_, err = a.Get(t.ctx, key, plain)
		require.ErrorIs(t, err, registry.ErrNotFound)
		l, err = a.List(t.ctx, "d", plain)
		require.NoError(t, err)
		require.Empty(t, l.Entries)
	}
}

func monotonicOverReconnect(t *test) {
	a, b := t.handleA(), t.handleB()
	rev := t.create(b, "d/k", "0")
	t.getFresh(t.handle("c"), "d/k")
	newest := uint64(0)
	for i := range t.repeats(5, 2) {
		catchUp := func() {}
		if t.store.Isolate != nil { // a may reconnect to a member that lags behind
			catchUp = t.injectFault(t.store.Isolate, "c")
		}
		rev = t.setApplied(b, "d/k", rev, strconv.Itoa(i))
		newest = t.getFresh(a, "d/k").Modified.Seq
		heal := t.partition("a", Refuse)
		heal()
		t.eventually(recovery, "reads work again", func() error {
			e, err := a.Get(t.ctx, "d/k", registry.ReadOptions{})
			if err != nil {
				return err
			}
			require.GreaterOrEqual(t, e.Modified.Seq, newest, "after the reconnection")
			return nil
		})
		catchUp()
	}
}

func freshSeesOthers(t *test) {
	a, b := t.handleA(), t.handleB()
	rev := t.create(a, "d/k", "0")
	for i := range t.repeats(100, 50) {
		want := strconv.Itoa(i)
		rev = t.commitOps(a, registry.Set("d/k", rev, []byte(want)))
		require.Equal(t, want, string(t.getFresh(b, "d/k").Value), "a fresh Get")
		rev = t.commitOps(a, registry.Set("d/k", rev, []byte(want+"'")))
		require.Equal(t, want+"'", string(t.listFresh(b, "d")[0].Value), "a fresh List")
	}
	t.commitOps(a, registry.Delete("d/k", rev))
	t.assertAbsent(b, "d/k")
	require.Empty(t, t.listFresh(b, "d"))
}

func monotonicUnderWrites(t *test) {
	a, b := t.handleA(), t.handleB()
	first := t.create(a, "d/k", "0")
	stop := t.spawn(func(ctx context.Context) error {
		for rev, i := first, 0; ; i++ {
			var err error
			if rev, err = a.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Set("d/k", rev, strconv.AppendInt(nil, int64(i), 10))}}); err != nil {
				return err
			}
			time.Sleep(time.Microsecond) // yields, and advances time in a bubble
		}
	})
	newest := uint64(0)
	for i := range t.repeats(1000, 150) {
		var seq uint64
		o := registry.ReadOptions{Fresh: i%7 == 0}
		if i%3 == 0 {
			l, err := b.List(t.ctx, "d", o)
			require.NoError(t, err)
			require.Len(t, l.Entries, 1, "read %d lists not the one key", i)
			seq = l.Entries[0].Modified.Seq
		} else {
			e, err := b.Get(t.ctx, "d/k", o)
			require.NoError(t, err)
			seq = e.Modified.Seq
		}
		require.GreaterOrEqual(t, seq, newest, "read %d went back", i)
		newest = seq
		time.Sleep(time.Microsecond)
	}
	stop()
	require.Greater(t, newest, first.Seq, "the reads overlapped with the writes")
}

func readAfterBatch(t *test) {
	a, b := t.handleA(), t.handleB()
	f := t.follow(b, "d")
	rev := t.create(a, "d/k", "0")
	for i := range t.repeats(100, 50) {
		want := strconv.Itoa(i)
		rev = t.commitOps(a, registry.Set("d/k", rev, []byte(want)))
		f.awaitValue("d/k", want)
		e, err := b.Get(t.ctx, "d/k", registry.ReadOptions{})
		require.NoError(t, err)
		require.GreaterOrEqual(t, e.Modified.Seq, f.has["d/k"].Modified.Seq)
		l, err := b.List(t.ctx, "d", registry.ReadOptions{})
		require.NoError(t, err)
		require.GreaterOrEqual(t, l.Entries[0].Modified.Seq, f.has["d/k"].Modified.Seq)
	}
	t.commitOps(a, registry.Delete("d/k", rev))
	f.followUntil("the key is gone", func() bool { return len(f.has) == 0 })
	_, err := b.Get(t.ctx, "d/k", registry.ReadOptions{})
	require.ErrorIs(t, err, registry.ErrNotFound, "after a batch with the delete")
}

func absentKey(t *test) {
	a := t.handleA()
	rev := t.create(a, "was", "v")
	t.commitOps(a, registry.Delete("was", rev))
	t.create(a, "above/k", "v")
	for _, key := range []registry.Key{"never", "was", "above", "above/k/below", "~own", "above/~own"} {
		for _, o := range []registry.ReadOptions{{}, fresh, {Buffer: make([]byte, 0, 10)}} {
			e, err := a.Get(t.ctx, key, o)
			require.ErrorIs(t, err, registry.ErrNotFound, "get %s", key)
			require.Empty(t, e.Value)
		}
	}
}

// listedWereCommitted writes three keys in turn and checks concurrent lists against the
// committed values.
func listedWereCommitted(t *test) {
	a, b := t.handleA(), t.handleB()
	committed := map[registry.Key]map[registry.Rev]string{}
	keys := []registry.Key{"d/x", "d/y", "d/z"}
	rev := t.commitOps(a, registry.Create(keys[0], []byte("0")), registry.Create(keys[1], []byte("0")), registry.Create(keys[2], []byte("0")))
	for _, k := range keys {
		committed[k] = map[registry.Rev]string{rev: "0"}
	}
	var seen []registry.Listing
	require.Len(t, t.listFresh(b, "d"), len(keys)) // later plain reads have them, too
	stop := t.spawn(func(ctx context.Context) error {
		for {
			l, err := b.List(ctx, "d", registry.ReadOptions{})
			if err != nil {
				return err
			}
			seen = append(seen, l)
			time.Sleep(pollEvery / 10)
		}
	})
	for i := range t.repeats(200, 100) {
		k := keys[i%3]
		e := t.getFresh(a, k)
		value := strconv.Itoa(i)
		committed[k][t.commitOps(a, registry.Set(k, e.Modified, []byte(value)))] = value
		time.Sleep(pollEvery / 20)
	}
	stop()
	require.NotEmpty(t, seen)
	for _, l := range seen {
		require.Equal(t, keys, keysOf(l.Entries))
		for _, e := range l.Entries {
			want, ok := committed[e.Key][e.Modified]
			require.True(t, ok, "%s was never committed at %v", e.Key, e.Modified)
			require.Equal(t, want, string(e.Value), "the value of %s at %d", e.Key, e.Modified.Seq)
			require.LessOrEqual(t, e.Modified.Seq, l.Rev.Seq, "an entry is newer than the list")
		}
	}
}

func buffers(t *test) {
	a := t.handleA()
	t.create(a, "k", "value")
	t.create(a, "none", "")
	for _, o := range []registry.ReadOptions{{}, fresh} {
		buf := bytes.Repeat([]byte("-"), 16)
		o.Buffer = buf
		e, err := a.Get(t.ctx, "k", o)
		require.NoError(t, err)
		require.Equal(t, "value", string(e.Value))
		require.Equal(t, "value", string(buf[:5]), "the value is in the buffer")
		require.Same(t, &buf[0], &e.Value[0], "the entry's value is a slice of the buffer")

		o.Buffer = make([]byte, 0, 5) // capacity counts, not length
		e, err = a.Get(t.ctx, "k", o)
		require.NoError(t, err)
		require.Same(t, &o.Buffer[:1][0], &e.Value[0])

		small := bytes.Repeat([]byte("-"), 4)
		o.Buffer = small
		e, err = a.Get(t.ctx, "k", o)
		require.NoError(t, err)
		require.Equal(t, "value", string(e.Value), "too small a buffer is no error")

		o.Buffer = buf
		e, err = a.Get(t.ctx, "none", o)
		require.NoError(t, err)
		require.Empty(t, e.Value)
	}
	l, err := a.List(t.ctx, "", registry.ReadOptions{Buffer: make([]byte, 64)})
	require.NoError(t, err)
	require.Equal(t, "value", string(l.Entries[0].Value), "List ignores the buffer")
}

// freshInEveryHistory repeats a check after each step in the life of a handle.
func freshInEveryHistory(t *test) {
	a, b := t.handleA(), t.handleB()
	rev := t.create(a, "d/k", "")
	n := 0
	check := func(when string) {
		t.Helper()
		for range 3 {
			n++
			want := strconv.Itoa(n)
			rev = t.commitOps(a, registry.Set("d/k", rev, []byte(want)))
			require.Equal(t, want, string(t.getFresh(b, "d/k").Value), "a fresh Get %s", when)
			rev = t.commitOps(a, registry.Set("d/k", rev, []byte(want+"'")))
			require.Equal(t, want+"'", string(t.listFresh(b, "d")[0].Value), "a fresh List %s", when)
		}
		t.commitOps(a, registry.Delete("d/k", rev))
		require.Empty(t, t.listFresh(b, "d"), "a fresh List %s", when)
		rev = t.create(a, "d/k", "")
		require.Equal(t, rev, t.getFresh(b, "d/k").Created, "a fresh Get %s", when)
	}
	check("of a new handle")
	f := t.follow(b, "d")
	check("beside a watch")
	f.converge(a)
	check("beside a watch that has caught up")
	first := t.openSession(b)
	check("with a session")
	t.openSession(b)
	check("with a second session")
	require.NoError(t, first.Close(t.ctx))
	check("after a session was closed")
	t.openSession(b)
	check("after a session was opened again")
	t.partition("b", Refuse)()
	t.awaitUsable(b)
	check("after a reconnection")
	require.NoError(t, f.w.Close())
	check("after the watch was closed")
}

// monotonicOverKeys reads keys that only change together: no read may be older than one
// before it of another key.
func monotonicOverKeys(t *test) {
	a, b := t.handleA(), t.handleB()
	keys := []registry.Key{"d/x", "d/y", "e/z"}
	var creates []registry.Op
	for _, key := range keys {
		creates = append(creates, registry.Create(key, nil))
	}
	first := t.commitOps(a, creates...)
	t.getFresh(b, keys[0])
	stop := t.spawn(func(ctx context.Context) error {
		for rev := first; ; {
			sets := make([]registry.Op, len(keys))
			for i, key := range keys {
				sets[i] = registry.Set(key, rev, nil)
			}
			var err error
			if rev, err = a.Txn(ctx, registry.Txn{Then: sets}); err != nil {
				return err
			}
			time.Sleep(time.Microsecond)
		}
	})
	newest := uint64(0)
	for i := range t.repeats(600, 150) {
		key := keys[i%len(keys)]
		var e registry.Entry
		if i%5 < 2 {
			l, err := b.List(t.ctx, key.Dir(), registry.ReadOptions{})
			require.NoError(t, err)
			e = l.Entries[len(l.Entries)-1]
		} else {
			var err error
			e, err = b.Get(t.ctx, key, registry.ReadOptions{})
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, e.Modified.Seq, newest, "read %d, of %s, is older than one before", i, e.Key)
		newest = e.Modified.Seq
		time.Sleep(time.Microsecond)
	}
	stop()
	require.Greater(t, newest, first.Seq, "the reads overlapped with the writes")
}

// readElsewhereAfterBatch commits in two directories, follows one of them and reads the other.
func readElsewhereAfterBatch(t *test) {
	a, b := t.handleA(), t.handleB()
	plain := registry.ReadOptions{}
	f := t.follow(b, "d")
	for range t.repeats(20, 10) {
		s := t.openSession(a)
		made := t.commitOps(a,
			registry.Create("d/k", nil), registry.Create("e/k", nil),
			registry.CreateOwned("d/~o", nil, s.ID()), registry.CreateOwned("e/~o", nil, s.ID()))
		f.followUntil("the keys are delivered", func() bool { return len(f.has) == 2 })
		for _, key := range []registry.Key{"e/k", "e/~o"} {
			e, err := b.Get(t.ctx, key, plain)
			require.NoError(t, err, "get %s", key)
			require.Equal(t, made, e.Modified)
		}
		set := t.commitOps(a, registry.Set("d/k", made, nil), registry.Set("e/k", made, nil))
		f.followUntil("the sets are delivered", func() bool { return f.has["d/k"].Modified == set })
		l, err := b.List(t.ctx, "e", plain)
		require.NoError(t, err)
		require.Equal(t, set, l.Entries[0].Modified, "a List of another directory")

		t.commitOps(a, registry.Delete("d/k", set), registry.Delete("e/k", set))
		f.followUntil("the delete is delivered", func() bool { return len(f.has) == 1 })
		for _, dir := range []registry.Key{"d", "e"} {
			l, err := b.List(t.ctx, dir, plain)
			require.NoError(t, err)
			require.Equal(t, []registry.Key{dir.Join("~o")}, keysOf(l.Entries), "a List after a batch with a delete")
		}
		require.NoError(t, s.Close(t.ctx))
		f.followUntil("the end of the session is delivered", func() bool { return len(f.has) == 0 })
		for _, key := range []registry.Key{"d/~o", "e/~o"} {
			_, err := b.Get(t.ctx, key, plain)
			require.ErrorIs(t, err, registry.ErrNotFound, "get %s after a batch with the end of its session", key)
		}
	}
}

// monotonicOverSessionEnd reads owned keys until one read shows the end of their session, and then all
// of them in other ways.
func monotonicOverSessionEnd(t *test) {
	a, b := t.handleA(), t.handleB()
	plain := registry.ReadOptions{}
	keys := []registry.Key{"d/~k", "e/~k"}
	get := func(key registry.Key) error {
		_, err := b.Get(t.ctx, key, plain)
		if err == nil {
			return fmt.Errorf("%s still exists", key)
		}
		require.ErrorIs(t, err, registry.ErrNotFound)
		return nil
	}
	list := func(key registry.Key) error {
		l, err := b.List(t.ctx, key.Dir(), plain)
		require.NoError(t, err)
		if len(l.Entries) > 0 {
			return fmt.Errorf("%s is still listed", key)
		}
		return nil
	}
	reads := []struct {
		name string
		of   func(registry.Key) error
	}{{"List", list}, {"Get", get}}
	for i := range t.repeats(24, 8) {
		s := t.openSession(a)
		t.commitOps(a, registry.CreateOwned(keys[0], nil, s.ID()), registry.CreateOwned(keys[1], nil, s.ID()))
		for _, key := range keys {
			t.getFresh(b, key)
		}
		require.NoError(t, s.Close(t.ctx))
		first, key := reads[i%2], keys[i/2%2]
		t.eventually(s.TTL(), "a plain read shows the end of the session", func() error { return first.of(key) })
		for _, then := range reads {
			for _, k := range keys {
				require.NoError(t, then.of(k), "a plain %s of %s after a %s without it", then.name, k, first.name)
			}
		}
	}
}

// readsOfLaggingMember repeats cases of plain reads on machines whose member is behind.
func readsOfLaggingMember(t *test) {
	t.handleA()
	t.handleB()
	for _, machine := range []string{"a", "b"} {
		t.injectFault(t.store.Lag, machine)
	}
	for _, run := range []func(*test){readYourWrites, readAfterBatch, readElsewhereAfterBatch, monotonicUnderWrites} {
		run(t)
	}
}
