package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

var ownedCases = []Case{
	{
		Code: "E01", Name: "owned keys vanish when their session expires",
		Proves: []Promise{SilentSessionsExpire, SetKeepsTheOwner}, Needs: []string{Partition}, run: goneOnExpiry,
	},
	{
		Code: "E02", Name: "owned keys are gone when Close of their session returns",
		Proves: []Promise{CloseRemovesOwnedKeys}, run: goneOnClose, Safety: true,
	},
	{
		Code: "E03", Name: "owned keys survive a broken connection",
		Proves: []Promise{SuspendedComesBack}, Needs: []string{Partition}, run: keptOverReconnect,
	},
	{
		Code: "E04", Name: "an owned key cannot have children",
		Proves: []Promise{OwnedKeysAreLeaves}, run: ownedAreLeaves,
	},
	{
		Code: "E05", Name: "Set leaves the owner of an owned key unchanged",
		Proves: []Promise{SetKeepsTheOwner, WatchFollowsChanges}, run: setKeepsOwner, Safety: true,
	},
	{
		Code: "E06", Name: "a session and all its owned keys end in one commit",
		Proves: []Promise{SessionEndsAtOneCommit}, Needs: []string{Expire}, run: goneAtOnce, Safety: true,
	},
	{
		Code: "E07", Name: "CreateOwned with an ended session fails with ErrSessionLost",
		Proves: []Promise{CreateOwnedNeedsLiveSession}, run: createWithEndedSession, Safety: true,
	},
	{
		Code: "E08", Name: "another client may delete an owned key, which invalidates the owner's guard",
		Proves: []Promise{ConditionsAreChecked}, run: foreignDelete,
	},
	{
		Code: "E09", Name: "watchers observe the end of owned keys",
		Proves: []Promise{LastStateArrives}, Needs: []string{Expire}, run: watchedEnd, Safety: true,
	},
	{
		Code: "E15", Name: "a suspended session can create owned keys",
		Proves: []Promise{CreateOwnedNeedsLiveSession, SuspendedComesBack}, Needs: []string{Starve}, run: suspendedCreatesOwned,
	},
}

func goneOnExpiry(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	one, two := t.createOwned(a, "d/~1", s), t.createOwned(a, "e/~2", s)
	t.create(a, "d/plain", "")
	t.commitOps(a, registry.Set("d/~1", one, []byte("by the owner")))
	t.commitOps(b, registry.Set("e/~2", two, []byte("by another client")))
	_, until := s.State()
	t.partition("a", Blackhole)
	t.eventually(s.TTL(), "the keys vanish", func() error {
		before := time.Now()
		err := errors.Join(t.checkAbsent(b, "d/~1"), t.checkAbsent(b, "e/~2"))
		if err == nil {
			require.False(t, before.Before(until), "the keys vanished before safe-until")
		}
		return err
	})
	require.Equal(t, []registry.Key{"d/plain"}, keysOf(t.listFresh(b, "d")))
	t.assertHolds(b, registry.Dead(s.ID()))
}

func goneOnClose(t *test) {
	a, b := t.handleA(), t.handleB()
	for range t.repeats(20, 5) {
		s, stays := t.openSession(a), t.openSession(a)
		var keys []registry.Key
		for i := range 5 {
			key := registry.Key(fmt.Sprintf("d%d/~%d", i%2, i))
			t.createOwned(a, key, s)
			keys = append(keys, key)
		}
		t.createOwned(a, "d0/~other", stays)
		require.NoError(t, s.Close(t.ctx))
		t.assertAbsent(b, keys...)
		t.assertAbsent(a, keys...)
		require.Equal(t, []registry.Key{"d0/~other"}, keysOf(t.listFresh(b, "d0")))
		t.assertHolds(b, registry.Dead(s.ID()))
		require.NoError(t, stays.Close(t.ctx))
	}
}

func keptOverReconnect(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	t.createOwned(a, "~k", s)
	before := t.getFresh(t.handleB(), "~k")
	heal := t.partition("a", Refuse)
	heal()
	t.eventually(s.TTL(), "the handle works again", func() error {
		_, err := a.Get(t.ctx, "~k", fresh)
		return err
	})
	t.eventually(s.TTL(), "the session is connected", func() error { return inState(s, registry.SessionConnected) })
	t.sleep(s.TTL() + s.TTL()/2)
	require.Equal(t, before, t.getFresh(t.handleB(), "~k"))
}

func ownedAreLeaves(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	t.createOwned(a, "d/~k", s)
	for _, op := range []registry.Op{
		registry.Create("d/~k/child", nil),
		registry.CreateOwned("d/~k/~child", nil, s.ID()),
		registry.Create("never/~x/child", nil),
	} {
		_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{op}})
		require.ErrorIs(t, err, registry.ErrInvalidKey, "%v", op)
	}
	_, err := a.List(t.ctx, "d/~k", registry.ReadOptions{})
	require.ErrorIs(t, err, registry.ErrInvalidKey, "List of an owned key")
	require.Equal(t, []registry.Key{"d/~k"}, keysOf(t.listFresh(a, "d")))
}

func setKeepsOwner(t *test) {
	a, b := t.handleA(), t.handleB()
	s, other := t.openSession(a), t.openSession(b)
	rev := t.createOwned(a, "d/~k", s)
	f := t.follow(b, "d")
	for i, r := range []registry.Registry{a, b, a} { // any handle may write it
		rev = t.commitOps(r, registry.Set("d/~k", rev, fmt.Append(nil, i)))
		e := t.getFresh(b, "d/~k")
		require.Equal(t, s.ID(), e.Owner)
		require.Equal(t, rev, e.Modified)
	}
	f.converge(b)
	require.Equal(t, s.ID(), f.has["d/~k"].Owner)
	require.NoError(t, other.Close(t.ctx)) // on the handle that wrote the key
	require.Equal(t, rev, t.getFresh(b, "d/~k").Modified)
	require.NoError(t, s.Close(t.ctx))
	t.assertAbsent(b, "d/~k")
}

// goneAtOnce keeps checking for states that must never exist: a live session without one
// of its keys, an ended session with one, or some of the keys without the others.
func goneAtOnce(t *test) {
	a, b := t.handleA(), t.handleB()
	for _, end := range []func(registry.Session){
		func(s registry.Session) { require.NoError(t, s.Close(t.within(t.ttl))) },
		func(s registry.Session) { t.store.Expire(s.ID()) },
	} {
		s := t.openSession(a)
		keys := []registry.Key{"d/~1", "d/~2", "d/~3", "e/~4"}
		var ops []registry.Op
		for _, key := range keys {
			ops = append(ops, registry.CreateOwned(key, nil, s.ID()))
		}
		rev := t.commitOps(a, ops...)
		var impossible [][]registry.Cond
		for i, key := range keys {
			next := keys[(i+1)%len(keys)]
			impossible = append(impossible,
				[]registry.Cond{registry.Alive(s.ID()), registry.Absent(key)},
				[]registry.Cond{registry.Dead(s.ID()), registry.At(key, rev)},
				[]registry.Cond{registry.At(key, rev), registry.Absent(next)})
		}
		t.assertNeverHold(b, impossible, func() { end(s) })
		t.assertAbsent(b, keys...)
		t.assertHolds(b, registry.Dead(s.ID()))
	}
}

// assertNeverHold checks conditions by r before, during and after end: no list of them may
// hold together.
func (t *test) assertNeverHold(r registry.Registry, impossible [][]registry.Cond, end func()) {
	t.Helper()
	var checked atomic.Int64
	stop := t.spawn(func(ctx context.Context) error {
		for i := 0; ; i++ {
			conds := impossible[i%len(impossible)]
			_, err := r.Txn(ctx, registry.Txn{If: conds})
			if err == nil {
				return fmt.Errorf("%v hold together", conds)
			}
			if !errors.Is(err, registry.ErrConflict) {
				return err
			}
			checked.Add(1)
			if t.bubble {
				time.Sleep(20 * time.Microsecond)
			}
		}
	})
	awaitChecks := func(when string) {
		from := checked.Load()
		t.eventually(t.ttl, "each impossible state was checked "+when, func() error {
			if n := checked.Load() - from; n < int64(len(impossible)) {
				return fmt.Errorf("checked %d of %d", n, len(impossible))
			}
			return nil
		})
	}
	awaitChecks("before")
	end()
	awaitChecks("after")
	stop()
}

func createWithEndedSession(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	rev := t.create(a, "k", "before")
	require.NoError(t, s.Close(t.ctx))
	x := registry.Txn{Then: []registry.Op{
		registry.Create("new", nil), registry.CreateOwned("~own", nil, s.ID()), registry.Set("k", rev, nil),
	}}
	_, err := a.Txn(t.ctx, x)
	require.ErrorIs(t, err, registry.ErrSessionLost)
	require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
	t.assertAbsent(t.handleB(), "new", "~own")
	require.Equal(t, "before", string(t.getFresh(t.handleB(), "k").Value))
}

func foreignDelete(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	rev := t.createOwned(a, "~leader", s)
	guarded := registry.Txn{If: []registry.Cond{registry.At("~leader", rev)}, Then: []registry.Op{registry.Create("written", nil)}}
	t.commitOps(b, registry.Delete("~leader", rev))
	t.assertConflict(a, guarded, 0)
	t.createOwned(a, "~leader", s)
	t.assertConflict(a, guarded, 0)
	t.assertAbsent(b, "written")
	t.assertHolds(b, registry.Alive(s.ID()))
}

func watchedEnd(t *test) {
	a, b := t.handleA(), t.handleB()
	f := t.follow(b, "d")
	for _, end := range []func(registry.Session){
		func(s registry.Session) { require.NoError(t, s.Close(t.ctx)) },
		func(s registry.Session) { t.store.Expire(s.ID()) },
	} {
		s := t.openSession(a)
		t.createOwned(a, "d/~1", s)
		t.createOwned(a, "d/~2", s)
		f.converge(b)
		require.Len(t, f.has, 2)
		end(s)
		f.followUntil("the owned keys are gone", func() bool { return len(f.has) == 0 })
	}
}
