package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

var sessionCases = []Case{
	{
		Code: "S01", Name: "session IDs are unique key segments without dots",
		Proves: []Promise{SessionIDsAreUnique, SessionIDsAreSegments}, run: uniqueIDs,
	},
	{
		Code: "S02", Name: "the granted TTL is no shorter than the one asked for",
		Proves: []Promise{GrantedTTLIsNoShorter}, run: grantedTTL, Safety: true,
	},
	{
		Code: "S03", Name: "an idle session stays connected",
		Proves: []Promise{SessionsAreRenewed}, run: idleSession,
	},
	{
		Code: "S04", Name: "sessions, keys and watches survive a restart of the store",
		Proves: []Promise{SessionsAreRenewed, WatchOutlivesConnections, SeqGrows, SessionIDsAreUnique}, Needs: []string{Restart}, alone: true, run: restartedStore,
	},
	{
		Code: "S05", Name: "a session cut off at any moment is Lost before another client sees its keys vanish",
		Proves: []Promise{LostBeforeTheStoreActs}, Needs: []string{Partition}, run: lostInTime, Safety: true,
	},
	{
		Code: "S06", Name: "a session whose connection breaks is Suspended, then Connected again under the same ID",
		Proves: []Promise{SuspendedComesBack}, Needs: []string{Partition}, run: suspendedAndBack,
	},
	{
		Code: "S07", Name: "a session that the store ended becomes Lost and reports why",
		Proves: []Promise{ExpiryBecomesLost, CreateOwnedNeedsLiveSession}, Needs: []string{Expire}, run: expiredIsLost, Safety: true,
	},
	{
		Code: "S08", Name: "a guarded write conflicts once its session has ended, even before the owner knows",
		Proves: []Promise{AliveUntilTheEnd}, Needs: []string{Expire}, run: lateGuardedWrite, Safety: true,
	},
	{
		Code: "S09", Name: "no write of an ended session takes effect later",
		Proves: []Promise{EndedSessionsStayEnded, CreateOwnedNeedsLiveSession}, Needs: []string{Expire, HoldCommit}, run: lateWrites, Safety: true,
	},
	{
		Code: "S11", Name: "a closed session stays Closed",
		Proves: []Promise{SessionCloseIsFinal}, run: closedSession,
	},
	{
		Code: "S12", Name: "Close of a disconnected session returns, and its keys vanish when the TTL expires",
		Proves: []Promise{CloseUnreachedLeavesExpiry}, Needs: []string{Partition}, run: closeWhileCut,
	},
	{
		Code: "S13", Name: "Lost is final, even after the connection recovers",
		Proves: []Promise{LostIsFinal, SessionIDsAreUnique, ChangedClosesOnChange}, Needs: []string{Partition}, run: lostIsFinal, Safety: true,
	},
	{
		Code: "S14", Name: "two sessions of one handle are independent",
		Proves: []Promise{SessionsAreIndependent}, Needs: []string{Expire}, run: twoSessions,
	},
	{
		Code: "S15", Name: "no live state outlasts safe-until, and the store keeps the session until then",
		Proves: []Promise{SafeUntilIsKept}, Needs: []string{Partition}, run: safeUntil, Safety: true,
	},
	{
		Code: "S16", Name: "a session outlives the context it was opened with",
		Proves: []Promise{SessionOutlivesItsContext}, run: outlivesContext,
	},
	{
		Code: "S17", Name: "Changed is closed at each state change",
		Proves: []Promise{ChangedClosesOnChange}, Needs: []string{Partition}, run: changedIsClosed,
	},
	{
		Code: "S18", Name: "a session without answers is Suspended before it is Lost",
		Proves: []Promise{SilenceSuspends}, Needs: []string{Partition}, run: silenceSuspends, Safety: true,
	},
	{
		Code: "S26", Name: "a session of a stalled store is Suspended, and Lost by its own clock",
		Proves: []Promise{SilenceSuspends, SafeUntilIsKept}, Needs: []string{Stall}, run: stallSuspends, Safety: true,
	},
}

func uniqueIDs(t *test) {
	seen := map[registry.SessionID]bool{}
	for _, r := range []registry.Registry{t.handleA(), t.handleB()} {
		for range t.repeats(1100, 10) {
			s := t.openSession(r)
			require.NotEmpty(t, s.ID())
			require.False(t, seen[s.ID()], "id %s is used twice", s.ID())
			seen[s.ID()] = true
			require.NoError(t, registry.CheckDir(registry.Key(s.ID())), "the ID is usable in a key")
			require.NotContains(t, string(s.ID()), "/", "the ID is one segment")
			require.NotContains(t, string(s.ID()), ".", "the ID can follow a name and a dot")
			require.NoError(t, s.Close(t.ctx))
		}
	}
}

func grantedTTL(t *test) {
	a := t.handleA()
	asks := draw(t, "TTLs", t.ttl, t.ttl+900*time.Millisecond, t.ttl+1500*time.Millisecond, 2*t.ttl, time.Minute, time.Hour, 24*time.Hour)
	for _, ask := range append(asks, 0) {
		s, err := a.OpenSession(t.ctx, registry.SessionOptions{TTL: ask})
		if err != nil && ask >= time.Minute {
			continue // a store may refuse a long TTL, but not shorten it
		}
		require.NoError(t, err, "ask for %v", ask)
		if ask == 0 {
			ask = registry.DefaultSessionTTL
		}
		require.GreaterOrEqual(t, s.TTL(), ask)
		_, until := s.State()
		require.LessOrEqual(t, time.Until(until), s.TTL(), "safe-until is within the granted TTL")
		require.NoError(t, s.Close(t.ctx))
	}
}

func idleSession(t *test) {
	lives := 2 * t.ttl
	if t.bubble { // a day is ten thousand renewals and more
		lives = min(24*time.Hour, 10_000*t.ttl)
		t.allow(lives)
	}
	t.unlessSlow(t.ttl/20, func() error {
		s := t.openSession(t.handleA())
		key := registry.Key("~" + string(s.ID()))
		rev := t.createOwned(t.handleA(), key, s)
		if err := errors.Join(t.observeLife(s, lives), inState(s, registry.SessionConnected), s.Err()); err != nil {
			return err
		}
		t.assertHolds(t.handleB(), registry.Alive(s.ID()), registry.At(key, rev))
		return nil
	})
}

func restartedStore(t *test) {
	a, b := t.handleA(), t.handleB()
	f := t.follow(b, "d")
	var earlier []registry.SessionID
	for range 5 {
		ended := t.openSession(b)
		earlier = append(earlier, ended.ID())
		require.NoError(t, ended.Close(t.ctx))
	}
	s := t.longSession(a)
	earlier = append(earlier, s.ID())
	rev := t.createOwned(a, "d/~o", s)
	before := t.create(a, "d/k", "before")
	last := t.commitOps(a, registry.Delete("d/gone", t.create(a, "d/gone", ""))) // no key has this Seq
	f.converge(a)
	t.store.Restart()
	t.eventually(s.TTL(), "writes work again", func() error {
		_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Create("d/again", nil)}})
		if errors.Is(err, registry.ErrConflict) { // an earlier attempt was applied
			return nil
		}
		return err
	})
	after := t.commitOps(a, registry.Set("d/k", before, []byte("after")))
	require.Greater(t, after.Seq, last.Seq, "Seq grows across the restart")
	t.eventually(s.TTL(), "the session is connected again", func() error { return inState(s, registry.SessionConnected) })
	t.assertHolds(a, registry.Alive(s.ID()), registry.At("d/~o", rev))
	f.converge(a)
	next := t.openSession(b)
	require.NotContains(t, earlier, next.ID(), "the ID of a session opened after the restart")
}

// cutSession is a session with an owned key, on a machine that will be cut off.
type cutSession struct {
	machine string
	session registry.Session
	key     registry.Key
}

// cutSessions opens n sessions, distributed over machines.
func (t *test) cutSessions(n, machines int) []cutSession {
	t.Helper()
	all := make([]cutSession, n)
	for i := range all {
		c := cutSession{machine: fmt.Sprintf("cut%d", i%machines), key: registry.Key(fmt.Sprintf("d/~%d", i))}
		r := t.handle(c.machine)
		c.session = t.openSession(r)
		t.createOwned(r, c.key, c.session)
		all[i] = c
	}
	return all
}

// lostInTime cuts sessions off at moments spread over the renewal cycle and checks, when
// another client observes the end of a key, that its owner is Lost.
func lostInTime(t *test) {
	n := t.repeats(20, 4)
	all := t.cutSessions(n, n)
	f := t.follow(t.handleB(), "d")
	f.converge(t.handleB())
	for i, c := range all {
		t.spawn(func(context.Context) error {
			time.Sleep(time.Duration(i) * t.ttl / time.Duration(n))
			t.partition(c.machine, []Cut{Blackhole, Refuse}[i%2])
			return nil
		})
	}
	f.assertLostFirst(all, 2*t.ttl+all[0].session.TTL())
}

// assertLostFirst follows the keys of sessions until all are gone, within d. Each session
// must be Lost before another client observes the end of its key.
func (f *follower) assertLostFirst(all []cutSession, d time.Duration) {
	t := f.t
	t.Helper()
	byKey := map[registry.Key]cutSession{}
	for _, c := range all {
		byKey[c.key] = c
	}
	ctx := t.within(d + slack)
	for len(f.has) > 0 {
		had := keysOfMap(f.has)
		_, err := f.receive(ctx)
		require.NoError(t, err, "wait until all keys are gone")
		for _, key := range had {
			if _, still := f.has[key]; still {
				continue
			}
			c := byKey[key]
			st, until := c.session.State()
			require.Equal(t, registry.SessionLost, st, "the state of the session of %s, which is gone; safe until %v ago", key, time.Since(until))
			select {
			case <-c.session.Lost():
			default:
				t.Fatalf("%s is gone, and Lost of its session is not closed", key)
			}
			require.ErrorIs(t, c.session.Err(), registry.ErrSessionLost)
		}
	}
}

func keysOfMap(m map[registry.Key]registry.Entry) []registry.Key {
	keys := make([]registry.Key, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

func suspendedAndBack(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	id, rev := s.ID(), t.createOwned(a, "~k", s)
	for range t.repeats(3, 1) {
		heal := t.partition("a", Refuse)
		t.eventually(s.TTL(), "the session is suspended", func() error { return inState(s, registry.SessionSuspended) })
		require.NoError(t, s.Err(), "Err of a suspended session")
		heal()
		t.eventually(s.TTL(), "the session is connected again", func() error { return inState(s, registry.SessionConnected) })
		require.Equal(t, id, s.ID())
		require.NoError(t, s.Err())
		t.assertHolds(t.handleB(), registry.Alive(id), registry.At("~k", rev))
		if t.bubble {
			t.sleep(s.TTL())
		}
	}
}

func expiredIsLost(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	t.createOwned(a, "~k", s)
	t.store.Expire(s.ID())
	t.awaitClosed(s.Lost(), s.TTL(), "Lost is closed")
	require.NoError(t, inState(s, registry.SessionLost))
	require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
	_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.CreateOwned("~k2", nil, s.ID())}})
	require.ErrorIs(t, err, registry.ErrSessionLost)
	t.assertAbsent(t.handleB(), "~k", "~k2")
	reason := s.Err()
	for range 2 {
		require.NoError(t, s.Close(t.ctx), "Close of a lost session")
		require.NoError(t, inState(s, registry.SessionLost))
		require.Equal(t, reason, s.Err(), "the reason of the end after Close")
	}
}

func lateGuardedWrite(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	rev := t.create(a, "record", "mine")
	guarded := registry.Txn{If: []registry.Cond{registry.Alive(s.ID())}, Then: []registry.Op{registry.Set("record", rev, []byte("late"))}}
	t.store.Expire(s.ID())
	t.assertConflict(a, guarded, 0)
	require.Equal(t, "mine", string(t.getFresh(t.handleB(), "record").Value))
	t.commit(t.handleB(), registry.Txn{If: []registry.Cond{registry.Dead(s.ID())}, Then: []registry.Op{registry.Set("record", rev, []byte("replaced"))}})
	t.assertConflict(a, guarded, 0)
}

// lateWrites lets writes of a session arrive after its end: one held on its way, and one sent
// before the owner knows of the end.
func lateWrites(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	t.create(a, "d/start", "")
	release := t.store.HoldCommit("a")
	held := make(chan error, 1)
	t.spawn(func(ctx context.Context) error {
		_, err := a.Txn(ctx, registry.Txn{
			If:   []registry.Cond{registry.Alive(s.ID())},
			Then: []registry.Op{registry.CreateOwned("d/~held", nil, s.ID()), registry.Create("d/held", nil)},
		})
		held <- err
		return nil
	})
	t.settle(100 * time.Millisecond)
	f := t.follow(b, "d")
	t.store.Expire(s.ID())
	release()
	_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.CreateOwned("d/~late", nil, s.ID())}})
	require.ErrorIs(t, err, registry.ErrSessionLost)
	t.awaitClosed(s.Lost(), s.TTL(), "Lost is closed")
	_, err = a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.CreateOwned("d/~later", nil, s.ID())}})
	require.ErrorIs(t, err, registry.ErrSessionLost)
	t.sleep(s.TTL())
	t.assertHolds(b, registry.Dead(s.ID()))
	t.assertAbsent(b, "d/~held", "d/held", "d/~late", "d/~later")
	f.assertNoEvents(b, "d/mark")
	require.Error(t, <-held)
	require.NoError(t, inState(s, registry.SessionLost))
}

func closedSession(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	changed := s.Changed()
	t.createOwned(a, "~k", s)
	require.NoError(t, s.Close(t.ctx))
	require.NoError(t, inState(s, registry.SessionClosed))
	require.ErrorIs(t, s.Err(), registry.ErrClosed)
	for _, ch := range []<-chan struct{}{changed, s.Lost()} {
		t.awaitClosed(ch, 0, "Close closes the channels")
	}
	require.NoError(t, s.Close(t.ctx), "closing twice is legal")
	t.sleep(time.Duration(t.repeats(3, 0)) * s.TTL())
	require.NoError(t, inState(s, registry.SessionClosed))
	_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.CreateOwned("~k", nil, s.ID())}})
	require.ErrorIs(t, err, registry.ErrSessionLost)
	t.assertAbsent(t.handleB(), "~k")
}

func closeWhileCut(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	t.createOwned(a, "~k", s)
	t.partition("a", Blackhole)
	start := time.Now()
	err := s.Close(t.within(200 * time.Millisecond))
	require.Error(t, err, "the store was not reached")
	require.Less(t, time.Since(start), t.withSlack(200*time.Millisecond), "Close outlasted its context")
	require.NoError(t, inState(s, registry.SessionClosed))
	require.ErrorIs(t, s.Err(), registry.ErrClosed)
	t.awaitClosed(s.Lost(), 0, "Lost is closed")
	t.eventually(s.TTL(), "the key vanishes when the TTL expires", func() error {
		_, err := b.Get(t.ctx, "~k", fresh)
		if errors.Is(err, registry.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("get ~k: %w", err)
	})
	t.assertHolds(b, registry.Dead(s.ID()))
}

func lostIsFinal(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	t.createOwned(a, "~k", s)
	heal := t.partition("a", Blackhole)
	slow := s.Changed() // read only at the end
	t.awaitClosed(s.Lost(), s.TTL(), "Lost is closed")
	err := s.Err()
	require.ErrorIs(t, err, registry.ErrSessionLost)
	heal()
	t.eventually(s.TTL(), "the handle works again", func() error {
		_, err := a.Get(t.ctx, "none", fresh)
		if errors.Is(err, registry.ErrNotFound) {
			return nil
		}
		return err
	})
	t.sleep(s.TTL() / 2)
	t.awaitClosed(slow, 0, "an earlier Changed channel is closed")
	require.NoError(t, inState(s, registry.SessionLost))
	require.Equal(t, err, s.Err())
	t.assertHolds(t.handleB(), registry.Dead(s.ID()))
	t.assertAbsent(t.handleB(), "~k")
	_, err = a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.CreateOwned("~k", nil, s.ID())}})
	require.ErrorIs(t, err, registry.ErrSessionLost)
	next := t.openSession(a) // a new session has another ID
	require.NotEqual(t, s.ID(), next.ID())
	t.createOwned(a, "~k", next)
	require.NoError(t, inState(s, registry.SessionLost))
}

func twoSessions(t *test) {
	a := t.handleA()
	s1, s2, s3 := t.openSession(a), t.openSession(a), t.openSession(a)
	for i, s := range []registry.Session{s1, s2, s3} {
		t.createOwned(a, registry.Key(fmt.Sprintf("~%d", i+1)), s)
	}
	require.NoError(t, s1.Close(t.ctx))
	t.store.Expire(s2.ID())
	t.awaitClosed(s2.Lost(), s2.TTL(), "Lost is closed")
	t.assertAbsent(t.handleB(), "~1", "~2")
	require.Equal(t, s3.ID(), t.getFresh(t.handleB(), "~3").Owner)
	require.NoError(t, inState(s1, registry.SessionClosed))
	require.NoError(t, inState(s2, registry.SessionLost))
	require.NoError(t, inState(s3, registry.SessionConnected))
	t.assertHolds(a, registry.Dead(s1.ID()), registry.Dead(s2.ID()), registry.Alive(s3.ID()))
	t.createOwned(a, "~4", s3)
}

// safeUntil polls a session and the store's view of it, first with renewals and then cut
// off.
func safeUntil(t *test) {
	tolerance := time.Duration(0)
	if !t.bubble {
		tolerance = 100 * time.Millisecond // a timer may fire late on a busy machine
	}
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	cutAt := time.Now().Add(s.TTL())
	_, first := s.State()
	end := time.Now().Add(3*s.TTL() + slack)
	cut, renewed := false, false
	for {
		require.True(t, time.Now().Before(end), "the session is never Lost")
		now := time.Now()
		st, until := s.State()
		if st == registry.SessionLost {
			break
		}
		require.LessOrEqual(t, now.Sub(until), tolerance, "%v after safe-until", st)
		require.LessOrEqual(t, time.Until(until), s.TTL(), "safe-until is at most one TTL ahead")
		_, err := b.Txn(t.ctx, registry.Txn{If: []registry.Cond{registry.Alive(s.ID())}})
		if time.Now().Before(until) {
			require.NoError(t, err, "the store ended the session before safe-until")
		}
		renewed = renewed || until.After(first)
		if !cut && now.After(cutAt) {
			t.partition("a", Blackhole)
			cut = true
		}
		t.sleep(pollEvery)
	}
	require.True(t, cut, "the session was Lost before the partition")
	require.True(t, renewed, "no renewal moved safe-until")
}

func outlivesContext(t *test) {
	a := t.handleA()
	all := make([]registry.Session, len(contextForms))
	t.unlessSlow(t.ttl/20, func() error {
		for i, form := range contextForms {
			ctx, _ := form.begin(t, t.ttl/2)
			var err error
			all[i], err = a.OpenSession(ctx, registry.SessionOptions{TTL: t.ttl})
			require.NoError(t, err)
			t.createOwned(a, registry.Key("~"+string(all[i].ID())), all[i])
		}
		t.sleep(2 * t.ttl)
		for i, s := range all {
			if err := inState(s, registry.SessionConnected); err != nil {
				return fmt.Errorf("the context of OpenSession ended by %s: %w", contextForms[i].name, err)
			}
		}
		return nil
	})
	for _, s := range all {
		t.assertHolds(t.handleB(), registry.Alive(s.ID()))
		require.Equal(t, s.ID(), t.getFresh(t.handleB(), registry.Key("~"+string(s.ID()))).Owner)
	}
}

func changedIsClosed(t *test) {
	s := t.openSession(t.handleA())
	var seen []registry.SessionState
	stop := t.spawn(func(ctx context.Context) error {
		for range 50 { // bounded: there are fewer changes
			changed := s.Changed()
			st := stateOf(s)
			seen = append(seen, st)
			select {
			case <-changed:
			case <-ctx.Done():
				return nil
			}
		}
		return errors.New("the channel of Changed is closed without a change")
	})
	t.settle(50 * time.Millisecond)
	want := []registry.SessionState{registry.SessionConnected}
	for range t.repeats(10, 3) {
		heal := t.partition("a", Refuse)
		t.eventually(s.TTL(), "the session is suspended", func() error { return inState(s, registry.SessionSuspended) })
		t.settle(50 * time.Millisecond)
		heal()
		t.eventually(s.TTL(), "the session is connected again", func() error { return inState(s, registry.SessionConnected) })
		t.settle(50 * time.Millisecond)
		want = append(want, registry.SessionSuspended, registry.SessionConnected)
	}
	require.NoError(t, s.Close(t.ctx))
	t.settle(50 * time.Millisecond)
	stop()
	require.Equal(t, append(want, registry.SessionClosed), slices.Compact(seen), "the sequence of states, without repetitions")
}

func silenceSuspends(t *test) {
	t.awaitSilence(func() (heal func()) { return t.partition("a", Blackhole) })
}

func stallSuspends(t *test) {
	t.awaitSilence(func() (resume func()) {
		resume = t.store.Stall()
		t.Cleanup(resume)
		return resume
	})
	t.awaitUsable(t.handleA())
}

// awaitSilence observes a session without answers. It repeats an observation in which the test
// itself was too slow to notice a state that lasts for a small part of the TTL: that proves
// nothing about the registry.
func (t *test) awaitSilence(silence func() (end func())) {
	t.Helper()
	const attempts = 5
	for range attempts {
		if t.observeSilence(silence) {
			return
		}
		t.awaitUsable(t.handleA())
	}
	t.Fatalf("in %d attempts the test was not scheduled often enough to observe a Suspended session", attempts)
}

// observeSilence reports whether it observed a session from Connected to Suspended to Lost, which
// it must be by the last safe-until that an answer can have moved. It fails the case if the session
// skips Suspended, and reports false if it cannot tell that.
func (t *test) observeSilence(silence func() (end func())) (observed bool) {
	t.Helper()
	s := t.openSession(t.handleA())
	defer silence()()
	silent := time.Now()
	end := silent.Add(t.withSlack(s.TTL()))
	for last := time.Now(); ; {
		lost := isClosed(s.Lost())
		state, until := s.State()
		require.False(t, until.After(silent.Add(s.TTL())), "safe-until moves without answers: it is %v after the last", until.Sub(silent))
		starved := time.Since(last) > max(s.TTL()/50, 2*pollEvery)
		last = time.Now()
		switch {
		case state == registry.SessionSuspended && !lost:
			require.NoError(t, s.Err())
			t.awaitClosed(s.Lost(), s.TTL(), "Lost is closed")
			require.NoError(t, inState(s, registry.SessionLost))
			return true
		case starved && (lost || state != registry.SessionConnected):
			return false
		case lost || state != registry.SessionConnected:
			t.Fatalf("the session is %v, Lost is closed: %v, and it has not been Suspended before", state, lost)
		case last.After(end):
			t.Fatalf("the session is suspended: not within %v", t.withSlack(s.TTL()))
		}
		t.sleep(pollEvery)
	}
}

// isClosed reports whether ch is closed.
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
