package registry_test

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

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

const lockDir registry.Key = "locks/a"

// lockTTL is that of the sessions of contenders.
const lockTTL = 10 * time.Second

// contender is a process that wants the lock, on a machine of its own.
type contender struct {
	t       *testing.T
	name    string
	reg     registry.Registry
	session registry.Session
	lock    *registry.Lock
}

// contend adds a contender with a session and a lock, which are closed at the end.
func contend(t *testing.T, s *memory.Server, name string) *contender {
	t.Helper()
	return contendOn(t, clientOf(t, s, name), name)
}

func contendOn(t *testing.T, reg registry.Registry, name string) *contender {
	t.Helper()
	c := &contender{t: t, name: name, reg: reg, lock: registry.NewLock(reg, lockDir)}
	c.begin()
	t.Cleanup(func() { assert.NoError(t, c.lock.Close(context.Background())) })
	return c
}

// begin gives c a new session.
func (c *contender) begin() {
	c.t.Helper()
	var err error
	c.session, err = c.reg.OpenSession(context.Background(), registry.SessionOptions{TTL: lockTTL})
	require.NoError(c.t, err)
}

// acquire is for a lock that is to be had at once.
func (c *contender) acquire() *registry.Held {
	c.t.Helper()
	w := c.wait(context.Background())
	synctest.Wait()
	return w.got()
}

// waiting is an Acquire in a goroutine.
type waiting struct {
	c    *contender
	done chan struct{}
	held *registry.Held
	err  error
}

func (c *contender) wait(ctx context.Context) *waiting {
	w := &waiting{c: c, done: make(chan struct{})}
	s := c.session
	go func() {
		defer close(w.done)
		w.held, w.err = c.lock.Acquire(ctx, s)
	}()
	return w
}

// isWaiting requires that nothing came of w by now.
func (w *waiting) isWaiting() {
	w.c.t.Helper()
	synctest.Wait()
	select {
	case <-w.done:
		require.FailNow(w.c.t, "not waiting any more", "%s: %v", w.c.name, w.err)
	default:
	}
}

// got requires that w has the lock by now.
func (w *waiting) got() *registry.Held {
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

// failed requires that w has failed by now.
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

func release(t *testing.T, h *registry.Held) {
	t.Helper()
	require.NoError(t, h.Release(context.Background()))
}

// placesOf returns the places of the lock that stand in the server, oldest first.
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

// tenure is a change of the lock's owner, as the server's log tells it.
type tenure struct {
	session registry.SessionID // empty while the lock is free
	place   registry.Key
	since   uint64
}

// judge holds the log of a server against what a lock promises whatever happens: that it
// changes hands only by its holder's will or end, that it comes to the oldest place in
// line, and that one who is not in line gets it only if nobody was when it became free. It
// returns the tenures.
func judge(t *testing.T, log []memory.Commit) []tenure {
	t.Helper()
	var (
		now      tenure
		openedAt uint64                          // when the lock became free, or its holder's session ended
		created  = make(map[registry.Key]uint64) // places
		session  = make(map[registry.Key]registry.SessionID)
		client   = make(map[registry.SessionID]string)
		ended    = make(map[registry.SessionID]bool)
		all      []tenure
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
		var next *tenure
		isNew := false // the place of next was not in line before
		line := make(map[registry.Key]uint64)
		for key, seq := range created {
			if key != now.place {
				line[key] = seq
			}
		}
		for _, o := range c.Then {
			switch {
			case o.Key.Dir() != lockDir:
			case o.Key == lockDir.Join("owner"):
				r := decodeOwner(t, o.Value)
				next = &tenure{session: r.Session, since: c.Rev.Seq}
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
		for key, seq := range line {
			if isNew {
				assert.GreaterOrEqual(t, seq, openedAt, "%s overtook %s, which was in line when the lock came free", now.place, key)
			} else {
				assert.GreaterOrEqual(t, seq, line[now.place], "%s overtook %s", now.place, key)
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
