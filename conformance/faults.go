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
		Code: "F01", Name: "a refused client gets errors that say what is known, and recovers",
		Proves: []Promise{UnavailableIsSaid, OutcomesAreTrue}, Needs: []string{Partition}, run: refusedConnections, Safety: true,
	},
	{
		Code: "F02", Name: "no call waits for ever on a silent server",
		Proves: []Promise{CallsEndWithTheirContext, CallsAreBounded}, Needs: []string{Partition}, run: blackHole, Safety: true,
	},
	{
		Code: "F05", Name: "a store that answers nobody for a while is used again after it",
		Proves: []Promise{UnavailableIsSaid, WatchOutlivesConnections}, Needs: []string{Stall}, run: stalled,
	},
	{
		Code: "F06", Name: "a transaction whose reply is lost has an unknown outcome and was sent once",
		Proves: []Promise{UnknownOutcomeIsSaid, TxnIsSentOnce}, Needs: []string{LoseReply, LoseRequest}, run: lostReply, Safety: true,
	},
	{
		Code: "F07", Name: "a transaction that arrives late overwrites nothing newer",
		Proves: []Promise{LateTxnDoesNoHarm}, Needs: []string{HoldCommit}, run: heldCommit, Safety: true,
	},
	{
		Code: "F11", Name: "replies that take half a TTL cost no session",
		Proves: []Promise{SessionsAreRenewed, SafeUntilIsKept}, Needs: []string{Delay}, run: delayedReplies,
	},
	{
		Code: "F12", Name: "a link that works one way only loses sessions in time",
		Proves: []Promise{LostBeforeTheStoreActs, SilentSessionsExpire}, Needs: []string{Partition}, run: oneWay, Safety: true,
	},
	{
		Code: "F18", Name: "a process that does not come to renew loses its session on its own clock",
		Proves: []Promise{SafeUntilIsKept}, Needs: []string{Starve}, run: starved,
	},
	{
		Code: "F19", Name: "under random faults every outcome that is reported is the true one",
		Proves: []Promise{OutcomesAreTrue}, Needs: []string{Partition, LoseReply, LoseRequest}, run: trueOutcomes, Safety: true,
	},
	{
		Code: "F20", Name: "Apply settles a transaction whose request or reply was lost",
		Proves: []Promise{TxnFalsifiesItself}, Needs: []string{LoseReply, LoseRequest}, run: applySettles, Safety: true,
	},
	{
		Code: "F10", Name: "a reader that stops for a minute holds up nobody and finds the last state",
		Proves: []Promise{LastStateArrives, SlowReaderBlocksNoWriter}, run: stoppedReader,
	},
	{
		Code: "F15", Name: "a full store refuses what it cannot store, and nothing else",
		Proves: []Promise{QuotaIsSaid}, Needs: []string{FillQuota}, run: fullStore,
	},
	{
		Code: "F23", Name: "a full store takes deletes, of keys of all kinds",
		Proves: []Promise{DeletesNeedNoRoom}, Needs: []string{FillQuota}, run: fullStoreDeletes,
	},
	{
		Code: "F16", Name: "a client whose rights are taken away is told so, until it has them again",
		Proves: []Promise{PermissionIsSaid}, Needs: []string{Revoke}, run: revokedRights,
	},
	{
		Code: "F17", Name: "of many sessions that die together each is Lost before its keys go",
		Proves: []Promise{LostBeforeTheStoreActs, SilentSessionsExpire}, Needs: []string{Partition}, run: dieTogether, Safety: true,
	},
	{
		Code: "F21", Name: "a session whose opening or closing was not answered leaves nothing behind",
		Proves: []Promise{CloseUnreachedLeavesExpiry}, Needs: []string{Partition}, run: unansweredSession,
	},
}

// requireUnanswered fails the case unless err is one that a Txn may return when the store did not
// answer, and reports whether it claims that nothing was changed.
func (t *test) requireUnanswered(err error) (notApplied bool) {
	t.Helper()
	require.NoError(t, checkUnanswered(err))
	return errors.Is(err, registry.ErrNotApplied)
}

// checkUnanswered returns what is wrong with the error of a Txn that the store did not answer.
func checkUnanswered(err error) error {
	if errors.Is(err, registry.ErrUnknownOutcome) == errors.Is(err, registry.ErrNotApplied) {
		return fmt.Errorf("a Txn that the store did not answer is ErrNotApplied or ErrUnknownOutcome, and not both: %w", err)
	}
	return nil
}

// checkUnavailable does the same for other calls.
func checkUnavailable(err error) error {
	if !errors.Is(err, registry.ErrUnavailable) {
		return fmt.Errorf("a call that the store did not answer is ErrUnavailable: %w", err)
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

// ownBound is how long a call may take that nobody bounds but the backend.
const ownBound = 30 * time.Second

func blackHole(t *test) {
	a, b := t.handleA(), t.handleB()
	t.create(b, "d/k", "v")
	t.listFresh(a, "d")
	heal := t.partition("a", Blackhole)
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
	watch := func(ctx context.Context) error { // it may leave to Next what takes time
		w, err := a.Watch(ctx, "d", registry.WatchOptions{})
		if err == nil {
			return w.Close()
		}
		return checkUnavailable(err)
	}
	const short = 200 * time.Millisecond
	for _, c := range calls {
		start := time.Now()
		err := c.make(t.within(short))
		require.Less(t, time.Since(start), t.withSlack(short), "%s ends with its context", c.name)
		require.ErrorIs(t, err, context.DeadlineExceeded, "%s keeps the cause", c.name)
		require.NoError(t, c.wrong(err), c.name)
	}
	start := time.Now()
	require.NoError(t, watch(t.within(short)))
	require.Less(t, time.Since(start), t.withSlack(short), "Watch ends with its context")
	ended := make(chan error, len(calls)+1)
	t.spawn(func(ctx context.Context) error {
		ended <- watch(ctx)
		return nil
	})
	for _, c := range calls { // at once, because each may wait for long
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

// lostReply loses requests and replies of every kind of operation. What comes back is
// that the outcome is unknown; what was done is what was asked for, once.
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
			require.NotErrorIs(t, err, registry.ErrConflict, "%v: it was sent once", op)
			t.settle(50 * time.Millisecond) // for one that is sent again, against the rule
			e, err := b.Get(t.ctx, op.Key, fresh)
			there := op.Kind == registry.OpSet || op.Kind == registry.OpDelete // it was made before
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
				require.Equal(t, made, e.Modified, "%v was lost on its way", op)
			}
		}
	}
}

func heldCommit(t *test) {
	a, b := t.handleA(), t.handleB()
	for _, newer := range []bool{false, true} { // whether another writes before it arrives
		dir := registry.Key(fmt.Sprintf("newer-%v", newer))
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
			if newer {
				overtake(t, b, op)
			} else { // the same transaction, sent again, comes first
				t.commit(b, x)
			}
			before := t.listFresh(b, dir)
			release()
			t.settle(50 * time.Millisecond)
			require.Equal(t, before, t.listFresh(b, dir), "after %v arrived late", op)
		}
	}
}

// overtake makes op impossible: its key gets a newer state.
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
	s, err := a.OpenSession(t.ctx, registry.SessionOptions{TTL: recovery}) // a sixth is left between delay and end
	require.NoError(t, err, "open a session")
	rev := t.createOwned(a, "~k", s)
	restore := t.store.Delay("a", s.TTL()/2)
	t.Cleanup(restore)
	for range 15 {
		t.sleep(s.TTL() / 10)
		require.NoError(t, inState(s, registry.SessionConnected, registry.SessionSuspended))
		_, until := s.State()
		require.True(t, time.Now().Before(until), "it is safe all the time")
	}
	restore()
	t.eventually(s.TTL(), "the session is connected", func() error { return inState(s, registry.SessionConnected) })
	t.assertHolds(t.handleB(), registry.Alive(s.ID()), registry.At("~k", rev))
}

func oneWay(t *test) {
	all := t.cutSessions(2, 2)
	f := t.follow(t.handleB(), "d")
	f.converge(t.handleB())
	t.partition(all[0].machine, ToStore)
	t.partition(all[1].machine, FromStore) // the store hears of it until its owner gives up
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
	t.getFresh(a, "d/~k") // calls go through
	f.followUntil("the key is gone", func() bool { return len(f.has) == 0 })
	require.NoError(t, inState(s, registry.SessionLost), "before its key was gone")
	feed()
	t.sleep(s.TTL() / 2)
	require.NoError(t, inState(s, registry.SessionLost))
	t.assertHolds(t.handleB(), registry.Dead(s.ID()))
}

// trueOutcomes sends transactions through random faults, and compares what was said of
// each with what another handle finds.
func trueOutcomes(t *test) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	a, b := t.handleA(), t.handleB()
	said := map[registry.Key]error{}
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
		said[key] = err
		heal()
		if err == nil {
			count["applied"]++
		} else if t.requireUnanswered(err) {
			count["not applied"]++
		} else {
			count["unknown"]++
		}
		t.eventually(t.ttl, "the handle works again", func() error { // and lost replies are used up
			_, err := a.Txn(t.within(time.Second), registry.Txn{If: []registry.Cond{registry.Absent("none")}})
			return err
		})
	}
	t.Logf("seed %d: %v", seed, count)
	for key, err := range said {
		_, found := b.Get(t.ctx, key, fresh)
		switch {
		case err == nil:
			require.NoError(t, found, "%s was said to be applied", key)
		case errors.Is(err, registry.ErrNotApplied):
			require.ErrorIs(t, found, registry.ErrNotFound, "%s was said not to be applied: %v", key, err)
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
		require.Equal(t, rev, e.Modified, "the only write is the one that Apply tells of")
		require.Equal(t, e.Created, e.Modified)
		require.Equal(t, created.ID, e.Txn)

		lose("a")
		next, err := registry.Apply(t.within(10*time.Second), a, registry.Txn{Then: []registry.Op{registry.Set("k", rev, []byte("2"))}})
		require.NoError(t, err)
		require.Equal(t, next, t.getFresh(b, "k").Modified)

		lose("a")
		_, err = registry.Apply(t.within(10*time.Second), a, registry.Txn{Then: []registry.Op{registry.Set("k", rev, []byte("stale"))}})
		require.ErrorIs(t, err, registry.ErrConflict, "what cannot be applied is not said to be")
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
	stopped.next()
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
			reads.converge(a) // others are told all the while
		}
	}
	require.NoError(t, inState(s, registry.SessionConnected), "nor does it hold up renewals")
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
	for range 2 { // trying again is of no use
		for _, op := range []registry.Op{
			registry.Create("d/new", []byte("more")),
			registry.Set("d/k", rev, []byte("more")),
			registry.CreateOwned("d/~new", []byte("more"), s.ID()),
		} {
			_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{op}})
			require.ErrorIs(t, err, registry.ErrQuota, "%v", op)
			require.False(t, registry.Retryable(err), "%v: %v", op, err)
		}
		_, err := a.OpenSession(t.ctx, registry.SessionOptions{TTL: t.ttl})
		require.ErrorIs(t, err, registry.ErrQuota, "OpenSession")
		require.False(t, registry.Retryable(err), "OpenSession: %v", err)
	}
	t.sleep(s.TTL() + s.TTL()/2)
	require.NoError(t, inState(s, registry.SessionConnected), "sessions are renewed")
	t.assertHolds(b, registry.Alive(s.ID()), registry.At("d/k", rev))
	require.Equal(t, before, t.listFresh(b, "d"), "nothing was changed")
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
		"d/large":  t.create(a, "d/large", string(make([]byte, 10_000))),
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
	t.commit(b, registry.Txn{ // by a handle that has to read first, and several at once
		If: []registry.Cond{registry.Alive(s.ID()), registry.At("d/parent/child", child)},
		Then: []registry.Op{
			registry.Delete("d/parent", revs["d/parent"]),
			registry.Delete("d/~k", revs["d/~k"]),
		},
	})
	require.Empty(t, t.listFresh(b, "d"))
	f.converge(a)
	free()
	t.eventually(t.ttl, "a key is made again", func() error {
		_, err := a.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Create("d/empty", []byte("again"))}})
		return err
	})
	require.Equal(t, "again", string(t.getFresh(b, "d/empty").Value))
	t.commit(a, registry.Txn{If: []registry.Cond{registry.Absent("d/large")}})
	f.converge(a)
}

// checkDenied returns what is wrong with the error of a call without the right to make it.
func checkDenied(err error) error {
	switch {
	case err == nil:
		return errors.New("a call was allowed without the right to make it")
	case !errors.Is(err, registry.ErrPermission) && !errors.Is(err, registry.ErrUnauthenticated):
		return fmt.Errorf("a call that is not allowed is ErrPermission: %w", err)
	case registry.Retryable(err):
		return fmt.Errorf("a call that is not allowed is not to be made again: %w", err)
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
	rev = t.commitOps(b, registry.Set("d/k", rev, []byte("by another"))) // which fails if a has written

	restore()
	t.eventually(t.ttl, "the rights are back", func() error {
		_, err := a.Get(t.ctx, "d/k", fresh)
		return err
	})
	t.commitOps(a, registry.Set("d/k", rev, []byte("after")))
	t.follow(a, "d").converge(b)
	want := t.listFresh(b, "d")
	for ctx := t.within(t.ttl + slack); !old.equals(want); {
		if _, err := old.receive(ctx); err != nil { // else it goes on as if nothing had been
			require.NoError(t, checkDenied(err), "a watcher that does not go on")
			break
		}
	}
}

// watchOnce begins a watch and takes its first batch.
func watchOnce(t *test, r registry.Registry, dir registry.Key) error {
	w, err := r.Watch(t.ctx, dir, registry.WatchOptions{})
	if err != nil {
		return err
	}
	defer w.Close()
	_, err = w.Next(t.within(t.ttl))
	return err
}

func dieTogether(t *test) {
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
	_ = s.Close(t.within(200 * time.Millisecond)) // the store hears of it, or the TTL runs out
	require.NoError(t, inState(s, registry.SessionClosed))
	t.eventually(s.TTL(), "the key of the closed session goes", func() error { return t.checkAbsent(b, "~k") })
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
