package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// cutOffCases test clients that are cut off in part: some renewals are missing, or messages pass
// in one direction only.
var cutOffCases = []Case{
	{
		Code: "F29", Name: "a session that has missed a renewal lives on",
		Proves: []Promise{SessionsAreRenewed}, Needs: []string{Starve}, run: missedRenewal,
	},
	{
		Code: "F30", Name: "a transaction behind a one-way link has a true outcome and is applied once at most",
		Proves: []Promise{OutcomesAreTrue, TxnIsSentOnce}, Needs: []string{Partition}, run: oneWayTxn, Safety: true,
	},
	{
		Code: "F32", Name: "a handle that was cut off for long works again, and its watchers catch up",
		Proves: []Promise{WatchOutlivesConnections, LastStateArrives, UnreachableIsErrUnavailable}, Needs: []string{Partition}, run: cutForLong,
	},
}

// isolatedReader reads at an isolated member. It may be behind the others, or the backend may
// switch to another one, or the reads may fail.
func isolatedReader(t *test) {
	a, b := t.handleA(), t.handleB()
	n := t.create(b, "d/n", "0")
	newest := map[registry.Key]registry.Rev{
		"d/n":   t.getFresh(a, "d/n").Modified,
		"d/own": t.commitOps(a, registry.Set("d/own", t.create(a, "d/own", "1"), []byte("2"))),
	}
	t.commitOps(a, registry.Delete("d/gone", t.create(a, "d/gone", "")))
	heal := t.injectFault(t.store.Isolate, "a")
	for i := range t.repeats(20, 10) {
		n = t.setApplied(b, "d/n", n, strconv.Itoa(i))
		t.readPlainly(a, newest)
		t.sleep(t.ttl / 100)
	}
	heal()
	t.awaitUsable(a)
	newest["d/n"] = t.getFresh(a, "d/n").Modified
	require.Equal(t, n, newest["d/n"])
	t.readPlainly(a, newest)
}

// readPlainly fails the case if a plain read of directory d is older than newest, which holds the
// Revs of its keys that the handle has observed, and updates newest. A read may go unanswered.
func (t *test) readPlainly(r registry.Registry, newest map[registry.Key]registry.Rev) {
	t.Helper()
	const short = 100 * time.Millisecond
	observe := func(key registry.Key, e registry.Entry) {
		require.GreaterOrEqual(t, e.Modified.Seq, newest[key].Seq, "%s in a plain read", key)
		newest[key] = e.Modified
	}
	for key := range newest {
		e, err := r.Get(t.within(short), key, registry.ReadOptions{})
		if err != nil {
			require.NoError(t, checkUnavailable(err), "%s, which the handle has observed, in a plain Get", key)
			continue
		}
		observe(key, e)
	}
	if _, err := r.Get(t.within(short), "d/gone", registry.ReadOptions{}); !errors.Is(err, registry.ErrNotFound) {
		require.NoError(t, checkUnavailable(err), "a plain Get of a key that the handle has deleted")
	}
	l, err := r.List(t.within(short), "d", registry.ReadOptions{})
	if err != nil {
		require.NoError(t, checkUnavailable(err))
		return
	}
	require.Equal(t, []registry.Key{"d/n", "d/own"}, keysOf(l.Entries), "a plain List")
	for _, e := range l.Entries {
		observe(e.Key, e)
	}
}

// missedRenewal starves a session for less than the time until it may be suspended.
func missedRenewal(t *test) {
	a, b := t.handleA(), t.handleB()
	t.unlessSlow(t.ttl/20, func() error {
		s := t.openSession(a)
		key := registry.Key("~" + string(s.ID()))
		rev := t.createOwned(a, key, s)
		feed := t.injectFault(t.store.Starve, "a")
		t.sleep(2 * s.TTL() / 5)
		feed()
		if err := t.observeLife(s, 5*s.TTL()/4); err != nil {
			return err
		}
		if err := inState(s, registry.SessionConnected); err != nil {
			return err
		}
		t.assertHolds(b, registry.Alive(s.ID()), registry.At(key, rev))
		return nil
	})
}

// oneWayTxn deletes the key that a transaction behind a cut has created: a second attempt would
// be applied.
func oneWayTxn(t *test) {
	a, b := t.handleA(), t.handleB()
	try := func(c Cut, ctx context.Context, key registry.Key) {
		remove := func() { t.commitOps(b, registry.Delete(key, t.getFresh(b, key).Modified)) }
		t.create(a, key+"-before", "") // so that a need not ask for the directory
		heal := t.partition("a", c)
		_, err := a.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
		notApplied := t.requireUnanswered(err)
		if notApplied {
			t.settle(50 * time.Millisecond)
			require.NoError(t, t.checkAbsent(b, key), "reported as not applied: %v", err)
		}
		if c == FromStore && !notApplied {
			t.eventually(t.ttl, "the transaction is applied, since its request arrives", func() error {
				_, err := b.Get(t.ctx, key, fresh)
				return err
			})
			remove()
		}
		t.assertAbsent(b, key)
		heal()
		t.awaitUsable(a)
		t.settle(50 * time.Millisecond)
		if c == ToStore && !notApplied && t.checkAbsent(b, key) != nil { // the request was late
			remove()
			t.settle(50 * time.Millisecond)
		}
		t.assertAbsent(b, key)
	}
	for _, c := range []Cut{ToStore, FromStore} {
		try(c, t.within(500*time.Millisecond), registry.Key(fmt.Sprintf("d/%d", c)))
		try(c, t.ctx, registry.Key(fmt.Sprintf("d/%d-bounded-by-the-backend", c)))
	}
}

func cutForLong(t *test) {
	cuts := []time.Duration{2 * t.ttl}
	if t.bubble {
		cuts = draw(t, "cut off for", time.Minute, time.Hour, 24*time.Hour)
		t.allow(144 * time.Hour)
	}
	a, b := t.handleA(), t.handleB()
	f, still := t.follow(b, "d"), t.follow(b, "e")
	t.create(a, "e/k", "")
	rev := t.create(a, "d/k", "0")
	for i, cut := range cuts {
		for _, kind := range inBubbleOr(t, []Cut{Refuse, Blackhole}, []Cut{Refuse}) {
			s := t.openSession(b)
			heal := t.partition("b", kind)
			t.sleep(cut / 2)
			_, err := b.Get(t.within(100*time.Millisecond), "d/k", fresh)
			require.NoError(t, checkUnavailable(err), "after %v", cut/2)
			rev = t.commitOps(a, registry.Set("d/k", rev, fmt.Append(nil, kind, i)))
			t.sleep(cut / 2)
			heal()
			t.awaitUsable(b)
			f.converge(a)
			still.converge(a)
			require.NoError(t, inState(s, registry.SessionLost), "after %v", cut)
			next := t.openSession(b)
			rev = t.commitOps(b, registry.Set("d/k", rev, nil))
			f.converge(a)
			require.NoError(t, next.Close(t.ctx))
		}
	}
}
