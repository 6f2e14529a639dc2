package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

var faultCases = []Case{
	{
		Code: "F01", Name: "a client whose connections are refused gets accurate errors and recovers",
		Proves: []Promise{UnreachableIsErrUnavailable, OutcomesAreTrue}, Needs: []string{Partition}, run: refusedConnections, Safety: true,
	},
	{
		Code: "F02", Name: "no call blocks forever on a silent server",
		Proves: []Promise{CallsEndWithTheirContext, CallsAreBounded}, Needs: []string{Partition}, run: blackHole, Safety: true,
	},
	{
		Code: "F05", Name: "a handle recovers after the store stalls",
		Proves: []Promise{UnreachableIsErrUnavailable, WatchOutlivesConnections}, Needs: []string{Stall}, run: stalled,
	},
	{
		Code: "F06", Name: "a transaction whose reply is lost has an unknown outcome and was sent once",
		Proves: []Promise{LostReplyIsUnknownOutcome, TxnIsSentOnce}, Needs: []string{LoseReply, LoseRequest}, run: lostReply, Safety: true,
	},
	{
		Code: "F07", Name: "a transaction that arrives late overwrites nothing newer",
		Proves: []Promise{LateTxnDoesNoHarm}, Needs: []string{HoldCommit}, run: heldCommit, Safety: true,
	},
	{
		Code: "F11", Name: "a session survives replies delayed by half its TTL",
		Proves: []Promise{SessionsAreRenewed, SafeUntilIsKept}, Needs: []string{Delay}, run: delayedReplies,
	},
	{
		Code: "F12", Name: "a session behind a one-way link is Lost before its keys vanish",
		Proves: []Promise{LostBeforeTheStoreActs, SilentSessionsExpire}, Needs: []string{Partition}, run: oneWay, Safety: true,
	},
	{
		Code: "F18", Name: "a process that cannot send renewals loses its session on its own clock",
		Proves: []Promise{SafeUntilIsKept, SessionCloseIsFinal}, Needs: []string{Starve}, run: starved,
	},
	{
		Code: "F19", Name: "every reported outcome is true under random faults",
		Proves: []Promise{OutcomesAreTrue}, Needs: []string{Partition, LoseReply, LoseRequest}, run: trueOutcomes, Safety: true,
	},
	{
		Code: "F20", Name: "Apply settles a transaction whose request or reply was lost",
		Proves: []Promise{TxnFalsifiesItself}, Needs: []string{LoseReply, LoseRequest}, run: applySettles, Safety: true,
	},
	{
		Code: "F10", Name: "a reader that stops for a minute blocks nothing and catches up to the last state",
		Proves: []Promise{LastStateArrives, SlowReaderBlocksNoWriter}, run: stoppedReader,
	},
	{
		Code: "F15", Name: "a full store rejects writes and new sessions with ErrQuota and serves the rest",
		Proves: []Promise{FullStoreIsErrQuota}, Needs: []string{FillQuota}, run: fullStore,
	},
	{
		Code: "F23", Name: "a full store accepts deletes of all kinds of keys",
		Proves: []Promise{DeletesNeedNoRoom}, Needs: []string{FillQuota}, run: fullStoreDeletes,
	},
	{
		Code: "F16", Name: "a client without permission gets ErrPermission until the permission returns",
		Proves: []Promise{ForbiddenIsErrPermission}, Needs: []string{Revoke}, run: revokedRights,
	},
	{
		Code: "F17", Name: "each of many sessions cut off together is Lost before its keys vanish",
		Proves: []Promise{LostBeforeTheStoreActs, SilentSessionsExpire}, Needs: []string{Partition}, run: cutOffTogether, Safety: true,
	},
	{
		Code: "F21", Name: "an unanswered open or close of a session leaves nothing behind",
		Proves: []Promise{CloseUnreachedLeavesExpiry, UnreachableIsErrUnavailable}, Needs: []string{Partition}, run: unansweredSession,
	},
}

// requireUnanswered fails the case unless err is a legal error of an unanswered Txn. It
// reports whether err guarantees that nothing changed.
func (t *test) requireUnanswered(err error) (notApplied bool) {
	t.Helper()
	require.NoError(t, checkUnanswered(err))
	return errors.Is(err, registry.ErrNotApplied)
}

// checkUnanswered returns an error unless err is a legal error of an unanswered Txn.
func checkUnanswered(err error) error {
	if errors.Is(err, registry.ErrUnknownOutcome) == errors.Is(err, registry.ErrNotApplied) {
		return fmt.Errorf("the error of an unanswered Txn must be either ErrNotApplied or ErrUnknownOutcome: %w", err)
	}
	return nil
}

// checkUnavailable returns an error unless err is a legal error of another unanswered
// call.
func checkUnavailable(err error) error {
	if !errors.Is(err, registry.ErrUnavailable) {
		return fmt.Errorf("the error of an unanswered call must be ErrUnavailable: %w", err)
	}
	return nil
}

func refusedConnections(t *test) {
	a, b := t.handleA(), t.handleB()
	t.create(b, "d/k", "v")
	heal := t.partition("a", Refuse)
	const short = 100 * time.Millisecond
	_, err := a.Get(t.within(short), "d/k", fresh)
	require.NoError(t, checkUnavailable(err), "Get")
	_, err = a.List(t.within(short), "d", fresh)
	require.NoError(t, checkUnavailable(err), "List")
	_, err = a.OpenSession(t.within(short), registry.SessionOptions{TTL: t.ttl})
	require.NoError(t, checkUnavailable(err), "OpenSession")
	ids := map[registry.Key]bool{}
	for i := range 3 {
		key := registry.Key(fmt.Sprintf("d/new%d", i))
		_, err = a.Txn(t.within(short), registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
		ids[key] = t.requireUnanswered(err)
	}
	heal()
	t.eventually(t.ttl, "the handle works again", func() error {
		_, err := a.Get(t.ctx, "d/k", fresh)
		return err
	})
	t.create(a, "d/after", "")
	for key, notApplied := range ids {
		if notApplied {
			t.assertAbsent(b, key)
		}
	}
}

// ownBound is the longest time that a backend may take for a call without a deadline.
const ownBound = 30 * time.Second

func blackHole(t *test) {
	a, b := t.handleA(), t.handleB()
	t.create(b, "d/k", "v")
	t.listFresh(a, "d")
	calls := []struct {
		name  string
		make  func(context.Context) error
		wrong func(error) error
	}{
		{"Get", func(ctx context.Context) error { _, err := a.Get(ctx, "d/k", fresh); return err }, checkUnavailable},
		{"List", func(ctx context.Context) error { _, err := a.List(ctx, "d", fresh); return err }, checkUnavailable},
		{"Txn", func(ctx context.Context) error {
			_, err := a.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create("d/new", nil)}})
			return err
		}, checkUnanswered},
		{"OpenSession", func(ctx context.Context) error {
			_, err := a.OpenSession(ctx, registry.SessionOptions{TTL: t.ttl})
			return err
		}, checkUnavailable},
	}
	watch := func(ctx context.Context) error { // Watch may succeed at once and leave the wait to Next
		w, err := a.Watch(ctx, "d", registry.WatchOptions{})
		if err == nil {
			return w.Close()
		}
		return checkUnavailable(err)
	}
	const short = 200 * time.Millisecond
	var heal func()
	for i, form := range contextForms {
		if i > 0 { // or the connection would break while a call waits, which is another reason for its error
			heal()
			t.awaitUsable(a)
		}
		heal = t.partition("a", Blackhole)
		for _, c := range calls {
			start := time.Now()
			ctx, cause := form.begin(t, short)
			err := c.make(ctx)
			require.Less(t, time.Since(start), t.withSlack(short), "%s outlasts its context", c.name)
			require.ErrorIs(t, err, cause, "%s, whose context ended by %s", c.name, form.name)
			require.NoError(t, c.wrong(err), c.name)
		}
	}
	start := time.Now()
	require.NoError(t, watch(t.within(short)))
	require.Less(t, time.Since(start), t.withSlack(short), "Watch outlasts its context")
	ended := make(chan error, len(calls)+1)
	t.spawn(func(ctx context.Context) error {
		ended <- watch(ctx)
		return nil
	})
	for _, c := range calls { // concurrently, since each may take long
		t.spawn(func(ctx context.Context) error {
			err := c.make(ctx)
			if ctx.Err() == nil {
				ended <- c.wrong(err)
			}
			return nil
		})
	}
	bound := time.After(ownBound)
	for range len(calls) + 1 {
		select {
		case problem := <-ended:
			require.NoError(t, problem)
		case <-bound:
			t.Fatalf("a call without a deadline still waits after %v", ownBound)
		}
	}
	heal()
	t.eventually(t.ttl, "the handle works again", func() error {
		_, err := a.Get(t.ctx, "d/k", fresh)
		return err
	})
}

func stalled(t *test) {
	a, b := t.handleA(), t.handleB()
	rev := t.create(a, "d/k", "before")
	f := t.follow(b, "d")
	f.converge(b)
	resume := t.store.Stall()
	t.Cleanup(resume)
	_, err := a.Get(t.within(200*time.Millisecond), "d/k", fresh)
	require.ErrorIs(t, err, registry.ErrUnavailable)
	_, err = a.Txn(t.within(200*time.Millisecond), registry.Txn{Then: []registry.Op{registry.Create("other/during", nil)}})
	t.requireUnanswered(err)
	resume()
	t.eventually(t.ttl, "the store is used again", func() error {
		_, err := b.Get(t.ctx, "d/k", fresh)
		return err
	})
	t.commitOps(a, registry.Set("d/k", rev, []byte("after")))
	f.awaitValue("d/k", "after")
	f.converge(b)
}

// lostReply loses requests and replies of every kind of operation. The outcome must be
// unknown, and the operation must be applied once, or not at all if its request was lost.
func lostReply(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	for _, applied := range []bool{true, false} {
		lose, dir := t.store.LoseReply, registry.Key("reply")
		if !applied {
			lose, dir = t.store.LoseRequest, "request"
		}
		made := t.commitOps(a, registry.Create(dir.Join("set"), []byte("old")), registry.Create(dir.Join("del"), []byte("old")))
		for _, op := range []registry.Op{
			registry.Create(dir.Join("new"), []byte("once")),
			registry.CreateOwned(dir.Join("~own"), []byte("once"), s.ID()),
			registry.Set(dir.Join("set"), made, []byte("once")),
			registry.Delete(dir.Join("del"), made),
		} {
			x := registry.Txn{ID: registry.NewTxnID(), Then: []registry.Op{op}}
			t.awaitUsable(a)
			lose("a")
			_, err := a.Txn(t.within(time.Second), x)
			require.ErrorIs(t, err, registry.ErrUnknownOutcome, "%v", op)
			require.NotErrorIs(t, err, registry.ErrNotApplied, "%v", op)
			require.NotErrorIs(t, err, registry.ErrConflict, "%v was sent twice", op)
			t.settle(50 * time.Millisecond) // time for a forbidden second attempt
			e, err := b.Get(t.ctx, op.Key, fresh)
			there := op.Kind == registry.OpSet || op.Kind == registry.OpDelete // created before
			if applied {
				there = op.Kind != registry.OpDelete
			}
			if !there {
				require.ErrorIs(t, err, registry.ErrNotFound, "%v", op)
				continue
			}
			require.NoError(t, err, "%v", op)
			if applied {
				require.Equal(t, x.ID, e.Txn, "%v", op)
			} else {
				require.Equal(t, made, e.Modified, "%v must not be applied", op)
			}
		}
	}
}

// heldCommit delivers transactions late: after a newer write, after the same transaction was sent
// again, and with nothing before them, which shows that they arrive.
func heldCommit(t *test) {
	a, b := t.handleA(), t.handleB()
	for _, before := range []string{"newer", "same", "nothing"} {
		dir := registry.Key(before)
		made := t.commitOps(b, registry.Create(dir.Join("set"), []byte("old")), registry.Create(dir.Join("del"), []byte("old")))
		for _, op := range []registry.Op{
			registry.Create(dir.Join("new"), []byte("late")),
			registry.Set(dir.Join("set"), made, []byte("late")),
			registry.Delete(dir.Join("del"), made),
		} {
			x := registry.Txn{ID: registry.NewTxnID(), Then: []registry.Op{op}}
			t.awaitUsable(a)
			release := t.store.HoldCommit("a")
			t.Cleanup(release)
			_, err := a.Txn(t.within(200*time.Millisecond), x)
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
			switch before {
			case "newer":
				overtake(t, b, op)
			case "same":
				t.commit(b, x)
			case "nothing":
				release()
				t.eventually(t.ttl, "the late transaction is applied", func() error { return t.checkApplied(b, x.ID, op) })
				continue
			}
			entries := t.listFresh(b, dir)
			release()
			t.settle(50 * time.Millisecond)
			require.Equal(t, entries, t.listFresh(b, dir), "after %v arrived late", op)
		}
	}
}

// checkApplied returns an error unless op was the last change of its key, by transaction id.
func (t *test) checkApplied(r registry.Registry, id registry.TxnID, op registry.Op) error {
	if op.Kind == registry.OpDelete {
		return t.checkAbsent(r, op.Key)
	}
	e, err := r.Get(t.ctx, op.Key, fresh)
	if err == nil && e.Txn != id {
		err = fmt.Errorf("%v is not applied", op)
	}
	return err
}

// overtake changes the key of op so that op conflicts.
func overtake(t *test, r registry.Registry, op registry.Op) {
	t.Helper()
	if op.Kind == registry.OpCreate {
		t.create(r, op.Key, "newer")
		return
	}
	rev := t.commitOps(r, registry.Set(op.Key, op.Rev, []byte("newer")))
	t.commitOps(r, registry.Delete(op.Key, rev))
	t.create(r, op.Key, "made again")
}

func delayedReplies(t *test) {
	a := t.handleA()
	t.unlessSlow(recovery/20, func() error {
		s, err := a.OpenSession(t.ctx, registry.SessionOptions{TTL: recovery}) // leaves a sixth of the TTL after the delay
		require.NoError(t, err, "open a session")
		key := registry.Key("~" + string(s.ID()))
		rev := t.createOwned(a, key, s)
		restore := t.store.Delay("a", s.TTL()/2)
		t.Cleanup(restore)
		err = t.observeLife(s, 3*s.TTL()/2)
		restore()
		if err != nil {
			return err
		}
		t.eventually(s.TTL(), "the session is connected", func() error { return inState(s, registry.SessionConnected) })
		t.assertHolds(t.handleB(), registry.Alive(s.ID()), registry.At(key, rev))
		return nil
	})
}

// observeLife returns an error if a session ends, or passes its safe-until, within d.
func (t *test) observeLife(s registry.Session, d time.Duration) error {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		t.sleep(s.TTL() / 10)
		now := time.Now()
		state, until := s.State()
		switch {
		case state != registry.SessionConnected && state != registry.SessionSuspended:
			return fmt.Errorf("the session is %v", state)
		case !now.Before(until):
			return fmt.Errorf("the session is %v %v past its safe-until", state, now.Sub(until))
		}
	}
	return nil
}

func oneWay(t *test) {
	all := t.cutSessions(2, 2)
	f := t.follow(t.handleB(), "d")
	f.converge(t.handleB())
	t.partition(all[0].machine, ToStore)
	t.partition(all[1].machine, FromStore) // renewals reach the store until the owner gives up
	f.assertLostFirst(all, 3*all[0].session.TTL())
	for _, c := range all {
		t.assertHolds(t.handleB(), registry.Dead(c.session.ID()))
		require.ErrorIs(t, c.session.Err(), registry.ErrSessionLost)
	}
}

func starved(t *test) {
	a := t.handleA()
	s := t.openSession(a)
	t.createOwned(a, "d/~k", s)
	f := t.follow(t.handleB(), "d")
	f.converge(t.handleB())
	feed := t.store.Starve("a")
	t.Cleanup(feed)
	t.getFresh(a, "d/~k") // other calls succeed
	f.followUntil("the key is gone", func() bool { return len(f.has) == 0 })
	require.NoError(t, inState(s, registry.SessionLost), "the state when its key is gone")
	feed()
	t.sleep(s.TTL() / 2)
	require.NoError(t, inState(s, registry.SessionLost))
	t.assertHolds(t.handleB(), registry.Dead(s.ID()))

	s = t.openSession(a)
	feed = t.store.Starve("a")
	t.Cleanup(feed)
	<-s.Lost()
	require.NoError(t, s.Close(t.ctx))
	t.assertHolds(t.handleB(), registry.Dead(s.ID())) // not only when its TTL has run out
}

// trueOutcomes sends transactions under random faults and compares each reported outcome
// with a read by another handle.
func trueOutcomes(t *test) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	a, b := t.handleA(), t.handleB()
	results := map[registry.Key]error{}
	count := map[string]int{}
	for i := range t.repeats(300, 40) {
		key := registry.Key(fmt.Sprintf("d%d/k%03d", i%10, i))
		heal := func() {}
		switch random.IntN(7) {
		case 0:
			t.store.LoseReply("a")
		case 1:
			t.store.LoseRequest("a")
		case 2:
			heal = t.partition("a", Refuse)
		case 3:
			heal = t.partition("a", FromStore)
		case 4:
			heal = t.partition("a", ToStore)
		}
		ctx, cancel := context.WithTimeout(t.ctx, 50*time.Millisecond)
		_, err := a.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
		cancel()
		results[key] = err
		heal()
		if err == nil {
			count["applied"]++
		} else if t.requireUnanswered(err) {
			count["not applied"]++
		} else {
			count["unknown"]++
		}
		t.eventually(t.ttl, "the handle works again", func() error { // and uses up a pending loss
			_, err := a.Txn(t.within(time.Second), registry.Txn{If: []registry.Cond{registry.Absent("none")}})
			return err
		})
	}
	t.Logf("seed %d: %v", seed, count)
	for key, err := range results {
		_, found := b.Get(t.ctx, key, fresh)
		switch {
		case err == nil:
			require.NoError(t, found, "%s was reported as applied", key)
		case errors.Is(err, registry.ErrNotApplied):
			require.ErrorIs(t, found, registry.ErrNotFound, "%s was reported as not applied: %v", key, err)
		}
	}
	require.NotZero(t, count["applied"])
	require.NotZero(t, count["unknown"])
}

func applySettles(t *test) {
	a, b := t.handleA(), t.handleB()
	for _, lose := range []func(string){t.store.LoseReply, t.store.LoseRequest} {
		created := registry.Txn{ID: registry.NewTxnID(), Then: []registry.Op{registry.Create("k", []byte("1"))}}
		lose("a")
		rev, err := registry.Apply(t.within(10*time.Second), a, created)
		require.NoError(t, err)
		e := t.getFresh(b, "k")
		require.Equal(t, rev, e.Modified, "Modified is the Rev that Apply returned")
		require.Equal(t, e.Created, e.Modified)
		require.Equal(t, created.ID, e.Txn)

		lose("a")
		next, err := registry.Apply(t.within(10*time.Second), a, registry.Txn{Then: []registry.Op{registry.Set("k", rev, []byte("2"))}})
		require.NoError(t, err)
		require.Equal(t, next, t.getFresh(b, "k").Modified)

		lose("a")
		_, err = registry.Apply(t.within(10*time.Second), a, registry.Txn{Then: []registry.Op{registry.Set("k", rev, []byte("stale"))}})
		require.ErrorIs(t, err, registry.ErrConflict, "Apply of a stale transaction")
		require.Equal(t, "2", string(t.getFresh(b, "k").Value))

		lose("a")
		_, err = registry.Apply(t.within(10*time.Second), a, registry.Txn{Then: []registry.Op{registry.Delete("k", next)}})
		require.NoError(t, err)
		t.assertAbsent(b, "k")
	}
}

func stoppedReader(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(b)
	stopped, reads := t.follow(b, "d"), t.follow(b, "d")
	revs := map[registry.Key]registry.Rev{}
	rounds := t.repeats(600, 60)
	round := time.Minute / time.Duration(rounds)
	if !t.bubble {
		round = 2 * s.TTL() / time.Duration(rounds)
	}
	for i := range rounds {
		key := registry.Key(fmt.Sprintf("d/k%d", i%7))
		value := strconv.Itoa(i)
		switch rev, there := revs[key]; {
		case !there:
			revs[key] = t.create(a, key, value)
		case i%5 == 0:
			t.commitOps(a, registry.Delete(key, rev))
			delete(revs, key)
		default:
			revs[key] = t.commitOps(a, registry.Set(key, rev, []byte(value)))
		}
		t.sleep(round)
		if i%10 == 0 {
			reads.converge(a) // other watchers receive events meanwhile
		}
	}
	require.NoError(t, inState(s, registry.SessionConnected), "renewals continue")
	stopped.converge(a)
	t.create(a, "d/after", "v")
	stopped.awaitValue("d/after", "v")
}

func fullStore(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	rev := t.create(a, "d/k", "before")
	t.createOwned(a, "d/~k", s)
	f := t.follow(b, "d")
	before := t.listFresh(b, "d")
	free := t.store.FillQuota()
	t.Cleanup(free)
	for range 2 { // a retry fails too
		for _, op := range []registry.Op{
			registry.Create("d/new", []byte("more")),
			registry.Set("d/k", rev, []byte("more")),
			registry.CreateOwned("d/~new", []byte("more"), s.ID()),
		} {
			_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{op}})
			require.ErrorIs(t, err, registry.ErrQuota, "%v", op)
			require.False(t, wrapsPassing(err), "%v: %v", op, err)
		}
		_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Delete("d/k", rev), registry.Create("d/new", []byte("more"))}})
		require.ErrorIs(t, err, registry.ErrQuota, "a transaction that also deletes")
		_, err = a.OpenSession(t.ctx, registry.SessionOptions{TTL: t.ttl})
		require.ErrorIs(t, err, registry.ErrQuota, "OpenSession")
		require.False(t, wrapsPassing(err), "OpenSession: %v", err)
	}
	t.sleep(s.TTL() + s.TTL()/2)
	require.NoError(t, inState(s, registry.SessionConnected), "sessions are renewed")
	t.assertHolds(b, registry.Alive(s.ID()), registry.At("d/k", rev))
	require.Equal(t, before, t.listFresh(b, "d"), "the entries while the store is full")
	free()
	t.eventually(t.ttl, "there is room again", func() error {
		next, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Set("d/k", rev, []byte("after"))}})
		if err == nil {
			rev = next
		}
		return err
	})
	f.converge(a)
	require.NoError(t, t.openSession(a).Close(t.ctx))
}

func fullStoreDeletes(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	revs := map[registry.Key]registry.Rev{
		"d/empty":  t.create(a, "d/empty", ""),
		"d/large":  t.create(a, "d/large", string(make([]byte, 100<<10))),
		"d/parent": t.create(a, "d/parent", "v"),
		"d/~k":     t.createOwned(a, "d/~k", s),
		"d/~alone": t.createOwned(a, "d/~alone", s),
	}
	child := t.create(a, "d/parent/child", "v")
	f := t.follow(b, "d")
	free := t.store.FillQuota()
	t.Cleanup(free)
	_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Create("d/new", nil)}})
	require.ErrorIs(t, err, registry.ErrQuota)
	for _, key := range []registry.Key{"d/empty", "d/large", "d/~alone"} {
		t.commitOps(a, registry.Delete(key, revs[key]))
	}
	t.commit(b, registry.Txn{ // several at once, by a handle that has to read first
		If: []registry.Cond{registry.Alive(s.ID()), registry.At("d/parent/child", child)},
		Then: []registry.Op{
			registry.Delete("d/parent", revs["d/parent"]),
			registry.Delete("d/~k", revs["d/~k"]),
		},
	})
	require.Empty(t, t.listFresh(b, "d"))
	f.converge(a)
	free()
	t.eventually(t.ttl, "a deleted key is re-created", func() error {
		_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Create("d/empty", []byte("again"))}})
		return err
	})
	require.Equal(t, "again", string(t.getFresh(b, "d/empty").Value))
	t.commit(a, registry.Txn{If: []registry.Cond{registry.Absent("d/large")}})
	f.converge(a)
}

// wrapsPassing reports whether err wraps an error that passes by itself. Retryable does not count one that also wraps one that
// lasts, but a caller who asks errors.Is would retry.
func wrapsPassing(err error) bool {
	return errors.Is(err, registry.ErrUnavailable) || errors.Is(err, registry.ErrNotApplied) || errors.Is(err, registry.ErrUnknownOutcome)
}

// checkDenied returns an error unless err is a legal error of a call without permission.
func checkDenied(err error) error {
	switch {
	case err == nil:
		return errors.New("a call without permission succeeded")
	case !errors.Is(err, registry.ErrPermission) && !errors.Is(err, registry.ErrUnauthenticated):
		return fmt.Errorf("the error of a call without permission must be ErrPermission: %w", err)
	case wrapsPassing(err):
		return fmt.Errorf("the error of a call without permission must not be retryable: %w", err)
	}
	return nil
}

func revokedRights(t *test) {
	a, b := t.handleA(), t.handleB()
	rev := t.create(b, "d/k", "before")
	old := t.follow(a, "d")
	old.converge(b)
	restore := t.injectFault(t.store.Revoke, "a")
	_, err := a.Get(t.ctx, "d/k", registry.ReadOptions{})
	require.NoError(t, checkDenied(err), "Get")
	_, err = a.Get(t.ctx, "d/k", fresh)
	require.NoError(t, checkDenied(err), "a fresh Get")
	_, err = a.List(t.ctx, "d", fresh)
	require.NoError(t, checkDenied(err), "List")
	_, err = a.OpenSession(t.ctx, registry.SessionOptions{TTL: t.ttl})
	require.NoError(t, checkDenied(err), "OpenSession")
	for _, op := range []registry.Op{
		registry.Create("d/new", nil), registry.Set("d/k", rev, []byte("forbidden")), registry.Delete("d/k", rev),
	} {
		_, err = a.Txn(t.ctx, registry.Txn{Then: []registry.Op{op}})
		require.NoError(t, checkDenied(err), "%v", op)
	}
	require.NoError(t, checkDenied(watchOnce(t, a, "d")), "Watch, or the first Next")
	t.assertAbsent(b, "d/new")
	rev = t.commitOps(b, registry.Set("d/k", rev, []byte("by another"))) // conflicts if a has written

	restore()
	t.eventually(t.ttl, "the permission is restored", func() error {
		_, err := a.Get(t.ctx, "d/k", fresh)
		return err
	})
	t.commitOps(a, registry.Set("d/k", rev, []byte("after")))
	t.follow(a, "d").converge(b)
	want := t.listFresh(b, "d")
	for ctx := t.within(t.ttl + slack); !old.equals(want); {
		if _, err := old.receive(ctx); err != nil { // otherwise it continues
			require.NoError(t, checkDenied(err), "the error of a watcher that ended")
			break
		}
	}
}

// watchOnce opens a watch and receives its first batch.
func watchOnce(t *test, r registry.Registry, dir registry.Key) error {
	w, err := r.Watch(t.ctx, dir, registry.WatchOptions{})
	if err != nil {
		return err
	}
	defer w.Close()
	_, err = w.Next(t.within(t.ttl))
	return err
}

func cutOffTogether(t *test) {
	const sessions, machines = 64, 8
	all := t.cutSessions(sessions, machines)
	f := t.follow(t.handleB(), "d")
	f.converge(t.handleB())
	for i := range machines {
		t.partition(all[i].machine, []Cut{Blackhole, Refuse}[i%2])
	}
	f.assertLostFirst(all, all[0].session.TTL())
	for _, c := range all {
		t.assertHolds(t.handleB(), registry.Dead(c.session.ID()))
	}
	next := t.openSession(t.handleB())
	t.createOwned(t.handleB(), all[0].key, next)
}

func unansweredSession(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	t.createOwned(a, "~k", s)
	heal := t.partition("a", FromStore)
	_, err := a.OpenSession(t.within(200*time.Millisecond), registry.SessionOptions{TTL: t.ttl})
	require.ErrorIs(t, err, registry.ErrUnavailable)
	_ = s.Close(t.within(200 * time.Millisecond)) // the request arrives, or the TTL expires
	require.NoError(t, inState(s, registry.SessionClosed))
	t.eventually(s.TTL(), "the key of the closed session vanishes", func() error { return t.checkAbsent(b, "~k") })
	heal()
	t.eventually(t.ttl, "a session can be opened", func() error {
		next, err := a.OpenSession(t.within(time.Second), registry.SessionOptions{TTL: t.ttl})
		if err != nil {
			return err
		}
		t.createOwned(a, "~k", next)
		return nil
	})
	require.NoError(t, inState(s, registry.SessionClosed))
}
