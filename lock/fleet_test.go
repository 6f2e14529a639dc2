package lock_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
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

const lockDir registry.Key = "locks/a"

// lockTTL is the TTL of the sessions of contenders.
const lockTTL = 10 * time.Second

// contender is a process that competes for the lock, with a client of its own.
type contender struct {
	t       *testing.T
	name    string
	reg     registry.Registry
	session registry.Session
	lock    *lock.Lock
}

// newContender returns a contender with a session and a lock, which are closed at the end.
func newContender(t *testing.T, s *memory.Server, name string) *contender {
	t.Helper()
	return newContenderOn(t, registrytest.Client(t, s, name), name)
}

func newContenderOn(t *testing.T, reg registry.Registry, name string) *contender {
	t.Helper()
	c := &contender{t: t, name: name, reg: reg, lock: lock.New(reg, lockDir)}
	c.openSession()
	t.Cleanup(func() { assert.NoError(t, c.lock.Close(context.Background())) })
	return c
}

// openSession gives c a new session.
func (c *contender) openSession() {
	c.t.Helper()
	var err error
	c.session, err = c.reg.OpenSession(context.Background(), registry.SessionOptions{TTL: lockTTL})
	require.NoError(c.t, err)
}

// acquire acquires the lock, and requires that it need not wait for time to pass.
func (c *contender) acquire() *lock.Held {
	c.t.Helper()
	w := c.startAcquire(context.Background())
	synctest.Wait()
	return w.acquired()
}

// waiting is an Acquire in a goroutine.
type waiting struct {
	c    *contender
	done chan struct{}
	held *lock.Held
	err  error
}

func (c *contender) startAcquire(ctx context.Context) *waiting {
	w := &waiting{c: c, done: make(chan struct{})}
	s := c.session
	go func() {
		defer close(w.done)
		w.held, w.err = c.lock.Acquire(ctx, s)
	}()
	return w
}

// requireWaiting requires that Acquire has not returned yet.
func (w *waiting) requireWaiting() {
	w.c.t.Helper()
	synctest.Wait()
	select {
	case <-w.done:
		require.FailNow(w.c.t, "Acquire has returned", "%s: %v", w.c.name, w.err)
	default:
	}
}

// acquired requires that Acquire has returned the lock.
func (w *waiting) acquired() *lock.Held {
	w.c.t.Helper()
	synctest.Wait()
	select {
	case <-w.done:
		require.NoError(w.c.t, w.err)
		return w.held
	default:
		require.FailNow(w.c.t, "still waiting", w.c.name)
		return nil
	}
}

// failed requires that Acquire has returned an error.
func (w *waiting) failed() error {
	w.c.t.Helper()
	synctest.Wait()
	select {
	case <-w.done:
		require.Error(w.c.t, w.err)
		return w.err
	default:
		require.FailNow(w.c.t, "still waiting", w.c.name)
		return nil
	}
}

func release(t *testing.T, h *lock.Held) {
	t.Helper()
	require.NoError(t, h.Release(context.Background()))
}

// placesOf returns the places of the lock that the server stores, oldest first.
func placesOf(s *memory.Server) []registry.Entry {
	var found []registry.Entry
	for _, e := range s.Dump() {
		if e.Key.Dir() == lockDir && e.Key.Owned() {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b registry.Entry) int { return cmp.Compare(a.Created.Seq, b.Created.Seq) })
	return found
}

// hold is a change of the lock's owner in the log of the server.
type hold struct {
	session registry.SessionID // empty while the lock is free
	place   registry.Key
	since   uint64
}

// judgeLog checks the log of a server against the promises of a lock: only the holder, or
// the end of its session, passes the lock on; it passes to the oldest place in the queue; a
// session without a place gets it only if the queue was empty when the lock became free. It
// returns all holds.
func judgeLog(t *testing.T, log []memory.Commit) []hold {
	t.Helper()
	var (
		now      hold
		openedAt uint64                          // when the lock became free, or its holder's session ended
		created  = make(map[registry.Key]uint64) // places
		session  = make(map[registry.Key]registry.SessionID)
		client   = make(map[registry.SessionID]string)
		ended    = make(map[registry.SessionID]bool)
		all      []hold
	)
	for _, c := range log {
		if c.Opened != "" {
			client[c.Opened] = c.Client
		}
		if c.Ended != "" {
			ended[c.Ended] = true
			for _, key := range c.Gone {
				delete(created, key)
			}
			if c.Ended == now.session {
				openedAt = c.Rev.Seq
			}
		}
		if !c.Changed() {
			continue
		}
		var next *hold
		isNew := false // the place of next was not in the queue before
		queue := make(map[registry.Key]uint64)
		for key, seq := range created {
			if key != now.place {
				queue[key] = seq
			}
		}
		for _, o := range c.Then {
			switch {
			case o.Key.Dir() != lockDir:
			case o.Key == lockDir.Join("owner"):
				r := decodeOwner(t, o.Value)
				next = &hold{session: r.Session, since: c.Rev.Seq}
				if r.Place != "" {
					next.place = lockDir.Join(r.Place)
				}
			case o.Kind == registry.OpCreateOwned:
				created[o.Key], session[o.Key] = c.Rev.Seq, o.Session
				isNew = true
			case o.Kind == registry.OpDelete:
				delete(created, o.Key)
			}
		}
		if next == nil {
			continue
		}
		if now.session != "" && !ended[now.session] {
			assert.Equal(t, client[now.session], c.Client, "%s took the lock of %s, which lives", next.session, now.session)
		}
		if now.session != "" {
			all = append(all, now)
		}
		now = *next
		if now.session == "" {
			openedAt = now.since
			continue
		}
		assert.Contains(t, created, now.place, "the holder has no place")
		assert.Equal(t, session[now.place], now.session)
		for key, seq := range queue {
			if isNew {
				assert.GreaterOrEqual(t, seq, openedAt, "%s overtook %s, which was in the queue when the lock became free", now.place, key)
			} else {
				assert.GreaterOrEqual(t, seq, queue[now.place], "%s overtook %s", now.place, key)
			}
		}
	}
	if now.session != "" {
		all = append(all, now)
	}
	return all
}

type ownerRecord struct {
	Lock    int                `json:"lock"`
	Session registry.SessionID `json:"session"`
	Place   string             `json:"place"`
}

func decodeOwner(t *testing.T, value []byte) ownerRecord {
	t.Helper()
	var r ownerRecord
	require.NoError(t, json.Unmarshal(value, &r))
	require.Equal(t, 1, r.Lock)
	return r
}

func nameOf(i int) string { return fmt.Sprintf("c%03d", i) }
