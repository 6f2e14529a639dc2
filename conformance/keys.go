package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

var keyCases = []Case{
	{
		Code: "K01", Name: "values of any size and content round-trip unchanged",
		Proves: []Promise{GetReturnsTheEntry}, run: valuesRoundTrip,
	},
	{
		Code: "K02", Name: "creating an existing key conflicts and keeps its value",
		Proves: []Promise{CreateNeedsAbsence}, run: createExisting, Safety: true,
	},
	{
		Code: "K03", Name: "creating a deep key neither needs nor creates its ancestors",
		Proves: []Promise{ListHoldsValuesOnly}, run: deepCreate,
	},
	{
		Code: "K04", Name: "a key can be created above existing keys, and deleting it leaves them",
		Proves: []Promise{DeleteSparesDescendants, ListHoldsValuesOnly}, run: deleteAbove,
	},
	{
		Code: "K05", Name: "setting or deleting a deleted key conflicts and does not restore it",
		Proves: []Promise{ChangeNeedsTheRev}, run: changeAbsent, Safety: true,
	},
	{
		Code: "K06", Name: "a Rev from before a delete and re-creation never matches again",
		Proves: []Promise{RevNeverHoldsAgain}, run: abaPlain, Safety: true,
	},
	{
		Code: "K07", Name: "a Rev of an owned key from before a delete and re-creation never matches again",
		Proves: []Promise{RevNeverHoldsAgain}, run: abaOwned, Safety: true,
	},
	{
		Code: "K08", Name: "Seq grows with every commit, across keys and handles",
		Proves: []Promise{SeqGrows, SeqIsInRange}, run: seqGrows, Safety: true,
	},
	{
		Code: "K09", Name: "the zero Rev matches no key",
		Proves: []Promise{ZeroRevNamesNothing}, run: zeroRev, Safety: true,
	},
	{
		Code: "K10", Name: "a list contains exactly the immediate children",
		Proves: []Promise{ListIsOneLevel, ListHoldsValuesOnly, ListedEntriesWereCommitted}, run: listOneLevel,
	},
	{
		Code: "K11", Name: "an empty directory lists as empty, without an error",
		Proves: []Promise{ListOfNothingIsEmpty}, run: listNothing,
	},
	{
		Code: "K12", Name: "callers may modify the values they read",
		Proves: []Promise{ReadsBelongToTheReader}, run: readsAreCopies,
	},
	{
		Code: "K13", Name: "every method rejects the same invalid keys",
		Proves: []Promise{InvalidKeysAreRefused, GetReturnsTheEntry, OwnedKeysAreLeaves}, run: keyTable,
	},
	{
		Code: "K14", Name: "a list is in bytewise order",
		Proves: []Promise{ListIsSorted}, run: listSorted,
	},
	{
		Code: "K15", Name: "callers may modify a value after writing it",
		Proves: []Promise{WritesAreCopied}, run: writesAreCopies,
	},
	{
		Code: "K16", Name: "Created changes only when a key is re-created, and Modified grows with each write",
		Proves: []Promise{CreatedStays, CreatedChangesOnRecreation, ModifiedIsTheLastWrite, GetReturnsTheEntry}, run: createdAndModified,
	},
	{
		Code: "K17", Name: "keys and sizes are checked before anything is sent",
		Proves: []Promise{KeysAreCheckedFirst}, Needs: []string{Partition}, run: keysBeforeSending,
	},
	{
		Code: "K18", Name: "an entry names the transaction that wrote it",
		Proves: []Promise{EntryNamesItsTxn, ZeroTxnIDIsDrawn}, run: entryNamesTxn, Safety: true,
	},
	{
		Code: "K19", Name: "only owned keys have an owner",
		Proves: []Promise{OnlyOwnedKeysHaveOwners}, run: ownerOfPlainKeys,
	},
	{
		Code: "K20", Name: "a Rev that a handle has read never matches again after a delete and re-creation",
		Proves: []Promise{RevNeverHoldsAgain, GetReturnsTheEntry}, run: abaOfReader, Safety: true,
	},
	{
		Code: "K21", Name: "concurrent commits of several handles and directories have different Seqs",
		Proves: []Promise{SeqGrows, ManyGoroutines}, run: concurrentSeqs, Safety: true,
	},
	{
		Code: "K22", Name: "the longest keys work in every method",
		Proves: []Promise{InvalidKeysAreRefused, AbsentHoldsWithoutKey}, run: longestKeys,
	},
	{
		Code: "K23", Name: "callers may modify a value when the outcome of its transaction is unknown",
		Proves: []Promise{WritesAreCopied}, Needs: []string{HoldCommit}, run: heldWritesAreCopies,
	},
	{
		Code: "K24", Name: "callers may modify a transaction that the store executes after the call",
		Proves: []Promise{WritesAreCopied}, Needs: []string{Stall}, run: stalledWritesAreCopies,
	},
}

func valuesRoundTrip(t *test) {
	a, b := t.handleA(), t.handleB()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	largest := bytes.Repeat([]byte("0123456789abcdef"), registry.PortableLimits.ValueBytes/16)
	for i, value := range [][]byte{
		nil, {}, {0}, {0, 0, 0}, {'\n'}, []byte(" trailing blank \n\n"), []byte("\x00\x01v"), every, []byte("größe 零"), largest,
	} {
		key := registry.Key(fmt.Sprintf("values/%02d", i))
		rev := t.commitOps(a, registry.Create(key, value))
		require.True(t, bytes.Equal(value, t.getFresh(b, key).Value), "value %d after create", i)
		t.commitOps(a, registry.Set(key, rev, slices.Concat(value, every)[:len(value)]))
		require.True(t, bytes.Equal(value, t.getFresh(b, key).Value), "value %d after set", i)
		entries := t.listFresh(b, "values")
		require.True(t, bytes.Equal(value, entries[i].Value), "value %d in a list", i)

		rev = t.commitOps(a, registry.Set(key, entries[i].Modified, nil))
		require.Empty(t, t.getFresh(b, key).Value, "value %d after it was set to an empty one", i)
		t.commitOps(a, registry.Set(key, rev, value))
		require.True(t, bytes.Equal(value, t.getFresh(b, key).Value), "value %d after an empty one", i)
	}
}

func createExisting(t *test) {
	a, b := t.handleA(), t.handleB()
	t.create(a, "k", "first")
	before := t.getFresh(b, "k")
	for _, r := range []registry.Registry{a, b} {
		t.assertConflict(r, registry.Txn{Then: []registry.Op{registry.Create("k", []byte("second"))}}, 0)
	}
	require.Equal(t, before, t.getFresh(b, "k"))
}

func deepCreate(t *test) {
	a := t.handleA()
	key := registry.Key(strings.Repeat("s/", t.keySegments()-1) + "s") // of maximal depth
	t.create(a, key, "deep")
	require.Equal(t, "deep", string(t.getFresh(t.handleB(), key).Value))
	require.Equal(t, []registry.Key{key}, keysOf(t.listFresh(a, key.Dir())))
	for dir := key.Dir(); dir != ""; dir = dir.Dir() {
		t.assertAbsent(a, dir)
		require.Empty(t, t.listFresh(a, dir.Dir()), "a key without a value is not listed")
	}
	t.create(a, "s/s", "made later") // the ancestor does not exist yet
	require.Equal(t, []registry.Key{"s/s"}, keysOf(t.listFresh(a, "s")))
}

func deleteAbove(t *test) {
	a, b := t.handleA(), t.handleB()
	t.create(a, "top/mid/leaf", "leaf")
	for range 3 { // again after a create and delete
		rev := t.create(a, "top/mid", "mid")
		require.Equal(t, []registry.Key{"top/mid"}, keysOf(t.listFresh(b, "top")))
		t.commitOps(b, registry.Delete("top/mid", rev))
		t.assertAbsent(a, "top/mid")
		require.Empty(t, t.listFresh(a, "top"))
		require.Equal(t, "leaf", string(t.getFresh(a, "top/mid/leaf").Value))
		require.Equal(t, []registry.Key{"top/mid/leaf"}, keysOf(t.listFresh(a, "top/mid")))
	}
}

func changeAbsent(t *test) {
	a, b := t.handleA(), t.handleB()
	other := t.create(a, "other", "")
	rev := t.create(a, "k", "v")
	t.commitOps(a, registry.Delete("k", rev))
	for _, at := range []registry.Rev{rev, other} {
		for _, key := range []registry.Key{"k", "never"} {
			t.assertConflict(b, registry.Txn{Then: []registry.Op{registry.Set(key, at, []byte("back"))}}, 0)
			t.assertConflict(b, registry.Txn{Then: []registry.Op{registry.Delete(key, at)}}, 0)
			t.assertAbsent(a, key)
		}
	}
}

func abaPlain(t *test) {
	a, b := t.handleA(), t.handleB()
	var old []registry.Rev
	for range t.repeats(50, 20) {
		made := t.create(a, "k", "same")
		staleRevsConflict(t, "k", old)
		set := t.commitOps(b, registry.Set("k", made, []byte("same")))
		staleRevsConflict(t, "k", append(old, made))
		t.commitOps(a, registry.Delete("k", set))
		old = append(old, made, set)
	}
}

// staleRevsConflict asserts that the first and the latest earlier Revs of key, which
// exists, conflict.
func staleRevsConflict(t *test, key registry.Key, old []registry.Rev) {
	t.Helper()
	for i, rev := range old {
		if i >= 2 && i < len(old)-3 {
			continue
		}
		before := t.getFresh(t.handleA(), key)
		t.assertConflict(t.handleB(), registry.Txn{If: []registry.Cond{registry.At(key, rev)}}, 0)
		t.assertConflict(t.handleB(), registry.Txn{Then: []registry.Op{registry.Set(key, rev, []byte("stale"))}}, 0)
		t.assertConflict(t.handleB(), registry.Txn{Then: []registry.Op{registry.Delete(key, rev)}}, 0)
		require.Equal(t, before, t.getFresh(t.handleA(), key))
	}
}

func abaOwned(t *test) {
	a := t.handleA()
	var old []registry.Rev
	for range 3 {
		s := t.openSession(a)
		for range t.repeats(10, 5) { // re-created by the same session
			made := t.commitOps(a, registry.CreateOwned("~k", []byte("same"), s.ID()))
			staleRevsConflict(t, "~k", old)
			set := t.commitOps(a, registry.Set("~k", made, []byte("same")))
			staleRevsConflict(t, "~k", append(old, made))
			t.commitOps(a, registry.Delete("~k", set))
			old = append(old, made, set)
		}
		last := t.commitOps(a, registry.CreateOwned("~k", []byte("same"), s.ID()))
		old = append(old, last)
		require.NoError(t, s.Close(t.ctx)) // then by another session
	}
}

func seqGrows(t *test) {
	handles := []registry.Registry{t.handleA(), t.handleB()}
	last := uint64(0)
	for i := range t.repeats(100, 30) {
		r := handles[i%2]
		key := registry.Key(fmt.Sprintf("dir%d/k%d", i%5, i))
		var revs []registry.Rev
		revs = append(revs, t.create(r, key, "1"))
		revs = append(revs, t.commitOps(r, registry.Set(key, revs[0], []byte("2"))))
		if i%3 == 0 {
			revs = append(revs, t.commitOps(r, registry.Delete(key, revs[1])))
		}
		for _, rev := range revs {
			require.Greater(t, rev.Seq, last, "Seq of consecutive commits")
			require.Less(t, rev.Seq, uint64(1)<<63)
			last = rev.Seq
		}
	}
}

func zeroRev(t *test) {
	a := t.handleA()
	t.create(a, "k", "v")
	before := t.getFresh(a, "k")
	for _, key := range []registry.Key{"k", "never"} {
		t.assertConflict(a, registry.Txn{If: []registry.Cond{registry.At(key, registry.Rev{})}}, 0)
		t.assertConflict(a, registry.Txn{Then: []registry.Op{registry.Set(key, registry.Rev{}, []byte("w"))}}, 0)
		t.assertConflict(a, registry.Txn{Then: []registry.Op{registry.Delete(key, registry.Rev{})}}, 0)
	}
	require.Equal(t, before, t.getFresh(a, "k"))
	t.assertAbsent(a, "never")
}

func listOneLevel(t *test) {
	a, b := t.handleA(), t.handleB()
	for _, key := range []registry.Key{"a", "a/b", "a/bc", "a/b/c", "a/b/d", "a/b/d/e", "a/b/f/g", "a/b-c/d", "a/b.c", "a/b0/x", "b"} {
		t.create(a, key, string(key))
	}
	gone := t.create(a, "a/b/gone", "")
	t.commitOps(a, registry.Delete("a/b/gone", gone))
	for dir, want := range map[registry.Key][]registry.Key{
		"":      {"a", "b"},
		"a":     {"a/b", "a/b.c", "a/bc"},
		"a/b":   {"a/b/c", "a/b/d"},
		"a/b/f": {"a/b/f/g"},
	} {
		entries := t.listFresh(b, dir)
		require.Equal(t, want, keysOf(entries), "list of %q", dir)
		for _, e := range entries {
			require.Equal(t, string(e.Key), string(e.Value))
			require.Equal(t, t.getFresh(a, e.Key), e, "List and Get return the same entry")
		}
	}
}

func listNothing(t *test) {
	a := t.handleA()
	rev := t.create(a, "was/k", "")
	t.commitOps(a, registry.Delete("was/k", rev))
	for _, o := range []registry.ReadOptions{{}, fresh} {
		for _, dir := range []registry.Key{"", "never", "was", "was/k", "some/where/deep"} {
			l, err := a.List(t.ctx, dir, o)
			require.NoError(t, err, "list %q", dir)
			require.Empty(t, l.Entries)
		}
	}
}

func listSorted(t *test) {
	a := t.handleA()
	names := []string{"b", "B", "a", "_", "-", ".x", "0", "10", "9", "a.", "a-", "aa", "A~", "Z", "z", "a0", "..."}
	for _, name := range names {
		t.create(a, registry.Join("d", name), "")
	}
	slices.Sort(names)
	var got []string
	for _, e := range t.listFresh(t.handleB(), "d") {
		got = append(got, e.Key.Name())
	}
	require.Equal(t, names, got)
}

func readsAreCopies(t *test) {
	a := t.handleA()
	t.create(a, "d/k", "value")
	t.create(a, "d/k2", "other")
	for _, o := range []registry.ReadOptions{{}, fresh} {
		e, err := a.Get(t.ctx, "d/k", o)
		require.NoError(t, err)
		clear(e.Value)
		l, err := a.List(t.ctx, "d", o)
		require.NoError(t, err)
		require.Equal(t, "value", string(l.Entries[0].Value), "after the value of a Get was overwritten")
		_ = append(l.Entries[0].Value, "xyz"...)
		require.Equal(t, "other", string(l.Entries[1].Value), "after another value of the List was appended to")
		clear(l.Entries[0].Value)
		e, err = a.Get(t.ctx, "d/k", o)
		require.NoError(t, err)
		require.Equal(t, "value", string(e.Value), "after the value of a List was overwritten")
		require.Equal(t, "value", string(append(e.Value, "xyz"...)[:5]))
	}
}

func writesAreCopies(t *test) {
	a := t.handleA()
	f := t.follow(a, "d")
	value := []byte("created")
	ops := []registry.Op{registry.Create("d/k", value)}
	rev := t.commit(a, registry.Txn{Then: ops})
	copy(value, "XXXXXXX")
	ops[0] = registry.Create("d/other", nil)
	require.Equal(t, "created", string(t.getFresh(a, "d/k").Value))
	f.awaitValue("d/k", "created")

	value = []byte("set")
	t.commitOps(a, registry.Set("d/k", rev, value))
	copy(value, "XXX")
	require.Equal(t, "set", string(t.getFresh(t.handleB(), "d/k").Value))
	f.awaitValue("d/k", "set")
}

func createdAndModified(t *test) {
	a, b := t.handleA(), t.handleB()
	var lives []registry.Rev
	for range 3 {
		made := t.create(a, "k", "0")
		require.NotContains(t, lives, made)
		lives = append(lives, made)
		last := made
		for i := range 5 {
			e := t.getFresh(b, "k")
			require.Equal(t, made, e.Created, "Created after %d writes", i)
			require.Equal(t, last, e.Modified, "Modified after %d writes", i)
			last = t.commitOps(a, registry.Set("k", last, fmt.Append(nil, i/2))) // every other one changes nothing
			require.Greater(t, last.Seq, e.Modified.Seq)
		}
		t.commitOps(a, registry.Delete("k", last))
	}
}

func entryNamesTxn(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	id := registry.NewTxnID()
	rev := t.commit(a, registry.Txn{ID: id, Then: []registry.Op{
		registry.Create("k", []byte("v")), registry.CreateOwned("~o", []byte("v"), s.ID()),
	}})
	require.Equal(t, id, t.getFresh(b, "k").Txn, "of a created key")
	require.Equal(t, id, t.getFresh(b, "~o").Txn, "of an owned key")

	again := registry.NewTxnID()
	rev = t.commit(a, registry.Txn{ID: again, Then: []registry.Op{registry.Set("k", rev, []byte("v"))}})
	require.Equal(t, again, t.getFresh(b, "k").Txn, "of a set key")
	require.Equal(t, again, t.listFresh(b, "")[0].Txn, "in a list")

	rev = t.commit(a, registry.Txn{ID: registry.NewTxnID(), Then: []registry.Op{
		registry.Set("k", rev, nil), registry.Create("k2", nil), registry.Create("k3", nil),
	}})
	several := registry.NewTxnID()
	rev = t.commit(a, registry.Txn{ID: several, Then: []registry.Op{
		registry.Set("k", rev, nil), registry.Set("k2", rev, nil), registry.Set("k3", rev, nil),
	}})
	for _, key := range []registry.Key{"k", "k2", "k3"} {
		require.Equal(t, several, t.getFresh(b, key).Txn, "of %s, one of several set keys", key)
	}

	seen := map[registry.TxnID]bool{id: true, again: true, several: true}
	for i := range t.repeats(300, 12) { // without an ID, each gets a unique one
		ops := []registry.Op{registry.Set("k", rev, []byte("v")), registry.Set("k2", rev, nil), registry.Set("k3", rev, nil)}
		if i%3 == 2 { // alone, and then together again
			alone := t.commitOps(a, registry.Set("k", rev, nil))
			drawn := t.getFresh(b, "k").Txn
			require.False(t, seen[drawn], "a drawn id is used twice")
			seen[drawn] = true
			ops[0].Rev = alone
		}
		rev = t.commitOps(a, ops...)
		drawn := t.getFresh(b, "k").Txn
		require.NotEqual(t, registry.TxnID{}, drawn)
		require.False(t, seen[drawn], "a drawn id is used twice")
		seen[drawn] = true
	}
}

func ownerOfPlainKeys(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	t.commit(a, registry.Txn{If: []registry.Cond{registry.Alive(s.ID())}, Then: []registry.Op{
		registry.Create("d/plain", nil), registry.CreateOwned("d/~owned", nil, s.ID()),
	}})
	named := registry.Create("d/zz", nil)
	named.Session = s.ID() // without a meaning for this kind
	t.commitOps(a, named)
	require.Empty(t, t.getFresh(a, "d/plain").Owner)
	require.Empty(t, t.getFresh(a, "d/zz").Owner)
	require.Equal(t, s.ID(), t.getFresh(a, "d/~owned").Owner)
	entries := t.listFresh(t.handleB(), "d")
	require.Len(t, entries, 3)
	require.Empty(t, entries[0].Owner)
	require.Empty(t, entries[1].Owner)
	require.Equal(t, s.ID(), entries[2].Owner)
	require.NoError(t, s.Close(t.ctx))
	require.Equal(t, []registry.Key{"d/plain", "d/zz"}, keysOf(t.listFresh(t.handleB(), "d")))
}

// Bounds of a key, see registry.CheckKey.
const (
	maxKeyBytes     = 512
	maxKeySegments  = 16
	maxSegmentBytes = 128
)

// keySegments and keyBytes are the bounds that remain below Backend.Below.
func (t *test) keySegments() int {
	if t.backend.Below == "" {
		return maxKeySegments
	}
	return maxKeySegments - strings.Count(string(t.backend.Below), "/") - 1
}

func (t *test) keyBytes() int { return maxKeyBytes - t.keyOverhead() }

// keyOverhead is the length of the prefix of each key.
func (t *test) keyOverhead() int {
	if t.backend.Below == "" {
		return 0
	}
	return len(t.backend.Below) + len("/")
}

// longKey returns a key of n bytes.
func longKey(n int) registry.Key {
	key := []byte(strings.Repeat("k", n))
	for i := maxSegmentBytes - 1; i < n-1; i += maxSegmentBytes {
		key[i] = '/'
	}
	return registry.Key(key)
}

// badKeys returns keys that each break a rule. Those in dirsToo are invalid as
// directories too.
func (t *test) badKeys() (keys, dirsToo []registry.Key) {
	dirsToo = []registry.Key{
		"/", "/a", "a/", "a//b", ".", "..", "a/.", "a/../b", "a b", "a\x00", "ä", "a:b", "a/b*", "a\\b",
		"~own/child", "a/~own/child", "a/~/b",
		registry.Key(strings.Repeat("s", maxSegmentBytes+1)),
		registry.Key(strings.Repeat("s/", t.keySegments()) + "s"),
		longKey(t.keyBytes() + 1),
	}
	return append([]registry.Key{""}, dirsToo...), dirsToo
}

func keyTable(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	bad, badDirs := t.badKeys()
	for _, key := range bad {
		_, err := a.Get(t.ctx, key, registry.ReadOptions{})
		require.ErrorIs(t, err, registry.ErrInvalidKey, "get %q", key)
		for _, x := range []registry.Txn{
			{If: []registry.Cond{registry.Absent(key)}},
			{If: []registry.Cond{registry.At(key, registry.Rev{Seq: 1})}},
			{Then: []registry.Op{registry.Create(key, nil)}},
			{Then: []registry.Op{registry.CreateOwned(key, nil, s.ID())}},
			{Then: []registry.Op{registry.Set(key, registry.Rev{Seq: 1}, nil)}},
			{Then: []registry.Op{registry.Create("bystander", nil), registry.Delete(key, registry.Rev{Seq: 1})}},
		} {
			_, err := a.Txn(t.ctx, x)
			require.ErrorIs(t, err, registry.ErrInvalidKey, "if %v then %v", x.If, x.Then)
		}
	}
	for _, dir := range append(badDirs, "~own", "a/~own") {
		_, err := a.List(t.ctx, dir, registry.ReadOptions{})
		require.ErrorIs(t, err, registry.ErrInvalidKey, "list %q", dir)
		_, err = a.Watch(t.ctx, dir, registry.WatchOptions{})
		require.ErrorIs(t, err, registry.ErrInvalidKey, "watch %q", dir)
	}
	_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Create("~tilde", nil)}})
	require.ErrorIs(t, err, registry.ErrInvalidKey, "Create of a key with a tilde")
	_, err = a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.CreateOwned("plain", nil, s.ID())}})
	require.ErrorIs(t, err, registry.ErrInvalidKey, "CreateOwned of a key without a tilde")
	t.assertAbsent(a, "bystander", "plain", "~tilde")

	for _, key := range []registry.Key{
		"a", "...", "a/...b", "-", "_", "A.b_c~d-0", "a~/b",
		registry.Key(strings.Repeat("s", maxSegmentBytes)),
		registry.Key(strings.Repeat("s/", t.keySegments()-1) + "s"),
		longKey(t.keyBytes()),
	} {
		t.create(a, key, string(key))
		require.Equal(t, string(key), string(t.getFresh(a, key).Value))
		require.Contains(t, keysOf(t.listFresh(a, key.Dir())), key)
	}
	t.commitOps(a, registry.CreateOwned("a/~", nil, s.ID()), registry.CreateOwned("~~x", nil, s.ID()))
}

func keysBeforeSending(t *test) {
	a := t.handleA()
	heal := t.partition("a", Blackhole)
	defer heal()
	start := time.Now()
	_, getErr := a.Get(t.ctx, "no good", registry.ReadOptions{})
	_, listErr := a.List(t.ctx, "no good", fresh)
	_, txnErr := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Create("no good", nil)}})
	_, watchErr := a.Watch(t.ctx, "no good", registry.WatchOptions{})
	_, sizeErr := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Create("big", make([]byte, a.Limits().ValueBytes+1))}})
	took := time.Since(start)
	for _, err := range []error{getErr, listErr, txnErr, watchErr} {
		require.ErrorIs(t, err, registry.ErrInvalidKey)
	}
	require.ErrorIs(t, sizeErr, registry.ErrTooLarge)
	require.False(t, errors.Is(txnErr, registry.ErrUnknownOutcome))
	require.Less(t, took, time.Second, "a call waited for the silent server")
}

// abaOfReader lets a handle read an entry and later use its Rev, without another read.
func abaOfReader(t *test) {
	a, reader := t.handleA(), t.handle("reader")
	s := t.openSession(a)
	uses := []func(registry.Key, registry.Rev) registry.Txn{
		func(key registry.Key, rev registry.Rev) registry.Txn {
			return registry.Txn{If: []registry.Cond{registry.At(key, rev)}}
		},
		func(key registry.Key, rev registry.Rev) registry.Txn {
			return registry.Txn{Then: []registry.Op{registry.Set(key, rev, []byte("stale"))}}
		},
		func(key registry.Key, rev registry.Rev) registry.Txn {
			return registry.Txn{Then: []registry.Op{registry.Delete(key, rev)}}
		},
	}
	for _, key := range []registry.Key{"d/k", "d/~k"} {
		make := func() registry.Rev {
			if key.Owned() {
				return t.createOwned(a, key, s)
			}
			return t.create(a, key, "same")
		}
		for i, use := range uses {
			rev := make()
			old := t.getFresh(reader, key).Modified
			t.listFresh(reader, "d")
			t.commitOps(a, registry.Delete(key, rev))
			if key.Owned() && i == 0 { // by another session
				require.NoError(t, s.Close(t.ctx))
				s = t.openSession(a)
			}
			rev = make()
			t.assertConflict(reader, use(key, old), 0)
			require.Equal(t, rev, t.getFresh(a, key).Modified)
			t.commitOps(a, registry.Delete(key, rev))
		}
	}
	t.createOwned(a, "d/~k", s)
	old := t.getFresh(reader, "d/~k").Modified
	require.NoError(t, s.Close(t.ctx)) // deletes the key
	rev := t.createOwned(a, "d/~k", t.openSession(a))
	t.assertConflict(reader, registry.Txn{If: []registry.Cond{registry.At("d/~k", old)}}, 0)
	t.assertHolds(reader, registry.At("d/~k", rev))
}

func concurrentSeqs(t *test) {
	machines := []string{"a", "b", "c", "d"}
	handles := make([]registry.Registry, len(machines))
	for i, machine := range machines {
		handles[i] = t.handle(machine)
		t.delayInBubble(machine, time.Duration(i+1)*time.Millisecond)
	}
	const writers = 8
	revs := make([][]registry.Rev, writers)
	t.runConcurrently(writers, func(i int) error {
		for n := range t.repeats(30, 15) {
			key := registry.Key(fmt.Sprintf("d%d/k%d", i, n))
			rev, err := handles[i%len(handles)].Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
			if err != nil {
				return err
			}
			revs[i] = append(revs[i], rev)
		}
		return nil
	})
	seen := map[uint64]registry.Key{}
	for i := range revs {
		for n, rev := range revs[i] {
			key := registry.Key(fmt.Sprintf("d%d/k%d", i, n))
			require.NotContains(t, seen, rev.Seq, "the Seq of %s is that of %s", key, seen[rev.Seq])
			seen[rev.Seq] = key
			require.True(t, n == 0 || rev.Seq > revs[i][n-1].Seq, "the Seq of %s is not greater than the one before", key)
		}
		for n, e := range t.listFresh(handles[0], registry.Key(fmt.Sprintf("d%d", i))) {
			require.NotZero(t, e.Created.Seq, n)
			require.Contains(t, revs[i], e.Created, "Created of %s", e.Key)
		}
	}
}

// delayInBubble delays the replies to a machine until the end of the case, if it runs in a
// bubble: there calls take no time otherwise, and never overlap.
func (t *test) delayInBubble(machine string, d time.Duration) {
	if t.bubble && t.store.Delay != nil {
		t.Cleanup(t.store.Delay(machine, d))
	}
}

func longestKeys(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	plain := longKey(t.keyBytes())
	owned := plain.Dir().Join("~" + strings.Repeat("o", len(plain.Name())-1))
	deep := registry.Key(strings.Repeat("s/", t.keySegments()-1) + "~")
	f := t.follow(b, plain.Dir())
	for range 2 {
		t.assertHolds(b, registry.Absent(plain), registry.Absent(owned), registry.Absent(deep))
		rev := t.commitOps(a, registry.Create(plain, nil),
			registry.CreateOwned(owned, nil, s.ID()), registry.CreateOwned(deep, nil, s.ID()))
		f.converge(a)
		for _, r := range []registry.Registry{a, b} {
			t.assertHolds(r, registry.At(plain, rev), registry.At(owned, rev), registry.At(deep, rev))
			require.Equal(t, []registry.Key{plain, owned}, keysOf(t.listFresh(r, plain.Dir())))
			require.Equal(t, []registry.Key{deep}, keysOf(t.listFresh(r, deep.Dir())))
		}
		rev = t.commitOps(b, registry.Set(plain, rev, []byte("set")), registry.Set(owned, rev, []byte("set")))
		f.converge(a)
		t.commitOps(b, registry.Delete(plain, rev))
		require.NoError(t, s.Close(t.ctx))
		f.converge(a)
		require.Empty(t, f.has)
		t.assertAbsent(b, deep)
		s = t.openSession(a)
	}
}

// heldWritesAreCopies reuses a value while its transaction is on its way.
func heldWritesAreCopies(t *test) {
	a, b := t.handleA(), t.handleB()
	rev := t.create(a, "d/set", "old")
	for _, op := range []registry.Op{registry.Create("d/new", []byte("written")), registry.Set("d/set", rev, []byte("written"))} {
		t.awaitUsable(a)
		release := t.store.HoldCommit("a")
		t.Cleanup(release)
		ops := []registry.Op{op}
		_, err := a.Txn(t.within(200*time.Millisecond), registry.Txn{Then: ops})
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		copy(op.Value, "XXXXXXX")
		ops[0] = registry.Create("d/other", nil)
		release()
		e, err := b.Get(t.ctx, op.Key, fresh)
		if !errors.Is(err, registry.ErrNotFound) { // it may also be lost
			require.NoError(t, err)
			require.Contains(t, []string{"old", "written"}, string(e.Value), "%v", op)
		}
		t.assertAbsent(b, "d/other")
	}
}

// stalledWritesAreCopies sends transactions to a stalled store, which may execute them when it
// serves again, and reuses their memory for others.
func stalledWritesAreCopies(t *test) {
	a, b := t.handleA(), t.handleB()
	rev := t.create(a, "d/set", "old")
	holds, fails := registry.Absent("d/none"), registry.At("d/none", rev)
	resume := t.store.Stall()
	t.Cleanup(resume)
	ops := []registry.Op{registry.Create("d/new", []byte("written")), registry.Set("d/set", rev, []byte("written"))}
	for _, x := range []struct {
		cond, reused registry.Cond
		op           registry.Op
	}{{holds, holds, ops[0]}, {holds, holds, ops[1]}, {fails, holds, registry.Create("d/never", nil)}} {
		late := registry.Txn{If: []registry.Cond{x.cond}, Then: []registry.Op{x.op}}
		_, err := a.Txn(t.within(200*time.Millisecond), late)
		t.requireUnanswered(err)
		copy(x.op.Value, "XXXXXXX")
		late.If[0] = x.reused
		if x.cond == holds {
			late.Then[0] = registry.Create("d/other", nil)
		}
	}
	resume()
	t.awaitUsable(a)
	t.awaitUsable(b)
	t.settle(100 * time.Millisecond) // time for the late transactions
	for _, op := range ops {
		e, err := b.Get(t.ctx, op.Key, fresh)
		if !errors.Is(err, registry.ErrNotFound) { // it may also be lost
			require.NoError(t, err)
			require.Contains(t, []string{"old", "written"}, string(e.Value), "%v", op)
		}
	}
	t.assertAbsent(b, "d/other", "d/never")
}
