package conformance

import (
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// The cases of this group need a store with several members or an address of its own:
// members fail, are cut off, are replaced and move.
var memberCases = []Case{
	{
		Code: "F03", Name: "a member that accepts connections but never answers is skipped",
		Proves: []Promise{SilentMembersAreSkipped}, Needs: []string{HalfOpen}, run: halfOpenMember,
	},
	{
		Code: "F04", Name: "a client of an isolated member loses its session in time and gets no stale fresh reads",
		Proves: []Promise{LostBeforeTheStoreActs, FreshReadsSeeAll}, Needs: []string{Isolate}, run: isolatedMember, Safety: true,
	},
	{
		Code: "W11", Name: "a watcher connected to an isolated member catches up",
		Proves: []Promise{WatchOutlivesConnections}, Needs: []string{Isolate}, run: isolatedWatcher,
	},
	{
		Code: "F28", Name: "plain reads at an isolated member never go back in time and see the handle's own writes",
		Proves: []Promise{PlainReadsNeverGoBack, ReadYourWrites}, Needs: []string{Isolate}, run: isolatedReader,
	},
	{
		Code: "S19", Name: "sessions survive a change of leader",
		Proves: []Promise{SessionsAreRenewed}, Needs: []string{KillLeader}, run: leaderChange,
	},
	{
		Code: "F08", Name: "commits survive the leader's crash, and the remaining members serve",
		Proves: []Promise{OutcomesAreTrue}, Needs: []string{KillLeader}, run: leaderKilled, Safety: true,
	},
	{
		Code: "F22", Name: "a paused leader undoes nothing when it resumes",
		Proves: []Promise{OutcomesAreTrue, LostBeforeTheStoreActs}, Needs: []string{PauseLeader}, run: leaderPaused, Safety: true,
	},
	{
		Code: "F09", Name: "a rolling restart loses no commit, no session and no event",
		Proves: []Promise{OutcomesAreTrue, SessionsAreRenewed, PlainReadsNeverGoBack, WatchOutlivesConnections}, Needs: []string{RollingRestart}, run: rollingRestart,
	},
	{
		Code: "F13", Name: "replacing a member with an empty one is invisible to clients",
		Proves: []Promise{OutcomesAreTrue, PlainReadsNeverGoBack}, Needs: []string{Replace}, run: replacedMember,
	},
	{
		Code: "F14", Name: "a store that moves to a new address is found again",
		Proves: []Promise{SuspendedComesBack, WatchOutlivesConnections}, Needs: []string{Move}, run: movedStore,
	},
}

// recovery bounds an election and the reconnection to the new leader.
const recovery = registry.DefaultSessionTTL

// longSession opens a session that outlasts an election.
func (t *test) longSession(r registry.Registry) registry.Session {
	t.Helper()
	s, err := r.OpenSession(t.ctx, registry.SessionOptions{TTL: 2 * recovery})
	if err != nil {
		s, err = r.OpenSession(t.ctx, registry.SessionOptions{TTL: recovery}) // the store may limit the TTL
	}
	require.NoError(t, err, "open a session")
	return s
}

// awaitUsable waits until r commits again.
func (t *test) awaitUsable(r registry.Registry) {
	t.Helper()
	t.eventually(recovery, "the handle works again", func() error {
		_, err := r.Txn(t.within(time.Second), registry.Txn{If: []registry.Cond{registry.Absent("none")}})
		return err
	})
}

// setApplied writes key, which is at rev, and retries through faults of the store.
func (t *test) setApplied(r registry.Registry, key registry.Key, rev registry.Rev, value string) registry.Rev {
	t.Helper()
	rev, err := registry.Apply(t.within(t.withSlack(recovery)), r, registry.Txn{
		ID:   registry.NewTxnID(),
		Then: []registry.Op{registry.Set(key, rev, []byte(value))},
	})
	require.NoError(t, err, "set %s", key)
	return rev
}

// injectFault calls a fault control on a machine and ends the fault by the end of the
// case.
func (t *test) injectFault(control func(string) func(), machine string) (undo func()) {
	t.Helper()
	undo = control(machine)
	t.Cleanup(undo)
	return undo
}

func halfOpenMember(t *test) {
	t.create(t.handleB(), "k", "v")
	t.injectFault(t.store.HalfOpen, "a")
	a := t.handleA()
	t.eventually(t.ttl/3, "another member answers", func() error {
		_, err := a.Get(t.within(t.ttl), "k", fresh)
		return err
	})
	s := t.openSession(a)
	rev := t.createOwned(a, "~k", s)
	t.sleep(s.TTL() + s.TTL()/2)
	require.NoError(t, inState(s, registry.SessionConnected))
	t.assertHolds(t.handleB(), registry.Alive(s.ID()), registry.At("~k", rev))
}

// isolatedMember isolates the member of a client. The backend may switch to another
// member in time or not; but its session must not report that it lives after another
// client has seen it end.
func isolatedMember(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.openSession(a)
	owned := t.createOwned(a, "d/~k", s)
	n := t.create(b, "n", "0")
	t.getFresh(a, "n")
	heal := t.injectFault(t.store.Isolate, "a")
	gone := false
	end := time.Now().Add(t.withSlack(s.TTL() + s.TTL()/2))
	for i := 1; !gone && time.Now().Before(end); i++ {
		n = t.setApplied(b, "n", n, strconv.Itoa(i))
		if e, err := a.Get(t.within(50*time.Millisecond), "n", fresh); err == nil {
			require.Equal(t, n, e.Modified, "a fresh read at an isolated member")
		}
		if gone = t.checkAbsent(b, "d/~k") == nil; gone {
			require.NoError(t, inState(s, registry.SessionLost), "the state when another client sees the key gone")
			require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
		}
		t.sleep(s.TTL() / 50)
	}
	heal()
	t.awaitUsable(a)
	require.Equal(t, n, t.getFresh(a, "n").Modified)
	if gone {
		t.assertHolds(a, registry.Dead(s.ID()))
		require.NoError(t, inState(s, registry.SessionLost))
		return
	}
	t.eventually(s.TTL(), "the live session is connected", func() error { return inState(s, registry.SessionConnected) })
	t.assertHolds(b, registry.Alive(s.ID()), registry.At("d/~k", owned))
}

func isolatedWatcher(t *test) {
	a := t.handleA()
	f := t.follow(t.handleB(), "d")
	set, del := t.create(a, "d/set", "0"), t.create(a, "d/del", "0")
	f.converge(a)
	heal := t.injectFault(t.store.Isolate, "b")
	set = t.setApplied(a, "d/set", set, "1")
	t.commitOps(a, registry.Delete("d/del", del))
	t.create(a, "d/new", "1")
	if t.store.memberCount() < quorum {
		heal() // no other member to switch to
	}
	f.converge(a)
	heal()
	t.commitOps(a, registry.Set("d/set", set, []byte("2")))
	f.awaitValue("d/set", "2")
}

func leaderChange(t *test) {
	l := t.startLoad("a", "b", "c")
	restart := t.store.KillLeader()
	t.Cleanup(restart)
	l.awaitProgress()
	l.assertSessionsLive()
	restart()
	l.assertSessionsLive()
	l.stop()
}

func leaderKilled(t *test) {
	t.underLoad(func(l *load) {
		restart := t.store.KillLeader()
		t.Cleanup(restart)
		l.awaitProgress()
		restart()
	}, true)
}

func leaderPaused(t *test) {
	t.underLoad(func(l *load) {
		resume := t.store.PauseLeader()
		t.Cleanup(resume)
		l.awaitProgress()
		resume()
	}, false)
}

func rollingRestart(t *test) {
	t.underLoad(func(*load) { t.store.RollingRestart() }, true)
}

func replacedMember(t *test) {
	t.underLoad(func(*load) { t.store.Replace() }, true)
}

func movedStore(t *test) {
	a, b := t.handleA(), t.handleB()
	s := t.longSession(a)
	f := t.follow(a, "d")
	rev := t.createOwned(a, "d/~k", s)
	f.converge(b)
	t.store.Move("a")
	t.awaitUsable(a)
	t.eventually(s.TTL(), "the session is connected", func() error { return inState(s, registry.SessionConnected) })
	t.assertHolds(b, registry.Alive(s.ID()), registry.At("d/~k", rev))
	t.create(b, "d/k", "v")
	f.converge(b)
	t.create(a, "d/k2", "v")
	f.converge(b)
}
