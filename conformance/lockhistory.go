package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/anishathalye/porcupine"

	"github.com/rota-dev/rota/lock"
	"github.com/rota-dev/rota/registry"
)

// lockState is the model's state of a lock. A holder keeps it until a release, or until
// another acquires it after the holder's session has ended.
type lockState struct {
	fence  uint64 // of the current tenure, or 0
	holder int
	last   uint64 // the greatest fence so far
	ended  uint64 // bit set of sessions
}

type lockCall struct {
	kind    lockCallKind
	session int
	fence   uint64
}

type lockCallKind int

const (
	acquireLock lockCallKind = iota
	checkGuard
	releaseLock
	endHolder
)

type lockAnswer struct {
	fence   uint64
	refused bool
}

func lockModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(state, input, output any) (bool, any) {
			return state.(lockState).step(input.(lockCall), output.(lockAnswer))
		},
		DescribeOperation: func(input, output any) string {
			c, a := input.(lockCall), output.(lockAnswer)
			what := []string{"acquire", "check", "release", "end"}[c.kind]
			return fmt.Sprintf("%s by session %d, fence %d, refused %v", what, c.session, max(c.fence, a.fence), a.refused)
		},
		DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

func (s lockState) step(c lockCall, a lockAnswer) (bool, any) {
	ended := func(session int) bool { return s.ended&(1<<session) != 0 }
	switch c.kind {
	case acquireLock:
		if s.fence != 0 && !ended(s.holder) || ended(c.session) || a.fence <= s.last {
			return false, s
		}
		s.fence, s.holder, s.last = a.fence, c.session, a.fence
	case checkGuard:
		return a.refused == (s.fence != c.fence), s
	case releaseLock:
		if s.fence == c.fence {
			s.fence = 0
		} else if !a.refused {
			return false, s
		}
	case endHolder:
		s.ended |= 1 << c.session
	}
	return true, s
}

func lockHistory(t *test) {
	t.requireLinearizable(t.backend.seed(), lockModel(), stepBudget, t.recordLockHistory)
}

// locker is a client that acquires the lock, checks its guard, and sometimes lets its
// session expire.
type locker struct {
	client
	lock *lock.Lock
}

func (t *test) recordLockHistory(seed uint64) *history {
	const clients = 6
	rounds := t.repeats(40, 4)
	s := &scene{profile: profile{seed: seed, clients: clients}, t: t}
	dir := registry.Key(fmt.Sprintf("locks/%d", seed))
	machines := machineNames(clients)
	locks := map[string]*lock.Lock{}
	for _, machine := range machines {
		lock := lock.New(t.handle(machine), dir)
		locks[machine] = lock
		t.Cleanup(func() { _ = lock.Close(t.within(t.ttl + slack)) })
	}
	lockers := make([]*locker, clients)
	for i := range lockers {
		machine := machines[i%len(machines)]
		l := &locker{lock: locks[machine], client: client{
			scene: s, id: i, reg: t.handle(machine), random: rand.New(rand.NewPCG(seed, uint64(i+1))),
		}}
		l.addSession(t.longSession(l.reg))
		lockers[i] = l
	}
	calm := t.injectRandomFaults(machines, seed)
	t.runConcurrently(clients, func(i int) error {
		for range rounds {
			if err := lockers[i].acquireAndRelease(t.ctx); err != nil {
				return fmt.Errorf("client %d: %w", i, err)
			}
		}
		return nil
	})
	suffered := calm()
	s.closeSessions()
	t.Logf("seed %d: %d calls recorded, %d with an unknown outcome; %v", seed, len(s.history.ops), s.history.open, suffered)
	return &s.history
}

// acquireAndRelease acquires the lock, checks its guard and releases it.
func (l *locker) acquireAndRelease(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, l.t.withSlack(3*recovery))
	defer cancel()
	call := l.history.beginCall()
	held, err := l.lock.Acquire(within, l.session)
	if err != nil { // its queue entry ends with the session
		return errors.Join(ctx.Err(), l.expireSession(ctx))
	}
	l.history.endCall(l.id, call, lockCall{kind: acquireLock, session: l.number}, lockAnswer{fence: held.Fence()})
	for range 1 + l.random.IntN(2) {
		l.pauseRandomly()
		if err := l.recordGuardCheck(ctx, held); err != nil {
			return err
		}
	}
	if !l.sessionsExhausted() && l.random.IntN(4) == 0 {
		if err := l.expireSession(ctx); err != nil {
			return err
		}
		l.pauseRandomly()
		return l.recordGuardCheck(ctx, held)
	}
	call = l.history.beginCall()
	input := lockCall{kind: releaseLock, session: l.number, fence: held.Fence()}
	if err := held.Release(within); err != nil {
		l.history.leaveOpen(l.id, call, input, lockAnswer{refused: true})
		l.id += l.clients
		return errors.Join(ctx.Err(), l.expireSession(ctx))
	}
	l.history.endCall(l.id, call, input, lockAnswer{})
	return nil
}

// recordGuardCheck records whether the guard of a tenure holds.
func (l *locker) recordGuardCheck(ctx context.Context, held *lock.Held) error {
	within, cancel := context.WithTimeout(ctx, l.callTimeout())
	defer cancel()
	call := l.history.beginCall()
	_, err := l.reg.Txn(within, registry.Txn{If: []registry.Cond{held.Guard()}})
	if err != nil && !errors.Is(err, registry.ErrConflict) {
		return l.awaitHandle(ctx, checkUnanswered(err))
	}
	l.history.endCall(l.id, call, lockCall{kind: checkGuard, session: l.number, fence: held.Fence()}, lockAnswer{refused: err != nil})
	return nil
}

// expireSession expires the session and opens another. A session that is already Lost may
// have ended at any time since it was opened.
func (l *locker) expireSession(ctx context.Context) error {
	call := l.history.beginCall()
	if inState(l.session, registry.SessionLost) == nil {
		call = l.opened
	}
	l.t.store.Expire(l.session.ID())
	l.history.endCall(l.id, call, lockCall{kind: endHolder, session: l.number}, lockAnswer{})
	return l.reopenSession(ctx)
}
