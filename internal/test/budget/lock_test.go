package budget_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/lock"
	"github.com/rota-dev/rota/registry"
)

// lockDir is the directory of the lock.
const lockDir registry.Key = "lock"

// The cost of one Acquire and Release while all other contenders wait.
func TestBudget_LockHandOver(t *testing.T) {
	const holds = 16
	for _, n := range []int{2, 8} {
		t.Run(fmt.Sprintf("%d contenders", n), func(t *testing.T) {
			onEach(t, func(t *testing.T, k kind) {
				k.on(t, func(t *testing.T, s store) {
					l := newLockLine(t, s, n)
					defer l.close()
					s.count(t)
					for range holds {
						l.handOver()
					}
					c := s.count(t)
					each := func(n int) float64 { return float64(n) / holds }
					t.Logf("each hold: %.2f transactions, %.2f reads, %.2f events", each(c.txns), each(c.reads), each(c.events))
					assert.Equal(t, 2*holds, c.txns, "to join the queue, and to release the lock")
					if !k.watchesRead {
						assert.Zero(t, c.reads)
						return
					}
					// Each contender reads the list and the owner's record after a release, and the list
					// and the new place after a join. If the event of the deleted place arrives before
					// that of the list, a contender reads the place too.
					assert.LessOrEqual(t, c.reads, 9*n*holds/2)
					assert.LessOrEqual(t, c.events, 4*n*holds)
				})
			})
		})
	}
}

// lockLine is a queue of contenders, the first of which holds the lock.
type lockLine struct {
	t     *testing.T
	store store
	line  []*lockContender
	held  *lock.Held
	over  atomic.Bool
}

type lockContender struct {
	reg      registry.Registry
	session  registry.Session
	lock     *lock.Lock
	acquired chan *lock.Held
}

func newLockLine(t *testing.T, s store, n int) *lockLine {
	t.Helper()
	l := &lockLine{t: t, store: s}
	for i := range n {
		reg := s.open(t, fmt.Sprint("contender", i))
		session, err := reg.OpenSession(t.Context(), registry.SessionOptions{})
		require.NoError(t, err)
		c := &lockContender{reg: reg, session: session, lock: lock.New(reg, lockDir), acquired: make(chan *lock.Held, 1)}
		l.join(c)
		if i == 0 {
			l.held = <-c.acquired
		}
	}
	return l
}

// join makes c the last in the queue, and returns when the others have observed that.
func (l *lockLine) join(c *lockContender) {
	l.t.Helper()
	go func() {
		h, err := c.lock.Acquire(context.Background(), c.session)
		assert.True(l.t, err == nil || l.over.Load(), err)
		c.acquired <- h
	}()
	l.line = append(l.line, c)
	awaitCommit(l.t, l.store, func(o registry.Op) bool { return o.Kind == registry.OpCreateOwned && o.Key.Dir() == lockDir })
	time.Sleep(observing)
}

// observing is how long contenders need to observe a commit on a busy machine.
const observing = 50 * time.Millisecond

// handOver passes the lock to the next in the queue, and makes the holder the last.
func (l *lockLine) handOver() {
	l.t.Helper()
	require.NoError(l.t, l.held.Release(l.t.Context()))
	first := l.line[0]
	l.line = l.line[1:]
	l.held = <-l.line[0].acquired
	time.Sleep(observing)
	l.join(first)
}

func (l *lockLine) close() {
	l.over.Store(true)
	for _, c := range l.line {
		assert.NoError(l.t, c.session.Close(context.Background()))
		assert.NoError(l.t, c.lock.Close(context.Background()))
		assert.NoError(l.t, c.reg.Close(context.Background()))
		if c != l.line[0] {
			<-c.acquired
		}
	}
}

// awaitCommit waits for a commit with such an operation.
func awaitCommit(t *testing.T, s store, is func(registry.Op) bool) {
	t.Helper()
	for end := time.Now().Add(s.patience()); ; time.Sleep(time.Millisecond) {
		for _, c := range s.follow() {
			if hasOp(c, is) {
				return
			}
		}
		require.True(t, time.Now().Before(end), "no such commit")
	}
}

func hasOp(c judge.Commit, is func(registry.Op) bool) bool {
	for _, o := range c.Then {
		if is(o) {
			return true
		}
	}
	return false
}
