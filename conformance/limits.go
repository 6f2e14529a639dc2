package conformance

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

var limitCases = []Case{
	{
		Code: "Z01", Name: "the largest value is stored, and one byte more is ErrTooLarge",
		Proves: []Promise{TooLargeIsRefused, GetReturnsTheEntry, LimitsAreKept}, run: valueLimit,
	},
	{
		Code: "Z02", Name: "the largest transaction commits, and anything more is ErrTooLarge",
		Proves: []Promise{TooLargeIsRefused, LimitsAreKept, TxnCommitsEveryOp}, run: txnLimits,
	},
	{
		Code: "Z03", Name: "a rejected oversized transaction leaves the handle usable",
		Proves: []Promise{TooLargeIsRefused}, run: usableAfterTooLarge,
	},
	{
		Code: "Z04", Name: "a directory of thousands of keys lists completely and in order",
		Proves: []Promise{ListIsComplete, ListIsSorted, SnapshotFirst}, run: largeDirectory,
	},
	{
		Code: "Z05", Name: "hundreds of watches catch up after a broken connection",
		Proves: []Promise{WatchOutlivesConnections}, Needs: []string{Partition}, run: manyWatches,
	},
	{
		Code: "Z07", Name: "limits are at least PortableLimits",
		Proves: []Promise{LimitsArePortable}, run: portableLimits,
	},
	{
		Code: "Z08", Name: "keys of conditions, session IDs and values count once towards the size of a transaction",
		Proves: []Promise{LimitsAreKept, TooLargeIsRefused}, run: txnBytesOfAllParts,
	},
	{
		Code: "Z09", Name: "a directory of large values lists and is delivered completely",
		Proves: []Promise{ListIsComplete, SnapshotFirst, GetReturnsTheEntry}, run: largeValues,
	},
	{
		Code: "Z10", Name: "a large value is set, replaced, owned, watched and deleted like a small one",
		Proves: []Promise{
			GetReturnsTheEntry, ListHoldsValuesOnly, LastStateArrives, SetKeepsTheOwner, SessionEndsAtOneCommit, BufferReceivesTheValue,
			ReadsBelongToTheReader, WritesAreCopied, BatchesBelongToTheReader,
		}, run: largeInEveryOp,
	},
}

func valueLimit(t *test) {
	a, b := t.handleA(), t.handleB()
	f := t.follow(b, "")
	most := bytes.Repeat([]byte{0xff}, a.Limits().ValueBytes)
	rev := t.commitOps(a, registry.Create("k", most))
	require.True(t, bytes.Equal(most, t.getFresh(b, "k").Value))
	f.converge(a)
	over := append(most, 'x')
	for _, op := range []registry.Op{registry.Create("k2", over), registry.Set("k", rev, over)} {
		_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{op}})
		require.ErrorIs(t, err, registry.ErrTooLarge)
		require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
	}
	t.assertAbsent(b, "k2")
	require.Equal(t, rev, t.getFresh(b, "k").Modified)
}

func txnLimits(t *test) {
	a := t.handleA()
	l := a.Limits()
	for conds := range 3 { // conditions and operations count together
		ops := make([]registry.Op, l.TxnItems-conds)
		for i := range ops {
			ops[i] = registry.Create(registry.Key(fmt.Sprintf("items%d/%04d", conds, i)), nil)
		}
		x := registry.Txn{If: []registry.Cond{registry.Absent("none"), registry.Absent("none")}[:conds], Then: ops}
		t.commit(a, x)
		require.Len(t, t.listFresh(a, ops[0].Key.Dir()), len(ops))
		x.If = append(x.If, registry.Absent("none"))
		_, err := a.Txn(t.ctx, x)
		require.ErrorIs(t, err, registry.ErrTooLarge)
	}

	owned := make([]registry.Op, l.TxnItems/2)
	session := t.openSession(a).ID()
	for i := range owned { // a CreateOwned counts twice
		owned[i] = registry.CreateOwned(registry.Key(fmt.Sprintf("owned/~%04d", i)), nil, session)
	}
	x := registry.Txn{Then: owned}
	t.commit(a, x)
	require.Len(t, t.listFresh(a, "owned"), len(owned))
	x.If = append(x.If, registry.Absent("none"), registry.Absent("none"))
	_, err := a.Txn(t.ctx, x)
	require.ErrorIs(t, err, registry.ErrTooLarge)

	x = registry.Txn{Then: t.opsOfSize(l, "bytes", l.TxnBytes)}
	t.commit(a, x)
	require.Len(t, t.listFresh(a, "bytes"), len(x.Then))
	x = registry.Txn{Then: t.opsOfSize(l, "over", l.TxnBytes+1)}
	_, err = a.Txn(t.ctx, x)
	require.ErrorIs(t, err, registry.ErrTooLarge)
	require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
	require.Empty(t, t.listFresh(a, "over"))
}

// opsOfSize returns Creates of keys in dir that count size bytes together.
func (t *test) opsOfSize(l registry.Limits, dir registry.Key, size int) []registry.Op {
	t.Helper()
	var ops []registry.Op
	total := 0
	for total < size {
		key := registry.Key(fmt.Sprintf("%s/%02d", dir, len(ops)))
		counts := len(key) + t.keyOverhead()
		n := min(size-total-counts, l.ValueBytes)
		if rest := size - total - counts - n; rest > 0 && rest < counts {
			n -= counts // leaves room for the last key
		}
		ops = append(ops, registry.Create(key, make([]byte, n)))
		total += counts + n
	}
	require.Equal(t, size, total)
	return ops
}

func usableAfterTooLarge(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	f := t.follow(a, "d")
	huge := make([]byte, 4<<20) // more than servers accept
	for range 3 {
		_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Create("d/huge", huge)}})
		require.ErrorIs(t, err, registry.ErrTooLarge)
	}
	t.createOwned(a, "d/~k", s)
	f.converge(a)
	require.NoError(t, inState(s, registry.SessionConnected))
	t.assertAbsent(a, "d/huge")
}

func largeDirectory(t *test) {
	a, b := t.handleA(), t.handleB()
	const perTxn = 50
	n := t.repeats(10_000, 1_000)
	var want []registry.Key
	for start := 0; start < n; start += perTxn {
		ops := make([]registry.Op, perTxn)
		for i := range ops {
			key := registry.Key(fmt.Sprintf("d/%s%06d", strings.Repeat("k", 40), start+i)) // differs at the end
			ops[i] = registry.Create(key, []byte(key))
			want = append(want, key)
		}
		t.commitOps(a, ops...)
	}
	entries := t.listFresh(b, "d")
	require.Equal(t, want, keysOf(entries), "the keys of a List, in order")
	for _, e := range entries {
		require.Equal(t, string(e.Key), string(e.Value))
	}
	f := t.follow(b, "d")
	f.converge(a)
	t.commitOps(a, registry.Delete(want[n/2], entries[n/2].Modified))
	f.followUntil("the deleted key is gone", func() bool { return len(f.has) == n-1 })
}

func manyWatches(t *test) {
	a := t.handleA()
	var all []*follower
	for i := range t.repeats(500, 100) {
		f := t.follow(t.handleB(), registry.Key(fmt.Sprintf("d%d", i)))
		all = append(all, f)
	}
	heal := t.partition("b", Refuse)
	for _, f := range all {
		t.create(a, f.dir.Join("k"), "while away")
	}
	heal()
	for _, f := range all {
		f.awaitValue(f.dir.Join("k"), "while away")
		t.create(a, f.dir.Join("k2"), "after")
		f.awaitValue(f.dir.Join("k2"), "after")
	}
}

func portableLimits(t *test) {
	for _, r := range []registry.Registry{t.handleA(), t.handleB()} {
		l := r.Limits()
		require.GreaterOrEqual(t, l.ValueBytes, registry.PortableLimits.ValueBytes)
		require.GreaterOrEqual(t, l.TxnItems, registry.PortableLimits.TxnItems)
		require.GreaterOrEqual(t, l.TxnBytes, registry.PortableLimits.TxnBytes)
	}
	x := registry.Txn{Then: t.opsOfSize(registry.PortableLimits, "d", registry.PortableLimits.TxnBytes)}
	t.commit(t.handleA(), x) // portable sizes are accepted
}

// txnBytesOfAllParts commits a transaction of exactly the greatest size whose parts are of all
// kinds, and tries one byte more.
func txnBytesOfAllParts(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	l := a.Limits()
	rev := t.create(a, longKey(t.keyBytes()), "")
	x := registry.Txn{If: []registry.Cond{
		registry.At(longKey(t.keyBytes()), rev), registry.Alive(s.ID()), registry.Dead("never-was"),
	}}
	for i := range 20 {
		x.If = append(x.If, registry.Absent(registry.Key(fmt.Sprintf("%02d", i)).Join(string(longKey(t.keyBytes()-3)))))
	}
	x.Then = []registry.Op{registry.CreateOwned("d/~own", []byte("of s"), s.ID())}
	size := func() int {
		keys := len(x.Then)
		for _, c := range x.If {
			if c.Key != "" {
				keys++
			}
		}
		return x.Size() + keys*t.keyOverhead()
	}
	for size() < l.TxnBytes {
		key := registry.Key(fmt.Sprintf("d/k%02d", len(x.Then)))
		counts := len(key) + t.keyOverhead()
		rest := l.TxnBytes - size() - counts
		n := min(rest, l.ValueBytes)
		if rest > n && rest-n < 2*counts {
			n -= 2 * counts // leaves room for the last key
		}
		x.Then = append(x.Then, registry.Create(key, make([]byte, n)))
	}
	require.Equal(t, l.TxnBytes, size())
	over := x
	over.Then = append([]registry.Op(nil), x.Then...)
	over.Then[0].Value = []byte("of s!")
	_, err := a.Txn(t.ctx, over)
	require.ErrorIs(t, err, registry.ErrTooLarge, "one byte more")
	require.Empty(t, t.listFresh(a, "d"))
	t.commit(a, x)
	require.Len(t, t.listFresh(a, "d"), len(x.Then))
}

func largeValues(t *test) {
	a, b := t.handleA(), t.handleB()
	const n = 40 // 5 MB: more than a message or a buffer may hold
	f := t.follow(b, "d")
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, registry.PortableLimits.ValueBytes) }
	for i := range n {
		t.commitOps(a, registry.Create(registry.Key(fmt.Sprintf("d/k%02d", i)), value(i)))
	}
	entries := t.listFresh(b, "d")
	require.Len(t, entries, n)
	for i, e := range entries {
		require.True(t, bytes.Equal(value(i), e.Value), "the value of %s", e.Key)
	}
	f.converge(a)
	t.follow(b, "d").converge(a)
}

// largeInEveryOp makes every kind of change with a value of each size, and compares all readers after
// each.
func largeInEveryOp(t *test) {
	a, b := t.handleA(), t.handleB()
	f, g := t.follow(a, "d"), t.follow(b, "d")
	for _, n := range draw(t, "bytes of a value", 1<<16-1, 1<<16, 1<<16+1, 100<<10, registry.PortableLimits.ValueBytes) {
		one, two := bytes.Repeat([]byte("1"), n), bytes.Repeat([]byte("2"), n)
		want := map[registry.Key][]byte{}
		check := func(after string) {
			t.Helper()
			for _, r := range []registry.Registry{a, b} {
				entries := t.listFresh(r, "d")
				require.Len(t, entries, len(want), "entries after %s of %d bytes", after, n)
				for _, e := range entries {
					require.True(t, bytes.Equal(want[e.Key], e.Value), "the value of %s after %s of %d bytes", e.Key, after, n)
					buf := make([]byte, n)
					read, err := r.Get(t.ctx, e.Key, registry.ReadOptions{Fresh: true, Buffer: buf})
					require.NoError(t, err)
					require.True(t, sameEntry(e, read), "%s by Get after %s of %d bytes", e.Key, after, n)
					if len(read.Value) > 0 {
						require.Same(t, &buf[0], &read.Value[0], "a value of %d bytes fits the buffer", n)
					}
					clear(t.getFresh(r, e.Key).Value) // values are the reader's
					clear(e.Value)
				}
			}
			f.converge(b)
			g.converge(a)
			for _, r := range []*follower{f, g} {
				for _, e := range r.last.Puts {
					clear(e.Value)
				}
				for _, e := range t.listFresh(a, "d") {
					require.True(t, bytes.Equal(want[e.Key], e.Value), "the value of %s of %d bytes after readers changed theirs", e.Key, n)
					r.has[e.Key] = e
				}
			}
		}
		commit := func(r registry.Registry, op registry.Op) registry.Rev {
			op.Value = bytes.Clone(op.Value)
			defer clear(op.Value) // values are the writer's again
			return t.commitOps(r, op)
		}
		s := t.openSession(a)
		rev := t.commitOps(a, registry.Create("d/k", nil))
		own := commit(a, registry.CreateOwned("d/~k", one, s.ID()))
		want["d/k"], want["d/~k"] = nil, one
		check("a CreateOwned")
		rev = commit(a, registry.Set("d/k", rev, one))
		own = commit(a, registry.Set("d/~k", own, two))
		want["d/k"], want["d/~k"] = one, two
		check("a Set")
		rev = t.commitOps(b, registry.Set("d/k", rev, two), registry.Set("d/~k", own, nil))
		want["d/k"], want["d/~k"] = two, nil
		check("a Set by another handle")
		rev = t.commitOps(a, registry.Delete("d/k", rev), registry.Set("d/~k", rev, one))
		delete(want, "d/k")
		want["d/~k"] = one
		check("a Delete")
		again := commit(a, registry.Create("d/k", one))
		want["d/k"] = one
		check("a Create again")
		t.commitOps(b, registry.Delete("d/k", again), registry.Delete("d/~k", rev))
		clear(want)
		check("a Delete by another handle")
		t.commitOps(a, registry.CreateOwned("d/~k", one, s.ID()))
		require.NoError(t, s.Close(t.ctx))
		check("the end of the session with a key")
	}
}
