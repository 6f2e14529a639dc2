package registry_test

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

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// unaware is a session that does not know of its end.
type unaware struct{ registry.Session }

func (unaware) Lost() <-chan struct{} { return nil }
func (unaware) Err() error            { return nil }

// inBubble runs f as a subtest with virtual time. The log of its server is judged.
func inBubble(t *testing.T, name string, f func(t *testing.T, s *memory.Server)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			s.Record()
			f(t, s)
			synctest.Wait()
			judge(t, s.Log())
		})
	})
}

func TestLock_CostsWhatItSays(t *testing.T) {
	inBubble(t, "a free lock is acquired by one commit and released by one", func(t *testing.T, s *memory.Server) {
		a := contend(t, s, "a")
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

	inBubble(t, "one that comes too late for a free lock is in line by one commit more", func(t *testing.T, s *memory.Server) {
		b := contend(t, s, "b")
		release(t, b.acquire())
		synctest.Wait()
		hear := s.HoldWatch("b")
		h := contend(t, s, "a").acquire()
		s.ResetCounts()
		w := b.wait(t.Context())
		w.isWaiting()
		n := s.Counts("b")
		assert.Equal(t, 1, n.Conflicts)
		assert.Equal(t, 1, n.Commits)
		assert.Zero(t, n.Reads)
		hear()
		release(t, h)
		w.got()
		n = s.Counts("b")
		assert.Equal(t, 1, n.Conflicts)
		assert.Equal(t, 1, n.Commits)
	})

	inBubble(t, "one that has just released waits to hear of it, and does not ask", func(t *testing.T, s *memory.Server) {
		a := contend(t, s, "a")
		h := a.acquire()
		hear := s.HoldWatch("a")
		s.ResetCounts()
		release(t, h)
		w := a.wait(t.Context())
		w.isWaiting()
		assert.Equal(t, 1, s.Counts("a").Commits)
		hear()
		w.got()
		assert.Equal(t, 2, s.Counts("a").Commits)
		assert.Zero(t, s.Counts("a").Conflicts)
		assert.Zero(t, s.Counts("a").Reads)
	})

	const n = 100
	inBubble(t, "of 100 that wait one commits at each hand-over, and nobody reads", func(t *testing.T, s *memory.Server) {
		holder := contend(t, s, "holder").acquire()
		line := make([]*waiting, n)
		for i := range line {
			line[i] = contend(t, s, nameOf(i)).wait(t.Context())
			line[i].isWaiting()
			assert.Equal(t, 1, s.Counts(nameOf(i)).Commits, "to get in line")
		}
		s.ResetCounts()
		for i, w := range line {
			release(t, holder)
			holder = w.got()
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

	inBubble(t, "of 100 that wait in one process one commits at each hand-over", func(t *testing.T, s *memory.Server) {
		a := contend(t, s, "a")
		holder := a.acquire()
		line := make([]*waiting, n)
		for i := range line {
			a.begin()
			line[i] = a.wait(t.Context())
			line[i].isWaiting()
		}
		s.ResetCounts()
		for i, w := range line {
			release(t, holder)
			holder = w.got()
			assert.Equal(t, i+1, s.Counts("").Commits)
		}
		assert.Zero(t, s.Counts("").Conflicts)
		assert.Zero(t, s.Counts("").Reads)
		assert.Equal(t, 1, s.Counts("").Watches)
	})

	inBubble(t, "when a holder dies one of 100 commits", func(t *testing.T, s *memory.Server) {
		contend(t, s, "holder").acquire()
		line := make([]*waiting, n)
		for i := range line {
			line[i] = contend(t, s, nameOf(i)).wait(t.Context())
			line[i].isWaiting()
		}
		s.ResetCounts()
		s.Expire("holder")
		line[0].got()
		all := s.Counts("")
		assert.Equal(t, 1, all.Commits)
		assert.Zero(t, all.Conflicts)
		assert.Zero(t, all.Reads)
	})
}

func TestLock_Excludes(t *testing.T) {
	inBubble(t, "increments under the lock and its guard lose nothing", func(t *testing.T, s *memory.Server) {
		const contenders, rounds = 8, 50
		rev := commit(t, clientOf(t, s, "setup"), registry.Create("counter", []byte("0")))
		require.NotZero(t, rev)
		var all sync.WaitGroup
		for i := range contenders {
			c := contend(t, s, nameOf(i))
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
		e := get(t, clientOf(t, s, "reader"), "counter")
		assert.Equal(t, strconv.Itoa(contenders*rounds), string(e.Value))
	})

	inBubble(t, "the guarded write of an old holder conflicts after a takeover", func(t *testing.T, s *memory.Server) {
		a, b := contend(t, s, "a"), contend(t, s, "b")
		old := a.acquire()
		w := b.wait(t.Context())
		w.isWaiting()

		// a is paused beyond its session, then goes on with what it had in hand.
		s.Expire("a")
		w.got()
		_, err := a.reg.Txn(t.Context(), registry.Txn{
			If:   []registry.Cond{old.Guard()},
			Then: []registry.Op{registry.Create("result", nil)},
		})
		require.ErrorIs(t, err, registry.ErrConflict)
	})

	inBubble(t, "a guarded write holds during the tenure and not after its release", func(t *testing.T, s *memory.Server) {
		a := contend(t, s, "a")
		h := a.acquire()
		guarded := registry.Txn{If: []registry.Cond{h.Guard()}}
		contend(t, s, "b").wait(t.Context()).isWaiting()
		_, err := a.reg.Txn(t.Context(), guarded)
		require.NoError(t, err, "others who get in line do not disturb it")
		release(t, h)
		_, err = a.reg.Txn(t.Context(), guarded)
		require.ErrorIs(t, err, registry.ErrConflict)
	})

	inBubble(t, "the fence grows over 1000 hand-overs, crashes and restarts of the store", func(t *testing.T, s *memory.Server) {
		contenders := make([]*contender, 5)
		for i := range contenders {
			contenders[i] = contend(t, s, nameOf(i))
		}
		var last uint64
		holder, at := contenders[0].acquire(), 0
		for i := range 1000 {
			next := (at + 1 + i%4) % 5
			w := contenders[next].wait(t.Context())
			w.isWaiting()
			switch i % 3 {
			case 0:
				release(t, holder)
			case 1:
				s.Expire(nameOf(at))
				contenders[at].begin()
			case 2:
				s.Restart()
				release(t, holder)
			}
			holder, at = w.got(), next
			require.Greater(t, holder.Fence(), last)
			last = holder.Fence()
			require.Equal(t, last, get(t, contenders[at].reg, lockDir.Join("owner")).Modified.Seq)
		}
	})

	inBubble(t, "a restart of the store changes nothing", func(t *testing.T, s *memory.Server) {
		a, b := contend(t, s, "a"), contend(t, s, "b")
		h := a.acquire()
		w := b.wait(t.Context())
		w.isWaiting()
		s.Restart()
		w.isWaiting()
		_, err := a.reg.Txn(t.Context(), registry.Txn{If: []registry.Cond{h.Guard()}})
		require.NoError(t, err)
		release(t, h)
		w.got()
	})
}

func TestLock_IsFair(t *testing.T) {
	inBubble(t, "first come, first served", func(t *testing.T, s *memory.Server) {
		holder := contend(t, s, "holder").acquire()
		var line []*waiting
		for i := range 20 {
			w := contend(t, s, nameOf(i)).wait(t.Context())
			w.isWaiting()
			line = append(line, w)
		}
		for i, w := range line {
			release(t, holder)
			holder = w.got()
			for _, later := range line[i+1:] {
				later.isWaiting()
			}
		}
	})

	inBubble(t, "the dead are skipped", func(t *testing.T, s *memory.Server) {
		holder := contend(t, s, "holder").acquire()
		dead, next := contend(t, s, "dead").wait(t.Context()), contend(t, s, "next")
		dead.isWaiting()
		w := next.wait(t.Context())
		w.isWaiting()
		s.Expire("dead")
		require.ErrorIs(t, dead.failed(), registry.ErrSessionLost)
		w.isWaiting()
		release(t, holder)
		w.got()
	})

	inBubble(t, "one that dies as the lock comes to it is skipped", func(t *testing.T, s *memory.Server) {
		holder := contend(t, s, "holder").acquire()
		dead := contend(t, s, "dead").wait(t.Context())
		dead.isWaiting()
		w := contend(t, s, "next").wait(t.Context())
		w.isWaiting()
		defer s.HoldWatch("dead")() // it is not to hear of its luck
		release(t, holder)
		dead.isWaiting()
		w.isWaiting()
		s.Expire("dead")
		w.got()
	})

	inBubble(t, "one that died unheard of by the holder is skipped", func(t *testing.T, s *memory.Server) {
		holder := contend(t, s, "holder").acquire()
		dead := contend(t, s, "dead").wait(t.Context())
		dead.isWaiting()
		w := contend(t, s, "next").wait(t.Context())
		w.isWaiting()
		hear := s.HoldWatch("holder")
		s.Expire("dead")
		release(t, holder)
		w.got()
		hear()
	})

	inBubble(t, "a newcomer does not overtake those in line when the holder dies", func(t *testing.T, s *memory.Server) {
		contend(t, s, "holder").acquire()
		first := contend(t, s, "first").wait(t.Context())
		first.isWaiting()
		hear := s.HoldWatch("first") // so that the lock stands open
		s.Expire("holder")
		newcomer := contend(t, s, "newcomer").wait(t.Context())
		newcomer.isWaiting()
		first.isWaiting()
		hear()
		first.got()
		newcomer.isWaiting()
	})

	inBubble(t, "one that just released goes to the end of the line", func(t *testing.T, s *memory.Server) {
		a := contend(t, s, "a")
		hear := s.HoldWatch("a")
		hear() // the watch is open only from the first acquire on
		h := a.acquire()
		hear = s.HoldWatch("a")
		first := contend(t, s, "first").wait(t.Context())
		first.isWaiting()
		// a has not heard of first, so it passes the lock on to nobody.
		release(t, h)
		again := a.wait(t.Context())
		first.got()
		hear()
		again.isWaiting()
		release(t, first.held)
		again.got()
	})
}

func TestLock_OutlivesItsHolder(t *testing.T) {
	inBubble(t, "the next has it when the session of a silent holder has run out, not before", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		w := contend(t, s, "b").wait(t.Context())
		w.isWaiting()
		heal := s.Partition("a")
		defer heal()
		cut := time.Now()
		<-h.Lost()
		lost := time.Since(cut)
		w.isWaiting()
		<-w.done
		w.got()
		assert.Less(t, lost, lockTTL)
		assert.Equal(t, lockTTL, time.Since(cut))
	})

	inBubble(t, "a closed session gives up its lock", func(t *testing.T, s *memory.Server) {
		a := contend(t, s, "a")
		h := a.acquire()
		w := contend(t, s, "b").wait(t.Context())
		w.isWaiting()
		require.NoError(t, a.session.Close(t.Context()))
		<-h.Lost()
		w.got()
	})

	inBubble(t, "one who comes when all are dead takes it by one commit", func(t *testing.T, s *memory.Server) {
		contend(t, s, "a").acquire()
		contend(t, s, "b").wait(t.Context()).isWaiting()
		s.Expire("a")
		s.Expire("b")
		synctest.Wait()
		c := contend(t, s, "c")
		s.ResetCounts()
		c.acquire()
		assert.Equal(t, 1, s.Counts("c").Commits)
		assert.Zero(t, s.Counts("c").Conflicts)
	})

	inBubble(t, "a release after the loss spares the next holder", func(t *testing.T, s *memory.Server) {
		old := contend(t, s, "a").acquire()
		w := contend(t, s, "b").wait(t.Context())
		w.isWaiting()
		s.Expire("a")
		now := w.got()
		for range 2 {
			err := old.Release(t.Context())
			require.ErrorIs(t, err, registry.ErrSessionLost)
			require.ErrorContains(t, err, "locks/a")
		}
		_, err := w.c.reg.Txn(t.Context(), registry.Txn{If: []registry.Cond{now.Guard()}})
		require.NoError(t, err)
		release(t, now)
	})

	inBubble(t, "a release after the loss is a release while nobody took over", func(t *testing.T, s *memory.Server) {
		old := contend(t, s, "a").acquire()
		s.Expire("a")
		release(t, old)
		release(t, old)
		contend(t, s, "b").acquire()
	})
}

func TestLock_WaitersGiveUp(t *testing.T) {
	inBubble(t, "when the context ends, with its cause, and leave no place", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		b := contend(t, s, "b")
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("no time")
		w := b.wait(ctx)
		w.isWaiting()
		require.Len(t, placesOf(s), 2)
		cancel(cause)
		err := w.failed()
		require.ErrorIs(t, err, cause)
		require.EqualError(t, err, "acquire locks/a: no time")
		require.Len(t, placesOf(s), 1)
		release(t, h)
		b.acquire()
	})

	inBubble(t, "before anything is sent when the context has ended", func(t *testing.T, s *memory.Server) {
		a := contend(t, s, "a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.ResetCounts()
		_, err := a.lock.Acquire(ctx, a.session)
		require.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, s.Counts("").Commits)
		assert.Zero(t, s.Counts("").Watches)
	})

	inBubble(t, "when their own session is lost, at once", func(t *testing.T, s *memory.Server) {
		contend(t, s, "a").acquire()
		b := contend(t, s, "b")
		w := b.wait(t.Context())
		w.isWaiting()
		defer s.Partition("b")()
		<-b.session.Lost()
		lost := time.Now()
		<-w.done
		require.ErrorIs(t, w.failed(), registry.ErrSessionLost)
		assert.Equal(t, lost, time.Now())
	})

	inBubble(t, "when their own session is closed", func(t *testing.T, s *memory.Server) {
		contend(t, s, "a").acquire()
		b := contend(t, s, "b")
		w := b.wait(t.Context())
		w.isWaiting()
		require.NoError(t, b.session.Close(t.Context()))
		require.ErrorIs(t, w.failed(), registry.ErrSessionLost)
		require.Len(t, placesOf(s), 1)
		_, err := b.lock.Acquire(t.Context(), b.session)
		require.ErrorIs(t, err, registry.ErrSessionLost)
	})

	inBubble(t, "when the store says that their session is over, though they have not noticed", func(t *testing.T, s *memory.Server) {
		contend(t, s, "a").acquire()
		b := contend(t, s, "b")
		b.session = unaware{b.session}
		w := b.wait(t.Context())
		w.isWaiting()
		s.Expire("b")
		require.ErrorIs(t, w.failed(), registry.ErrSessionLost)
		require.ErrorIs(t, b.wait(t.Context()).failed(), registry.ErrSessionLost)
	})

	inBubble(t, "and pass on the lock that comes to them meanwhile", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		ctx, cancel := context.WithCancel(t.Context())
		b := contend(t, s, "b").wait(ctx)
		b.isWaiting()
		c := contend(t, s, "c").wait(t.Context())
		c.isWaiting()
		hear := s.HoldWatch("b")
		release(t, h)
		b.isWaiting() // it has the lock and does not know it
		c.isWaiting()
		cancel()
		require.ErrorIs(t, b.failed(), context.Canceled)
		c.got()
		hear()
	})

	inBubble(t, "as the first in line while the lock stands open, and the next has it", func(t *testing.T, s *memory.Server) {
		contend(t, s, "a").acquire()
		ctx, cancel := context.WithCancel(t.Context())
		b := contend(t, s, "b").wait(ctx)
		b.isWaiting()
		c := contend(t, s, "c").wait(t.Context())
		c.isWaiting()
		hear := s.HoldWatch("b")
		s.Expire("a")
		c.isWaiting()
		cancel()
		require.ErrorIs(t, b.failed(), context.Canceled)
		c.got()
		hear()
	})

	inBubble(t, "within a second if the registry is away, and their place goes when it is back", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		ctx, cancel := context.WithCancel(t.Context())
		b := contend(t, s, "b")
		w := b.wait(ctx)
		w.isWaiting()
		next := contend(t, s, "next").wait(t.Context())
		next.isWaiting()
		heal := s.Partition("b")
		cancel()
		began := time.Now()
		<-w.done
		require.ErrorIs(t, w.failed(), context.Canceled)
		assert.Equal(t, time.Second, time.Since(began))

		release(t, h) // to b, which wants it no more
		next.isWaiting()
		heal()
		time.Sleep(time.Second)
		next.got()
		require.NoError(t, b.session.Err())
		require.Len(t, placesOf(s), 1)
	})

	inBubble(t, "while the registry is away, and their place goes with their session", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		ctx, cancel := context.WithCancel(t.Context())
		w := contend(t, s, "b").wait(ctx)
		w.isWaiting()
		defer s.Partition("b")()
		cancel()
		time.Sleep(lockTTL)
		require.ErrorIs(t, w.failed(), context.Canceled)
		began := time.Now()
		require.NoError(t, w.c.lock.Close(t.Context()), "nothing is tried any more")
		require.Equal(t, began, time.Now())
		require.Len(t, placesOf(s), 1)
		release(t, h)
	})

	inBubble(t, "and a new try of the same session waits for what is left of the old one", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		b := contend(t, s, "b")
		ctx, cancel := context.WithCancel(t.Context())
		w := b.wait(ctx)
		w.isWaiting()
		heal := s.Partition("b")
		cancel()
		<-w.done
		again := b.wait(t.Context())
		release(t, h) // to the place of w
		again.isWaiting()
		heal()
		<-again.done
		again.got()
		require.Len(t, placesOf(s), 1)
	})
}

func TestLock_RefusesReentry(t *testing.T) {
	inBubble(t, "to a session that holds it", func(t *testing.T, s *memory.Server) {
		a := contend(t, s, "a")
		h := a.acquire()
		for range 2 {
			_, err := a.lock.Acquire(t.Context(), a.session)
			require.ErrorIs(t, err, registry.ErrHeld)
			require.ErrorContains(t, err, string(a.session.ID()))
		}
		require.Len(t, placesOf(s), 1)
		release(t, h)
		release(t, a.acquire())
	})

	inBubble(t, "through another Lock of the same session", func(t *testing.T, s *memory.Server) {
		a := contend(t, s, "a")
		h := a.acquire()
		other := registry.NewLock(a.reg, lockDir)
		defer func() { assert.NoError(t, other.Close(t.Context())) }()
		_, err := other.Acquire(t.Context(), a.session)
		require.ErrorIs(t, err, registry.ErrHeld)
		release(t, h)
		h, err = other.Acquire(t.Context(), a.session)
		require.NoError(t, err)
		release(t, h)
	})

	inBubble(t, "to a session that comes to hold it while it waits", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		b := contend(t, s, "b")
		first := b.wait(t.Context())
		first.isWaiting()
		second := b.wait(t.Context())
		second.isWaiting()
		release(t, h)
		first.got()
		require.ErrorIs(t, second.failed(), registry.ErrHeld)
		require.Len(t, placesOf(s), 1)
	})

	inBubble(t, "but not to one whose release another Lock has not heard of", func(t *testing.T, s *memory.Server) {
		a := contend(t, s, "a")
		other := &contender{t: t, name: "other", reg: a.reg, session: a.session, lock: registry.NewLock(a.reg, lockDir)}
		defer func() { assert.NoError(t, other.lock.Close(t.Context())) }()
		release(t, other.acquire())
		h := a.acquire()
		synctest.Wait()
		hear := s.HoldWatch("a")
		release(t, h)
		w := other.wait(t.Context())
		w.isWaiting()
		hear()
		w.got()
	})
}

func TestLock_SettlesUnknownOutcomes(t *testing.T) {
	levers := []struct {
		name string
		pull func(s *memory.Server)
	}{
		{"request lost", func(s *memory.Server) { s.LoseRequest("b", 1) }},
		{"reply lost", func(s *memory.Server) { s.LoseReply("b", 1) }},
		{"request and reply lost", func(s *memory.Server) { s.LoseRequest("b", 1); s.LoseReply("b", 1) }},
		{"connection lost", func(s *memory.Server) {
			heal := s.Partition("b")
			time.AfterFunc(time.Second, heal)
		}},
	}
	for _, l := range levers {
		pull := func(s *memory.Server) { synctest.Wait(); l.pull(s) }
		inBubble(t, l.name+" when a free lock is acquired", func(t *testing.T, s *memory.Server) {
			release(t, contend(t, s, "a").acquire())
			b := contend(t, s, "b")
			release(t, b.acquire())
			pull(s)
			w := b.wait(t.Context())
			<-w.done
			h := w.got()
			require.Len(t, placesOf(s), 1)
			release(t, h)
			require.Empty(t, placesOf(s))
		})

		inBubble(t, l.name+" when the lock is acquired for the first time", func(t *testing.T, s *memory.Server) {
			b := contend(t, s, "b")
			pull(s)
			w := b.wait(t.Context())
			<-w.done
			release(t, w.got())
			require.Empty(t, placesOf(s))
		})

		inBubble(t, l.name+" when one gets in line", func(t *testing.T, s *memory.Server) {
			h := contend(t, s, "a").acquire()
			b := contend(t, s, "b")
			pull(s)
			w := b.wait(t.Context())
			time.Sleep(5 * time.Second)
			require.Len(t, placesOf(s), 2)
			release(t, h)
			<-w.done
			release(t, w.got())
			require.Empty(t, placesOf(s))
		})

		inBubble(t, l.name+" when the first in line takes it", func(t *testing.T, s *memory.Server) {
			contend(t, s, "a").acquire()
			w := contend(t, s, "b").wait(t.Context())
			w.isWaiting()
			pull(s)
			s.Expire("a")
			<-w.done
			release(t, w.got())
			require.Empty(t, placesOf(s))
		})

		inBubble(t, l.name+" when it is released", func(t *testing.T, s *memory.Server) {
			b := contend(t, s, "b")
			h := b.acquire()
			pull(s)
			release(t, h)
			require.Empty(t, placesOf(s))
			release(t, contend(t, s, "c").acquire())
		})

		inBubble(t, l.name+" when it is passed on", func(t *testing.T, s *memory.Server) {
			b := contend(t, s, "b")
			h := b.acquire()
			w := contend(t, s, "c").wait(t.Context())
			w.isWaiting()
			pull(s)
			release(t, h)
			release(t, w.got())
			require.Empty(t, placesOf(s))
		})

		inBubble(t, l.name+" when one leaves the line", func(t *testing.T, s *memory.Server) {
			h := contend(t, s, "a").acquire()
			ctx, cancel := context.WithCancel(t.Context())
			w := contend(t, s, "b").wait(ctx)
			w.isWaiting()
			pull(s)
			cancel()
			time.Sleep(5 * time.Second)
			require.ErrorIs(t, w.failed(), context.Canceled)
			require.Len(t, placesOf(s), 1)
			release(t, h)
		})
	}

	inBubble(t, "a release that is tried again spares the next holder", func(t *testing.T, s *memory.Server) {
		b := contend(t, s, "b")
		h := b.acquire()
		next := contend(t, s, "c").wait(t.Context())
		next.isWaiting()
		after := contend(t, s, "d").wait(t.Context())
		after.isWaiting()

		heal := s.PartitionOneWay("b", memory.Replies)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := h.Release(ctx)
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		now := next.got()
		release(t, now)
		after.got()
		heal()
		require.NoError(t, h.Release(t.Context()), "it was b's release that changed the record")
		_, err = b.reg.Txn(t.Context(), registry.Txn{If: []registry.Cond{after.held.Guard()}})
		require.NoError(t, err)
	})

	inBubble(t, "a release that was not sent is sent by the next try", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "b").acquire()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := h.Release(ctx)
		require.ErrorIs(t, err, registry.ErrNotApplied)
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, placesOf(s), 1)
		release(t, h)
		require.Empty(t, placesOf(s))
	})

	inBubble(t, "a release in doubt whose session has ended cannot be told", func(t *testing.T, s *memory.Server) {
		b := contend(t, s, "b")
		h := b.acquire()
		next := contend(t, s, "c").wait(t.Context())
		next.isWaiting()
		heal := s.PartitionOneWay("b", memory.Replies)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, h.Release(ctx), registry.ErrUnknownOutcome)
		heal()
		s.Expire("b")
		require.ErrorIs(t, h.Release(t.Context()), registry.ErrSessionLost)
		next.got()
	})

	inBubble(t, "a request held up does nothing to the next holder", func(t *testing.T, s *memory.Server) {
		b := contend(t, s, "b")
		h := b.acquire()
		arrive := s.HoldCommit("b")
		release(t, h)
		now := contend(t, s, "c").acquire()
		arrive()
		synctest.Wait()
		_, err := b.reg.Txn(t.Context(), registry.Txn{If: []registry.Cond{now.Guard()}})
		require.NoError(t, err)
		require.Len(t, placesOf(s), 1)
	})

	inBubble(t, "a place that got the lock before it was known to be is a place", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		s.LoseReply("b", 1)
		w := contend(t, s, "b").wait(t.Context())
		w.isWaiting()
		require.Len(t, placesOf(s), 2)
		release(t, h) // which writes the place, so that it no longer tells who made it
		<-w.done
		w.got()
	})

	inBubble(t, "a place that was replaced and comes to be again is taken away", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		b := contend(t, s, "b")
		arrive := s.HoldCommit("b")
		w := b.wait(t.Context())
		time.Sleep(time.Second)
		place := placesOf(s)[1]
		commit(t, b.reg, registry.Delete(place.Key, place.Modified))
		w.isWaiting()
		observe := s.HoldWatch("b")
		arrive()
		require.Len(t, placesOf(s), 3, "else this is no test")
		observe()
		w.isWaiting()
		require.Len(t, placesOf(s), 2)
		release(t, h)
		w.got()
	})

	inBubble(t, "a lock that came to a place that is not wanted is not held by its session", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		b := contend(t, s, "b")
		arrive := s.HoldCommit("b")
		ctx, cancel := context.WithCancel(t.Context())
		w := b.wait(ctx)
		time.Sleep(time.Second)
		cancel()
		w.failed()
		hear := s.HoldWatch("b")
		arrive()
		again := b.wait(t.Context())
		again.isWaiting()
		release(t, h) // to the place of w
		again.isWaiting()
		s.Delay("b", time.Second, time.Second) // so that there is time to take it for a re-entry
		hear()
		<-again.done
		again.got()
	})

	inBubble(t, "a place that comes to be again is taken away", func(t *testing.T, s *memory.Server) {
		for _, how := range []string{"held and released", "given up"} {
			h := contend(t, s, "a").acquire()
			b := contend(t, s, "b")
			arrive := s.HoldCommit("b")
			ctx, cancel := context.WithCancel(t.Context())
			w := b.wait(ctx)
			time.Sleep(time.Second)
			w.isWaiting()
			require.Len(t, placesOf(s), 2)
			if how == "given up" {
				cancel()
				w.failed()
				release(t, h)
			} else {
				release(t, h)
				release(t, w.got())
			}
			require.Empty(t, placesOf(s))
			synctest.Wait()
			observe := s.HoldWatch("b")
			arrive()
			require.Len(t, placesOf(s), 1, "else this is no test")
			observe()
			synctest.Wait()
			require.Empty(t, placesOf(s))
			cancel()
		}
	})

	inBubble(t, "a place that is created again before its release is observed is deleted", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		b := contend(t, s, "b")
		arrive := s.HoldCommit("b")
		w := b.wait(t.Context())
		time.Sleep(time.Second)
		release(t, h)
		held := w.got()
		observe := s.HoldWatch("b")
		release(t, held)
		synctest.Wait()
		arrive()
		require.Len(t, placesOf(s), 1, "else this is no test")
		observe() // the release and the place in one batch
		synctest.Wait()
		require.Empty(t, placesOf(s))
	})

	inBubble(t, "a place that is created again during a withdrawal that did not find it is deleted", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		b := contend(t, s, "b")
		arrive := s.HoldCommit("b")
		w := b.wait(t.Context())
		time.Sleep(time.Second)
		release(t, h)
		held := w.got()
		observe := s.HoldWatch("b")
		s.Delay("b", 0, time.Second)
		release(t, held) // b's view still has the place, so a withdrawal reads it
		synctest.Wait()
		s.Delay("b", 0, 0)
		arrive()
		observe()
		synctest.Wait()
		require.Len(t, placesOf(s), 1, "else this is no test")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(t, placesOf(s))
	})

	inBubble(t, "a lock that is passed on to a place that came to be again goes on", func(t *testing.T, s *memory.Server) {
		a := contend(t, s, "a")
		h := a.acquire()
		b := contend(t, s, "b")
		arrive := s.HoldCommit("b")
		ctx, cancel := context.WithCancel(t.Context())
		w := b.wait(ctx)
		time.Sleep(time.Second)
		cancel()
		w.failed()
		hear := s.HoldWatch("b")
		arrive()
		next := contend(t, s, "c").wait(t.Context())
		next.isWaiting()
		release(t, h)
		next.isWaiting()
		hear()
		next.got()
	})
}

func TestLock_RefusesWhatIsNotALocks(t *testing.T) {
	records := []struct {
		name, key, value, rule string
	}{
		{"a key of another kind", "locks/a/config", `{"lock":1}`, `a lock has only the key "owner" and places, which begin with a tilde`},
		{"an owner that is no JSON", "locks/a/owner", "alice", "not a lock's JSON"},
		{"an owner that is other JSON", "locks/a/owner", `{"name":"alice"}`, `no "lock"`},
		{"an owner that is null", "locks/a/owner", "null", `no "lock"`},
		{"an owner of a format to come", "locks/a/owner", `{"lock":2}`, "format 2, this program knows 1"},
		{"an owner without a place", "locks/a/owner", `{"lock":1,"session":"x"}`, "has both a session and a place, or neither"},
		{"an owner without a session", "locks/a/owner", `{"lock":1,"place":"~x"}`, "has both a session and a place, or neither"},
		{"an owner whose place is no owned key", "locks/a/owner", `{"lock":1,"session":"x","place":"x"}`, `"x" is not the name of a place`},
		{"an owner whose place is elsewhere", "locks/a/owner", `{"lock":1,"session":"x","place":"b/~x"}`, `"b/~x" is not the name of a place`},
		{"an owner whose place is no key", "locks/a/owner", `{"lock":1,"session":"x","place":"~é"}`, "is not the name of a place"},
		{"an owned key of another kind", "locks/a/~b", "alice", "not a lock's JSON"},
		{"a place of a format to come", "locks/a/~b", `{"lock":2}`, "format 2, this program knows 1"},
		{"a place that names a session", "locks/a/~b", `{"lock":1,"session":"x","place":"~b"}`, "a place names no session or place"},
	}
	for _, r := range records {
		inBubble(t, r.name, func(t *testing.T, s *memory.Server) {
			b := contend(t, s, "b")
			foreign := registry.Key(r.key)
			create := registry.Create(foreign, []byte(r.value))
			if foreign.Owned() {
				create = registry.CreateOwned(foreign, []byte(r.value), b.session.ID())
			}
			rev := commit(t, b.reg, create)
			defer func() { _ = s.Log() }() // it is not a lock's log
			err := contend(t, s, "a").wait(t.Context()).failed()
			require.ErrorIs(t, err, registry.ErrLockRecord)
			require.ErrorContains(t, err, r.key)
			require.ErrorContains(t, err, r.rule)
			require.Equal(t, rev, get(t, b.reg, foreign).Modified)
			require.Len(t, s.Dump(), 1)

			commit(t, b.reg, registry.Delete(foreign, rev))
			contend(t, s, "c").acquire()
		})
	}

	inBubble(t, "from those in line as well, while the holder keeps the lock", func(t *testing.T, s *memory.Server) {
		a := contend(t, s, "a")
		h := a.acquire()
		w := contend(t, s, "b").wait(t.Context())
		w.isWaiting()
		rev := commit(t, a.reg, registry.Create("locks/a/config", nil))
		require.ErrorIs(t, w.failed(), registry.ErrLockRecord)
		require.Len(t, placesOf(s), 1)
		_, err := a.reg.Txn(t.Context(), registry.Txn{If: []registry.Cond{h.Guard()}})
		require.NoError(t, err)
		release(t, h)
		require.ErrorIs(t, a.wait(t.Context()).failed(), registry.ErrLockRecord)
		commit(t, a.reg, registry.Delete("locks/a/config", rev))
		synctest.Wait()
		a.acquire()
	})

	t.Run("keys that cannot be", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			a := contend(t, s, "a")
			for _, dir := range []registry.Key{"a//b", "locks/~a", "ä"} {
				l := registry.NewLock(a.reg, dir)
				_, err := l.Acquire(t.Context(), a.session)
				require.ErrorIs(t, err, registry.ErrInvalidKey)
				require.ErrorContains(t, err, string(dir))
				require.NoError(t, l.Close(t.Context()))
			}
		})
	})
}

func TestLock_HealsWhatWasClearedUpByHand(t *testing.T) {
	clear := func(t *testing.T, s *memory.Server, e registry.Entry) {
		t.Helper()
		commit(t, clientOf(t, s, "operator"), registry.Delete(e.Key, e.Modified))
	}

	inBubble(t, "one whose place is taken away gets in line again", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		w := contend(t, s, "b").wait(t.Context())
		w.isWaiting()
		clear(t, s, placesOf(s)[1])
		w.isWaiting()
		require.Len(t, placesOf(s), 2)
		release(t, h)
		w.got()
	})

	inBubble(t, "a holder whose place is taken away keeps the lock and can release it", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		w := contend(t, s, "b").wait(t.Context())
		w.isWaiting()
		clear(t, s, placesOf(s)[0])
		w.isWaiting()
		release(t, h)
		w.got()
	})

	inBubble(t, "the death of a holder whose place is taken away is noticed", func(t *testing.T, s *memory.Server) {
		contend(t, s, "a").acquire()
		w := contend(t, s, "b").wait(t.Context())
		w.isWaiting()
		clear(t, s, placesOf(s)[0])
		w.isWaiting()
		s.Expire("a")
		s.ResetCounts()
		w.isWaiting()
		<-w.done
		w.got()
		assert.LessOrEqual(t, s.Counts("b").Conflicts, 1)
	})

	t.Run("a lock whose owner is taken away is free", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			a := contend(t, s, "a")
			h := a.acquire()
			w := contend(t, s, "b").wait(t.Context())
			w.isWaiting()
			clear(t, s, get(t, a.reg, "locks/a/owner"))
			clear(t, s, placesOf(s)[0])
			now := w.got()
			require.Greater(t, now.Fence(), h.Fence())
			_, err := a.reg.Txn(t.Context(), registry.Txn{If: []registry.Cond{h.Guard()}})
			require.ErrorIs(t, err, registry.ErrConflict)
			require.ErrorIs(t, h.Release(t.Context()), registry.ErrSessionLost)
			release(t, now)
			release(t, a.acquire())
		})
	})
}

// lingering is a registry that takes a second to close a watcher, and to make out that the
// context of a transaction has ended.
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
	inBubble(t, "ends those who wait, with their places", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		b := contend(t, s, "b")
		w := b.wait(t.Context())
		w.isWaiting()
		require.NoError(t, b.lock.Close(t.Context()))
		require.ErrorIs(t, w.failed(), registry.ErrClosed)
		require.Len(t, placesOf(s), 1)
		assert.Zero(t, s.Counts("b").Watches)
		_, err := b.lock.Acquire(t.Context(), b.session)
		require.ErrorIs(t, err, registry.ErrClosed)
		require.NoError(t, b.lock.Close(t.Context()))
		release(t, h)
	})

	inBubble(t, "waits for its watch to be closed", func(t *testing.T, s *memory.Server) {
		a := contendOn(t, lingering{clientOf(t, s, "a")}, "a")
		a.acquire()
		began := time.Now()
		require.NoError(t, a.lock.Close(t.Context()))
		require.Equal(t, time.Second, time.Since(began))
	})

	inBubble(t, "waits for calls to be over when its context has ended", func(t *testing.T, s *memory.Server) {
		contend(t, s, "b").acquire()
		a := contendOn(t, lingering{clientOf(t, s, "a")}, "a")
		w := a.wait(t.Context())
		w.isWaiting()
		defer s.Partition("a")()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, a.lock.Close(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, w.failed(), registry.ErrClosed)
		require.NoError(t, a.lock.Close(t.Context()))
	})

	inBubble(t, "leaves held locks to be released", func(t *testing.T, s *memory.Server) {
		a := contend(t, s, "a")
		h := a.acquire()
		w := contend(t, s, "b").wait(t.Context())
		w.isWaiting()
		require.NoError(t, a.lock.Close(t.Context()))
		w.isWaiting()
		release(t, h)
		w.got()
	})

	inBubble(t, "ends with its context, and places go with their sessions", func(t *testing.T, s *memory.Server) {
		h := contend(t, s, "a").acquire()
		b := contend(t, s, "b")
		w := b.wait(t.Context())
		w.isWaiting()
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

	inBubble(t, "of the registry ends those who wait", func(t *testing.T, s *memory.Server) {
		contend(t, s, "a").acquire()
		b := contend(t, s, "b")
		w := b.wait(t.Context())
		w.isWaiting()
		require.NoError(t, b.reg.Close(t.Context()))
		err := w.failed()
		require.True(t, errors.Is(err, registry.ErrClosed) || errors.Is(err, registry.ErrSessionLost), err)
		_, err = b.lock.Acquire(t.Context(), unaware{b.session})
		require.ErrorIs(t, err, registry.ErrClosed)
	})
}

// refusing is a registry that refuses to be watched, and to commit, for as long as it is
// told.
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
	inBubble(t, "to be watched, and is of use again afterwards", func(t *testing.T, s *memory.Server) {
		reg := &refusing{Registry: clientOf(t, s, "a"), watch: registry.ErrPermission}
		a := contendOn(t, reg, "a")
		for range 2 {
			require.ErrorIs(t, a.wait(t.Context()).failed(), registry.ErrPermission)
		}
		reg.watch = nil
		a.acquire()
	})

	inBubble(t, "to commit", func(t *testing.T, s *memory.Server) {
		reg := &refusing{Registry: clientOf(t, s, "a"), txn: registry.ErrQuota}
		a := contendOn(t, reg, "a")
		require.ErrorIs(t, a.wait(t.Context()).failed(), registry.ErrQuota)
		reg.txn = nil
		h := a.acquire()
		reg.txn = registry.ErrQuota
		require.ErrorIs(t, h.Release(t.Context()), registry.ErrQuota)
		reg.txn = nil
		release(t, h)
	})

	inBubble(t, "to let one out of the line, and says so", func(t *testing.T, s *memory.Server) {
		contend(t, s, "b").acquire()
		reg := &refusing{Registry: clientOf(t, s, "a")}
		a := contendOn(t, reg, "a")
		w := a.wait(t.Context())
		w.isWaiting()
		reg.txn = registry.ErrPermission
		rev := commit(t, clientOf(t, s, "c"), registry.Create("locks/a/config", nil))
		err := w.failed()
		require.ErrorIs(t, err, registry.ErrLockRecord)
		require.ErrorIs(t, err, registry.ErrPermission)
		commit(t, clientOf(t, s, "c"), registry.Delete("locks/a/config", rev))
	})
}
