package conformance

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/lock"
	"github.com/rota-dev/rota/registry"
)

// The cases of this group test registry.Lock. Its code is the same on every backend, but
// it relies on nearly the whole contract, and most users of a registry use it.
var lockCases = []Case{
	{
		Code: "L01", Name: "a counter incremented under the lock loses no increment",
		Proves: []Promise{LockExcludes}, run: lockedCounter, Safety: true,
	},
	{
		Code: "L02", Name: "a waiter that gives up leaves the queue and no keys",
		Proves: []Promise{WaitersCanLeave}, run: waiterGivesUp,
	},
	{
		Code: "L03", Name: "waiters acquire the lock in the order of arrival",
		Proves: []Promise{LockIsFair}, run: lockOrder,
	},
	{
		Code: "L04", Name: "a waiter whose session has ended is skipped",
		Proves: []Promise{LockSkipsEndedSessions}, Needs: []string{Expire}, run: endedWaiter,
	},
	{
		Code: "L05", Name: "a waiter whose session ends stops waiting",
		Proves: []Promise{WaitersCanLeave}, Needs: []string{Expire}, run: waiterExpires,
	},
	{
		Code: "L06", Name: "fences grow across releases and crashes",
		Proves: []Promise{FencesGrow}, Needs: []string{Expire}, run: fencesGrow, Safety: true,
	},
	{
		Code: "L07", Name: "a guarded write of a replaced holder conflicts",
		Proves: []Promise{GuardEndsWithTheTenure}, Needs: []string{Expire}, run: replacedHolder, Safety: true,
	},
	{
		Code: "L08", Name: "a late release does not free the successor's lock",
		Proves: []Promise{ReleaseSparesSuccessors}, Needs: []string{Expire}, run: lateRelease, Safety: true,
	},
	{
		Code: "L09", Name: "Acquire with the session that holds the lock fails with ErrHeld",
		Proves: []Promise{LockIsNotReentrant}, run: reentry,
	},
	{
		Code: "L12", Name: "a holder that is cut off is Lost before another acquires the lock",
		Proves: []Promise{LockExcludes}, Needs: []string{Partition}, run: holderCutOff, Safety: true,
	},
	{
		Code: "L13", Name: "a lock stays held across a restart of the store",
		Proves: []Promise{LockOutlivesTheStore}, Needs: []string{Restart}, alone: true, run: heldOverRestart,
	},
	{
		Code: "L14", Name: "a release whose reply was lost frees the lock once",
		Proves: []Promise{ReleaseSparesSuccessors}, Needs: []string{LoseReply, LoseRequest}, run: lostRelease, Safety: true,
	},
	{
		Code: "L15", Name: "an acquisition whose reply was lost acquires the lock once",
		Proves: []Promise{LockExcludes}, Needs: []string{LoseReply, LoseRequest}, run: lostAcquisition, Safety: true,
	},
}

const lockDir registry.Key = "locks/one"

// contender is a client that wants the lock.
type contender struct {
	t       *test
	reg     registry.Registry
	session registry.Session
	lock    *lock.Lock
}

func (t *test) contender(machine string) *contender {
	t.Helper()
	r := t.handle(machine)
	c := &contender{t: t, reg: r, session: t.openSession(r), lock: lock.New(r, lockDir)}
	t.Cleanup(func() {
		if err := c.lock.Close(t.within(t.ttl + slack)); err != nil && !t.Failed() {
			t.Errorf("close the lock of %s: %v", machine, err)
		}
	})
	return c
}

// acquire waits for the lock, at most as long as a failed holder can keep it.
func (c *contender) acquire() *lock.Held {
	c.t.Helper()
	h, err := c.lock.Acquire(c.t.within(c.session.TTL()+slack), c.session)
	require.NoError(c.t, err)
	return h
}

// acquisition is the result of Lock.Acquire.
type acquisition struct {
	held *lock.Held
	err  error
}

// enqueue calls Acquire in the background and returns when it has joined the queue. The
// channel buffers the result.
func (c *contender) enqueue(ctx context.Context) <-chan acquisition {
	c.t.Helper()
	line := len(c.t.listFresh(c.reg, lockDir))
	outcome := make(chan acquisition, 1)
	c.t.spawn(func(context.Context) error {
		h, err := c.lock.Acquire(ctx, c.session)
		outcome <- acquisition{h, err}
		return nil
	})
	c.t.eventually(c.t.ttl, "the waiter is in the queue", func() error {
		if n := len(c.t.listFresh(c.reg, lockDir)); n <= line {
			return fmt.Errorf("%d keys in the lock's directory, %d before", n, line)
		}
		return nil
	})
	return outcome
}

// awaitLock waits for the result of enqueue, which must be the lock.
func (t *test) awaitLock(outcome <-chan acquisition, who string) *lock.Held {
	t.Helper()
	select {
	case a := <-outcome:
		require.NoError(t, a.err, who)
		return a.held
	case <-time.After(t.ttl + slack):
		t.Fatalf("%s does not acquire the lock in time", who)
		return nil
	}
}

func (t *test) releaseHeld(h *lock.Held) {
	t.Helper()
	require.NoError(t, h.Release(t.within(t.ttl+slack)))
}

// queueLength returns how many contenders hold the lock or wait for it.
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
	require.Zero(t, t.queueLength(), "the queue is not empty")
}

// incrementLocked adds one to a number under the lock. No other client writes the number
// meanwhile, so the write must not conflict.
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
	require.Equal(t, 2, t.queueLength(), "the waiter left the queue")
	t.releaseHeld(held)
	held = t.awaitLock(waits, "the next waiter")
	t.releaseHeld(held)
	require.Zero(t, t.queueLength())
	t.releaseHeld(quitter.acquire()) // and can return
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
			require.Empty(t, later, "waiter %d has the lock too early", i+j)
		}
		t.releaseHeld(held)
		held = t.awaitLock(outcome, fmt.Sprintf("waiter %d", i))
	}
	t.releaseHeld(held)
}

func endedWaiter(t *test) {
	held := t.contender("a").acquire()
	dies := t.contender("b")
	dead := dies.enqueue(t.ctx)
	next := t.contender("c").enqueue(t.ctx)
	t.store.Expire(dies.session.ID())
	t.releaseHeld(held)
	held = t.awaitLock(next, "the waiter behind the ended one")
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
		t.Fatal("Acquire still waits after its session ended")
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
			t.store.Expire(c.session.ID()) // a crash
		} else {
			t.releaseHeld(held)
		}
	}
}

// replaceHolder expires the session of a holder and returns both tenures, the old and its
// successor's.
func (t *test) replaceHolder() (holder *contender, old, now *lock.Held) {
	t.Helper()
	holder, next := t.contender("a"), t.contender("b")
	old = holder.acquire()
	outcome := next.enqueue(t.ctx)
	t.store.Expire(holder.session.ID())
	return holder, old, t.awaitLock(outcome, "the next waiter")
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
	t.awaitClosed(old.Lost(), t.ttl, "Lost of the old holder is closed")
}

func lateRelease(t *test) {
	_, old, now := t.replaceHolder()
	third := t.contender("c").enqueue(t.ctx)
	for range 2 {
		require.ErrorIs(t, old.Release(t.within(t.ttl+slack)), registry.ErrSessionLost)
	}
	t.assertHolds(t.handleB(), now.Guard())
	t.settle(50 * time.Millisecond)
	require.Empty(t, third, "the late release freed the lock")
	t.releaseHeld(now)
	t.releaseHeld(t.awaitLock(third, "the third waiter"))
}

func reentry(t *test) {
	c := t.contender("a")
	held := c.acquire()
	for _, l := range []*lock.Lock{c.lock, t.contender("a").lock} {
		_, err := l.Acquire(t.within(t.ttl), c.session)
		require.ErrorIs(t, err, lock.ErrHeld)
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
			t.Fatal("another contender holds the lock before the old holder is Lost")
		}
		require.Greater(t, a.held.Fence(), held.Fence())
		t.releaseHeld(a.held)
	case <-time.After(t.withSlack(holder.session.TTL())):
		t.Fatal("the lock of the holder that is cut off is not granted in time")
	}
}

func heldOverRestart(t *test) {
	c, other := t.contender("a"), t.contender("b")
	c.session, other.session = t.longSession(c.reg), t.longSession(other.reg) // long enough for an election
	held := c.acquire()
	waits := other.enqueue(t.ctx)
	t.store.Restart()
	t.eventually(c.session.TTL(), "the holder is connected", func() error { return inState(c.session, registry.SessionConnected) })
	t.assertHolds(c.reg, held.Guard(), registry.Alive(c.session.ID()))
	require.Empty(t, waits)
	t.releaseHeld(held)
	next := t.awaitLock(waits, "the next waiter")
	require.Greater(t, next.Fence(), held.Fence())
	t.releaseHeld(next)
}

func lostRelease(t *test) {
	for _, lose := range []func(string){t.store.LoseReply, t.store.LoseRequest} {
		held := t.contender("a").acquire()
		next, third := t.contender("b").enqueue(t.ctx), t.contender("c").enqueue(t.ctx)
		lose("a")
		require.NoError(t, held.Release(t.within(t.ttl+slack)))
		now := t.awaitLock(next, "the next waiter")
		require.NoError(t, held.Release(t.within(t.ttl+slack)), "again")
		t.assertHolds(t.handleB(), now.Guard())
		t.settle(50 * time.Millisecond)
		require.Empty(t, third, "the lock was freed twice")
		t.releaseHeld(now)
		t.releaseHeld(t.awaitLock(third, "the third waiter"))
		require.Zero(t, t.queueLength())
	}
}

func lostAcquisition(t *test) {
	for _, lose := range []func(string){t.store.LoseReply, t.store.LoseRequest} {
		c := t.contender("a")
		lose("a")
		held := c.acquire() // a free lock
		t.assertHolds(t.handleB(), held.Guard())
		require.Equal(t, 1, t.queueLength())
		other := t.contender("b")
		lose("b")
		waits := other.enqueue(t.ctx) // a held lock
		require.Equal(t, 2, t.queueLength())
		t.releaseHeld(held)
		held = t.awaitLock(waits, "the other waiter")
		t.assertHolds(t.handleA(), held.Guard())
		t.releaseHeld(held)
		require.Zero(t, t.queueLength())
	}
}
