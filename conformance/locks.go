package conformance

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// The cases of this group run code of package registry. It is the same on every backend,
// but leans on nearly all that is promised, and is what most users do with a registry.
var lockCases = []Case{
	{
		Code: "L01", Name: "a counter that is written under the lock is exact",
		Proves: []Promise{LockExcludes}, run: lockedCounter, Safety: true,
	},
	{
		Code: "L02", Name: "one who gives up leaves the line, and nothing behind",
		Proves: []Promise{WaitersCanLeave}, run: waiterGivesUp,
	},
	{
		Code: "L03", Name: "the lock goes to those who wait in the order in which they came",
		Proves: []Promise{LockIsFair}, run: lockOrder,
	},
	{
		Code: "L04", Name: "a waiter whose session has ended is passed over",
		Proves: []Promise{LockSkipsTheDead}, Needs: []string{Expire}, run: deadWaiter,
	},
	{
		Code: "L05", Name: "a waiter whose own session ends waits no longer",
		Proves: []Promise{WaitersCanLeave}, Needs: []string{Expire}, run: waiterExpires,
	},
	{
		Code: "L06", Name: "the fence grows over releases and crashes",
		Proves: []Promise{FencesGrow}, Needs: []string{Expire}, run: fencesGrow, Safety: true,
	},
	{
		Code: "L07", Name: "the guarded write of a holder that was replaced conflicts",
		Proves: []Promise{GuardEndsWithTheTenure}, Needs: []string{Expire}, run: replacedHolder, Safety: true,
	},
	{
		Code: "L08", Name: "a release that comes too late does not free the successor's lock",
		Proves: []Promise{ReleaseSparesSuccessors}, Needs: []string{Expire}, run: lateRelease, Safety: true,
	},
	{
		Code: "L09", Name: "a session cannot wait for itself",
		Proves: []Promise{LockIsNotReentrant}, run: reentry,
	},
	{
		Code: "L12", Name: "a holder that is cut off is told before another holds the lock",
		Proves: []Promise{LockExcludes}, Needs: []string{Partition}, run: holderCutOff, Safety: true,
	},
	{
		Code: "L13", Name: "a lock is held over a restart of the store",
		Proves: []Promise{LockOutlivesTheStore}, Needs: []string{Restart}, run: heldOverRestart,
	},
	{
		Code: "L14", Name: "a release whose reply was lost frees the lock once",
		Proves: []Promise{ReleaseSparesSuccessors}, Needs: []string{LoseReply, LoseRequest}, run: lostRelease, Safety: true,
	},
	{
		Code: "L15", Name: "an acquisition whose reply was lost holds the lock once",
		Proves: []Promise{LockExcludes}, Needs: []string{LoseReply, LoseRequest}, run: lostAcquisition, Safety: true,
	},
}

const lockDir registry.Key = "locks/one"

// contender is a process that wants the lock.
type contender struct {
	t       *test
	reg     registry.Registry
	session registry.Session
	lock    *registry.Lock
}

func (t *test) contender(machine string) *contender {
	t.Helper()
	r := t.handle(machine)
	c := &contender{t: t, reg: r, session: t.openSession(r), lock: registry.NewLock(r, lockDir)}
	t.Cleanup(func() {
		if err := c.lock.Close(t.within(t.ttl + slack)); err != nil && !t.Failed() {
			t.Errorf("close the lock of %s: %v", machine, err)
		}
	})
	return c
}

// acquire waits for the lock, for as long as a failed holder may keep it.
func (c *contender) acquire() *registry.Held {
	c.t.Helper()
	h, err := c.lock.Acquire(c.t.within(c.session.TTL()+slack), c.session)
	require.NoError(c.t, err)
	return h
}

// acquisition is what came of a wait for the lock.
type acquisition struct {
	held *registry.Held
	err  error
}

// enqueue gets in line and returns when it is there. The channel has room for the outcome.
func (c *contender) enqueue(ctx context.Context) <-chan acquisition {
	c.t.Helper()
	line := len(c.t.listFresh(c.reg, lockDir))
	outcome := make(chan acquisition, 1)
	c.t.spawn(func(context.Context) error {
		h, err := c.lock.Acquire(ctx, c.session)
		outcome <- acquisition{h, err}
		return nil
	})
	c.t.eventually(c.t.ttl, "it is in line", func() error {
		if n := len(c.t.listFresh(c.reg, lockDir)); n <= line {
			return fmt.Errorf("%d keys in the lock's directory, %d before", n, line)
		}
		return nil
	})
	return outcome
}

// awaitLock waits for the outcome of wait, which has to be the lock.
func (t *test) awaitLock(outcome <-chan acquisition, who string) *registry.Held {
	t.Helper()
	select {
	case a := <-outcome:
		require.NoError(t, a.err, who)
		return a.held
	case <-time.After(t.ttl + slack):
		t.Fatalf("%s does not get the lock", who)
		return nil
	}
}

func (t *test) releaseHeld(h *registry.Held) {
	t.Helper()
	require.NoError(t, h.Release(t.within(t.ttl+slack)))
}

// queueLength returns how many hold the lock or wait for it.
func (t *test) queueLength() int {
	t.Helper()
	n := 0
	for _, e := range t.listFresh(t.handleB(), lockDir) {
		if e.Key.Owned() {
			n++
		}
	}
	return n
}

func lockedCounter(t *test) {
	const workers = 4
	each := t.repeats(50, 10)
	t.commitOps(t.handleA(), registry.Create("n", make([]byte, 8)))
	contenders := make([]*contender, workers)
	for i := range contenders {
		contenders[i] = t.contender(string(rune('a' + i)))
	}
	t.runConcurrently(workers, func(i int) error {
		c := contenders[i]
		for range each {
			if err := c.incrementLocked("n"); err != nil {
				return err
			}
		}
		return nil
	})
	require.Equal(t, uint64(workers*each), binary.BigEndian.Uint64(t.getFresh(t.handleA(), "n").Value))
	require.Zero(t, t.queueLength(), "nobody is left in line")
}

// incrementLocked adds one to a number. Under the lock nobody else does, so that it can
// take its time, and no conflict is to be expected.
func (c *contender) incrementLocked(key registry.Key) error {
	h, err := c.lock.Acquire(c.t.ctx, c.session)
	if err != nil {
		return err
	}
	e, err := c.reg.Get(c.t.ctx, key, fresh)
	if err != nil {
		return err
	}
	time.Sleep(time.Millisecond)
	next := binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(e.Value)+1)
	_, err = c.reg.Txn(c.t.ctx, registry.Txn{
		If:   []registry.Cond{h.Guard()},
		Then: []registry.Op{registry.Set(key, e.Modified, next)},
	})
	if err != nil {
		return fmt.Errorf("write under the lock: %w", err)
	}
	return h.Release(c.t.ctx)
}

func waiterGivesUp(t *test) {
	holder, quitter, next := t.contender("a"), t.contender("b"), t.contender("c")
	held := holder.acquire()
	ctx, cancel := context.WithCancel(t.ctx)
	quit := quitter.enqueue(ctx)
	waits := next.enqueue(t.ctx)
	require.Equal(t, 3, t.queueLength())
	cancel()
	require.ErrorIs(t, (<-quit).err, context.Canceled)
	require.Equal(t, 2, t.queueLength(), "it has left the line")
	t.releaseHeld(held)
	held = t.awaitLock(waits, "the next")
	t.releaseHeld(held)
	require.Zero(t, t.queueLength())
	t.releaseHeld(quitter.acquire()) // it may come back
}

func lockOrder(t *test) {
	held := t.contender("a").acquire()
	var line []<-chan acquisition
	for i := range 5 {
		line = append(line, t.contender([]string{"b", "c", "a", "d", "b"}[i]).enqueue(t.ctx))
	}
	for i, outcome := range line {
		t.settle(20 * time.Millisecond)
		for j, later := range line[i:] {
			require.Empty(t, later, "%d has the lock before its turn", i+j)
		}
		t.releaseHeld(held)
		held = t.awaitLock(outcome, fmt.Sprintf("the one who came as number %d", i))
	}
	t.releaseHeld(held)
}

func deadWaiter(t *test) {
	held := t.contender("a").acquire()
	dies := t.contender("b")
	dead := dies.enqueue(t.ctx)
	next := t.contender("c").enqueue(t.ctx)
	t.store.Expire(dies.session.ID())
	t.releaseHeld(held)
	held = t.awaitLock(next, "the one behind the dead")
	require.ErrorIs(t, (<-dead).err, registry.ErrSessionLost)
	t.releaseHeld(held)
}

func waiterExpires(t *test) {
	held := t.contender("a").acquire()
	c := t.contender("b")
	outcome := c.enqueue(t.ctx)
	t.store.Expire(c.session.ID())
	select {
	case a := <-outcome:
		require.ErrorIs(t, a.err, registry.ErrSessionLost)
	case <-time.After(t.withSlack(c.session.TTL())):
		t.Fatal("it waits on, in a line that it is not in any more")
	}
	t.assertHolds(t.handleA(), held.Guard())
	t.releaseHeld(held)
}

func fencesGrow(t *test) {
	last := uint64(0)
	machines := []string{"a", "b", "c"}
	for i := range t.repeats(100, 12) {
		c := t.contender(machines[i%len(machines)])
		held := c.acquire()
		require.Greater(t, held.Fence(), last)
		require.Less(t, held.Fence(), uint64(1)<<63)
		last = held.Fence()
		t.assertHolds(c.reg, held.Guard())
		if i%3 == 0 {
			t.store.Expire(c.session.ID()) // it crashes
		} else {
			t.releaseHeld(held)
		}
	}
}

// replaceHolder has a holder's session end, and another take the lock over.
func (t *test) replaceHolder() (holder *contender, old, now *registry.Held) {
	t.Helper()
	holder, next := t.contender("a"), t.contender("b")
	old = holder.acquire()
	outcome := next.enqueue(t.ctx)
	t.store.Expire(holder.session.ID())
	return holder, old, t.awaitLock(outcome, "the next")
}

func replacedHolder(t *test) {
	rev := t.create(t.handleB(), "record", "before")
	holder, old, now := t.replaceHolder()
	require.Greater(t, now.Fence(), old.Fence())
	late := registry.Txn{
		If:   []registry.Cond{old.Guard()},
		Then: []registry.Op{registry.Set("record", rev, []byte("late"))},
	}
	t.assertConflict(holder.reg, late, 0)
	t.commit(t.handleB(), registry.Txn{
		If:   []registry.Cond{now.Guard()},
		Then: []registry.Op{registry.Set("record", rev, []byte("after"))},
	})
	t.assertConflict(holder.reg, late, 0)
	require.Equal(t, "after", string(t.getFresh(t.handleB(), "record").Value))
	t.awaitClosed(old.Lost(), t.ttl, "the old holder is told")
}

func lateRelease(t *test) {
	_, old, now := t.replaceHolder()
	third := t.contender("c").enqueue(t.ctx)
	for range 2 {
		require.ErrorIs(t, old.Release(t.within(t.ttl+slack)), registry.ErrSessionLost)
	}
	t.assertHolds(t.handleB(), now.Guard())
	t.settle(50 * time.Millisecond)
	require.Empty(t, third, "the lock is not free")
	t.releaseHeld(now)
	t.releaseHeld(t.awaitLock(third, "the third"))
}

func reentry(t *test) {
	c := t.contender("a")
	held := c.acquire()
	for _, l := range []*registry.Lock{c.lock, t.contender("a").lock} {
		_, err := l.Acquire(t.within(t.ttl), c.session)
		require.ErrorIs(t, err, registry.ErrHeld)
	}
	t.assertHolds(c.reg, held.Guard())
	t.releaseHeld(held)
	t.releaseHeld(c.acquire())
}

func holderCutOff(t *test) {
	holder, next := t.contender("a"), t.contender("b")
	held := holder.acquire()
	outcome := next.enqueue(t.ctx)
	t.partition("a", Blackhole)
	select {
	case a := <-outcome:
		require.NoError(t, a.err)
		select {
		case <-held.Lost():
		default:
			t.Fatal("another holds the lock, and the old holder does not know")
		}
		require.Greater(t, a.held.Fence(), held.Fence())
		t.releaseHeld(a.held)
	case <-time.After(t.withSlack(holder.session.TTL())):
		t.Fatal("nobody gets the lock of the one who is cut off")
	}
}

func heldOverRestart(t *test) {
	c, other := t.contender("a"), t.contender("b")
	c.session, other.session = t.longSession(c.reg), t.longSession(other.reg) // a store of several members has to elect
	held := c.acquire()
	waits := other.enqueue(t.ctx)
	t.store.Restart()
	t.eventually(c.session.TTL(), "the holder is connected", func() error { return inState(c.session, registry.SessionConnected) })
	t.assertHolds(c.reg, held.Guard(), registry.Alive(c.session.ID()))
	require.Empty(t, waits)
	t.releaseHeld(held)
	next := t.awaitLock(waits, "the next")
	require.Greater(t, next.Fence(), held.Fence())
	t.releaseHeld(next)
}

func lostRelease(t *test) {
	for _, lose := range []func(string){t.store.LoseReply, t.store.LoseRequest} {
		held := t.contender("a").acquire()
		next, third := t.contender("b").enqueue(t.ctx), t.contender("c").enqueue(t.ctx)
		lose("a")
		require.NoError(t, held.Release(t.within(t.ttl+slack)))
		now := t.awaitLock(next, "the next")
		require.NoError(t, held.Release(t.within(t.ttl+slack)), "again")
		t.assertHolds(t.handleB(), now.Guard())
		t.settle(50 * time.Millisecond)
		require.Empty(t, third, "the lock was freed once")
		t.releaseHeld(now)
		t.releaseHeld(t.awaitLock(third, "the third"))
		require.Zero(t, t.queueLength())
	}
}

func lostAcquisition(t *test) {
	for _, lose := range []func(string){t.store.LoseReply, t.store.LoseRequest} {
		c := t.contender("a")
		lose("a")
		held := c.acquire() // of a free lock
		t.assertHolds(t.handleB(), held.Guard())
		require.Equal(t, 1, t.queueLength())
		other := t.contender("b")
		lose("b")
		waits := other.enqueue(t.ctx) // of one that is held
		require.Equal(t, 2, t.queueLength())
		t.releaseHeld(held)
		held = t.awaitLock(waits, "the other")
		t.assertHolds(t.handleA(), held.Guard())
		t.releaseHeld(held)
		require.Zero(t, t.queueLength())
	}
}
