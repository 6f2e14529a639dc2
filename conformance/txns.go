package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

var txnCases = []Case{
	{
		Code: "T01", Name: "a transaction that fails at any item has no effect",
		Proves: []Promise{TxnIsAtomic}, run: txnAllOrNothing, Safety: true,
	},
	{
		Code: "T02", Name: "each kind of condition holds when it is true and conflicts when it is false",
		Proves: []Promise{ConditionsAreChecked}, run: conditionsHoldOrNot, Safety: true,
	},
	{
		Code: "T03", Name: "a conflict names the first item that did not hold",
		Proves: []Promise{ConflictNamesTheItem}, run: conflictIndex,
	},
	{
		Code: "T04", Name: "all keys of a transaction carry its one Rev",
		Proves: []Promise{TxnHasOneRev, CreatedStays, ModifiedIsTheLastWrite}, run: oneRev, Safety: true,
	},
	{
		Code: "T05", Name: "Absent holds for a key that never existed, was deleted or only has descendants",
		Proves: []Promise{AbsentHoldsWithoutKey}, run: absentHolds,
	},
	{
		Code: "T06", Name: "conditions are evaluated against the state before the transaction",
		Proves: []Promise{ConditionsSeeTheStateBefore}, run: condAndOpOnOneKey,
	},
	{
		Code: "T07", Name: "a malformed transaction is rejected as a whole",
		Proves: []Promise{MalformedTxnIsRefused}, run: malformed,
	},
	{
		Code: "T08", Name: "a transaction without operations checks its conditions and writes nothing",
		Proves: []Promise{CheckOnlyWritesNothing}, run: checkOnly,
	},
	{
		Code: "T09", Name: "operations of all kinds commit together",
		Proves: []Promise{TxnCommitsEveryOp, ListIsSorted}, run: mixedOps,
	},
	{
		Code: "T10", Name: "Alive turns into Dead in the commit that ends the session",
		Proves: []Promise{AliveUntilTheEnd, DeadOnceEnded}, Needs: []string{Expire}, run: aliveAndDead, Safety: true,
	},
	{
		Code: "T11", Name: "a Rev superseded by another handle's write conflicts",
		Proves: []Promise{ChangeNeedsTheRev}, run: staleRev, Safety: true,
	},
	{
		Code: "T13", Name: "concurrent compare-and-set loses no increment",
		Proves: []Promise{ChangeNeedsTheRev, ManyGoroutines}, run: concurrentIncrements, Safety: true,
	},
	{
		Code: "T14", Name: "an invariant sum holds in every atomic view",
		Proves: []Promise{AtomicListingIsOneCommit, TxnIsAtomic, ListingRevBoundsEntries}, run: transfers, Safety: true,
	},
	{
		Code: "T15", Name: "the same transaction sent twice is applied once",
		Proves: []Promise{TxnFalsifiesItself}, run: sentTwice, Safety: true,
	},
	{
		Code: "T16", Name: "exactly one of many concurrent creates of a key succeeds",
		Proves: []Promise{CreateNeedsAbsence, ManyGoroutines}, run: oneCreates, Safety: true,
	},
	{
		Code: "T17", Name: "a conflicting transaction changes nothing and produces no event",
		Proves: []Promise{ConflictChangesNothing}, run: refusalIsSilent,
	},
	{
		Code: "T18", Name: "a transaction whose context has ended is not applied",
		Proves: []Promise{OutcomesAreTrue, CallsEndWithTheirContext, UnreachableIsErrUnavailable, WatchEndsWithItsContext}, run: endedContext,
	},
}

func txnAllOrNothing(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	set := t.create(a, "d/set", "old")
	del := t.create(a, "d/del", "old")
	before := t.listFresh(b, "d")
	good := []registry.Op{
		registry.Create("d/new", []byte("new")),
		registry.Set("d/set", set, []byte("new")),
		registry.Delete("d/del", del),
		registry.CreateOwned("d/~own", nil, s.ID()),
	}
	bad := []registry.Op{
		registry.Create("d/set", []byte("again")),
		registry.Set("d/none", set, []byte("new")),
		registry.Delete("d/none", del),
		registry.Set("d/set", del, []byte("new")),
	}
	for _, culprit := range bad {
		for at := range len(good) + 1 {
			var ops []registry.Op
			for i, op := range good {
				if i == at {
					ops = append(ops, culprit)
				}
				if op.Key != culprit.Key {
					ops = append(ops, op)
				}
			}
			if at == len(good) {
				ops = append(ops, culprit)
			}
			_, err := a.Txn(t.ctx, registry.Txn{Then: ops})
			require.ErrorIs(t, err, registry.ErrConflict, "%v", ops)
			require.Equal(t, before, t.listFresh(b, "d"), "after %v was refused for %v", ops, culprit)
		}
	}
}

func conditionsHoldOrNot(t *test) {
	a := t.handleA()
	s, ended := t.openSession(a), t.openSession(a)
	require.NoError(t, ended.Close(t.ctx))
	old := t.create(a, "k", "1")
	now := t.commitOps(a, registry.Set("k", old, []byte("2")))
	other := t.create(a, "k2", "1")
	never := registry.SessionID("never-was")
	i := 0
	for _, c := range []struct {
		cond  registry.Cond
		holds bool
	}{
		{registry.Absent("none"), true},
		{registry.Absent("k"), false},
		{registry.At("k", now), true},
		{registry.At("k", old), false},
		{registry.At("k", other), false},
		{registry.At("none", now), false},
		{registry.Alive(s.ID()), true},
		{registry.Alive(ended.ID()), false},
		{registry.Alive(never), false},
		{registry.Dead(s.ID()), false},
		{registry.Dead(ended.ID()), true},
		{registry.Dead(never), true},
	} {
		i++
		key := registry.Key(fmt.Sprintf("done/%d", i))
		x := registry.Txn{If: []registry.Cond{c.cond}, Then: []registry.Op{registry.Create(key, nil)}}
		if c.holds {
			t.assertHolds(a, c.cond)
			t.commit(a, x)
			continue
		}
		t.assertConflict(a, registry.Txn{If: x.If}, 0)
		t.assertConflict(a, x, 0)
		t.assertAbsent(a, key)
	}
}

func conflictIndex(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	rev := t.create(a, "k", "v")
	good := []registry.Cond{registry.At("k", rev), registry.Absent("none"), registry.Alive(s.ID())}
	bad := []registry.Cond{registry.Absent("k"), registry.At("none", rev), registry.Dead(s.ID())}
	goodOps := []registry.Op{registry.Create("new1", nil), registry.Create("new2", nil), registry.Set("k", rev, nil)}
	badOps := []registry.Op{registry.Create("k", nil), registry.Set("none1", rev, nil), registry.Delete("none2", rev)}
	for i := range 3 {
		x := registry.Txn{If: append(good[:i:i], bad[i:]...), Then: badOps}
		t.assertConflict(a, x, i) // all later items fail too
		x = registry.Txn{If: append(good[:i:i], bad[i]), Then: goodOps}
		t.assertConflict(a, x, i)
		x = registry.Txn{If: good[:i], Then: append(goodOps[:i:i], badOps[i:]...)}
		t.assertConflict(a, x, 2*i)
	}
	_, err := a.Txn(t.ctx, registry.Txn{If: good, Then: badOps})
	var conflict *registry.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, badOps[0].String(), conflict.Item, "the item as text")
}

func oneRev(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	var ops []registry.Op
	for i := range 20 {
		ops = append(ops, registry.Create(registry.Key(fmt.Sprintf("d%d/k%d", i%3, i)), nil))
	}
	ops = append(ops, registry.CreateOwned("d0/~own", nil, s.ID()))
	made := t.commitOps(a, ops...)
	for _, op := range ops {
		e := t.getFresh(b, op.Key)
		require.Equal(t, made, e.Created, "Created of %s", op.Key)
		require.Equal(t, made, e.Modified, "Modified of %s", op.Key)
	}
	sets := make([]registry.Op, len(ops))
	for i, op := range ops {
		sets[i] = registry.Set(op.Key, made, []byte("set"))
	}
	set := t.commitOps(b, sets...)
	require.Greater(t, set.Seq, made.Seq)
	for _, e := range t.listFresh(a, "d0") {
		require.Equal(t, made, e.Created, "Created of %s", e.Key)
		require.Equal(t, set, e.Modified, "Modified of %s", e.Key)
	}
}

func absentHolds(t *test) {
	a := t.handleA()
	t.create(a, "above/below/k", "")
	rev := t.create(a, "was", "")
	t.commitOps(a, registry.Delete("was", rev))
	rev = t.create(a, "above2", "")
	t.create(a, "above2/k", "")
	t.commitOps(a, registry.Delete("above2", rev))
	for _, key := range []registry.Key{"never", "never/deep", "was", "above", "above/below", "above2", "~own", "was/below"} {
		t.assertHolds(a, registry.Absent(key))
		t.assertHolds(t.handleB(), registry.Absent(key))
		t.assertAbsent(a, key)
	}
	require.Equal(t, []registry.Key{"above2/k"}, keysOf(t.listFresh(a, "above2")), "a check creates no key")
	require.Empty(t, t.listFresh(a, ""))
}

func condAndOpOnOneKey(t *test) {
	a := t.handleA()
	rev := t.commit(a, registry.Txn{
		If: []registry.Cond{registry.Absent("k")}, Then: []registry.Op{registry.Create("k", []byte("1"))},
	})
	next := t.commit(a, registry.Txn{
		If: []registry.Cond{registry.At("k", rev)}, Then: []registry.Op{registry.Set("k", rev, []byte("2"))},
	})
	t.assertConflict(a, registry.Txn{
		If: []registry.Cond{registry.At("k", rev)}, Then: []registry.Op{registry.Set("k", next, []byte("3"))},
	}, 0)
	t.assertConflict(a, registry.Txn{
		If: []registry.Cond{registry.At("k", next)}, Then: []registry.Op{registry.Set("k", rev, []byte("3"))},
	}, 1)
	t.assertConflict(a, registry.Txn{
		If: []registry.Cond{registry.Absent("k")}, Then: []registry.Op{registry.Delete("k", next)},
	}, 0)
	require.Equal(t, "2", string(t.getFresh(a, "k").Value))
	t.commit(a, registry.Txn{ // a repeated condition, and conditions on both operations' keys
		If:   []registry.Cond{registry.At("k", next), registry.At("k", next), registry.Absent("k2")},
		Then: []registry.Op{registry.Delete("k", next), registry.Create("k2", nil)},
	})
	t.assertAbsent(a, "k")
	t.getFresh(a, "k2")
}

func malformed(t *test) {
	a := t.handleA()
	rev := t.create(a, "k", "v")
	before := t.getFresh(a, "k")
	for name, x := range map[string]registry.Txn{
		"a key twice: create, create":  {Then: []registry.Op{registry.Create("n", nil), registry.Create("n", nil)}},
		"a key twice: set, delete":     {Then: []registry.Op{registry.Set("k", rev, nil), registry.Delete("k", rev)}},
		"a key twice: delete, create":  {Then: []registry.Op{registry.Delete("k", rev), registry.Create("k", nil)}},
		"a key twice, others between":  {Then: []registry.Op{registry.Set("k", rev, nil), registry.Create("n", nil), registry.Set("k", rev, nil)}},
		"no session to own":            {Then: []registry.Op{registry.Create("n", nil), registry.CreateOwned("~o", nil, "")}},
		"no session to be alive":       {If: []registry.Cond{registry.Alive("")}, Then: []registry.Op{registry.Create("n", nil)}},
		"no session to be dead":        {If: []registry.Cond{registry.Dead("")}, Then: []registry.Op{registry.Create("n", nil)}},
		"a condition of no kind":       {If: []registry.Cond{{Key: "k"}}, Then: []registry.Op{registry.Create("n", nil)}},
		"an operation of no kind":      {Then: []registry.Op{registry.Create("n", nil), {Key: "k"}}},
		"an operation of unknown kind": {Then: []registry.Op{registry.Create("n", nil), {Kind: 99, Key: "k"}}},
	} {
		_, err := a.Txn(t.ctx, x)
		require.ErrorIs(t, err, registry.ErrInvalidTxn, name)
		t.assertAbsent(a, "n", "~o")
		require.Equal(t, before, t.getFresh(a, "k"), name)
	}
}

func checkOnly(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	rev := t.create(a, "d/k", "v")
	before := t.listFresh(a, "d")
	f := t.follow(t.handleB(), "d")
	all := []registry.Cond{registry.At("d/k", rev), registry.Absent("d/none"), registry.Alive(s.ID()), registry.Dead("never-was")}
	t.assertHolds(a, all...)
	for i := range all {
		x := registry.Txn{If: append([]registry.Cond(nil), all...)}
		x.If[i] = registry.Absent("d/k")
		t.assertConflict(a, x, i)
	}
	_, err := a.Txn(t.ctx, registry.Txn{})
	require.NoError(t, err, "an empty transaction commits")
	require.Equal(t, before, t.listFresh(a, "d"))
	f.assertNoEvents(a, "d/mark")
}

func mixedOps(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	set, del := t.create(a, "d/set", "old"), t.create(a, "d/del", "old")
	f := t.follow(b, "d")
	t.commit(a, registry.Txn{
		If: []registry.Cond{registry.Alive(s.ID()), registry.Absent("d/none")},
		Then: []registry.Op{
			registry.Delete("d/del", del),
			registry.CreateOwned("d/~own", []byte("own"), s.ID()),
			registry.Set("d/set", set, []byte("new")),
			registry.Create("d/new", []byte("new")),
			registry.Create("elsewhere/new", []byte("new")),
		},
	})
	require.Equal(t, []registry.Key{"d/new", "d/set", "d/~own"}, keysOf(t.listFresh(b, "d")))
	require.Equal(t, "new", string(t.getFresh(b, "d/set").Value))
	require.Equal(t, "own", string(t.getFresh(b, "d/~own").Value))
	require.Equal(t, "new", string(t.getFresh(b, "elsewhere/new").Value))
	f.converge(b)
}

func aliveAndDead(t *test) {
	a, b := t.handleA(), t.handleB()
	for _, end := range []struct {
		how string
		do  func(registry.Session)
	}{
		{"closed", func(s registry.Session) { require.NoError(t, s.Close(t.ctx)) }},
		{"expired", func(s registry.Session) { t.store.Expire(s.ID()) }},
	} {
		s := t.openSession(a)
		for _, r := range []registry.Registry{a, b} {
			t.assertHolds(r, registry.Alive(s.ID()))
			t.assertConflict(r, registry.Txn{If: []registry.Cond{registry.Dead(s.ID())}}, 0)
		}
		end.do(s)
		for _, r := range []registry.Registry{a, b} {
			_, err := r.Txn(t.ctx, registry.Txn{If: []registry.Cond{registry.Dead(s.ID())}})
			require.NoError(t, err, "Dead once the session is %s", end.how)
			t.assertConflict(r, registry.Txn{If: []registry.Cond{registry.Alive(s.ID())}}, 0)
		}
	}
}

func staleRev(t *test) {
	a, b := t.handleA(), t.handleB()
	rev := t.create(a, "k", "1")
	seen := t.getFresh(a, "k").Modified
	require.Equal(t, rev, seen)
	next := t.commitOps(b, registry.Set("k", rev, []byte("2")))
	t.assertConflict(a, registry.Txn{Then: []registry.Op{registry.Set("k", seen, []byte("3"))}}, 0)
	t.assertConflict(a, registry.Txn{Then: []registry.Op{registry.Delete("k", seen)}}, 0)
	require.Equal(t, "2", string(t.getFresh(a, "k").Value))
	t.commitOps(a, registry.Delete("k", next))
}

func concurrentIncrements(t *test) {
	const workers = 8
	each := t.repeats(500, 25)
	handles := []registry.Registry{t.handleA(), t.handleB(), t.handle("c"), t.handle("d")}
	t.commitOps(handles[0], registry.Create("n", make([]byte, 8)))
	t.runConcurrently(workers, func(i int) error {
		r := handles[i%len(handles)]
		if _, err := r.Get(t.ctx, "n", fresh); err != nil { // makes later plain reads see the key
			return err
		}
		for range each {
			if err := increment(t.ctx, r, "n"); err != nil {
				return err
			}
		}
		return nil
	})
	require.Equal(t, uint64(workers*each), binary.BigEndian.Uint64(t.getFresh(handles[0], "n").Value))
}

// increment adds one to the number at key and retries on conflicts.
func increment(ctx context.Context, r registry.Registry, key registry.Key) error {
	const tries = 10_000 // bounds a registry that always conflicts
	for range tries {
		e, err := r.Get(ctx, key, registry.ReadOptions{})
		if err != nil {
			return err
		}
		n := binary.BigEndian.Uint64(e.Value)
		next := binary.BigEndian.AppendUint64(nil, n+1)
		_, err = r.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Set(key, e.Modified, next)}})
		if !errors.Is(err, registry.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("increment %s: %d conflicts in a row", key, tries)
}

func transfers(t *test) { t.transferAmong(5, t.repeats(300, 100)) }

// transferAmong moves units between accounts and compares the sum of views lists.
func (t *test) transferAmong(accounts, lists int) {
	t.Helper()
	total := 100 * accounts
	var ops []registry.Op
	for i := range accounts {
		ops = append(ops, registry.Create(account(i), []byte(strconv.Itoa(total/accounts))))
	}
	t.commitOps(t.handleA(), ops...)
	for _, machine := range []registry.Registry{t.handleB(), t.handle("c")} {
		require.Len(t, t.listFresh(machine, "accounts"), accounts) // later plain reads have them, too
	}
	var stops []func()
	for i, r := range []registry.Registry{t.handleA(), t.handle("c")} {
		stops = append(stops, t.spawn(func(ctx context.Context) error {
			for n := i; ; n++ {
				if err := transfer(ctx, r, account(n%accounts), account((n+accounts/2+i)%accounts)); err != nil {
					return err
				}
				time.Sleep(time.Microsecond) // yields, and advances time in a bubble
			}
		}))
	}
	views := 0
	for range lists {
		l, err := t.handleB().List(t.ctx, "accounts", registry.ReadOptions{})
		require.NoError(t, err)
		sum, conds := 0, []registry.Cond(nil)
		for _, e := range l.Entries {
			n, err := strconv.Atoi(string(e.Value))
			require.NoError(t, err)
			sum += n
			conds = append(conds, registry.At(e.Key, e.Modified))
			require.LessOrEqual(t, e.Modified.Seq, l.Rev.Seq, "an entry is newer than the listing")
		}
		whole := l.Atomic
		if !whole { // a transaction verifies that the entries existed together
			_, err := t.handleB().Txn(t.ctx, registry.Txn{If: conds})
			whole = err == nil
		}
		if whole {
			require.Equal(t, total, sum, "the sum at %d", l.Rev.Seq)
			views++
		}
		time.Sleep(time.Microsecond)
	}
	for _, stop := range stops {
		stop()
	}
	if views == 0 {
		t.Log("no view was atomic during the transfers")
	}
	sum := 0
	for _, e := range t.listFresh(t.handleA(), "accounts") {
		n, err := strconv.Atoi(string(e.Value))
		require.NoError(t, err)
		sum += n
	}
	require.Equal(t, total, sum, "the sum at the end")
}

func account(i int) registry.Key { return registry.Key(fmt.Sprintf("accounts/%03d", i)) }

// transfer moves one unit between accounts. It ignores a conflict.
func transfer(ctx context.Context, r registry.Registry, from, to registry.Key) error {
	x, err := r.Get(ctx, from, registry.ReadOptions{})
	if err != nil {
		return err
	}
	y, err := r.Get(ctx, to, registry.ReadOptions{})
	if err != nil {
		return err
	}
	nx, _ := strconv.Atoi(string(x.Value))
	ny, _ := strconv.Atoi(string(y.Value))
	_, err = r.Txn(ctx, registry.Txn{Then: []registry.Op{
		registry.Set(from, x.Modified, []byte(strconv.Itoa(nx-1))),
		registry.Set(to, y.Modified, []byte(strconv.Itoa(ny+1))),
	}})
	if errors.Is(err, registry.ErrConflict) {
		return nil
	}
	return err
}

func sentTwice(t *test) {
	a, b := t.handleA(), t.handleB()
	old := t.create(a, "set", "old")
	del := t.create(a, "del", "old")
	for name, op := range map[string]registry.Op{
		"create": registry.Create("new", []byte("once")),
		"set":    registry.Set("set", old, []byte("once")),
		"delete": registry.Delete("del", del),
	} {
		x := registry.Txn{ID: registry.NewTxnID(), Then: []registry.Op{op}}
		rev := t.commit(a, x)
		t.assertConflict(a, x, 0)
		t.assertConflict(b, x, 0)
		if op.Kind == registry.OpDelete {
			t.assertAbsent(a, op.Key)
			continue
		}
		e := t.getFresh(b, op.Key)
		require.Equal(t, rev, e.Modified, "%s: Modified is the only write", name)
		require.Equal(t, x.ID, e.Txn, "%s: Txn identifies the write", name)
	}
}

func oneCreates(t *test) {
	handles := []registry.Registry{t.handleA(), t.handleB(), t.handle("c"), t.handle("d")}
	for round := range t.repeats(20, 5) {
		key := registry.Key(fmt.Sprintf("k%d", round))
		won := make([]bool, 8)
		t.runConcurrently(len(won), func(i int) error {
			_, err := handles[i%len(handles)].Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Create(key, fmt.Append(nil, i))}})
			won[i] = err == nil
			if errors.Is(err, registry.ErrConflict) {
				return nil
			}
			return err
		})
		winners := 0
		for i, w := range won {
			if w {
				winners++
				require.Equal(t, strconv.Itoa(i), string(t.getFresh(t.handleA(), key).Value))
			}
		}
		require.Equal(t, 1, winners)
	}
}

func refusalIsSilent(t *test) {
	a := t.handleA()
	rev := t.create(a, "d/k", "v")
	stale := rev
	rev = t.commitOps(a, registry.Set("d/k", rev, []byte("w")))
	before := t.listFresh(a, "d")
	f := t.follow(t.handleB(), "d")
	for _, x := range []registry.Txn{
		{If: []registry.Cond{registry.Absent("d/k")}, Then: []registry.Op{registry.Create("d/new", nil)}},
		{Then: []registry.Op{registry.Create("d/new", nil), registry.Set("d/k", stale, nil)}},
		{Then: []registry.Op{registry.Set("d/k", rev, nil), registry.Create("d/k2", nil), registry.Delete("d/none", rev)}},
		{Then: []registry.Op{registry.Delete("d/k", rev), registry.Delete("d/none", rev)}},
	} {
		_, err := a.Txn(t.ctx, x)
		require.ErrorIs(t, err, registry.ErrConflict)
		require.Equal(t, before, t.listFresh(a, "d"))
	}
	f.assertNoEvents(a, "d/mark")
}

func endedContext(t *test) {
	a := t.handleA()
	for _, form := range contextForms {
		ctx, cause := form.begin(t, 0)
		_, err := a.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
		require.ErrorIs(t, err, registry.ErrNotApplied, "the context ended before the call")
		require.ErrorIs(t, err, cause, "Txn, whose context ended by %s", form.name)
		t.assertAbsent(a, "k")
		for name, call := range map[string]func() error{
			"Get":  func() error { _, err := a.Get(ctx, "k", fresh); return err },
			"List": func() error { _, err := a.List(ctx, "", fresh); return err },
			"OpenSession": func() error {
				_, err := a.OpenSession(ctx, registry.SessionOptions{TTL: t.ttl})
				return err
			},
			"Watch": func() error { _, err := a.Watch(ctx, "", registry.WatchOptions{}); return err },
		} {
			err := call()
			require.ErrorIs(t, err, cause, "%s, whose context ended by %s", name, form.name)
			require.ErrorIs(t, err, registry.ErrUnavailable, name)
		}
	}
}
