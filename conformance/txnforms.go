package conformance

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// txnFormCases test transactions by form and size: related keys, repeated keys, kinds in every
// order, the most items, owned keys of several sessions.
var txnFormCases = []Case{
	{
		Code: "T19", Name: "a key and the keys below it can be changed in one transaction",
		Proves: []Promise{TxnIsAtomic, TxnCommitsEveryOp, DeleteSparesDescendants, ListIsOneLevel}, run: relatedKeys,
	},
	{
		Code: "T20", Name: "an invariant sum holds in every atomic view of a hundred keys",
		Proves: []Promise{AtomicListingIsOneCommit}, run: manyTransfers, Safety: true,
	},
	{
		Code: "T21", Name: "a conflict names the lowest item, whatever kinds of items do not hold",
		Proves: []Promise{ConflictNamesTheItem, CreateNeedsAbsence}, run: conflictsOfAllKinds,
	},
	{
		Code: "T22", Name: "each of several conditions on one key or session is checked",
		Proves: []Promise{ConditionsAreChecked, ConditionsSeeTheStateBefore, ConflictNamesTheItem}, run: repeatedConditions, Safety: true,
	},
	{
		Code: "T23", Name: "owned keys of several sessions are created together, or refused as a whole",
		Proves: []Promise{TxnIsAtomic, OnlyOwnedKeysHaveOwners}, run: ownersInOneTxn, Safety: true,
	},
	{
		Code: "T24", Name: "each of the most items of a transaction is checked",
		Proves: []Promise{ConditionsAreChecked, ChangeNeedsTheRev, TxnIsAtomic, ConflictChangesNothing, ConflictNamesTheItem}, run: everyItemIsChecked, Safety: true,
	},
}

func relatedKeys(t *test) {
	a, b := t.handleA(), t.handleB()
	keys := []registry.Key{"x", "x/y", "x/y/z", "x/y/w", "x.y", "x/y.z"}
	for range 2 {
		each := func(op func(registry.Key) registry.Op) registry.Rev {
			ops := make([]registry.Op, len(keys))
			for i, key := range keys {
				ops[i] = op(key)
			}
			return t.commitOps(a, ops...)
		}
		rev := each(func(k registry.Key) registry.Op { return registry.Create(k, []byte(k)) })
		rev = each(func(k registry.Key) registry.Op { return registry.Set(k, rev, []byte(k)) })
		for _, key := range keys {
			require.Equal(t, string(key), string(t.getFresh(b, key).Value))
		}
		mixed := t.commitOps(a, registry.Delete("x", rev), registry.Set("x/y", rev, nil), registry.Create("x/y/new", nil))
		require.Equal(t, []registry.Key{"x/y", "x/y.z"}, keysOf(t.listFresh(b, "x")))
		require.Equal(t, []registry.Key{"x/y/new", "x/y/w", "x/y/z"}, keysOf(t.listFresh(b, "x/y")))
		t.commitOps(a, registry.Delete("x/y/z", rev), registry.Delete("x/y", mixed), registry.Create("x", nil))
		var rest []registry.Op
		for _, dir := range []registry.Key{"", "x", "x/y"} {
			for _, e := range t.listFresh(a, dir) {
				rest = append(rest, registry.Delete(e.Key, e.Modified))
			}
		}
		t.commitOps(a, rest...)
		t.assertAbsent(b, append(keys, "x/y/new")...)
		slices.Reverse(keys) // descendants first
	}
}

func manyTransfers(t *test) { t.transferAmong(100, t.repeats(100, 40)) }

func conflictsOfAllKinds(t *test) {
	a := t.handleA()
	s, ended := t.openSession(a), t.openSession(a)
	require.NoError(t, ended.Close(t.ctx))
	rev := t.create(a, "k", "v")
	t.createOwned(a, "~own", s)
	conds := []registry.Cond{
		registry.Absent("k"), registry.At("none", rev), registry.At("~own", rev), registry.Dead(s.ID()), registry.Alive(ended.ID()),
	}
	ops := []registry.Op{
		registry.Create("k", nil), registry.Set("none1", rev, nil), registry.Delete("none2", rev),
		registry.Set("~none3", rev, nil), registry.CreateOwned("~own", nil, s.ID()),
	}
	holds := registry.At("k", rev)
	for i, cond := range conds {
		for j, later := range conds {
			if i != j {
				t.assertConflict(a, registry.Txn{If: []registry.Cond{cond, later}}, 0)
				t.assertConflict(a, registry.Txn{If: []registry.Cond{holds, cond, holds, later}}, 1)
			}
		}
		for _, op := range ops {
			t.assertConflict(a, registry.Txn{If: []registry.Cond{holds, cond}, Then: []registry.Op{op}}, 1)
		}
	}
	for i, op := range ops {
		for j, later := range ops {
			if i != j {
				t.assertConflict(a, registry.Txn{Then: []registry.Op{op, later}}, 0)
				t.assertConflict(a, registry.Txn{If: []registry.Cond{holds}, Then: []registry.Op{registry.Create("new", nil), op, later}}, 2)
			}
		}
	}
	t.assertAbsent(a, "new", "none1", "~none3")
}

func repeatedConditions(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	old := t.create(a, "k", "0")
	now := t.commitOps(a, registry.Set("k", old, []byte("1")))
	for _, c := range []struct {
		conds []registry.Cond
		fails int
	}{
		{[]registry.Cond{registry.At("k", old), registry.At("k", now)}, 0},
		{[]registry.Cond{registry.At("k", now), registry.At("k", old)}, 1},
		{[]registry.Cond{registry.At("k", now), registry.At("k", old), registry.At("k", now)}, 1},
		{[]registry.Cond{registry.Absent("k"), registry.At("k", now)}, 0},
		{[]registry.Cond{registry.At("k", now), registry.Absent("k")}, 1},
		{[]registry.Cond{registry.Absent("none"), registry.At("none", now)}, 1},
		{[]registry.Cond{registry.At("none", now), registry.Absent("none")}, 0},
		{[]registry.Cond{registry.Alive(s.ID()), registry.Dead(s.ID())}, 1},
		{[]registry.Cond{registry.Dead(s.ID()), registry.Alive(s.ID())}, 0},
	} {
		for _, ops := range [][]registry.Op{
			nil,
			{registry.Create("new", nil)},
			{registry.Set("k", now, []byte("2"))}, // the same key again
			{registry.CreateOwned("~new", nil, s.ID())},
		} {
			t.assertConflict(a, registry.Txn{If: c.conds, Then: ops}, c.fails)
		}
	}
	t.assertAbsent(a, "new", "~new")
	require.Equal(t, now, t.getFresh(a, "k").Modified)
	t.commit(a, registry.Txn{
		If:   []registry.Cond{registry.At("k", now), registry.Alive(s.ID()), registry.At("k", now), registry.Alive(s.ID())},
		Then: []registry.Op{registry.Set("k", now, []byte("2"))},
	})
}

func ownersInOneTxn(t *test) {
	a, b := t.handleA(), t.handleB()
	s1, s2, other := t.openSession(a), t.openSession(a), t.openSession(b)
	for i, owners := range [][]registry.Session{{s1, s2}, {s2, s1}, {other}, {s1, other}, {other, s1}} {
		dir := registry.Key(fmt.Sprintf("d%d", i))
		ops := []registry.Op{registry.Create(dir.Join("plain"), nil)}
		for _, s := range owners {
			ops = append(ops, registry.CreateOwned(dir.Join("~"+string(s.ID())), nil, s.ID()))
		}
		_, err := a.Txn(t.ctx, registry.Txn{Then: ops})
		entries := t.listFresh(b, dir)
		if errors.Is(err, registry.ErrInvalidTxn) {
			require.Empty(t, entries, "after the transaction was refused: %v", err)
			continue
		}
		require.NoError(t, err)
		require.Len(t, entries, len(ops))
		for _, e := range entries[1:] {
			require.Equal(t, "~"+string(e.Owner), e.Key.Name(), "the owner of %s", e.Key)
		}
	}
	t.createOwned(b, "d/~own", other)
	require.NoError(t, s1.Close(t.ctx))
	t.assertHolds(a, registry.Alive(s2.ID()), registry.Alive(other.ID()))
	require.NoError(t, s2.Close(t.ctx))
	require.NoError(t, other.Close(t.ctx))
	for i := range 5 {
		for _, e := range t.listFresh(b, registry.Key(fmt.Sprintf("d%d", i))) {
			require.Empty(t, e.Owner, "%s outlives its session", e.Key)
		}
	}
}

// everyItemIsChecked sends transactions of the most items of which one does not hold.
func everyItemIsChecked(t *test) {
	a := t.handleA()
	n := registry.PortableLimits.TxnItems
	old := t.commitEach(a, "d", n, func(_ int, key registry.Key) registry.Op { return registry.Create(key, nil) })
	now := t.commitEach(a, "d", n, func(i int, key registry.Key) registry.Op { return registry.Set(key, old[i], nil) })
	key := func(i int) registry.Key { return registry.Key(fmt.Sprintf("d/k%03d", i)) }
	before := t.listFresh(a, "d")
	for _, bad := range []int{0, 49, 50, 99, 100, n - 1} {
		for _, conds := range []int{n, n / 2, 0} { // the rest are operations
			var x registry.Txn
			for i := range n {
				rev := now[i]
				if i == bad {
					rev = old[i]
				}
				if i < conds {
					x.If = append(x.If, registry.At(key(i), rev))
				} else {
					x.Then = append(x.Then, registry.Set(key(i), rev, []byte("set")))
				}
			}
			t.assertConflict(a, x, bad)
		}
	}
	require.Equal(t, before, t.listFresh(a, "d"))
}
