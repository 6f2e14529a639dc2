package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// ttl makes all times of a session multiples of half a second: it is renewed every 10 s,
// suspended after 25.5 s and lost after 27 s.
const (
	ttl      = 30 * time.Second
	interval = ttl / 3
	patience = ttl * 85 / 100
	span     = ttl * 9 / 10
	phases   = 20
)

// openOwner opens a session of a that owns d/~o.
func openOwner(t *testing.T, a *memory.Client) registry.Session {
	t.Helper()
	x := open(t, a, ttl)
	apply(t, a, registry.CreateOwned("d/~o", nil, x.ID()))
	return x
}

func TestSession(t *testing.T) {
	bubble(t, "it stays connected without faults", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		begin := time.Now()
		x := openOwner(t, a)
		changed := x.Changed()
		for range 24 * 60 {
			time.Sleep(time.Minute + time.Second)
			st, until := x.State()
			require.Equal(t, registry.SessionConnected, st)
			renewed := time.Since(begin) / interval * interval
			require.Equal(t, begin.Add(renewed+span), until)
		}
		require.True(t, has(t, a, "d/~o"))
		require.NoError(t, x.Err())
		select {
		case <-changed:
			t.Error("the state has changed")
		case <-x.Lost():
			t.Error("lost")
		default:
		}
	})
	bubble(t, "TTL has a default", func(t *testing.T, s *memory.Server) {
		x, err := connect(t, s, "a").OpenSession(t.Context(), registry.SessionOptions{})
		require.NoError(t, err)
		require.Equal(t, registry.DefaultSessionTTL, x.TTL())
	})
	bubble(t, "any TTL is granted", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		for _, ttl := range []time.Duration{1, 2, 3, 7, time.Millisecond, 1<<63 - 1} {
			x := open(t, a, ttl)
			time.Sleep(min(ttl, time.Hour))
			st, until := x.State()
			require.Equal(t, registry.SessionConnected, st)
			require.False(t, until.Before(time.Now()))
			heal := s.Partition("a")
			time.Sleep(min(ttl, time.Hour))
			synctest.Wait()
			if ttl < time.Hour {
				require.Equal(t, registry.SessionLost, state(x))
				require.Zero(t, s.Counts("a").Sessions)
			}
			heal()
		}
	})
	bubble(t, "ids are unique key segments", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		seen := make(map[registry.SessionID]bool)
		for range 1000 {
			x := open(t, a, ttl)
			require.NoError(t, registry.CheckKey(registry.Key(x.ID())))
			require.False(t, seen[x.ID()])
			seen[x.ID()] = true
		}
		require.Equal(t, 1000, s.Counts("a").Sessions)
	})
	bubble(t, "Alive and Dead change when it begins and ends", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := open(t, a, ttl)
		check := func(c registry.Cond) error {
			_, err := a.Txn(t.Context(), registry.Txn{If: []registry.Cond{c}})
			return err
		}
		require.NoError(t, check(registry.Alive(x.ID())))
		require.ErrorIs(t, check(registry.Dead(x.ID())), registry.ErrConflict)
		require.NoError(t, x.Close(t.Context()))
		require.NoError(t, check(registry.Dead(x.ID())))
		require.ErrorIs(t, check(registry.Alive(x.ID())), registry.ErrConflict)
		require.NoError(t, check(registry.Dead("never was")))
		_, err := a.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.CreateOwned("~o", nil, x.ID())}})
		require.ErrorIs(t, err, registry.ErrSessionLost)
	})
}

func TestSessionCutOff(t *testing.T) {
	for phase := range phases {
		cutAt := 3*interval + interval*time.Duration(phase)/phases // from the opening
		renewed := cutAt / interval * interval
		name := func(what string) string { return fmt.Sprintf("%s/phase %d", what, phase) }

		bubble(t, name("partition"), func(t *testing.T, s *memory.Server) {
			a, b := connect(t, s, "a"), connect(t, s, "b")
			begin := time.Now()
			x := openOwner(t, a)
			time.Sleep(cutAt)
			heal := s.Partition("a")
			require.Equal(t, registry.SessionSuspended, state(x), "at once")
			st, until := x.State()
			require.Equal(t, registry.SessionSuspended, st)
			require.Equal(t, begin.Add(renewed+span), until)

			sleepUntil(until.Add(-1))
			require.Equal(t, registry.SessionSuspended, state(x))
			sleepUntil(until)
			require.Equal(t, registry.SessionLost, state(x))
			require.ErrorIs(t, x.Err(), registry.ErrSessionLost)
			<-x.Lost()

			sleepUntil(begin.Add(renewed + ttl - 1))
			require.True(t, has(t, b, "d/~o"))
			sleepUntil(begin.Add(renewed + ttl))
			require.False(t, has(t, b, "d/~o"))
			heal()
			time.Sleep(time.Hour)
			require.Equal(t, registry.SessionLost, state(x))
		})
		bubble(t, name("without requests"), func(t *testing.T, s *memory.Server) {
			a, b := connect(t, s, "a"), connect(t, s, "b")
			begin := time.Now()
			x := openOwner(t, a)
			time.Sleep(cutAt)
			s.PartitionOneWay("a", memory.Requests)
			for _, step := range []struct {
				at    time.Duration
				state registry.SessionState
				key   bool
			}{
				{renewed + patience - 1, registry.SessionConnected, true},
				{renewed + patience, registry.SessionSuspended, true},
				{renewed + span - 1, registry.SessionSuspended, true},
				{renewed + span, registry.SessionLost, true},
				{renewed + ttl - 1, registry.SessionLost, true},
				{renewed + ttl, registry.SessionLost, false},
			} {
				sleepUntil(begin.Add(step.at))
				require.Equal(t, step.state, state(x), step.at)
				require.Equal(t, step.key, has(t, b, "d/~o"), step.at)
			}
		})
		bubble(t, name("without replies"), func(t *testing.T, s *memory.Server) {
			a, b := connect(t, s, "a"), connect(t, s, "b")
			begin := time.Now()
			x := openOwner(t, a)
			time.Sleep(cutAt)
			s.PartitionOneWay("a", memory.Replies)
			// The server receives the two renewals that the client sends before it gives up.
			received := renewed + 2*interval
			for _, step := range []struct {
				at    time.Duration
				state registry.SessionState
				key   bool
			}{
				{renewed + patience - 1, registry.SessionConnected, true},
				{renewed + patience, registry.SessionSuspended, true},
				{renewed + span - 1, registry.SessionSuspended, true},
				{renewed + span, registry.SessionLost, true},
				{received + ttl - 1, registry.SessionLost, true},
				{received + ttl, registry.SessionLost, false},
			} {
				sleepUntil(begin.Add(step.at))
				require.Equal(t, step.state, state(x), step.at)
				require.Equal(t, step.key, has(t, b, "d/~o"), step.at)
			}
		})
		bubble(t, name("short partition"), func(t *testing.T, s *memory.Server) {
			a := connect(t, s, "a")
			x := openOwner(t, a)
			id := x.ID()
			time.Sleep(cutAt)
			changed := x.Changed()
			heal := s.Partition("a")
			<-changed
			changed = x.Changed()
			require.Equal(t, registry.SessionSuspended, state(x))
			time.Sleep(ttl / 2)
			heal()
			<-changed
			st, until := x.State()
			require.Equal(t, registry.SessionConnected, st)
			require.Equal(t, span, time.Until(until), "it was renewed at once")
			time.Sleep(time.Hour)
			require.Equal(t, registry.SessionConnected, state(x))
			require.Equal(t, id, x.ID())
			require.True(t, has(t, a, "d/~o"))
		})
		bubble(t, name("starved"), func(t *testing.T, s *memory.Server) {
			a := connect(t, s, "a")
			begin := time.Now()
			x := openOwner(t, a)
			time.Sleep(cutAt)
			feed := s.Starve("a")
			sleepUntil(begin.Add(renewed + span - 1))
			require.Equal(t, registry.SessionSuspended, state(x))
			if phase%2 == 0 {
				feed()
				st, until := x.State()
				require.Equal(t, registry.SessionConnected, st)
				require.Equal(t, span, time.Until(until), "it was renewed at once, not when a renewal was due")
				time.Sleep(time.Hour)
				require.Equal(t, registry.SessionConnected, state(x))
				return
			}
			sleepUntil(begin.Add(renewed + span))
			require.Equal(t, registry.SessionLost, state(x))
			require.True(t, has(t, a, "d/~o"), "calls still succeed")
			sleepUntil(begin.Add(renewed + ttl))
			require.False(t, has(t, a, "d/~o"))
			feed()
		})
		for _, ways := range [][2]time.Duration{{0, ttl / 2}, {ttl / 2, 0}, {ttl / 4, ttl / 4}} {
			bubble(t, name(fmt.Sprintf("delays %v and %v", ways[0], ways[1])), func(t *testing.T, s *memory.Server) {
				a := connect(t, s, "a")
				x := openOwner(t, a)
				time.Sleep(cutAt)
				changed := x.Changed()
				s.Delay("a", ways[0], ways[1])
				time.Sleep(10 * ttl)
				select {
				case <-changed:
					t.Error("the state has changed")
				default:
				}
				s.Delay("a", 0, 0)
				time.Sleep(10 * ttl)
				require.Equal(t, registry.SessionConnected, state(x))
			})
		}
	}

	bubble(t, "it is lost when answers take longer than its span", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		begin := time.Now()
		x := openOwner(t, a)
		s.Delay("a", 0, span)
		sleepUntil(begin.Add(span))
		require.Equal(t, registry.SessionLost, state(x))
	})
	bubble(t, "it is lost at once when the grant arrives too late", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Delay("a", 0, time.Second)
		x := open(t, a, time.Second)
		require.Equal(t, registry.SessionLost, state(x))
		synctest.Wait()
		require.Zero(t, s.Counts("a").Sessions)
	})
	bubble(t, "a renewal under way is lost when the connection breaks", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		begin := time.Now()
		openOwner(t, a)
		s.Delay("a", interval/2, 0)
		time.Sleep(interval + interval/4) // the first renewal is on its way
		s.Partition("a")
		sleepUntil(begin.Add(ttl - 1))
		require.True(t, has(t, b, "d/~o"))
		sleepUntil(begin.Add(ttl))
		require.False(t, has(t, b, "d/~o"))
	})
	bubble(t, "it stays lost when the partition is healed", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		begin := time.Now()
		x := openOwner(t, a)
		heal := s.Partition("a")
		sleepUntil(begin.Add(span))
		heal()
		require.Equal(t, registry.SessionLost, state(x))
		sleepUntil(begin.Add(ttl))
		require.False(t, has(t, b, "d/~o"))
	})
	bubble(t, "it stays suspended while one direction is still partitioned", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := openOwner(t, a)
		both, one := s.Partition("a"), s.PartitionOneWay("a", memory.Replies)
		both()
		time.Sleep(interval)
		require.Equal(t, registry.SessionSuspended, state(x))
		one()
		require.Equal(t, registry.SessionConnected, state(x))
	})
}

func TestSessionExpire(t *testing.T) {
	bubble(t, "a connected client loses it at once", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		other := openOwner(t, connect(t, s, "b"))
		x, y := open(t, a, ttl), open(t, a, ttl)
		apply(t, a, registry.CreateOwned("d/~x1", nil, x.ID()), registry.CreateOwned("d/~y", nil, y.ID()),
			registry.CreateOwned("e/~x2", nil, x.ID()))
		s.Record()
		s.Expire("a")
		for _, x := range []registry.Session{x, y} {
			require.Equal(t, registry.SessionLost, state(x))
			require.ErrorIs(t, x.Err(), registry.ErrSessionLost)
			<-x.Lost()
			require.NoError(t, x.Close(t.Context()))
			require.Equal(t, registry.SessionLost, state(x), "Close does not change a final state")
		}
		log := s.Log()
		require.Len(t, log, 2, "one commit for each session")
		require.Equal(t, x.ID(), log[0].Ended)
		require.Equal(t, []registry.Key{"d/~x1", "e/~x2"}, log[0].Gone)
		require.Equal(t, y.ID(), log[1].Ended)
		require.Equal(t, registry.SessionConnected, state(other))
	})
	bubble(t, "a partitioned client loses it by its own clock", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		begin := time.Now()
		x := openOwner(t, a)
		time.Sleep(interval / 2)
		s.PartitionOneWay("a", memory.Replies)
		s.ExpireSession(x.ID())
		s.ExpireSession("never was")
		require.False(t, has(t, b, "d/~o"))
		sleepUntil(begin.Add(span - 1))
		require.Equal(t, registry.SessionSuspended, state(x))
		sleepUntil(begin.Add(span))
		require.Equal(t, registry.SessionLost, state(x))
	})
	bubble(t, "a partitioned client loses it when the partition is healed", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := openOwner(t, a)
		heal := s.Partition("a")
		s.Expire("a")
		require.Equal(t, registry.SessionSuspended, state(x))
		heal()
		require.Equal(t, registry.SessionLost, state(x))
	})
	bubble(t, "a client of a paused server loses it on resume", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := openOwner(t, a)
		resume := s.Pause()
		s.Expire("a")
		require.Equal(t, registry.SessionConnected, state(x))
		resume()
		require.Equal(t, registry.SessionLost, state(x))
	})
}

func TestSessionPause(t *testing.T) {
	bubble(t, "a short pause does not change its state", func(t *testing.T, s *memory.Server) {
		x := openOwner(t, connect(t, s, "a"))
		changed := x.Changed()
		resume := s.Pause()
		time.Sleep(patience - 1)
		resume()
		time.Sleep(time.Hour)
		select {
		case <-changed:
			t.Error("the state has changed")
		default:
		}
	})
	bubble(t, "after a long pause the client has lost it, and the server keeps it for a TTL", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		begin := time.Now()
		x := openOwner(t, a)
		resume := s.Pause()
		sleepUntil(begin.Add(patience))
		require.Equal(t, registry.SessionSuspended, state(x))
		sleepUntil(begin.Add(span))
		require.Equal(t, registry.SessionLost, state(x))
		time.Sleep(time.Hour)
		require.Equal(t, 1, s.Counts("").Sessions)
		resumed := time.Now()
		resume()
		sleepUntil(resumed.Add(ttl - 1))
		require.True(t, has(t, a, "d/~o"))
		sleepUntil(resumed.Add(ttl))
		require.False(t, has(t, a, "d/~o"))
	})
	bubble(t, "the session of a partitioned client has its full TTL again", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		begin := time.Now()
		openOwner(t, a)
		s.Partition("a")
		sleepUntil(begin.Add(ttl - 1))
		resume := s.Pause()
		resume()
		sleepUntil(begin.Add(2*ttl - 2))
		require.True(t, has(t, b, "d/~o"))
		sleepUntil(begin.Add(2*ttl - 1))
		require.False(t, has(t, b, "d/~o"))
	})
}

func TestSessionClose(t *testing.T) {
	bubble(t, "its keys are deleted before it returns, at one commit", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := open(t, a, ttl)
		apply(t, a, registry.CreateOwned("d/~1", nil, x.ID()), registry.CreateOwned("d/~2", nil, x.ID()))
		w := watch(t, a, "d")
		next(t, w)
		require.NoError(t, x.Close(t.Context()))
		require.Equal(t, []registry.Key{"d/~1", "d/~2"}, next(t, w).Deletes)
		require.Equal(t, registry.SessionClosed, state(x))
		require.ErrorIs(t, x.Err(), registry.ErrClosed)
		<-x.Lost()
		require.NoError(t, x.Close(t.Context()))
	})
	bubble(t, "in a partition it returns when its context ends, and the keys expire", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		begin := time.Now()
		x := openOwner(t, a)
		heal := s.Partition("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		checkDuration(t, time.Second, func() {
			err := x.Close(ctx)
			require.ErrorIs(t, err, registry.ErrUnavailable)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		require.Equal(t, registry.SessionClosed, state(x))
		heal()
		sleepUntil(begin.Add(ttl - 1))
		require.True(t, has(t, b, "d/~o"), "it was neither renewed nor closed at the server")
		sleepUntil(begin.Add(ttl))
		require.False(t, has(t, b, "d/~o"))
	})
	bubble(t, "after a partition it can be called again", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := openOwner(t, a)
		heal := s.Partition("a")
		require.ErrorIs(t, x.Close(t.Context()), registry.ErrUnavailable)
		heal()
		require.NoError(t, x.Close(t.Context()))
		require.False(t, has(t, a, "d/~o"))
	})
	bubble(t, "it is repeated when the reply is lost", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := openOwner(t, a)
		time.AfterFunc(time.Second, s.PartitionOneWay("a", memory.Replies))
		checkDuration(t, time.Second, func() { require.NoError(t, x.Close(t.Context())) })
	})
	bubble(t, "it ends a lost session at the server", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		begin := time.Now()
		x := openOwner(t, a)
		feed := s.Starve("a")
		defer feed()
		sleepUntil(begin.Add(span))
		require.Equal(t, registry.SessionLost, state(x))
		require.NoError(t, x.Close(t.Context()))
		require.False(t, has(t, a, "d/~o"))
		require.ErrorIs(t, x.Err(), registry.ErrSessionLost)
	})
	bubble(t, "closing the handle closes its sessions", func(t *testing.T, s *memory.Server) {
		a, again := connect(t, s, "a"), connect(t, s, "a")
		x, y, other := open(t, a, ttl), openOwner(t, a), open(t, again, ttl)
		require.NoError(t, a.Close(t.Context()))
		require.NoError(t, a.Close(t.Context()))
		require.Equal(t, registry.SessionClosed, state(x))
		require.Equal(t, registry.SessionClosed, state(y))
		require.Equal(t, registry.SessionConnected, state(other))
		require.False(t, has(t, again, "d/~o"))
		require.NoError(t, x.Close(t.Context()))
		_, err := a.OpenSession(t.Context(), registry.SessionOptions{})
		require.ErrorIs(t, err, registry.ErrClosed)
	})
	bubble(t, "closing the handle in a partition returns after CallTimeout", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		for range 100 {
			open(t, a, ttl)
		}
		s.Partition("a")
		checkDuration(t, memory.CallTimeout, func() {
			require.ErrorIs(t, a.Close(t.Context()), registry.ErrUnavailable)
		})
		time.Sleep(ttl)
		synctest.Wait()
		require.Zero(t, s.Counts("a").Sessions)
	})
}

// TestSessionsUnderRandomFaults causes random faults, drawn by a seed, and checks that a lost
// session never recovers, and that no client trusts a session that the server has ended.
func TestSessionsUnderRandomFaults(t *testing.T) {
	ended := 0
	for seed := range uint64(100) {
		bubble(t, fmt.Sprintf("seed %d", seed), func(t *testing.T, s *memory.Server) {
			s.Record()
			r := &randomFaults{server: s, rnd: rand.New(rand.NewPCG(seed, 0))}
			a := connect(t, s, "a")
			safe := make(map[registry.SessionID]time.Time) // until when each was trusted
			var x registry.Session
			for range 300 {
				r.step()
				time.Sleep(time.Duration(r.rnd.Int64N(int64(ttl / 5))))
				if x == nil {
					x, _ = a.OpenSession(t.Context(), registry.SessionOptions{TTL: ttl})
					continue
				}
				st, until := x.State()
				if st == registry.SessionLost {
					<-x.Lost()
					x = nil
					continue
				}
				require.True(t, until.After(time.Now()), "%v though not safe", st)
				require.False(t, until.Before(safe[x.ID()]), "safe until %v, then until %v", safe[x.ID()], until)
				safe[x.ID()] = until
			}
			for _, c := range s.Log() {
				if c.Ended != "" {
					ended++
					require.True(t, c.At.After(safe[c.Ended]), "ended at %v, safe until %v", c.At, safe[c.Ended])
				}
			}
			r.undoAll()
			time.Sleep(2 * ttl)
			synctest.Wait()
			if x == nil || state(x) == registry.SessionLost {
				require.Zero(t, s.Counts("a").Sessions, "client and server agree in the end")
			} else {
				require.Equal(t, 1, s.Counts("a").Sessions, "client and server agree in the end")
			}
		})
	}
	require.Greater(t, ended, 100, "the faults ended too few sessions")
}

// TestSessionsAtRestEqualSimulatedOnes gives two machines the same faults. The sessions of one
// never rest: the computed state of the others must equal their simulated state at any time.
func TestSessionsAtRestEqualSimulatedOnes(t *testing.T) {
	rested := 0
	for seed := range uint64(50) {
		bubble(t, fmt.Sprintf("seed %d", seed), func(t *testing.T, s *memory.Server) {
			s.Record()
			r := &randomFaults{server: s, rnd: rand.New(rand.NewPCG(seed, 1)), mirror: "b"}
			a, b := connect(t, s, "a"), connect(t, s, "b")
			var x, y registry.Session
			for range 100 {
				if x == nil {
					var wg sync.WaitGroup
					wg.Go(func() { x, _ = a.OpenSession(t.Context(), registry.SessionOptions{TTL: ttl}) })
					wg.Go(func() { y, _ = b.OpenSession(t.Context(), registry.SessionOptions{TTL: ttl}) })
					wg.Wait()
					require.Equal(t, x == nil, y == nil)
					if y != nil {
						memory.NeverRest(y)
					}
				}
				if r.rnd.IntN(4) == 0 {
					r.step()
				}
				for range 20 {
					time.Sleep(time.Duration(r.rnd.Int64N(int64(ttl / 20))))
					if x != nil {
						if memory.AtRest(x) {
							rested++
						}
						require.False(t, memory.AtRest(y))
						stX, untilX := x.State()
						stY, untilY := y.State()
						require.Equal(t, stX, stY)
						require.Equal(t, untilX, untilY)
					}
				}
				if x != nil && state(x) == registry.SessionLost {
					x, y = nil, nil
				}
			}
			ends := make(map[string][]time.Time)
			for _, c := range s.Log() {
				if c.Ended != "" {
					ends[c.Client] = append(ends[c.Client], c.At)
				}
			}
			require.Equal(t, ends["a"], ends["b"])
		})
	}
	require.Greater(t, rested, 1000, "too few sessions rested")
}

// randomFaults causes random faults of machine a, and the same of its mirror.
type randomFaults struct {
	server *memory.Server
	rnd    *rand.Rand
	undo   []func()
	mirror string
}

// startOnBoth starts a fault of both machines.
func (r *randomFaults) startOnBoth(start func(name string) (undo func())) {
	undo := start("a")
	if r.mirror == "" {
		r.undo = append(r.undo, undo)
		return
	}
	undoMirror := start(r.mirror)
	r.undo = append(r.undo, func() { undo(); undoMirror() })
}

func (r *randomFaults) delay(request, reply time.Duration) {
	r.server.Delay("a", request, reply)
	if r.mirror != "" {
		r.server.Delay(r.mirror, request, reply)
	}
}

func (r *randomFaults) step() {
	s := r.server
	switch r.rnd.IntN(16) {
	case 0:
		r.startOnBoth(s.Partition)
	case 1:
		r.startOnBoth(func(name string) func() { return s.PartitionOneWay(name, memory.Requests) })
	case 2:
		r.startOnBoth(func(name string) func() { return s.PartitionOneWay(name, memory.Replies) })
	case 3:
		r.undo = append(r.undo, s.Pause())
	case 4:
		r.startOnBoth(s.Starve)
	case 5, 6:
		r.delay(time.Duration(r.rnd.Int64N(int64(ttl/2))), time.Duration(r.rnd.Int64N(int64(ttl/2))))
	case 7:
		r.delay(0, 0)
	case 8:
		s.Restart()
	default:
		if len(r.undo) > 0 {
			i := r.rnd.IntN(len(r.undo))
			r.undo[i]()
			r.undo = append(r.undo[:i], r.undo[i+1:]...)
		}
	}
}

// undoAll ends all faults.
func (r *randomFaults) undoAll() {
	for _, f := range r.undo {
		f()
	}
	r.delay(0, 0)
}
