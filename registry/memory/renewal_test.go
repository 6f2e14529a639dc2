package memory_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// longest is the longest round trip with which a session stays connected.
const longest = patience - interval

// TestRest checks when a session rests. TestSessionsAtRestEqualSimulatedOnes compares the states
// of a session at rest with those of a session that never rests.
func TestRest(t *testing.T) {
	for _, d := range [][2]time.Duration{{0, 0}, {time.Second, 0}, {0, time.Second}, {7 * time.Second, 8 * time.Second}, {longest, 0}, {0, longest}} {
		bubble(t, fmt.Sprintf("renewals that take %v and %v are computed", d[0], d[1]), func(t *testing.T, s *memory.Server) {
			x := open(t, connect(t, s, "a"), ttl)
			opened, changed := time.Now(), x.Changed()
			s.Delay("a", d[0], d[1])
			for range 100 {
				time.Sleep(time.Second + time.Second/2)
				st, until := x.State()
				require.Equal(t, registry.SessionConnected, st)
				require.Equal(t, opened.Add(max(time.Since(opened)-d[0]-d[1], 0)/interval*interval+span), until)
				require.True(t, memory.AtRest(x), "%v after it was opened", time.Since(opened))
				s.HoldWatch("a")() // any change of the faults
				require.True(t, memory.AtRest(x), "%v after it was opened, after a fault without effect on renewals", time.Since(opened))
			}
			require.False(t, isClosed(changed), "the state has changed")
		})
	}
	for _, d := range [][2]time.Duration{{longest + 1, 0}, {0, longest + 1}, {1 << 62, 1 << 62}} {
		bubble(t, fmt.Sprintf("renewals that take %v and %v are executed, since they are late", d[0], d[1]), func(t *testing.T, s *memory.Server) {
			x := open(t, connect(t, s, "a"), ttl)
			s.Delay("a", d[0], d[1])
			require.False(t, memory.AtRest(x))
			time.Sleep(patience)
			require.Equal(t, registry.SessionSuspended, state(x))
			require.False(t, memory.AtRest(x))
		})
	}
	for _, f := range []struct {
		name  string
		begin func(*memory.Server) (end func())
	}{
		{"Partition", func(s *memory.Server) func() { return s.Partition("a") }},
		{"PartitionOneWay of requests", func(s *memory.Server) func() { return s.PartitionOneWay("a", memory.Requests) }},
		{"PartitionOneWay of replies", func(s *memory.Server) func() { return s.PartitionOneWay("a", memory.Replies) }},
		{"Isolate", func(s *memory.Server) func() { return s.Isolate("a") }},
		{"Starve", func(s *memory.Server) func() { return s.Starve("a") }},
		{"Pause", (*memory.Server).Pause},
	} {
		bubble(t, "renewals are executed until "+f.name+" ends", func(t *testing.T, s *memory.Server) {
			x := open(t, connect(t, s, "a"), ttl)
			for _, after := range []time.Duration{time.Second, interval, interval + time.Second} { // also when a renewal is due
				end := f.begin(s)
				require.False(t, memory.AtRest(x))
				time.Sleep(after)
				require.False(t, memory.AtRest(x))
				end()
				require.True(t, memory.AtRest(x))
				st, until := x.State()
				require.Equal(t, registry.SessionConnected, st, "after %v", after)
				require.Equal(t, span, time.Until(until), "it was renewed at once")
				time.Sleep(interval - time.Second)
			}
		})
	}
	bubble(t, "a session rests again when its delay is restored before a message was sent with another", func(t *testing.T, s *memory.Server) {
		x := open(t, connect(t, s, "a"), ttl)
		begun := time.Now()
		s.Delay("a", 12*time.Second, 3*time.Second)
		sleepUntil(begun.Add(3*interval + time.Second)) // the requests sent at 2 and at 3 intervals are under way
		s.Delay("a", 13*time.Second, 3*time.Second)
		require.False(t, memory.AtRest(x))
		sleepUntil(begun.Add(3*interval + 3*time.Second)) // the first has arrived, and its reply is behind the second
		require.False(t, memory.AtRest(x))
		s.Delay("a", 12*time.Second, 3*time.Second)
		require.True(t, memory.AtRest(x))
	})
	bubble(t, "a session does not rest until replies with another delay have arrived", func(t *testing.T, s *memory.Server) {
		x := open(t, connect(t, s, "a"), ttl)
		begun := time.Now()
		s.Delay("a", 0, 4*time.Second)
		sleepUntil(begun.Add(interval + time.Second))
		s.Delay("a", 0, time.Second)
		require.False(t, memory.AtRest(x))
		sleepUntil(begun.Add(interval + 4*time.Second - 1))
		require.False(t, memory.AtRest(x))
		_, until := x.State()
		require.Equal(t, begun.Add(span), until)
		sleepUntil(begun.Add(interval + 4*time.Second))
		require.True(t, memory.AtRest(x))
		_, until = x.State()
		require.Equal(t, begun.Add(interval+span), until)
	})
	bubble(t, "a session that the server has ended does not rest, though a renewal is due when it is connected again", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		for _, at := range []time.Duration{interval - 1, interval, interval + 1} {
			x := open(t, a, ttl)
			heal := s.PartitionOneWay("a", memory.Replies)
			s.ExpireSession(x.ID())
			time.Sleep(at)
			require.Equal(t, registry.SessionConnected, state(x))
			heal()
			require.Equal(t, registry.SessionLost, state(x))
		}
	})
	for _, d := range []memory.Direction{memory.Requests, memory.Replies} {
		bubble(t, fmt.Sprintf("of a session at rest, %v under way are lost when they are cut", d), func(t *testing.T, s *memory.Server) {
			x := open(t, connect(t, s, "a"), ttl)
			begun := time.Now()
			delays := map[memory.Direction]time.Duration{d: 5 * time.Second}
			s.Delay("a", delays[memory.Requests], delays[memory.Replies])
			sleepUntil(begun.Add(2*interval + time.Second))
			require.True(t, memory.AtRest(x))
			s.PartitionOneWay("a", d)
			sleepUntil(begun.Add(interval + span))
			require.Equal(t, registry.SessionLost, state(x))
			expires := begun.Add(interval + 5*time.Second + ttl)
			if d == memory.Replies { // the renewals sent until the client gives up are received
				expires = begun.Add(3*interval + ttl)
			}
			sleepUntil(expires.Add(-1))
			require.Equal(t, 1, s.Counts("a").Sessions)
			sleepUntil(expires)
			require.Zero(t, s.Counts("a").Sessions)
		})
	}
	bubble(t, "what is due before a fault begins is executed without it, though its timer is late", func(t *testing.T, s *memory.Server) {
		x := open(t, connect(t, s, "a"), ttl)
		begun := time.Now()
		s.Delay("a", 0, longest+1)
		sleepUntil(begun.Add(2*interval + time.Second))
		require.True(t, memory.StopTimer(x))
		sleepUntil(begun.Add(interval + longest + time.Second)) // the first answer has arrived
		s.Partition("a")
		_, until := x.State()
		require.Equal(t, begun.Add(interval+span), until)
	})
	bubble(t, "an ended session has no timer", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x, y := open(t, a, ttl), open(t, a, ttl)
		feed := s.Starve("a")
		require.True(t, memory.StopTimer(x))
		require.NoError(t, x.Close(t.Context()))
		require.False(t, memory.StopTimer(x))
		s.ExpireSession(y.ID())
		require.False(t, memory.StopTimer(y))
		feed()
	})
}

// TestSessionOpenedLate opens sessions with answers that take time.
func TestSessionOpenedLate(t *testing.T) {
	bubble(t, "its first renewal is sent a third of the TTL after the request", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Delay("a", time.Second, time.Second)
		requested := time.Now()
		x := open(t, a, ttl)
		for _, step := range []struct{ at, until time.Duration }{
			{2 * time.Second, span},
			{interval + 2*time.Second - 1, span},
			{interval + 2*time.Second, interval + span},
			{2*interval + 2*time.Second, 2*interval + span},
		} {
			sleepUntil(requested.Add(step.at))
			_, until := x.State()
			require.Equal(t, requested.Add(step.until), until, "%v after the request", step.at)
		}
	})
	bubble(t, "its first renewal is sent with the grant, if it was due before", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		const ttl = 6 * time.Second // renewed every 2 s
		s.Delay("a", time.Second, 1500*time.Millisecond)
		requested := time.Now()
		x := open(t, a, ttl)
		granted := requested.Add(2500 * time.Millisecond)
		require.Equal(t, granted, time.Now())
		_, until := x.State()
		require.Equal(t, requested.Add(ttl*9/10), until)
		sleepUntil(granted.Add(2500*time.Millisecond - 1))
		_, until = x.State()
		require.Equal(t, requested.Add(ttl*9/10), until)
		sleepUntil(granted.Add(2500 * time.Millisecond))
		_, until = x.State()
		require.Equal(t, granted.Add(ttl*9/10), until)
	})
	bubble(t, "it is lost on its own clock, unobserved", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Starve("a")
		s.Delay("a", time.Second, time.Second)
		requested := time.Now()
		x := open(t, a, ttl)
		<-x.Lost()
		require.Equal(t, span, time.Since(requested))
	})
	bubble(t, "the server ends it when its client has given up before the request arrived", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Delay("a", 2*time.Second, 0)
		requested := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := a.OpenSession(ctx, registry.SessionOptions{TTL: ttl})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, s.Counts("a").Sessions)
		sleepUntil(requested.Add(2*time.Second + ttl - 1))
		require.Equal(t, 1, s.Counts("a").Sessions)
		sleepUntil(requested.Add(2*time.Second + ttl))
		require.Zero(t, s.Counts("a").Sessions)
		require.NoError(t, memory.CheckNothingLeft(s))
	})
	bubble(t, "it is renewed at once when a fault ends, also if the server ended it before the grant arrived", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Delay("a", 0, 2*time.Second)
		requested := time.Now()
		var heal func()
		time.AfterFunc(time.Second, func() {
			heal = s.Isolate("a")
			s.Expire("a")
		})
		x := open(t, a, ttl)
		require.Equal(t, registry.SessionConnected, state(x))
		sleepUntil(requested.Add(3 * time.Second))
		heal()
		<-x.Lost()
		require.Equal(t, 5*time.Second, time.Since(requested))
	})
	bubble(t, "nothing is left of it when it expires before its client has given up", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		s.Delay("a", 0, time.Hour)
		_, err := a.OpenSession(t.Context(), registry.SessionOptions{TTL: time.Second})
		require.ErrorIs(t, err, registry.ErrUnavailable)
		require.NoError(t, memory.CheckNothingLeft(s))
	})
}

func TestSession_State(t *testing.T) {
	bubble(t, "does not depend on the timer", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := open(t, a, ttl)
		s.Starve("a")
		require.True(t, memory.StopTimer(x))
		time.Sleep(patience)
		require.Equal(t, registry.SessionSuspended, state(x))
		require.True(t, memory.StopTimer(x))
		time.Sleep(span - patience)
		require.Equal(t, registry.SessionLost, state(x))
	})
}

// TestSessionCloseUnreached closes sessions whose server is not reached, or need not be.
func TestSessionCloseUnreached(t *testing.T) {
	bubble(t, "a renewal under way is received after Close", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		begun := time.Now()
		x := openOwner(t, a)
		s.Delay("a", 5*time.Second, 0)
		sleepUntil(begun.Add(4*interval + time.Second)) // a renewal is under way
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		require.ErrorIs(t, x.Close(ctx), context.DeadlineExceeded)
		sleepUntil(begun.Add(4*interval + 5*time.Second))
		s.PartitionOneWay("a", memory.Requests)
		expires := begun.Add(4*interval + 5*time.Second + ttl)
		sleepUntil(expires.Add(-1))
		require.True(t, has(t, b, "d/~o"))
		sleepUntil(expires)
		require.False(t, has(t, b, "d/~o"))
	})
	for _, delay := range []time.Duration{0, time.Second} {
		bubble(t, fmt.Sprintf("Close of a session that was closed with a delay of %v needs no server", delay), func(t *testing.T, s *memory.Server) {
			a := connect(t, s, "a")
			x := openOwner(t, a)
			s.Delay("a", delay, 0)
			require.NoError(t, x.Close(t.Context()))
			s.Partition("a")
			checkDuration(t, 0, func() { require.NoError(t, x.Close(t.Context())) })
		})
	}
	bubble(t, "Close of a session whose end the server has reported needs no server", func(t *testing.T, s *memory.Server) {
		x := openOwner(t, connect(t, s, "a"))
		s.ExpireSession(x.ID())
		require.Equal(t, registry.SessionLost, state(x))
		s.Partition("a")
		checkDuration(t, 0, func() { require.NoError(t, x.Close(t.Context())) })
	})
	bubble(t, "Close of a handle whose sessions have ended needs no server", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := openOwner(t, a)
		s.Delay("a", time.Second, 0)
		time.Sleep(interval - time.Second/2)
		s.Delay("a", time.Second, 10*time.Second)
		time.Sleep(time.Second)
		s.Delay("a", 0, time.Second)
		require.NoError(t, x.Close(t.Context())) // with a renewal under way
		s.Partition("a")
		checkDuration(t, 0, func() { require.NoError(t, a.Close(t.Context())) })
	})
	bubble(t, "a second Close of a handle returns when the first has ended the sessions", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		openOwner(t, a)
		s.Delay("a", time.Second, time.Second)
		first := make(chan error)
		go func() { first <- a.Close(t.Context()) }()
		synctest.Wait()
		checkDuration(t, 2*time.Second, func() { require.NoError(t, a.Close(t.Context())) })
		require.NoError(t, <-first)
	})
	bubble(t, "nothing is left of a session that is closed while a renewal is under way", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := openOwner(t, a)
		s.Delay("a", 2*time.Second, 0)
		time.Sleep(interval + time.Second)
		s.Delay("a", 0, 0)
		require.NoError(t, x.Close(t.Context()))
		sleepUntil(time.Now().Add(time.Second))
		require.NoError(t, memory.CheckNothingLeft(s))
	})
	for _, delay := range []time.Duration{0, time.Second} {
		bubble(t, fmt.Sprintf("nothing is left of a session that is closed at rest with a delay of %v", delay), func(t *testing.T, s *memory.Server) {
			x := openOwner(t, connect(t, s, "a"))
			begun := time.Now()
			s.Delay("a", delay, 0)
			sleepUntil(begun.Add(interval + interval/2))
			require.True(t, memory.AtRest(x))
			require.NoError(t, x.Close(t.Context()))
			time.Sleep(time.Hour)
			_, until := x.State()
			require.Equal(t, begun.Add(interval+span), until, "the safe-until")
			require.NoError(t, memory.CheckNothingLeft(s))
		})
	}
	bubble(t, "Close waits for a paused server", func(t *testing.T, s *memory.Server) {
		x := openOwner(t, connect(t, s, "a"))
		resume := s.Pause()
		time.AfterFunc(time.Second, resume)
		checkDuration(t, time.Second, func() { require.NoError(t, x.Close(t.Context())) })
		require.Empty(t, s.Dump())
	})
	bubble(t, "Close of a handle waits for a paused server", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		openOwner(t, a)
		resume := s.Pause()
		defer resume()
		checkDuration(t, memory.CallTimeout, func() {
			require.ErrorIs(t, a.Close(t.Context()), registry.ErrUnavailable)
		})
		require.Len(t, s.Dump(), 1)
	})
}

func isClosed(ch <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
