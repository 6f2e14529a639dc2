package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// lifetimeCases test sessions by their number, their TTL and the ways in which their Close can fail.
var lifetimeCases = []Case{
	{
		Code: "S27", Name: "each of many sessions of one handle is renewed, and ends alone",
		Proves: []Promise{SessionsAreRenewed, SessionsAreIndependent, CloseRemovesOwnedKeys}, run: manySessions,
	},
	{
		Code: "S28", Name: "a session of any TTL lives until its safe-until, and ends with its TTL",
		Proves: []Promise{GrantedTTLIsNoShorter, SafeUntilIsKept, SessionsAreRenewed, SilentSessionsExpire}, Needs: []string{Partition}, run: anyTTL, Safety: true,
	},
	{
		Code: "S30", Name: "a session that has ended stays so when answers to its renewals arrive late",
		Proves: []Promise{SessionCloseIsFinal, LostIsFinal}, Needs: []string{Delay, Expire}, run: lateAnswers,
	},
	{
		Code: "S29", Name: "Close that fails reports the cause, and Close again ends the session",
		Proves: []Promise{CallsEndWithTheirContext, CloseRemovesOwnedKeys, CloseUnreachedLeavesExpiry}, Needs: []string{Partition}, run: closeAgain, Safety: true,
	},
}

func manySessions(t *test) {
	a, b := t.handleA(), t.handleB()
	for _, n := range draw(t, "sessions of a handle", inBubbleOr(t, []int{2, 65, 257}, []int{65})...) {
		var all []registry.Session
		closeAll := func() {
			for _, s := range all {
				require.NoError(t, s.Close(t.ctx))
			}
			all = nil
		}
		t.unlessSlow(t.ttl/20, func() error {
			closeAll()
			for i := range n {
				s, err := a.OpenSession(t.ctx, registry.SessionOptions{TTL: t.ttl})
				if err != nil {
					return fmt.Errorf("%d of %d: %w", i+1, n, err)
				}
				all = append(all, s)
				if _, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.CreateOwned(keyOfMany(i), nil, s.ID())}}); err != nil {
					return fmt.Errorf("%d of %d: %w", i+1, n, err)
				}
			}
			t.sleep(all[0].TTL() + all[0].TTL()/4)
			return t.checkMany(b, all)
		})
		closeAll()
		require.Empty(t, t.listFresh(b, "d"))
	}
}

func keyOfMany(i int) registry.Key { return registry.Key(fmt.Sprintf("d/~%04d", i)) }

// checkMany closes every third of the sessions. It returns an error if another has ended, or one before its Close.
func (t *test) checkMany(b registry.Registry, all []registry.Session) error {
	n := len(all)
	keys := func(want int) error {
		if got := len(t.listFresh(b, "d")); got != want {
			return fmt.Errorf("%d sessions have %d keys, not %d", n, got, want)
		}
		return nil
	}
	for i, s := range all {
		if err := inState(s, registry.SessionConnected); err != nil {
			return fmt.Errorf("%d of %d: %w", i+1, n, err)
		}
	}
	if err := keys(n); err != nil {
		return err
	}
	for i, s := range all {
		if err := t.checkHolds(b, registry.Alive(s.ID())); err != nil {
			return fmt.Errorf("%d of %d: %w", i+1, n, err)
		}
		if i%3 == 0 {
			require.NoError(t, s.Close(t.ctx))
			t.assertAbsent(b, keyOfMany(i))
			t.assertHolds(b, registry.Dead(s.ID()))
		}
	}
	for i, s := range all {
		if i%3 > 0 {
			if err := inState(s, registry.SessionConnected); err != nil {
				return fmt.Errorf("%d of %d, after others were closed: %w", i+1, n, err)
			}
		}
	}
	return keys(n - (n+2)/3)
}

// lateAnswers ends sessions while answers to their renewals are under way.
func lateAnswers(t *test) {
	a := t.handleA()
	n := t.repeats(12, 4)
	all := make([]registry.Session, n)
	for i := range all {
		all[i] = t.openSession(a)
	}
	ttl := all[0].TTL()
	t.Cleanup(t.store.Delay("a", ttl/5))
	t.sleep(ttl / 2)
	for i, s := range all {
		if i%2 == 0 {
			t.spawn(func(context.Context) error { return s.Close(t.ctx) })
		} else {
			t.store.Expire(s.ID())
		}
		t.sleep(ttl / 2 / time.Duration(n))
	}
	for _, wait := range []time.Duration{ttl / 2, ttl / 2} {
		t.sleep(wait)
		for i, s := range all {
			want, reason := registry.SessionClosed, registry.ErrClosed
			if i%2 == 1 {
				want, reason = registry.SessionLost, registry.ErrSessionLost
			}
			require.NoError(t, inState(s, want), "session %d", i)
			require.ErrorIs(t, s.Err(), reason)
		}
	}
}

// anyTTL opens sessions of several TTLs, lets each live for longer than that, and cuts it off.
func anyTTL(t *test) {
	b := t.handleB()
	asks := []time.Duration{t.ttl + 900*time.Millisecond} // whole numbers of seconds are tested by S15
	if t.bubble {
		asks = draw(t, "TTLs", 100*time.Millisecond, 2900*time.Millisecond, 59*time.Second, 61*time.Second, time.Hour, 24*time.Hour)
	}
	for i, ask := range asks {
		t.allow(4 * ask)
		machine := fmt.Sprintf("ttl%d", i)
		key := registry.Key(fmt.Sprintf("d/~%d", i))
		r := t.handle(machine)
		var s registry.Session
		t.unlessSlow(ask/20, func() (err error) {
			s, err = r.OpenSession(t.ctx, registry.SessionOptions{TTL: ask})
			require.NoError(t, err, "open a session with a TTL of %v", ask)
			require.GreaterOrEqual(t, s.TTL(), ask)
			if err := t.observeLife(s, 3*s.TTL()/2); err != nil {
				return fmt.Errorf("with a TTL of %v: %w", ask, err)
			}
			return nil
		})
		rev := t.createOwned(r, key, s)
		t.partition(machine, Blackhole)
		cut := time.Now()
		for state, until := s.State(); state != registry.SessionLost; state, until = s.State() {
			_, err := b.Txn(t.ctx, registry.Txn{If: []registry.Cond{registry.Alive(s.ID()), registry.At(key, rev)}})
			if time.Now().Before(until) {
				require.NoError(t, err, "the store ended a session with a TTL of %v before safe-until", ask)
			}
			require.Less(t, time.Since(cut), t.withSlack(s.TTL()), "the session with a TTL of %v is never lost", ask)
			t.sleep(max(s.TTL()/200, time.Millisecond))
		}
		t.sleep(time.Until(cut.Add(s.TTL())))
		t.eventually(0, fmt.Sprintf("the session ends with its TTL of %v", ask), func() error { return t.checkAbsent(b, key) })
		t.assertHolds(b, registry.Dead(s.ID()))
	}
}

// closeAgain closes a session without reaching the store, twice, and again when the store is reached.
func closeAgain(t *test) {
	const short = 100 * time.Millisecond
	b := t.handleB()
	for i, form := range contextForms {
		machine := fmt.Sprintf("close%d", i)
		key := registry.Key(fmt.Sprintf("d/~%d", i))
		r := t.handle(machine)
		s := t.longSession(r)
		t.createOwned(r, key, s)
		heal := t.partition(machine, Blackhole)
		for _, which := range []string{"first", "second"} {
			ctx, cause := form.begin(t, short)
			began := time.Now()
			err := s.Close(ctx)
			require.Less(t, time.Since(began), t.withSlack(short), "the %s Close outlasted its context", which)
			if err == nil {
				require.NoError(t, t.checkAbsent(b, key), "the %s Close returned nil", which)
			}
			require.ErrorIs(t, err, cause, "the error of the %s Close, whose context ended by %s", which, form.name)
			require.NoError(t, checkUnavailable(err), "the %s Close", which)
			require.NoError(t, inState(s, registry.SessionClosed))
		}
		heal()
		t.awaitUsable(r)
		require.NoError(t, s.Close(t.ctx), "Close when the store is reached")
		t.assertAbsent(b, key)
		t.assertHolds(b, registry.Dead(s.ID()))
	}
}

// closeEndsEverySession closes a handle whose sessions live at the store, though they have ended for
// their owner: by a Close that failed, and by their own clock.
func closeEndsEverySession(t *test) {
	b := t.handleB()
	r := t.connect("a")
	failed := t.longSession(r)
	t.createOwned(r, "~failed", failed)
	heal := t.partition("a", Blackhole)
	require.Error(t, failed.Close(t.within(100*time.Millisecond)), "the store was not reached")
	heal()
	t.awaitUsable(r)
	lost := t.openSession(r)
	t.createOwned(r, "~lost", lost)
	t.injectFault(t.store.Starve, "a")
	t.awaitClosed(lost.Lost(), lost.TTL(), "Lost is closed")
	reason := lost.Err()
	require.ErrorIs(t, reason, registry.ErrSessionLost)
	require.NoError(t, r.Close(t.within(t.ttl+slack)))
	require.NoError(t, t.checkAbsent(b, "~failed"), "the key of a session whose own Close failed")
	require.NoError(t, t.checkAbsent(b, "~lost"), "the key of a session that was lost by its own clock")
	t.assertHolds(b, registry.Dead(failed.ID()), registry.Dead(lost.ID()))
	require.NoError(t, inState(failed, registry.SessionClosed))
	require.NoError(t, inState(lost, registry.SessionLost))
	require.ErrorIs(t, failed.Err(), registry.ErrClosed)
	require.Equal(t, reason, lost.Err(), "the reason of the loss after Close of the handle")
}

// suspendedCreatesOwned creates an owned key of a session that is suspended, and lives.
func suspendedCreatesOwned(t *test) {
	a := t.handleA()
	t.unlessSlow(t.ttl/20, func() error {
		s := t.openSession(a)
		feed := t.injectFault(t.store.Starve, "a")
		t.eventually(s.TTL(), "the session is suspended", func() error { return inState(s, registry.SessionSuspended) })
		key := registry.Key("d/~" + string(s.ID()))
		rev, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.CreateOwned(key, nil, s.ID())}})
		feed()
		if inState(s, registry.SessionLost) == nil { // the test was too slow
			return errors.New("the session was lost meanwhile")
		}
		require.NoError(t, err, "CreateOwned of a suspended session")
		t.eventually(s.TTL(), "the session is connected again", func() error { return inState(s, registry.SessionConnected) })
		t.assertHolds(t.handleB(), registry.Alive(s.ID()), registry.At(key, rev))
		return nil
	})
}
