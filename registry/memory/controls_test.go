package memory_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// cuts are the ways to partition machine a from the server.
var cuts = []struct {
	name    string
	cut     func(*memory.Server) (heal func())
	arrives bool // requests reach the server
}{
	{"both ways", func(s *memory.Server) func() { return s.Partition("a") }, false},
	{"requests", func(s *memory.Server) func() { return s.PartitionOneWay("a", memory.Requests) }, false},
	{"replies", func(s *memory.Server) func() { return s.PartitionOneWay("a", memory.Replies) }, true},
}

func TestDirection_String(t *testing.T) {
	for d, want := range map[memory.Direction]string{memory.Requests: "requests", memory.Replies: "replies", 0: "unknown"} {
		require.Equal(t, want, d.String())
	}
}

func TestExpire(t *testing.T) {
	bubble(t, "a client that the server can reach loses its sessions at once, without a call of State", func(t *testing.T, s *memory.Server) {
		x := openOwner(t, connect(t, s, "a"))
		s.Expire("a")
		checkDuration(t, 0, func() { <-x.Lost() })
	})
	bubble(t, "a client behind a delay loses its sessions when the reply arrives", func(t *testing.T, s *memory.Server) {
		x := openOwner(t, connect(t, s, "a"))
		time.Sleep(10 * ttl)
		s.Delay("a", 0, time.Second)
		begin := time.Now()
		s.Expire("a")
		sleepUntil(begin.Add(time.Second - 1))
		require.Equal(t, registry.SessionConnected, state(x))
		<-x.Lost()
		require.Equal(t, time.Second, time.Since(begin))
	})
	bubble(t, "another client loses them when they run out on its own clock, without a call of State", func(t *testing.T, s *memory.Server) {
		x := openOwner(t, connect(t, s, "a"))
		begin := time.Now()
		s.Partition("a")
		s.Expire("a")
		<-x.Lost()
		require.Equal(t, span, time.Since(begin))
	})
}

func TestCut(t *testing.T) {
	for _, cut := range cuts {
		t.Run(cut.name, func(t *testing.T) {
			bubble(t, "a read fails after CallTimeout", func(t *testing.T, s *memory.Server) {
				a := connect(t, s, "a")
				cut.cut(s)
				checkDuration(t, memory.CallTimeout, func() {
					_, err := a.Get(t.Context(), "k", registry.ReadOptions{})
					require.ErrorIs(t, err, registry.ErrUnavailable)
				})
				checkDuration(t, memory.CallTimeout, func() {
					_, err := a.List(t.Context(), "k", registry.ReadOptions{})
					require.ErrorIs(t, err, registry.ErrUnavailable)
				})
				checkDuration(t, memory.CallTimeout, func() {
					_, err := a.Watch(t.Context(), "k", registry.WatchOptions{})
					require.ErrorIs(t, err, registry.ErrUnavailable)
				})
			})
			bubble(t, "a read fails when its context ends, and keeps the cause", func(t *testing.T, s *memory.Server) {
				a := connect(t, s, "a")
				cut.cut(s)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				checkDuration(t, time.Second, func() {
					_, err := a.Get(ctx, "k", registry.ReadOptions{})
					require.ErrorIs(t, err, registry.ErrUnavailable)
					require.ErrorIs(t, err, context.DeadlineExceeded)
				})
			})
			bubble(t, "a read succeeds when the partition is healed", func(t *testing.T, s *memory.Server) {
				a, b := connect(t, s, "a"), connect(t, s, "b")
				heal := cut.cut(s)
				create(t, b, "d/k", "1")
				time.AfterFunc(time.Second, heal)
				checkDuration(t, time.Second, func() { require.Equal(t, "1", get(t, a, "d/k")) })
				l, err := a.List(t.Context(), "d", registry.ReadOptions{})
				require.NoError(t, err)
				require.Len(t, l.Entries, 1)
			})
			for _, end := range []struct {
				name  string
				after time.Duration
			}{{"after CallTimeout", memory.CallTimeout}, {"when its context ends", time.Second}, {"when the partition is healed", 2 * time.Second}} {
				bubble(t, "a transaction has an unknown outcome "+end.name, func(t *testing.T, s *memory.Server) {
					a, b := connect(t, s, "a"), connect(t, s, "b")
					heal := cut.cut(s)
					ctx := t.Context()
					switch end.name {
					case "when the partition is healed":
						time.AfterFunc(end.after, heal)
					case "when its context ends":
						c, cancel := context.WithTimeout(ctx, end.after)
						defer cancel()
						ctx = c
					}
					checkDuration(t, end.after, func() {
						_, err := a.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
						require.ErrorIs(t, err, registry.ErrUnknownOutcome)
						require.NotErrorIs(t, err, registry.ErrNotApplied)
						if ctx.Err() != nil {
							require.ErrorIs(t, err, context.DeadlineExceeded)
						}
					})
					require.Equal(t, cut.arrives, has(t, b, "k"))
					heal()
					time.Sleep(time.Minute)
					require.Equal(t, cut.arrives, has(t, b, "k"), "no late request is applied")
				})
			}
			bubble(t, "a session whose grant was lost expires", func(t *testing.T, s *memory.Server) {
				a := connect(t, s, "a")
				heal, begin := cut.cut(s), time.Now()
				checkDuration(t, memory.CallTimeout, func() {
					_, err := a.OpenSession(t.Context(), registry.SessionOptions{TTL: 10 * time.Second})
					require.ErrorIs(t, err, registry.ErrUnavailable)
				})
				orphans := 0
				if cut.arrives {
					orphans = 1
				}
				require.Equal(t, orphans, s.Counts("a").Sessions)
				heal()
				sleepUntil(begin.Add(10*time.Second - 1))
				require.Equal(t, orphans, s.Counts("a").Sessions)
				sleepUntil(begin.Add(10 * time.Second))
				require.Zero(t, s.Counts("a").Sessions)
			})
			bubble(t, "an invalid call is refused at once", func(t *testing.T, s *memory.Server) {
				a := connect(t, s, "a")
				cut.cut(s)
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				checkDuration(t, 0, func() {
					_, err := a.Get(t.Context(), "//", registry.ReadOptions{})
					require.ErrorIs(t, err, registry.ErrInvalidKey)
					_, err = a.Txn(ctx, registry.Txn{})
					require.ErrorIs(t, err, registry.ErrNotApplied)
					require.ErrorIs(t, err, context.Canceled)
					_, err = a.Get(ctx, "k", registry.ReadOptions{})
					require.ErrorIs(t, err, registry.ErrUnavailable)
					_, err = a.OpenSession(ctx, registry.SessionOptions{})
					require.ErrorIs(t, err, registry.ErrUnavailable)
				})
			})
			bubble(t, "it affects other handles of the machine, and no other machine", func(t *testing.T, s *memory.Server) {
				again, b := connect(t, s, "a"), connect(t, s, "b")
				create(t, b, "k", "1")
				cut.cut(s)
				checkDuration(t, 0, func() { require.Equal(t, "1", get(t, b, "k")) })
				_, err := again.Get(t.Context(), "k", registry.ReadOptions{})
				require.ErrorIs(t, err, registry.ErrUnavailable)
			})
			bubble(t, "it affects a handle that is opened meanwhile", func(t *testing.T, s *memory.Server) {
				cut.cut(s)
				_, err := connect(t, s, "a").Get(t.Context(), "k", registry.ReadOptions{})
				require.ErrorIs(t, err, registry.ErrUnavailable)
			})
			bubble(t, "closing the handle ends pending calls", func(t *testing.T, s *memory.Server) {
				a := connect(t, s, "a")
				w := watch(t, a, "d")
				next(t, w)
				cut.cut(s)
				time.AfterFunc(time.Second, func() { a.Close(context.Background()) })
				go func() {
					_, err := w.Next(t.Context())
					assert.ErrorIs(t, err, registry.ErrClosed)
				}()
				go func() {
					_, err := a.Txn(t.Context(), registry.Txn{})
					assert.ErrorIs(t, err, registry.ErrClosed)
					assert.ErrorIs(t, err, registry.ErrUnknownOutcome)
				}()
				checkDuration(t, time.Second, func() {
					_, err := a.Get(t.Context(), "k", registry.ReadOptions{})
					require.ErrorIs(t, err, registry.ErrClosed)
					require.NotErrorIs(t, err, registry.ErrUnavailable, "a retry cannot succeed")
				})
				synctest.Wait()
			})
		})
	}

	bubble(t, "every waiting read continues when the partition is healed", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		create(t, a, "k", "1")
		heal := s.Partition("a")
		time.AfterFunc(time.Second, heal)
		checkDuration(t, time.Second, func() {
			var reads sync.WaitGroup
			for range 3 {
				reads.Go(func() {
					_, err := a.Get(t.Context(), "k", registry.ReadOptions{})
					assert.NoError(t, err)
				})
			}
			reads.Wait()
		})
	})
	bubble(t, "calling heal twice heals once", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		first, second := s.Partition("a"), s.PartitionOneWay("a", memory.Replies)
		first()
		first()
		_, err := a.List(t.Context(), "", registry.ReadOptions{})
		require.ErrorIs(t, err, registry.ErrUnavailable)
		second()
		second()
		_, err = a.List(t.Context(), "", registry.ReadOptions{})
		require.NoError(t, err)
	})
	bubble(t, "messages under way are lost", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		s.Delay("a", time.Second, time.Second)
		time.AfterFunc(500*time.Millisecond, func() { s.Partition("a")() })
		checkDuration(t, time.Second, func() { // the client gets the error when the lost request would have arrived
			_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		})
		require.False(t, has(t, b, "k"))
		time.AfterFunc(1500*time.Millisecond, func() { s.Partition("a")() })
		checkDuration(t, 2*time.Second, func() {
			_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		})
		require.True(t, has(t, b, "k"))
	})
}

func TestDelay(t *testing.T) {
	bubble(t, "a call takes the sum of both delays", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		s.Delay("a", 20*time.Millisecond, 30*time.Millisecond)
		time.AfterFunc(19*time.Millisecond, func() { assert.False(t, has(t, b, "k")) })
		time.AfterFunc(21*time.Millisecond, func() { assert.True(t, has(t, b, "k")) })
		checkDuration(t, 50*time.Millisecond, func() { create(t, a, "k", "1") })
		checkDuration(t, 50*time.Millisecond, func() { get(t, a, "k") })
		checkDuration(t, 50*time.Millisecond, func() { open(t, a, time.Minute) })
		checkDuration(t, 50*time.Millisecond, func() { watch(t, a, "d") })
		checkDuration(t, 0, func() { get(t, b, "k") })
		s.Delay("a", 0, 0)
		checkDuration(t, 0, func() { get(t, a, "k") })
	})
	bubble(t, "a read returns the state at its arrival at the server", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		s.Delay("a", 0, time.Second)
		time.AfterFunc(time.Millisecond, func() { create(t, b, "k", "1") })
		require.False(t, has(t, a, "k"))
		require.True(t, has(t, a, "k"))
	})
	bubble(t, "a request arrives although its caller has given up", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		s.Delay("a", time.Second, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		value := []byte("1")
		_, err := a.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create("k", value)}})
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		value[0] = '2' // the caller may reuse it
		require.False(t, has(t, b, "k"))
		time.Sleep(time.Second)
		require.Equal(t, "1", get(t, b, "k"))
	})
	bubble(t, "an event is delayed like a reply", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		w := watch(t, a, "d")
		next(t, w)
		s.Delay("a", time.Hour, time.Second)
		create(t, b, "d/k", "1")
		checkDuration(t, time.Second, func() { require.Equal(t, []registry.Key{"d/k"}, keys(next(t, w))) })
		requireNoBatch(t, w, time.Minute)
		create(t, b, "d/l", "1")
		time.Sleep(time.Second / 2)
		create(t, b, "d/m", "1")
		checkDuration(t, time.Second/2, func() { require.Equal(t, []registry.Key{"d/l", "d/m"}, keys(next(t, w))) })
		create(t, b, "d/n", "1")
		time.AfterFunc(time.Second/4, func() { s.Delay("a", 0, 0) })
		checkDuration(t, time.Second/4, func() { require.Equal(t, []registry.Key{"d/n"}, keys(next(t, w))) })
	})
}

func TestLoseReply(t *testing.T) {
	bubble(t, "the transaction is applied", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		s.LoseReply("a", 2)
		for _, key := range []registry.Key{"k", "l"} {
			create(t, b, "of-b/"+key, "1")
			checkDuration(t, 0, func() {
				_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
				require.ErrorIs(t, err, registry.ErrUnknownOutcome)
			})
			require.True(t, has(t, b, key))
		}
		create(t, a, "m", "1")
	})
	bubble(t, "or refused, with the same error", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		create(t, a, "k", "1")
		s.LoseReply("a", 1)
		_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		require.NotErrorIs(t, err, registry.ErrConflict)
		require.Equal(t, "1", get(t, a, "k"))
	})
	bubble(t, "a malformed transaction does not count", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.LoseReply("a", 1)
		_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("", nil)}})
		require.ErrorIs(t, err, registry.ErrInvalidKey)
		_, err = a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
	})
}

func TestLoseRequest(t *testing.T) {
	bubble(t, "the transaction is not applied", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		s.LoseRequest("a", 1)
		checkDuration(t, 0, func() {
			_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		})
		time.Sleep(time.Minute)
		require.False(t, has(t, b, "k"))
		create(t, a, "k", "1")
	})
}

func TestHoldCommit(t *testing.T) {
	bubble(t, "the transaction is applied on release", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		release := s.HoldCommit("a")
		value := []byte("1")
		checkDuration(t, 0, func() {
			_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", value)}})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		})
		value[0] = '2'
		create(t, a, "l", "1") // only the next one is held
		require.False(t, has(t, b, "k"))
		require.NoError(t, a.Close(t.Context()))
		release()
		release()
		require.Equal(t, "1", get(t, b, "k"))
	})
	bubble(t, "a late duplicate is refused", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		rev := create(t, a, "k", "0")
		release := s.HoldCommit("a")
		set := registry.Txn{ID: registry.NewTxnID(), Then: []registry.Op{registry.Set("k", rev, []byte("1"))}}
		_, err := a.Txn(t.Context(), set)
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		rev, err = a.Txn(t.Context(), set)
		require.NoError(t, err)
		apply(t, a, registry.Set("k", rev, []byte("2")))

		s.Record()
		release()
		log := s.Log()
		require.Len(t, log, 1)
		require.Equal(t, set.ID, log[0].Txn)
		require.ErrorIs(t, log[0].Err, registry.ErrConflict)
		require.False(t, log[0].Changed())
		require.Equal(t, "2", get(t, a, "k"))
	})
	bubble(t, "release without a held transaction cancels the hold", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.HoldCommit("a")()
		create(t, a, "k", "1")
	})
	bubble(t, "each of several holds applies to one transaction", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		releases := []func(){s.HoldCommit("a"), s.HoldCommit("a")}
		for _, key := range []registry.Key{"k", "l"} {
			_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		}
		releases[1]()
		require.False(t, has(t, a, "k"))
		require.True(t, has(t, a, "l"))
		releases[0]()
		require.True(t, has(t, a, "k"))
	})
}

func TestHoldWatch(t *testing.T) {
	bubble(t, "events arrive on release, and calls continue", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		w, other := watch(t, a, "d"), watch(t, b, "d")
		next(t, w)
		next(t, other)
		release := s.HoldWatch("a")
		rev := create(t, a, "d/k", "1")
		require.Equal(t, "1", get(t, a, "d/k"))
		require.Equal(t, []registry.Key{"d/k"}, keys(next(t, other)))
		requireNoBatch(t, w, time.Hour)
		rev = apply(t, a, registry.Set("d/k", rev, []byte("2")))
		time.AfterFunc(time.Second, release)
		checkDuration(t, time.Second, func() {
			b := next(t, w)
			require.Equal(t, registry.Delta, b.Kind)
			require.Equal(t, rev, b.Rev)
			require.Equal(t, []registry.Key{"d/k"}, keys(b))
			require.Equal(t, "2", string(b.Puts[0].Value))
		})
	})
	bubble(t, "a new watcher waits for its first Snapshot", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		release := s.HoldWatch("a")
		w := watch(t, a, "d")
		requireNoBatch(t, w, time.Minute)
		release()
		checkDuration(t, 0, func() { require.Equal(t, registry.Snapshot, next(t, w).Kind) })
	})
}

func TestPause(t *testing.T) {
	bubble(t, "calls wait and succeed on resume", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		resume := s.Pause()
		time.AfterFunc(time.Second, resume)
		checkDuration(t, time.Second, func() { create(t, a, "k", "1") })
		resume()
		checkDuration(t, 0, func() { get(t, a, "k") })
	})
	bubble(t, "calls fail after CallTimeout", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Pause()
		checkDuration(t, memory.CallTimeout, func() {
			_, err := a.Get(t.Context(), "k", registry.ReadOptions{})
			require.ErrorIs(t, err, registry.ErrUnavailable)
		})
	})
	bubble(t, "a transaction whose caller has given up is applied on resume", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		resume := s.Pause()
		_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		require.Empty(t, s.Dump())
		resume()
		require.True(t, has(t, a, "k"))
	})
	bubble(t, "a released commit waits too", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		release := s.HoldCommit("a")
		_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		resume := s.Pause()
		release()
		require.Empty(t, s.Dump())
		resume()
		require.Len(t, s.Dump(), 1)
	})
	bubble(t, "pauses add up", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		first, second := s.Pause(), s.Pause()
		first()
		first()
		_, err := a.Get(t.Context(), "k", registry.ReadOptions{})
		require.ErrorIs(t, err, registry.ErrUnavailable)
		second()
		require.False(t, has(t, a, "k"))
	})
}

func TestRestart(t *testing.T) {
	bubble(t, "entries and sessions are preserved", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := open(t, a, 10*time.Second)
		apply(t, a, registry.Create("d/k", nil), registry.CreateOwned("d/~o", nil, x.ID()))
		w := watch(t, a, "d")
		next(t, w)
		time.Sleep(time.Second)
		s.Restart()
		b := next(t, w)
		require.Equal(t, registry.Snapshot, b.Kind)
		require.Equal(t, []registry.Key{"d/k", "d/~o"}, keys(b))
		st, until := x.State()
		require.Equal(t, registry.SessionConnected, st)
		require.Equal(t, 9*time.Second, time.Until(until), "it was renewed at once")
		time.Sleep(time.Hour)
		require.True(t, has(t, a, "d/~o"))
	})
	bubble(t, "messages under way are lost", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Delay("a", time.Second, 0)
		time.AfterFunc(time.Second/2, s.Restart)
		_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		require.Empty(t, s.Dump())
	})
	bubble(t, "replies under way are lost", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Delay("a", 0, time.Second)
		time.AfterFunc(time.Second/2, s.Restart)
		_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		require.Len(t, s.Dump(), 1)
	})
	bubble(t, "a paused server drops the requests that have arrived", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		resume := s.Pause()
		time.AfterFunc(time.Second, s.Restart)
		checkDuration(t, time.Second, func() {
			_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		})
		resume()
		require.Empty(t, s.Dump())
	})
}
