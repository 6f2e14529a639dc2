package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// suspendedCases test the ways from Suspended, and the end of a session that is known to one
// side only.
var suspendedCases = []Case{
	{
		Code: "S20", Name: "Close of a suspended session reports truly whether its keys are gone",
		Proves: []Promise{CloseRemovesOwnedKeys, CloseUnreachedLeavesExpiry}, Needs: []string{Partition}, run: closeSuspended, Safety: true,
	},
	{
		Code: "S21", Name: "a session that expired while it was suspended becomes Lost on reconnection",
		Proves: []Promise{ExpiryBecomesLost, CreateOwnedNeedsLiveSession}, Needs: []string{Partition, Expire}, run: expiredWhileSuspended, Safety: true,
	},
	{
		Code: "S22", Name: "Close of a session that the store has just ended succeeds",
		Proves: []Promise{SessionCloseIsFinal, CloseRemovesOwnedKeys}, Needs: []string{Expire}, run: closeOfExpired,
	},
	{
		Code: "S23", Name: "a session that was suspended works as before",
		Proves: []Promise{SuspendedComesBack, CloseRemovesOwnedKeys}, Needs: []string{Partition}, run: usableAfterSuspended,
	},
	{
		Code: "S24", Name: "sessions live and expire as before when the store's clock is stepped",
		Proves: []Promise{SessionsAreRenewed, SafeUntilIsKept, SilentSessionsExpire}, Needs: []string{StepClock, Partition}, run: steppedClock,
	},
	{
		Code: "S25", Name: "ended sessions leave no goroutines",
		Proves: []Promise{EndedSessionsFreeAll}, Needs: []string{Expire}, alone: true, run: sessionsLeakNothing,
	},
}

// sessionEndCases test the end of a session by size, position and history of its keys.
var sessionEndCases = []Case{
	{
		Code: "E10", Name: "the end of a session is delivered to the watchers of each of its directories",
		Proves: []Promise{LastStateArrives, WatchFollowsChanges}, Needs: []string{Expire}, run: endInSeveralDirectories, Safety: true,
	},
	{
		Code: "E11", Name: "the end of a session spares a key that another session has re-created",
		Proves: []Promise{SessionEndsAtOneCommit, SessionsAreIndependent, OnlyOwnedKeysHaveOwners}, Needs: []string{Expire}, run: endSparesRecreated, Safety: true,
	},
	{
		Code: "E12", Name: "a session and its owned keys end in one commit on silent expiry, for every handle",
		Proves: []Promise{SessionEndsAtOneCommit, DeadOnceEnded}, Needs: []string{Starve}, run: goneAtOnceOnExpiry, Safety: true,
	},
	{
		Code: "E13", Name: "a session and more than a thousand owned keys end in one commit",
		Proves: []Promise{SessionEndsAtOneCommit, CloseRemovesOwnedKeys}, Needs: []string{Expire}, run: manyGoneAtOnce, Safety: true,
	},
	{
		Code: "E14", Name: "no owned key outlives a Close that overlaps its creation",
		Proves: []Promise{CloseRemovesOwnedKeys, CreateOwnedNeedsLiveSession}, run: createdDuringClose, Safety: true,
	},
}

// suspend cuts a machine off until heal and waits until its session is suspended.
func (t *test) suspend(machine string, s registry.Session) (heal func()) {
	t.Helper()
	heal = t.partition(machine, Refuse)
	t.eventually(s.TTL(), "the session is suspended", func() error { return inState(s, registry.SessionSuspended) })
	return heal
}

func closeSuspended(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	t.createOwned(a, "~k", s)
	heal := t.suspend("a", s)
	if err := s.Close(t.within(200 * time.Millisecond)); err == nil {
		t.assertAbsent(b, "~k")
	}
	require.NoError(t, inState(s, registry.SessionClosed))
	require.ErrorIs(t, s.Err(), registry.ErrClosed)
	t.eventually(s.TTL(), "the key vanishes when the TTL expires", func() error { return t.checkAbsent(b, "~k") })
	t.assertHolds(b, registry.Dead(s.ID()))
	heal()
	t.awaitUsable(a)

	s = t.openSession(a)
	t.createOwned(a, "~k", s)
	heal = t.suspend("a", s)
	heal()
	require.NoError(t, s.Close(t.ctx), "Close when the connection is back")
	t.assertAbsent(b, "~k")
	t.assertHolds(b, registry.Dead(s.ID()))
}

func expiredWhileSuspended(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	t.createOwned(a, "~k", s)
	heal := t.suspend("a", s)
	t.store.Expire(s.ID())
	t.assertAbsent(b, "~k")
	require.NoError(t, inState(s, registry.SessionSuspended, registry.SessionLost))
	heal()
	t.awaitClosed(s.Lost(), s.TTL(), "Lost is closed")
	require.NoError(t, inState(s, registry.SessionLost))
	require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
	t.awaitUsable(a)
	_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.CreateOwned("~k", nil, s.ID())}})
	require.ErrorIs(t, err, registry.ErrSessionLost)
	t.createOwned(a, "~k", t.openSession(a))
}

// closeOfExpired closes sessions before or after their owner has learned that the store ended
// them.
func closeOfExpired(t *test) {
	a, b := t.handleA(), t.handleB()
	for i := range t.repeats(20, 8) {
		s := t.openSession(a)
		t.createOwned(a, "~k", s)
		t.store.Expire(s.ID())
		t.sleep(time.Duration(i%4) * time.Millisecond)
		t.runConcurrently(1+i%3, func(int) error { return s.Close(t.within(t.ttl)) })
		t.assertAbsent(b, "~k")
		t.awaitClosed(s.Lost(), 0, "Lost is closed")
		if inState(s, registry.SessionLost) == nil {
			require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
			continue
		}
		require.NoError(t, inState(s, registry.SessionClosed))
		require.ErrorIs(t, s.Err(), registry.ErrClosed)
	}
}

func usableAfterSuspended(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	before := t.createOwned(a, "d/~before", s)
	f := t.follow(b, "d")
	heal := t.suspend("a", s)
	heal()
	t.eventually(s.TTL(), "the session is connected again", func() error { return inState(s, registry.SessionConnected) })
	after := t.createOwned(a, "d/~after", s)
	before = t.commit(a, registry.Txn{
		If:   []registry.Cond{registry.Alive(s.ID())},
		Then: []registry.Op{registry.Set("d/~before", before, nil)},
	})
	t.sleep(s.TTL() + s.TTL()/4)
	t.assertHolds(b, registry.Alive(s.ID()), registry.At("d/~before", before), registry.At("d/~after", after))
	f.converge(b)
	require.Len(t, f.has, 2)
	require.NoError(t, s.Close(t.ctx))
	t.assertAbsent(b, "d/~before", "d/~after")
	f.converge(b)
}

func steppedClock(t *test) {
	a, b := t.handleA(), t.handleB()
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		old := t.openSession(a)
		rev := t.createOwned(a, "~old", old)
		restore := t.store.StepClock(step)
		t.Cleanup(restore)
		t.assertHolds(b, registry.Alive(old.ID()), registry.At("~old", rev))
		next := t.openSession(a)
		t.createOwned(a, "~next", next)
		t.sleep(old.TTL() + old.TTL()/2)
		for _, s := range []registry.Session{old, next} {
			require.NoError(t, inState(s, registry.SessionConnected), "after a step by %v", step)
			t.assertHolds(b, registry.Alive(s.ID()))
		}
		require.NoError(t, old.Close(t.ctx))
		heal := t.partition("a", Blackhole)
		t.eventually(next.TTL(), "a session without renewals expires", func() error { return t.checkAbsent(b, "~next") })
		require.NoError(t, inState(next, registry.SessionLost))
		restore()
		heal()
		t.awaitUsable(a)
	}
}

func sessionsLeakNothing(t *test) {
	a := t.handleA()
	require.NoError(t, t.openSession(a).Close(t.ctx)) // goroutines of the first may stay until the handle closes
	t.settle(100 * time.Millisecond)
	before := countGoroutines(t)
	for i := range t.repeats(200, 20) {
		s := t.openSession(a)
		if i%2 == 0 {
			require.NoError(t, s.Close(t.ctx))
			continue
		}
		t.store.Expire(s.ID())
		t.awaitClosed(s.Lost(), s.TTL(), "Lost is closed")
	}
	t.eventually(0, "goroutines of ended sessions end", func() error {
		t.settle(0)
		if n := countGoroutines(t); n > before+3 {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
}

func endInSeveralDirectories(t *test) {
	a, b := t.handleA(), t.handleB()
	dirs := []registry.Key{"d", "e", ""}
	var all []*follower
	for _, r := range []registry.Registry{b, a} {
		for _, dir := range dirs {
			all = append(all, t.follow(r, dir))
		}
	}
	t.create(a, "d/plain", "stays")
	for _, end := range []func(registry.Session){
		func(s registry.Session) { require.NoError(t, s.Close(t.ctx)) },
		func(s registry.Session) { t.store.Expire(s.ID()) },
	} {
		s := t.openSession(a)
		var ops []registry.Op
		var keys []registry.Key
		for _, dir := range dirs {
			for _, name := range []string{"~1", "~2"} {
				keys = append(keys, dir.Join(name))
				ops = append(ops, registry.CreateOwned(dir.Join(name), nil, s.ID()))
			}
		}
		t.commitOps(a, ops...)
		for _, f := range all {
			f.converge(b)
		}
		end(s)
		t.assertAbsent(b, keys...)
		for _, f := range all {
			f.converge(b)
		}
	}
}

func endSparesRecreated(t *test) {
	a, b := t.handleA(), t.handleB()
	ends := []func(registry.Session){
		func(s registry.Session) { require.NoError(t, s.Close(t.ctx)) },
		func(s registry.Session) { t.store.Expire(s.ID()) },
	}
	for i := range 4 { // deleted by the owner's handle or by another, ended by Close or by expiry
		first := t.openSession(a)
		deleter, second := []registry.Registry{a, b}[i/2], t.openSession(b)
		old := t.createOwned(a, "d/~k", first)
		t.commitOps(deleter, registry.Delete("d/~k", old))
		rev := t.createOwned(b, "d/~k", second)
		ends[i%2](first)
		t.assertHolds(a, registry.Dead(first.ID()), registry.Alive(second.ID()), registry.At("d/~k", rev))
		require.Equal(t, second.ID(), t.getFresh(a, "d/~k").Owner)
		ends[i%2](second)
		t.assertAbsent(a, "d/~k")
	}
}

// goneAtOnceOnExpiry starves a session, so that its own handle can ask the store too, and
// asks both handles for states that must never exist.
func goneAtOnceOnExpiry(t *test) {
	handles := []registry.Registry{t.handleA(), t.handleB()}
	s := t.openSession(handles[0])
	keys := []registry.Key{"d/~1", "e/~2"}
	rev := t.commitOps(handles[0], registry.CreateOwned(keys[0], nil, s.ID()), registry.CreateOwned(keys[1], nil, s.ID()))
	var impossible [][]registry.Cond
	for i, key := range keys {
		impossible = append(impossible,
			[]registry.Cond{registry.Alive(s.ID()), registry.Absent(key)},
			[]registry.Cond{registry.Dead(s.ID()), registry.At(key, rev)},
			[]registry.Cond{registry.At(key, rev), registry.Absent(keys[1-i])})
	}
	impossible = append(impossible, []registry.Cond{registry.Dead(s.ID()), registry.Alive(s.ID())})
	feed := t.store.Starve("a")
	t.Cleanup(feed)
	holds := func(r registry.Registry, conds ...registry.Cond) bool {
		_, err := r.Txn(t.ctx, registry.Txn{If: conds})
		if err != nil {
			require.ErrorIs(t, err, registry.ErrConflict)
		}
		return err == nil
	}
	end := time.Now().Add(t.withSlack(2 * s.TTL()))
	for {
		for i, r := range handles {
			for _, conds := range impossible {
				require.False(t, holds(r, conds...), "%v hold together", conds)
			}
			if holds(r, registry.Dead(s.ID())) { // then for every other handle too
				require.False(t, holds(handles[1-i], registry.Alive(s.ID())), "a session is dead for one handle and alive for the other")
				t.assertAbsent(handles[1-i], keys...)
				require.NoError(t, inState(s, registry.SessionLost))
				return
			}
		}
		require.True(t, time.Now().Before(end), "the session never ends")
		t.sleep(s.TTL() / 400)
	}
}

func manyGoneAtOnce(t *test) {
	a, b := t.handleA(), t.handleB()
	const perTxn = 50
	dirs := []registry.Key{"d", "e"}
	followers := []*follower{t.follow(b, dirs[0]), t.follow(b, dirs[1])}
	ends := []func(registry.Session){
		func(s registry.Session) { require.NoError(t, s.Close(t.within(t.ttl+slack))) },
		func(s registry.Session) { t.store.Expire(s.ID()) },
	}
	sizes := []int{1_500, 1_026}
	if t.bubble {
		sizes = draw(t, "owned keys of a session", 1_500, manyKeys, 1_026)
	}
	for which, n := range sizes {
		end := ends[which%2]
		s := t.longSession(a)
		var conds []registry.Cond // of the first and the last key of some commits
		for start := 0; start < n; start += perTxn {
			ops := make([]registry.Op, min(perTxn, n-start))
			for i := range ops {
				ops[i] = registry.CreateOwned(dirs[i%2].Join(fmt.Sprintf("~%04d", start+i)), nil, s.ID())
			}
			rev, err := registry.Apply(t.ctx, a, registry.Txn{Then: ops}) // a busy store may be slow to answer one of many
			require.NoError(t, err, "create %d owned keys", n)
			if start%(4*perTxn) == 0 || start+perTxn >= n {
				conds = append(conds, registry.At(ops[0].Key, rev), registry.At(ops[len(ops)-1].Key, rev))
			}
		}
		for i, f := range followers {
			f.converge(b)
			require.Len(t, f.has, (n+1-i)/2)
		}
		first := conds[0]
		impossible := [][]registry.Cond{
			{registry.Alive(s.ID()), registry.Absent(first.Key)},
			{registry.Dead(s.ID()), first},
		}
		for _, other := range conds[1:] {
			impossible = append(impossible,
				[]registry.Cond{other, registry.Absent(first.Key)},
				[]registry.Cond{first, registry.Absent(other.Key)})
		}
		t.assertNeverHold(b, impossible, func() { end(s) })
		t.awaitClosed(s.Lost(), s.TTL(), "Lost is closed")
		for _, f := range followers {
			require.Empty(t, t.listFresh(b, f.dir))
			f.converge(b)
		}
	}
}

// createdDuringClose creates owned keys until one is refused, while their session is closed.
func createdDuringClose(t *test) {
	a, b := t.handleA(), t.handleB()
	for i := range t.repeats(40, 15) {
		s := t.openSession(a)
		dir := registry.Key(fmt.Sprintf("d%02d", i))
		refused := make(chan error, 1)
		t.spawn(func(ctx context.Context) error {
			for n := 0; ; n++ {
				key := dir.Join(fmt.Sprintf("~%03d", n))
				_, err := a.Txn(context.WithoutCancel(ctx), registry.Txn{Then: []registry.Op{registry.CreateOwned(key, nil, s.ID())}})
				if err != nil {
					refused <- err
					return nil
				}
				time.Sleep(50 * time.Microsecond)
			}
		})
		t.sleep(time.Duration(i) * 100 * time.Microsecond)
		require.NoError(t, s.Close(t.ctx))
		err := <-refused
		if !errors.Is(err, registry.ErrSessionLost) {
			require.NoError(t, checkUnanswered(err))
		}
		require.Empty(t, t.listFresh(b, dir), "keys of a closed session")
	}
}
