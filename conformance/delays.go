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

// delayCases test late answers, requests that a backend sends after their call has returned,
// and many calls at a time.
var delayCases = []Case{
	{
		Code: "F24", Name: "a transaction whose request or reply was lost is not sent again later",
		Proves: []Promise{TxnIsSentOnce}, Needs: []string{LoseReply, LoseRequest}, run: nothingSentLater, Safety: true,
	},
	{
		Code: "F25", Name: "a session with late answers that is cut off is Lost before its keys vanish",
		Proves: []Promise{LostBeforeTheStoreActs, SafeUntilIsKept}, Needs: []string{Delay, Partition}, run: lateThenCut, Safety: true,
	},
	{
		Code: "F26", Name: "a session opened while answers are late lives, and its safe-until counts from the request",
		Proves: []Promise{SessionsAreRenewed, SafeUntilIsKept}, Needs: []string{Delay}, run: openedWhileLate,
	},
	{
		Code: "F27", Name: "every call of a handle ends in time under sustained load",
		Proves: []Promise{CallsEndWithTheirContext, ManyGoroutines}, run: sustainedLoad, Safety: true,
	},
	{
		Code: "F31", Name: "a transaction that is answered late is sent once",
		Proves: []Promise{TxnIsSentOnce}, Needs: []string{Delay}, run: answeredLate, Safety: true,
	},
}

func nothingSentLater(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	made := t.commitOps(a, registry.Create("d/set", []byte("old")), registry.Create("d/del", []byte("old")))
	lose := func(control func(string), op registry.Op) {
		t.awaitUsable(a)
		control("a")
		_, err := a.Txn(t.within(time.Second), registry.Txn{Then: []registry.Op{op}})
		require.ErrorIs(t, err, registry.ErrUnknownOutcome, "%v", op)
	}
	for _, op := range []registry.Op{
		registry.Create("d/new", []byte("late")), registry.CreateOwned("d/~new", []byte("late"), s.ID()),
		registry.Set("d/set", made, []byte("late")), registry.Delete("d/del", made),
	} {
		lose(t.store.LoseRequest, op)
	}
	for _, op := range []registry.Op{
		registry.Create("d/again", []byte("late")), registry.CreateOwned("d/~again", []byte("late"), s.ID()),
	} {
		lose(t.store.LoseReply, op)
		t.commitOps(b, registry.Delete(op.Key, t.getFresh(b, op.Key).Modified)) // the same again would be applied
	}
	t.awaitUsable(a)
	f := t.follow(b, "d")
	f.converge(b)
	t.sleep(2 * time.Second) // time for a forbidden second attempt
	require.Equal(t, []registry.Key{"d/del", "d/set"}, keysOf(t.listFresh(b, "d")))
	require.Equal(t, made, t.getFresh(b, "d/set").Modified)
	f.assertNoEvents(b, "d/zz")
}

// lateThenCut delays replies, lets renewals be confirmed, and then drops the requests of each
// machine at another moment of the renewal cycle, while replies still arrive.
func lateThenCut(t *test) {
	n := t.repeats(12, 4)
	all := t.cutSessions(n, n)
	f := t.follow(t.handleB(), "d")
	f.converge(t.handleB())
	ttl := all[0].session.TTL()
	for _, c := range all {
		t.Cleanup(t.store.Delay(c.machine, ttl/3))
	}
	t.sleep(ttl)
	for i, c := range all {
		t.spawn(func(context.Context) error {
			time.Sleep(time.Duration(i) * ttl / time.Duration(n))
			t.partition(c.machine, ToStore)
			return nil
		})
	}
	f.assertLostFirst(all, 3*ttl)
	for _, c := range all {
		t.assertHolds(t.handleB(), registry.Dead(c.session.ID()))
	}
}

func openedWhileLate(t *test) {
	a := t.handleA()
	t.create(a, "k", "") // over a connection that stands
	late := t.ttl / 4
	if !t.bubble && t.store.Revoke != nil { // with credentials, opening a session takes several round trips
		late = t.ttl / 10
	}
	restore := t.store.Delay("a", late)
	t.Cleanup(restore)
	var s registry.Session
	t.unlessSlow(t.ttl/20, func() error {
		s = t.openSession(a)
		_, until := s.State()
		sent := time.Now().Add(-late) // or before
		require.False(t, until.After(sent.Add(s.TTL())), "safe-until is %v after the request was sent, and the TTL is %v", until.Sub(sent), s.TTL())
		return t.observeLife(s, 5*s.TTL()/4)
	})
	restore()
	t.eventually(s.TTL(), "the session is connected", func() error { return inState(s, registry.SessionConnected) })
	t.assertHolds(t.handleB(), registry.Alive(s.ID()))
}

// sustainedLoad keeps many calls of one handle in flight. Each must succeed, and end by its
// context at the latest; a hang of one ends the case, which waits for none of them.
func sustainedLoad(t *test) {
	for _, callers := range draw(t, "callers", inBubbleOr(t, []int{16, 65, 257}, []int{65})...) {
		t.sustainLoad(callers)
	}
}

func (t *test) sustainLoad(callers int) {
	a := t.handleA()
	s := t.openSession(a)
	lasts, bound := 2*time.Second, 10*time.Second
	if t.bubble {
		lasts = 100 * time.Millisecond * 16 / time.Duration(max(callers, 16))
	}
	for i := range callers {
		if t.checkAbsent(a, loadKey(i)) == nil {
			t.create(a, loadKey(i), "0")
		}
	}
	t.delayInBubble("a", time.Millisecond)
	f := t.follow(a, "load")
	finished := make(chan error, callers)
	end := time.Now().Add(lasts)
	for i := range callers {
		go func() {
			var err error
			for n := 0; err == nil && time.Now().Before(end); n++ {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.ctx, bound)
				err = callByTurns(ctx, a, loadKey(i), n)
				cancel()
				if took := time.Since(began); took > t.withSlack(bound) {
					err = errors.Join(err, fmt.Errorf("call %d of caller %d took %v", n, i, took))
				}
			}
			finished <- err
		}()
	}
	hung := time.After(lasts + t.withSlack(2*bound))
	for range callers {
		select {
		case err := <-finished:
			require.NoError(t, err)
		case <-hung:
			t.Fatalf("a call does not end, though its context has")
		}
	}
	require.NoError(t, inState(s, registry.SessionConnected))
	f.converge(a)
}

func loadKey(i int) registry.Key { return registry.Key(fmt.Sprintf("load/k%04d", i)) }

// callByTurns makes one of several calls, all on a key that no other caller writes.
func callByTurns(ctx context.Context, r registry.Registry, key registry.Key, turn int) error {
	if turn%4 == 3 {
		_, err := r.List(ctx, key.Dir(), registry.ReadOptions{Fresh: turn%8 == 3})
		return err
	}
	e, err := r.Get(ctx, key, registry.ReadOptions{Fresh: turn%4 == 0})
	if err != nil || turn%4 != 1 {
		return err
	}
	_, err = r.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Set(key, e.Modified, strconv.AppendInt(nil, int64(turn), 10))}})
	return err
}

// answeredLate deletes the key that a transaction has created while its reply is on the way: a second
// attempt would be applied.
func answeredLate(t *test) {
	a, b := t.handleA(), t.handleB()
	t.create(a, "d/before", "") // so that a need not ask for the directory
	for i, late := range draw(t, "replies are late by", inBubbleOr(t, []time.Duration{50 * time.Millisecond, 1100 * time.Millisecond, 2500 * time.Millisecond}, []time.Duration{1100 * time.Millisecond})...) {
		key := registry.Key(fmt.Sprintf("d/k%d", i))
		t.awaitUsable(a)
		restore := t.store.Delay("a", late)
		t.Cleanup(restore)
		answered := make(chan error, 1)
		t.spawn(func(context.Context) error {
			_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
			answered <- err
			return nil
		})
		t.eventually(late, "the transaction is applied", func() error { _, err := b.Get(t.ctx, key, fresh); return err })
		t.commitOps(b, registry.Delete(key, t.getFresh(b, key).Modified))
		if err := <-answered; err != nil {
			require.False(t, t.requireUnanswered(err), "the transaction was applied: %v", err)
		}
		restore()
		t.settle(100 * time.Millisecond)
		require.NoError(t, t.checkAbsent(b, key), "it was sent again while its reply was %v late", late)
	}
}
