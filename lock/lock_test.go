package lock_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/registrytest"
	"github.com/rota-dev/rota/lock"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// unaware is a session that does not notice its end.
type unaware struct{ registry.Session }

func (unaware) Lost() <-chan struct{} { return nil }
func (unaware) Err() error            { return nil }

// inBubble runs f as a subtest with virtual time, and judges the log of its server.
func inBubble(t *testing.T, name string, f func(t *testing.T, s *memory.Server)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			s.Record()
			f(t, s)
			synctest.Wait()
			judgeLog(t, s.Log())
		})
	})
}

func TestLock_CostsTheDocumentedCommits(t *testing.T) {
	inBubble(t, "a free lock is acquired by one commit and released by one", func(t *testing.T, s *memory.Server) {
		a := newContender(t, s, "a")
		for range 10 {
			s.ResetCounts()
			h := a.acquire()
			assert.Equal(t, 1, s.Counts("").Commits)
			release(t, h)
			synctest.Wait()
			n := s.Counts("")
			assert.Equal(t, 2, n.Commits)
			assert.Zero(t, n.Conflicts)
			assert.Zero(t, n.Reads)
			assert.Equal(t, 1, n.Watches)
		}
	})

	inBubble(t, "a session that comes too late for a free lock joins the queue by one more commit", func(t *testing.T, s *memory.Server) {
		b := newContender(t, s, "b")
		release(t, b.acquire())
		synctest.Wait()
		releaseWatch := s.HoldWatch("b")
		h := newContender(t, s, "a").acquire()
		s.ResetCounts()
		w := b.startAcquire(t.Context())
		w.requireWaiting()
		n := s.Counts("b")
		assert.Equal(t, 1, n.Conflicts)
		assert.Equal(t, 1, n.Commits)
		assert.Zero(t, n.Reads)
		releaseWatch()
		release(t, h)
		w.acquired()
		n = s.Counts("b")
		assert.Equal(t, 1, n.Conflicts)
		assert.Equal(t, 1, n.Commits)
	})

	inBubble(t, "a session that has just released waits for its watch, and does not read", func(t *testing.T, s *memory.Server) {
		a := newContender(t, s, "a")
		h := a.acquire()
		releaseWatch := s.HoldWatch("a")
		s.ResetCounts()
		release(t, h)
		w := a.startAcquire(t.Context())
		w.requireWaiting()
		assert.Equal(t, 1, s.Counts("a").Commits)
		releaseWatch()
		w.acquired()
		assert.Equal(t, 2, s.Counts("a").Commits)
		assert.Zero(t, s.Counts("a").Conflicts)
		assert.Zero(t, s.Counts("a").Reads)
	})

	const n = 100
	inBubble(t, "of 100 waiting sessions one commits at each release, and none reads", func(t *testing.T, s *memory.Server) {
		holder := newContender(t, s, "holder").acquire()
		line := make([]*waiting, n)
		for i := range line {
			line[i] = newContender(t, s, nameOf(i)).startAcquire(t.Context())
			line[i].requireWaiting()
			assert.Equal(t, 1, s.Counts(nameOf(i)).Commits, "to join the queue")
		}
		s.ResetCounts()
		for i, w := range line {
			release(t, holder)
			holder = w.acquired()
			all := s.Counts("")
			assert.Equal(t, i+1, all.Commits)
			assert.Zero(t, all.Checks)
		}
		release(t, holder)
		synctest.Wait()
		for i := range line {
			c := s.Counts(nameOf(i))
			assert.Equal(t, 1, c.Commits, "the release")
			assert.Zero(t, c.Conflicts)
			assert.Zero(t, c.Reads)
		}
	})

	inBubble(t, "of 100 waiting sessions in one process one commits at each release", func(t *testing.T, s *memory.Server) {
		a := newContender(t, s, "a")
		holder := a.acquire()
		line := make([]*waiting, n)
		for i := range line {
			a.openSession()
			line[i] = a.startAcquire(t.Context())
			line[i].requireWaiting()
		}
		s.ResetCounts()
		for i, w := range line {
			release(t, holder)
			holder = w.acquired()
			assert.Equal(t, i+1, s.Counts("").Commits)
		}
		assert.Zero(t, s.Counts("").Conflicts)
		assert.Zero(t, s.Counts("").Reads)
		assert.Equal(t, 1, s.Counts("").Watches)
	})

	inBubble(t, "when the session of the holder expires, one of 100 commits", func(t *testing.T, s *memory.Server) {
		newContender(t, s, "holder").acquire()
		line := make([]*waiting, n)
		for i := range line {
			line[i] = newContender(t, s, nameOf(i)).startAcquire(t.Context())
			line[i].requireWaiting()
		}
		s.ResetCounts()
		s.Expire("holder")
		line[0].acquired()
		all := s.Counts("")
		assert.Equal(t, 1, all.Commits)
		assert.Zero(t, all.Conflicts)
		assert.Zero(t, all.Reads)
	})
}

func TestLock_Excludes(t *testing.T) {
	inBubble(t, "no increment under the lock and its guard is lost", func(t *testing.T, s *memory.Server) {
		const contenders, rounds = 8, 50
		rev := registrytest.Commit(t, registrytest.Client(t, s, "setup"), registry.Create("counter", []byte("0")))
		require.NotZero(t, rev)
		var all sync.WaitGroup
		for i := range contenders {
			c := newContender(t, s, nameOf(i))
			all.Go(func() {
				for range rounds {
					h, err := c.lock.Acquire(context.Background(), c.session)
					if !assert.NoError(t, err) {
						return
					}
					e, err := c.reg.Get(context.Background(), "counter", registry.ReadOptions{Fresh: true})
					assert.NoError(t, err)
					time.Sleep(time.Millisecond)
					n, err := strconv.Atoi(string(e.Value))
					assert.NoError(t, err)
					_, err = c.reg.Txn(context.Background(), registry.Txn{
						If:   []registry.Cond{h.Guard()},
						Then: []registry.Op{registry.Set("counter", e.Modified, []byte(strconv.Itoa(n+1)))},
					})
					assert.NoError(t, err)
					assert.NoError(t, h.Release(context.Background()))
				}
			})
		}
		all.Wait()
		e := registrytest.Get(t, registrytest.Client(t, s, "reader"), "counter")
		assert.Equal(t, strconv.Itoa(contenders*rounds), string(e.Value))
	})

	inBubble(t, "the guarded write of a former holder conflicts", func(t *testing.T, s *memory.Server) {
		a, b := newContender(t, s, "a"), newContender(t, s, "b")
		old := a.acquire()
		w := b.startAcquire(t.Context())
		w.requireWaiting()

		// a is paused until its session has expired, then sends its next write.
		s.Expire("a")
		w.acquired()
		_, err := a.reg.Txn(t.Context(), registry.Txn{
			If:   []registry.Cond{old.Guard()},
			Then: []registry.Op{registry.Create("result", nil)},
		})
		require.ErrorIs(t, err, registry.ErrConflict)
	})

	inBubble(t, "a guarded write is committed before the release and not after it", func(t *testing.T, s *memory.Server) {
		a := newContender(t, s, "a")
		h := a.acquire()
		guarded := registry.Txn{If: []registry.Cond{h.Guard()}}
		newContender(t, s, "b").startAcquire(t.Context()).requireWaiting()
		_, err := a.reg.Txn(t.Context(), guarded)
		require.NoError(t, err, "sessions that join the queue do not affect the guard")
		release(t, h)
		_, err = a.reg.Txn(t.Context(), guarded)
		require.ErrorIs(t, err, registry.ErrConflict)
	})

	inBubble(t, "the fence grows over 1000 releases, expiries and restarts of the store", func(t *testing.T, s *memory.Server) {
		contenders := make([]*contender, 5)
		for i := range contenders {
			contenders[i] = newContender(t, s, nameOf(i))
		}
		var last uint64
		holder, at := contenders[0].acquire(), 0
		for i := range 1000 {
			next := (at + 1 + i%4) % 5
			w := contenders[next].startAcquire(t.Context())
			w.requireWaiting()
			switch i % 3 {
			case 0:
				release(t, holder)
			case 1:
				s.Expire(nameOf(at))
				contenders[at].openSession()
			case 2:
				s.Restart()
				release(t, holder)
			}
			holder, at = w.acquired(), next
			require.Greater(t, holder.Fence(), last)
			last = holder.Fence()
			require.Equal(t, last, registrytest.Get(t, contenders[at].reg, lockDir.Join("owner")).Modified.Seq)
		}
	})

	inBubble(t, "a restart of the store changes neither holder nor queue", func(t *testing.T, s *memory.Server) {
		a, b := newContender(t, s, "a"), newContender(t, s, "b")
		h := a.acquire()
		w := b.startAcquire(t.Context())
		w.requireWaiting()
		s.Restart()
		w.requireWaiting()
		_, err := a.reg.Txn(t.Context(), registry.Txn{If: []registry.Cond{h.Guard()}})
		require.NoError(t, err)
		release(t, h)
		w.acquired()
	})
}

func TestLock_IsFair(t *testing.T) {
	inBubble(t, "the lock passes in the order of the queue", func(t *testing.T, s *memory.Server) {
		holder := newContender(t, s, "holder").acquire()
		var line []*waiting
		for i := range 20 {
			w := newContender(t, s, nameOf(i)).startAcquire(t.Context())
			w.requireWaiting()
			line = append(line, w)
		}
		for i, w := range line {
			release(t, holder)
			holder = w.acquired()
			for _, later := range line[i+1:] {
				later.requireWaiting()
			}
		}
	})

	inBubble(t, "expired sessions are skipped", func(t *testing.T, s *memory.Server) {
		holder := newContender(t, s, "holder").acquire()
		expired, next := newContender(t, s, "expired").startAcquire(t.Context()), newContender(t, s, "next")
		expired.requireWaiting()
		w := next.startAcquire(t.Context())
		w.requireWaiting()
		s.Expire("expired")
		require.ErrorIs(t, expired.failed(), registry.ErrSessionLost)
		w.requireWaiting()
		release(t, holder)
		w.acquired()
	})

	inBubble(t, "a session that expires when the lock has passed to it is skipped", func(t *testing.T, s *memory.Server) {
		holder := newContender(t, s, "holder").acquire()
		expired := newContender(t, s, "expired").startAcquire(t.Context())
		expired.requireWaiting()
		w := newContender(t, s, "next").startAcquire(t.Context())
		w.requireWaiting()
		defer s.HoldWatch("expired")() // it must not observe that it holds the lock
		release(t, holder)
		expired.requireWaiting()
		w.requireWaiting()
		s.Expire("expired")
		w.acquired()
	})

	inBubble(t, "a session whose expiry the holder has not observed is skipped", func(t *testing.T, s *memory.Server) {
		holder := newContender(t, s, "holder").acquire()
		expired := newContender(t, s, "expired").startAcquire(t.Context())
		expired.requireWaiting()
		w := newContender(t, s, "next").startAcquire(t.Context())
		w.requireWaiting()
		releaseWatch := s.HoldWatch("holder")
		s.Expire("expired")
		release(t, holder)
		w.acquired()
		releaseWatch()
	})

	inBubble(t, "a newcomer does not overtake the queue when the holder expires", func(t *testing.T, s *memory.Server) {
		newContender(t, s, "holder").acquire()
		first := newContender(t, s, "first").startAcquire(t.Context())
		first.requireWaiting()
		releaseWatch := s.HoldWatch("first") // so that the lock stays open
		s.Expire("holder")
		newcomer := newContender(t, s, "newcomer").startAcquire(t.Context())
		newcomer.requireWaiting()
		first.requireWaiting()
		releaseWatch()
		first.acquired()
		newcomer.requireWaiting()
	})

	inBubble(t, "a session that has just released joins the end of the queue", func(t *testing.T, s *memory.Server) {
		a := newContender(t, s, "a")
		releaseWatch := s.HoldWatch("a")
		releaseWatch() // the watch is opened by the first Acquire
		h := a.acquire()
		releaseWatch = s.HoldWatch("a")
		first := newContender(t, s, "first").startAcquire(t.Context())
		first.requireWaiting()
		// a has not observed the place of first, so it frees the lock.
		release(t, h)
		again := a.startAcquire(t.Context())
		first.acquired()
		releaseWatch()
		again.requireWaiting()
		release(t, first.held)
		again.acquired()
	})
}

func TestLock_OutlivesItsHolder(t *testing.T) {
	inBubble(t, "the lock passes when the session of a silent holder has expired, not before", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		w := newContender(t, s, "b").startAcquire(t.Context())
		w.requireWaiting()
		heal := s.Partition("a")
		defer heal()
		cut := time.Now()
		<-h.Lost()
		lost := time.Since(cut)
		w.requireWaiting()
		<-w.done
		w.acquired()
		assert.Less(t, lost, lockTTL)
		assert.Equal(t, lockTTL, time.Since(cut))
	})

	inBubble(t, "closing the session releases the lock", func(t *testing.T, s *memory.Server) {
		a := newContender(t, s, "a")
		h := a.acquire()
		w := newContender(t, s, "b").startAcquire(t.Context())
		w.requireWaiting()
		require.NoError(t, a.session.Close(t.Context()))
		<-h.Lost()
		w.acquired()
	})

	inBubble(t, "a newcomer takes the lock by one commit when all other sessions have expired", func(t *testing.T, s *memory.Server) {
		newContender(t, s, "a").acquire()
		newContender(t, s, "b").startAcquire(t.Context()).requireWaiting()
		s.Expire("a")
		s.Expire("b")
		synctest.Wait()
		c := newContender(t, s, "c")
		s.ResetCounts()
		c.acquire()
		assert.Equal(t, 1, s.Counts("c").Commits)
		assert.Zero(t, s.Counts("c").Conflicts)
	})

	inBubble(t, "a release after the loss of the session does not affect the next holder", func(t *testing.T, s *memory.Server) {
		old := newContender(t, s, "a").acquire()
		w := newContender(t, s, "b").startAcquire(t.Context())
		w.requireWaiting()
		s.Expire("a")
		now := w.acquired()
		for range 2 {
			err := old.Release(t.Context())
			require.ErrorIs(t, err, registry.ErrSessionLost)
			require.ErrorContains(t, err, "locks/a")
		}
		_, err := w.c.reg.Txn(t.Context(), registry.Txn{If: []registry.Cond{now.Guard()}})
		require.NoError(t, err)
		release(t, now)
	})

	inBubble(t, "a release after the loss of the session succeeds if there was no other holder", func(t *testing.T, s *memory.Server) {
		old := newContender(t, s, "a").acquire()
		s.Expire("a")
		release(t, old)
		release(t, old)
		newContender(t, s, "b").acquire()
	})
}

func TestLock_WaitersGiveUp(t *testing.T) {
	inBubble(t, "when the context ends, with its cause, and delete their place", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		b := newContender(t, s, "b")
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("no time")
		w := b.startAcquire(ctx)
		w.requireWaiting()
		require.Len(t, placesOf(s), 2)
		cancel(cause)
		err := w.failed()
		require.ErrorIs(t, err, cause)
		require.EqualError(t, err, "acquire locks/a: no time")
		require.Len(t, placesOf(s), 1)
		release(t, h)
		b.acquire()
	})

	inBubble(t, "before the first request if the context has ended", func(t *testing.T, s *memory.Server) {
		a := newContender(t, s, "a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.ResetCounts()
		_, err := a.lock.Acquire(ctx, a.session)
		require.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, s.Counts("").Commits)
		assert.Zero(t, s.Counts("").Watches)
	})

	inBubble(t, "at once when their session is lost", func(t *testing.T, s *memory.Server) {
		newContender(t, s, "a").acquire()
		b := newContender(t, s, "b")
		w := b.startAcquire(t.Context())
		w.requireWaiting()
		defer s.Partition("b")()
		<-b.session.Lost()
		lost := time.Now()
		<-w.done
		require.ErrorIs(t, w.failed(), registry.ErrSessionLost)
		assert.Equal(t, lost, time.Now())
	})

	inBubble(t, "when their session is closed", func(t *testing.T, s *memory.Server) {
		newContender(t, s, "a").acquire()
		b := newContender(t, s, "b")
		w := b.startAcquire(t.Context())
		w.requireWaiting()
		require.NoError(t, b.session.Close(t.Context()))
		require.ErrorIs(t, w.failed(), registry.ErrSessionLost)
		require.Len(t, placesOf(s), 1)
		_, err := b.lock.Acquire(t.Context(), b.session)
		require.ErrorIs(t, err, registry.ErrSessionLost)
	})

	inBubble(t, "when the store has ended their session, though the client has not noticed", func(t *testing.T, s *memory.Server) {
		newContender(t, s, "a").acquire()
		b := newContender(t, s, "b")
		b.session = unaware{b.session}
		w := b.startAcquire(t.Context())
		w.requireWaiting()
		s.Expire("b")
		require.ErrorIs(t, w.failed(), registry.ErrSessionLost)
		require.ErrorIs(t, b.startAcquire(t.Context()).failed(), registry.ErrSessionLost)
	})

	inBubble(t, "and pass on a lock that they got meanwhile", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		ctx, cancel := context.WithCancel(t.Context())
		b := newContender(t, s, "b").startAcquire(ctx)
		b.requireWaiting()
		c := newContender(t, s, "c").startAcquire(t.Context())
		c.requireWaiting()
		releaseWatch := s.HoldWatch("b")
		release(t, h)
		b.requireWaiting() // it holds the lock and has not observed that
		c.requireWaiting()
		cancel()
		require.ErrorIs(t, b.failed(), context.Canceled)
		c.acquired()
		releaseWatch()
	})

	inBubble(t, "as the first in the queue while the lock is open, and the next one takes it", func(t *testing.T, s *memory.Server) {
		newContender(t, s, "a").acquire()
		ctx, cancel := context.WithCancel(t.Context())
		b := newContender(t, s, "b").startAcquire(ctx)
		b.requireWaiting()
		c := newContender(t, s, "c").startAcquire(t.Context())
		c.requireWaiting()
		releaseWatch := s.HoldWatch("b")
		s.Expire("a")
		c.requireWaiting()
		cancel()
		require.ErrorIs(t, b.failed(), context.Canceled)
		c.acquired()
		releaseWatch()
	})

	inBubble(t, "within a second while the store is unreachable, and their place is deleted later", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		ctx, cancel := context.WithCancel(t.Context())
		b := newContender(t, s, "b")
		w := b.startAcquire(ctx)
		w.requireWaiting()
		next := newContender(t, s, "next").startAcquire(t.Context())
		next.requireWaiting()
		heal := s.Partition("b")
		cancel()
		began := time.Now()
		<-w.done
		require.ErrorIs(t, w.failed(), context.Canceled)
		assert.Equal(t, time.Second, time.Since(began))

		release(t, h) // to b, which has given up
		next.requireWaiting()
		heal()
		time.Sleep(time.Second)
		next.acquired()
		require.NoError(t, b.session.Err())
		require.Len(t, placesOf(s), 1)
	})

	inBubble(t, "while the store is unreachable, and their place expires with the session", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		ctx, cancel := context.WithCancel(t.Context())
		w := newContender(t, s, "b").startAcquire(ctx)
		w.requireWaiting()
		defer s.Partition("b")()
		cancel()
		time.Sleep(lockTTL)
		require.ErrorIs(t, w.failed(), context.Canceled)
		began := time.Now()
		require.NoError(t, w.c.lock.Close(t.Context()), "no retry is pending")
		require.Equal(t, began, time.Now())
		require.Len(t, placesOf(s), 1)
		release(t, h)
	})

	inBubble(t, "and the next Acquire of the session waits until their place is deleted", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		b := newContender(t, s, "b")
		ctx, cancel := context.WithCancel(t.Context())
		w := b.startAcquire(ctx)
		w.requireWaiting()
		heal := s.Partition("b")
		cancel()
		<-w.done
		again := b.startAcquire(t.Context())
		release(t, h) // to the place of w
		again.requireWaiting()
		heal()
		<-again.done
		again.acquired()
		require.Len(t, placesOf(s), 1)
	})
}

func TestLock_RefusesReentry(t *testing.T) {
	inBubble(t, "by a session that holds the lock", func(t *testing.T, s *memory.Server) {
		a := newContender(t, s, "a")
		h := a.acquire()
		for range 2 {
			_, err := a.lock.Acquire(t.Context(), a.session)
			require.ErrorIs(t, err, lock.ErrHeld)
			require.ErrorContains(t, err, string(a.session.ID()))
		}
		require.Len(t, placesOf(s), 1)
		release(t, h)
		release(t, a.acquire())
	})

	inBubble(t, "by another Lock with the same session", func(t *testing.T, s *memory.Server) {
		a := newContender(t, s, "a")
		h := a.acquire()
		other := lock.New(a.reg, lockDir)
		defer func() { assert.NoError(t, other.Close(t.Context())) }()
		_, err := other.Acquire(t.Context(), a.session)
		require.ErrorIs(t, err, lock.ErrHeld)
		release(t, h)
		h, err = other.Acquire(t.Context(), a.session)
		require.NoError(t, err)
		release(t, h)
	})

	inBubble(t, "by a session that gets the lock while it waits", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		b := newContender(t, s, "b")
		first := b.startAcquire(t.Context())
		first.requireWaiting()
		second := b.startAcquire(t.Context())
		second.requireWaiting()
		release(t, h)
		first.acquired()
		require.ErrorIs(t, second.failed(), lock.ErrHeld)
		require.Len(t, placesOf(s), 1)
	})

	inBubble(t, "but not after a release that another Lock has not observed", func(t *testing.T, s *memory.Server) {
		a := newContender(t, s, "a")
		other := &contender{t: t, name: "other", reg: a.reg, session: a.session, lock: lock.New(a.reg, lockDir)}
		defer func() { assert.NoError(t, other.lock.Close(t.Context())) }()
		release(t, other.acquire())
		h := a.acquire()
		synctest.Wait()
		releaseWatch := s.HoldWatch("a")
		release(t, h)
		w := other.startAcquire(t.Context())
		w.requireWaiting()
		releaseWatch()
		w.acquired()
	})
}

func TestLock_SettlesUnknownOutcomes(t *testing.T) {
	faults := []struct {
		name   string
		inject func(s *memory.Server)
	}{
		{"request lost", func(s *memory.Server) { s.LoseRequest("b", 1) }},
		{"reply lost", func(s *memory.Server) { s.LoseReply("b", 1) }},
		{"request and reply lost", func(s *memory.Server) { s.LoseRequest("b", 1); s.LoseReply("b", 1) }},
		{"connection lost", func(s *memory.Server) {
			heal := s.Partition("b")
			time.AfterFunc(time.Second, heal)
		}},
	}
	for _, f := range faults {
		inject := func(s *memory.Server) { synctest.Wait(); f.inject(s) }
		inBubble(t, f.name+" when a free lock is acquired", func(t *testing.T, s *memory.Server) {
			release(t, newContender(t, s, "a").acquire())
			b := newContender(t, s, "b")
			release(t, b.acquire())
			inject(s)
			w := b.startAcquire(t.Context())
			<-w.done
			h := w.acquired()
			require.Len(t, placesOf(s), 1)
			release(t, h)
			require.Empty(t, placesOf(s))
		})

		inBubble(t, f.name+" when the lock is acquired for the first time", func(t *testing.T, s *memory.Server) {
			b := newContender(t, s, "b")
			inject(s)
			w := b.startAcquire(t.Context())
			<-w.done
			release(t, w.acquired())
			require.Empty(t, placesOf(s))
		})

		inBubble(t, f.name+" when a session joins the queue", func(t *testing.T, s *memory.Server) {
			h := newContender(t, s, "a").acquire()
			b := newContender(t, s, "b")
			inject(s)
			w := b.startAcquire(t.Context())
			time.Sleep(5 * time.Second)
			require.Len(t, placesOf(s), 2)
			release(t, h)
			<-w.done
			release(t, w.acquired())
			require.Empty(t, placesOf(s))
		})

		inBubble(t, f.name+" when the first in the queue takes the lock", func(t *testing.T, s *memory.Server) {
			newContender(t, s, "a").acquire()
			w := newContender(t, s, "b").startAcquire(t.Context())
			w.requireWaiting()
			inject(s)
			s.Expire("a")
			<-w.done
			release(t, w.acquired())
			require.Empty(t, placesOf(s))
		})

		inBubble(t, f.name+" when the lock is released", func(t *testing.T, s *memory.Server) {
			b := newContender(t, s, "b")
			h := b.acquire()
			inject(s)
			release(t, h)
			require.Empty(t, placesOf(s))
			release(t, newContender(t, s, "c").acquire())
		})

		inBubble(t, f.name+" when the lock is passed on", func(t *testing.T, s *memory.Server) {
			b := newContender(t, s, "b")
			h := b.acquire()
			w := newContender(t, s, "c").startAcquire(t.Context())
			w.requireWaiting()
			inject(s)
			release(t, h)
			release(t, w.acquired())
			require.Empty(t, placesOf(s))
		})

		inBubble(t, f.name+" when a session leaves the queue", func(t *testing.T, s *memory.Server) {
			h := newContender(t, s, "a").acquire()
			ctx, cancel := context.WithCancel(t.Context())
			w := newContender(t, s, "b").startAcquire(ctx)
			w.requireWaiting()
			inject(s)
			cancel()
			time.Sleep(5 * time.Second)
			require.ErrorIs(t, w.failed(), context.Canceled)
			require.Len(t, placesOf(s), 1)
			release(t, h)
		})
	}

	inBubble(t, "a retried release does not affect the next holder", func(t *testing.T, s *memory.Server) {
		b := newContender(t, s, "b")
		h := b.acquire()
		next := newContender(t, s, "c").startAcquire(t.Context())
		next.requireWaiting()
		after := newContender(t, s, "d").startAcquire(t.Context())
		after.requireWaiting()

		heal := s.PartitionOneWay("b", memory.Replies)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := h.Release(ctx)
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		now := next.acquired()
		release(t, now)
		after.acquired()
		heal()
		require.NoError(t, h.Release(t.Context()), "b's own release changed the record")
		_, err = b.reg.Txn(t.Context(), registry.Txn{If: []registry.Cond{after.held.Guard()}})
		require.NoError(t, err)
	})

	inBubble(t, "a release is recognized although the next holder has released the lock before the reply", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "b").acquire()
		next := newContender(t, s, "c").startAcquire(t.Context())
		next.requireWaiting()
		s.LoseReply("b", 1)
		released := make(chan error, 1)
		go func() { released <- h.Release(context.Background()) }()
		release(t, next.acquired())
		require.NoError(t, <-released)
		require.Empty(t, placesOf(s))
	})

	inBubble(t, "a release that was not sent is sent by the next call", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "b").acquire()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := h.Release(ctx)
		require.ErrorIs(t, err, registry.ErrNotApplied)
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, placesOf(s), 1)
		release(t, h)
		require.Empty(t, placesOf(s))
	})

	inBubble(t, "a release of unknown outcome whose session has expired returns ErrSessionLost", func(t *testing.T, s *memory.Server) {
		b := newContender(t, s, "b")
		h := b.acquire()
		next := newContender(t, s, "c").startAcquire(t.Context())
		next.requireWaiting()
		heal := s.PartitionOneWay("b", memory.Replies)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, h.Release(ctx), registry.ErrUnknownOutcome)
		heal()
		s.Expire("b")
		require.ErrorIs(t, h.Release(t.Context()), registry.ErrSessionLost)
		next.acquired()
	})

	inBubble(t, "a late release does not affect the next holder", func(t *testing.T, s *memory.Server) {
		b := newContender(t, s, "b")
		h := b.acquire()
		arrive := s.HoldCommit("b")
		release(t, h)
		now := newContender(t, s, "c").acquire()
		arrive()
		synctest.Wait()
		_, err := b.reg.Txn(t.Context(), registry.Txn{If: []registry.Cond{now.Guard()}})
		require.NoError(t, err)
		require.Len(t, placesOf(s), 1)
	})

	inBubble(t, "a place is recognized although the lock passed to it before the reply to its creation", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		s.LoseReply("b", 1)
		w := newContender(t, s, "b").startAcquire(t.Context())
		w.requireWaiting()
		require.Len(t, placesOf(s), 2)
		release(t, h)
		<-w.done
		w.acquired()
	})

	inBubble(t, "a place is recognized although another writer wrote it before the reply to its creation", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		s.LoseReply("b", 1)
		w := newContender(t, s, "b").startAcquire(t.Context())
		w.requireWaiting()
		place := placesOf(s)[1]
		registrytest.Commit(t, registrytest.Client(t, s, "operator"), registry.Set(place.Key, place.Modified, place.Value))
		release(t, h)
		<-w.done
		release(t, w.acquired())
		require.Empty(t, placesOf(s))
	})

	inBubble(t, "a replaced place that a late request creates again is deleted", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		b := newContender(t, s, "b")
		arrive := s.HoldCommit("b")
		w := b.startAcquire(t.Context())
		time.Sleep(time.Second)
		place := placesOf(s)[1]
		registrytest.Commit(t, b.reg, registry.Delete(place.Key, place.Modified))
		w.requireWaiting()
		releaseWatch := s.HoldWatch("b")
		arrive()
		require.Len(t, placesOf(s), 3, "the late request has created the place")
		releaseWatch()
		w.requireWaiting()
		require.Len(t, placesOf(s), 2)
		release(t, h)
		w.acquired()
	})

	inBubble(t, "a lock that passed to an unwanted place does not count as held by its session", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		b := newContender(t, s, "b")
		arrive := s.HoldCommit("b")
		ctx, cancel := context.WithCancel(t.Context())
		w := b.startAcquire(ctx)
		time.Sleep(time.Second)
		cancel()
		w.failed()
		releaseWatch := s.HoldWatch("b")
		arrive()
		again := b.startAcquire(t.Context())
		again.requireWaiting()
		release(t, h) // to the place of w
		again.requireWaiting()
		s.Delay("b", time.Second, time.Second) // so that a false ErrHeld would have time to occur
		releaseWatch()
		<-again.done
		again.acquired()
	})

	inBubble(t, "a place that a late request creates again is deleted", func(t *testing.T, s *memory.Server) {
		for _, how := range []string{"held and released", "given up"} {
			h := newContender(t, s, "a").acquire()
			b := newContender(t, s, "b")
			arrive := s.HoldCommit("b")
			ctx, cancel := context.WithCancel(t.Context())
			w := b.startAcquire(ctx)
			time.Sleep(time.Second)
			w.requireWaiting()
			require.Len(t, placesOf(s), 2)
			if how == "given up" {
				cancel()
				w.failed()
				release(t, h)
			} else {
				release(t, h)
				release(t, w.acquired())
			}
			require.Empty(t, placesOf(s))
			synctest.Wait()
			releaseWatch := s.HoldWatch("b")
			arrive()
			require.Len(t, placesOf(s), 1, "the late request has created the place")
			releaseWatch()
			synctest.Wait()
			require.Empty(t, placesOf(s))
			cancel()
		}
	})

	inBubble(t, "a place that is created again before its release is observed is deleted", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		b := newContender(t, s, "b")
		arrive := s.HoldCommit("b")
		w := b.startAcquire(t.Context())
		time.Sleep(time.Second)
		release(t, h)
		held := w.acquired()
		releaseWatch := s.HoldWatch("b")
		release(t, held)
		synctest.Wait()
		arrive()
		require.Len(t, placesOf(s), 1, "the late request has created the place")
		releaseWatch() // the release and the place in one batch
		synctest.Wait()
		require.Empty(t, placesOf(s))
	})

	inBubble(t, "a place that is created again while its removal runs is deleted", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		b := newContender(t, s, "b")
		arrive := s.HoldCommit("b")
		w := b.startAcquire(t.Context())
		time.Sleep(time.Second)
		release(t, h)
		held := w.acquired()
		releaseWatch := s.HoldWatch("b")
		s.Delay("b", 0, time.Second)
		release(t, held) // b's view still has the place, so its removal reads it
		synctest.Wait()
		s.Delay("b", 0, 0)
		arrive()
		releaseWatch()
		synctest.Wait()
		require.Len(t, placesOf(s), 1, "the late request has created the place")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(t, placesOf(s))
	})

	inBubble(t, "a lock that passed to a place created again is passed on", func(t *testing.T, s *memory.Server) {
		a := newContender(t, s, "a")
		h := a.acquire()
		b := newContender(t, s, "b")
		arrive := s.HoldCommit("b")
		ctx, cancel := context.WithCancel(t.Context())
		w := b.startAcquire(ctx)
		time.Sleep(time.Second)
		cancel()
		w.failed()
		releaseWatch := s.HoldWatch("b")
		arrive()
		next := newContender(t, s, "c").startAcquire(t.Context())
		next.requireWaiting()
		release(t, h)
		next.requireWaiting()
		releaseWatch()
		next.acquired()
	})
}

func TestLock_RefusesForeignRecords(t *testing.T) {
	records := []struct {
		name, key, value, rule string
	}{
		{"a key of another kind", "locks/a/config", `{"lock":1}`, `a lock has only the key "owner" and places, which begin with a tilde`},
		{"an owner that is not JSON", "locks/a/owner", "alice", "not a lock's JSON"},
		{"an owner that is other JSON", "locks/a/owner", `{"name":"alice"}`, `no "lock"`},
		{"an owner that is null", "locks/a/owner", "null", `no "lock"`},
		{"an owner of a later format", "locks/a/owner", `{"lock":2}`, "format 2, this program knows 1"},
		{"an owner without a place", "locks/a/owner", `{"lock":1,"session":"x"}`, "has both a session and a place, or neither"},
		{"an owner without a session", "locks/a/owner", `{"lock":1,"place":"~x"}`, "has both a session and a place, or neither"},
		{"an owner whose place is not an owned key", "locks/a/owner", `{"lock":1,"session":"x","place":"x"}`, `"x" is not the name of a place`},
		{"an owner whose place is in another directory", "locks/a/owner", `{"lock":1,"session":"x","place":"b/~x"}`, `"b/~x" is not the name of a place`},
		{"an owner whose place is not a valid key", "locks/a/owner", `{"lock":1,"session":"x","place":"~é"}`, "is not the name of a place"},
		{"an owned key of another kind", "locks/a/~b", "alice", "not a lock's JSON"},
		{"a place of a later format", "locks/a/~b", `{"lock":2}`, "format 2, this program knows 1"},
		{"a place that names a session", "locks/a/~b", `{"lock":1,"session":"x","place":"~b"}`, "a place names no session or place"},
	}
	for _, r := range records {
		inBubble(t, r.name, func(t *testing.T, s *memory.Server) {
			b := newContender(t, s, "b")
			foreign := registry.Key(r.key)
			create := registry.Create(foreign, []byte(r.value))
			if foreign.Owned() {
				create = registry.CreateOwned(foreign, []byte(r.value), b.session.ID())
			}
			rev := registrytest.Commit(t, b.reg, create)
			defer func() { _ = s.Log() }() // judgeLog cannot read foreign records
			err := newContender(t, s, "a").startAcquire(t.Context()).failed()
			require.ErrorIs(t, err, lock.ErrRecord)
			require.ErrorContains(t, err, r.key)
			require.ErrorContains(t, err, r.rule)
			require.Equal(t, rev, registrytest.Get(t, b.reg, foreign).Modified)
			require.Len(t, s.Dump(), 1)

			registrytest.Commit(t, b.reg, registry.Delete(foreign, rev))
			newContender(t, s, "c").acquire()
		})
	}

	inBubble(t, "in the queue too, while the holder keeps the lock", func(t *testing.T, s *memory.Server) {
		a := newContender(t, s, "a")
		h := a.acquire()
		w := newContender(t, s, "b").startAcquire(t.Context())
		w.requireWaiting()
		rev := registrytest.Commit(t, a.reg, registry.Create("locks/a/config", nil))
		require.ErrorIs(t, w.failed(), lock.ErrRecord)
		require.Len(t, placesOf(s), 1)
		_, err := a.reg.Txn(t.Context(), registry.Txn{If: []registry.Cond{h.Guard()}})
		require.NoError(t, err)
		release(t, h)
		require.ErrorIs(t, a.startAcquire(t.Context()).failed(), lock.ErrRecord)
		registrytest.Commit(t, a.reg, registry.Delete("locks/a/config", rev))
		synctest.Wait()
		a.acquire()
	})

	t.Run("an invalid directory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			a := newContender(t, s, "a")
			for _, dir := range []registry.Key{"a//b", "locks/~a", "ä"} {
				l := lock.New(a.reg, dir)
				_, err := l.Acquire(t.Context(), a.session)
				require.ErrorIs(t, err, registry.ErrInvalidKey)
				require.ErrorContains(t, err, string(dir))
				require.NoError(t, l.Close(t.Context()))
			}
		})
	})
}

func TestLock_RecoversFromDeletionsByAnotherWriter(t *testing.T) {
	deleteEntry := func(t *testing.T, s *memory.Server, e registry.Entry) {
		t.Helper()
		registrytest.Commit(t, registrytest.Client(t, s, "operator"), registry.Delete(e.Key, e.Modified))
	}

	inBubble(t, "a session whose place is deleted joins the queue again", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		w := newContender(t, s, "b").startAcquire(t.Context())
		w.requireWaiting()
		deleteEntry(t, s, placesOf(s)[1])
		w.requireWaiting()
		require.Len(t, placesOf(s), 2)
		release(t, h)
		w.acquired()
	})

	inBubble(t, "a holder whose place is deleted keeps the lock and can release it", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		w := newContender(t, s, "b").startAcquire(t.Context())
		w.requireWaiting()
		deleteEntry(t, s, placesOf(s)[0])
		w.requireWaiting()
		release(t, h)
		w.acquired()
	})

	inBubble(t, "the lock passes after the expiry of a holder whose place is deleted", func(t *testing.T, s *memory.Server) {
		newContender(t, s, "a").acquire()
		w := newContender(t, s, "b").startAcquire(t.Context())
		w.requireWaiting()
		deleteEntry(t, s, placesOf(s)[0])
		w.requireWaiting()
		s.Expire("a")
		s.ResetCounts()
		w.requireWaiting()
		<-w.done
		w.acquired()
		assert.LessOrEqual(t, s.Counts("b").Conflicts, 1)
	})

	t.Run("a lock whose owner record is deleted is free", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			a := newContender(t, s, "a")
			h := a.acquire()
			w := newContender(t, s, "b").startAcquire(t.Context())
			w.requireWaiting()
			deleteEntry(t, s, registrytest.Get(t, a.reg, "locks/a/owner"))
			deleteEntry(t, s, placesOf(s)[0])
			now := w.acquired()
			require.Greater(t, now.Fence(), h.Fence())
			_, err := a.reg.Txn(t.Context(), registry.Txn{If: []registry.Cond{h.Guard()}})
			require.ErrorIs(t, err, registry.ErrConflict)
			require.ErrorIs(t, h.Release(t.Context()), registry.ErrSessionLost)
			release(t, now)
			release(t, a.acquire())
		})
	})
}

// lingering is a registry that takes a second to close a watcher, and to return from a
// transaction whose context has ended.
type lingering struct{ registry.Registry }

func (l lingering) Watch(ctx context.Context, dir registry.Key, o registry.WatchOptions) (registry.Watcher, error) {
	w, err := l.Registry.Watch(ctx, dir, o)
	return lingeringWatcher{w}, err
}

func (l lingering) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	rev, err := l.Registry.Txn(ctx, t)
	if ctx.Err() != nil {
		time.Sleep(time.Second)
	}
	return rev, err
}

type lingeringWatcher struct{ registry.Watcher }

func (w lingeringWatcher) Close() error {
	time.Sleep(time.Second)
	return w.Watcher.Close()
}

func TestLock_Close(t *testing.T) {
	inBubble(t, "ends pending calls of Acquire, and deletes their places", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		b := newContender(t, s, "b")
		w := b.startAcquire(t.Context())
		w.requireWaiting()
		require.NoError(t, b.lock.Close(t.Context()))
		require.ErrorIs(t, w.failed(), registry.ErrClosed)
		require.Len(t, placesOf(s), 1)
		assert.Zero(t, s.Counts("b").Watches)
		_, err := b.lock.Acquire(t.Context(), b.session)
		require.ErrorIs(t, err, registry.ErrClosed)
		require.NoError(t, b.lock.Close(t.Context()))
		release(t, h)
	})

	inBubble(t, "waits until its watch is closed", func(t *testing.T, s *memory.Server) {
		a := newContenderOn(t, lingering{registrytest.Client(t, s, "a")}, "a")
		a.acquire()
		began := time.Now()
		require.NoError(t, a.lock.Close(t.Context()))
		require.Equal(t, time.Second, time.Since(began))
	})

	inBubble(t, "waits for pending calls after its context has ended", func(t *testing.T, s *memory.Server) {
		newContender(t, s, "b").acquire()
		a := newContenderOn(t, lingering{registrytest.Client(t, s, "a")}, "a")
		w := a.startAcquire(t.Context())
		w.requireWaiting()
		defer s.Partition("a")()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, a.lock.Close(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, w.failed(), registry.ErrClosed)
		require.NoError(t, a.lock.Close(t.Context()))
	})

	inBubble(t, "leaves a held lock held until its release", func(t *testing.T, s *memory.Server) {
		a := newContender(t, s, "a")
		h := a.acquire()
		w := newContender(t, s, "b").startAcquire(t.Context())
		w.requireWaiting()
		require.NoError(t, a.lock.Close(t.Context()))
		w.requireWaiting()
		release(t, h)
		w.acquired()
	})

	inBubble(t, "ends with its context, and places expire with their sessions", func(t *testing.T, s *memory.Server) {
		h := newContender(t, s, "a").acquire()
		b := newContender(t, s, "b")
		w := b.startAcquire(t.Context())
		w.requireWaiting()
		heal := s.Partition("b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := b.lock.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "locks/a")
		assert.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, w.failed(), registry.ErrClosed)
		require.Len(t, placesOf(s), 2)
		heal()
		require.NoError(t, b.session.Close(t.Context()))
		require.Len(t, placesOf(s), 1)
		release(t, h)
	})

	inBubble(t, "of the registry ends pending calls of Acquire", func(t *testing.T, s *memory.Server) {
		newContender(t, s, "a").acquire()
		b := newContender(t, s, "b")
		w := b.startAcquire(t.Context())
		w.requireWaiting()
		require.NoError(t, b.reg.Close(t.Context()))
		err := w.failed()
		require.True(t, errors.Is(err, registry.ErrClosed) || errors.Is(err, registry.ErrSessionLost), err)
		_, err = b.lock.Acquire(t.Context(), unaware{b.session})
		require.ErrorIs(t, err, registry.ErrClosed)
	})
}

// refusing is a registry that refuses watches and transactions while watch and txn are set.
type refusing struct {
	registry.Registry
	watch, txn error
}

func (r *refusing) Watch(ctx context.Context, dir registry.Key, o registry.WatchOptions) (registry.Watcher, error) {
	if r.watch != nil {
		return nil, r.watch
	}
	return r.Registry.Watch(ctx, dir, o)
}

func (r *refusing) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	if r.txn != nil {
		return registry.Rev{}, r.txn
	}
	return r.Registry.Txn(ctx, t)
}

func TestLock_FailsWhereTheRegistryRefuses(t *testing.T) {
	inBubble(t, "a watch, and works again afterwards", func(t *testing.T, s *memory.Server) {
		reg := &refusing{Registry: registrytest.Client(t, s, "a"), watch: registry.ErrPermission}
		a := newContenderOn(t, reg, "a")
		for range 2 {
			require.ErrorIs(t, a.startAcquire(t.Context()).failed(), registry.ErrPermission)
		}
		reg.watch = nil
		a.acquire()
	})

	inBubble(t, "a commit", func(t *testing.T, s *memory.Server) {
		reg := &refusing{Registry: registrytest.Client(t, s, "a"), txn: registry.ErrQuota}
		a := newContenderOn(t, reg, "a")
		require.ErrorIs(t, a.startAcquire(t.Context()).failed(), registry.ErrQuota)
		reg.txn = nil
		h := a.acquire()
		reg.txn = registry.ErrQuota
		require.ErrorIs(t, h.Release(t.Context()), registry.ErrQuota)
		b := newContender(t, s, "b")
		w := b.startAcquire(t.Context())
		w.requireWaiting()
		releaseWatch := s.HoldWatch("b")
		reg.txn = nil
		release(t, h)
		owner := registrytest.Get(t, registrytest.Client(t, s, "c"), "locks/a/owner")
		require.Contains(t, string(owner.Value), string(b.session.ID()), "it passes to who waits by now")
		releaseWatch()
		w.acquired()
	})

	inBubble(t, "the deletion of a place, and returns both errors", func(t *testing.T, s *memory.Server) {
		newContender(t, s, "b").acquire()
		reg := &refusing{Registry: registrytest.Client(t, s, "a")}
		a := newContenderOn(t, reg, "a")
		w := a.startAcquire(t.Context())
		w.requireWaiting()
		reg.txn = registry.ErrPermission
		rev := registrytest.Commit(t, registrytest.Client(t, s, "c"), registry.Create("locks/a/config", nil))
		err := w.failed()
		require.ErrorIs(t, err, lock.ErrRecord)
		require.ErrorIs(t, err, registry.ErrPermission)
		registrytest.Commit(t, registrytest.Client(t, s, "c"), registry.Delete("locks/a/config", rev))
	})
}
