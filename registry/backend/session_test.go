package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

const ttl = 10 * time.Second

// store is the server's side of a session. Tests set its answers to renewals.
type store struct {
	answer func(ctx context.Context) error // to a renewal; nil confirms it at once
	end    func(ctx context.Context) error // nil succeeds

	mu       sync.Mutex
	renewals []time.Duration // when they were sent, counted from start
	ends     int
	start    time.Time
	slept    time.Duration // how much more the wall clock has advanced
	log      strings.Builder
	handle   *Handle
}

func (s *store) renew(ctx context.Context) error {
	s.mu.Lock()
	s.renewals = append(s.renewals, time.Since(s.start))
	answer := s.answer
	s.mu.Unlock()
	if answer == nil {
		return nil
	}
	return answer(ctx)
}

func (s *store) clock() Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := Now()
	now.wall = now.wall.Add(s.slept)
	return now
}

func (s *store) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// confirmAfter answers after d.
func confirmAfter(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// neverAnswer answers only when ctx has ended.
func neverAnswer(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// newSession opens a session that is renewed every 3 s. Without answers it is suspended after
// 8.5 s and lost after 9 s.
func (s *store) newSession() *Session {
	s.start = time.Now()
	s.handle = NewHandle(Config{CallTimeout: time.Second, Logger: slog.New(slog.NewTextHandler(&s.log, nil))})
	x := newSession(s.handle, Grant{
		ID: "id", TTL: ttl, Sent: Now(),
		Interval: 3 * time.Second, Patience: 8500 * time.Millisecond, Span: 9 * time.Second,
		Renew: s.renew,
		End: func(ctx context.Context) error {
			end := func(context.Context) error { return nil }
			s.set(func() {
				s.ends++
				if s.end != nil {
					end = s.end
				}
			})
			return end(ctx)
		},
	}, s.clock)
	s.handle.addSession(x)
	return x
}

func state(s *Session) registry.SessionState {
	st, _ := s.State()
	return st
}

// safeUntil returns the safe-until of s, counted from start.
func safeUntil(s *Session, start time.Time) time.Duration {
	_, until := s.State()
	return until.Sub(start)
}

func isLost(s *Session) bool {
	select {
	case <-s.Lost():
		return true
	default:
		return false
	}
}

// sleepUntil sleeps until d after the start, and until all goroutines that wake then wait
// again.
func (s *store) sleepUntil(d time.Duration) {
	time.Sleep(time.Until(s.start.Add(d)))
	synctest.Wait()
}

func TestSession(t *testing.T) {
	const second = time.Second
	for name, f := range map[string]func(t *testing.T, st *store){
		"is renewed on its timer, and safe counted from when a confirmed renewal was sent": func(t *testing.T, st *store) {
			st.answer = confirmAfter(second)
			s := st.newSession()
			require.Equal(t, registry.SessionID("id"), s.ID())
			require.Equal(t, ttl, s.TTL())
			require.Equal(t, 9*second, safeUntil(s, st.start))
			st.sleepUntil(3900 * time.Millisecond)
			require.Equal(t, 9*second, safeUntil(s, st.start))
			st.sleepUntil(4 * second)
			require.Equal(t, 12*second, safeUntil(s, st.start))
			st.sleepUntil(100 * second)
			require.Equal(t, registry.SessionConnected, state(s))
			require.Len(t, st.renewals, 33)
			require.Equal(t, []time.Duration{3 * second, 6 * second, 9 * second}, st.renewals[:3])
			require.NoError(t, s.Err())
		},
		"stays connected if answers take half a TTL, and renews without waiting for them": func(t *testing.T, st *store) {
			st.answer = confirmAfter(ttl / 2)
			s := st.newSession()
			changed := s.Changed()
			st.sleepUntil(20 * ttl)
			require.Equal(t, registry.SessionConnected, state(s))
			select {
			case <-changed:
				t.Error("the state has changed")
			default:
			}
			require.Len(t, st.renewals, 66)
		},
		"is suspended when two renewals go unanswered, then lost on its own clock": func(t *testing.T, st *store) {
			st.answer = neverAnswer
			s := st.newSession()
			changed := s.Changed()
			st.sleepUntil(8400 * time.Millisecond)
			require.Equal(t, registry.SessionConnected, state(s))
			<-changed
			require.Equal(t, 8500*time.Millisecond, time.Since(st.start))
			require.Equal(t, registry.SessionSuspended, state(s))
			require.NoError(t, s.Err())
			<-s.Lost()
			require.Equal(t, 9*second, time.Since(st.start))
			require.Equal(t, registry.SessionLost, state(s))
			require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
			require.Equal(t, []time.Duration{3 * second, 6 * second}, st.renewals[:2])
			require.Equal(t, 9*second, safeUntil(s, st.start))
			synctest.Wait()
			require.Equal(t, 1, st.ends, "it is ended at the store")
			require.Contains(t, st.log.String(), "session is suspended")
			require.Contains(t, st.log.String(), "session is lost")
		},
		"is connected again if a renewal is confirmed in time": func(t *testing.T, st *store) {
			s := st.newSession()
			st.set(func() { st.answer = neverAnswer })
			st.sleepUntil(8600 * time.Millisecond)
			require.Equal(t, registry.SessionSuspended, state(s))
			st.set(func() { st.answer = nil })
			s.Reconnected()
			synctest.Wait()
			require.Equal(t, registry.SessionConnected, state(s))
			require.Equal(t, 17600*time.Millisecond, safeUntil(s, st.start))
		},
		"stays suspended after an answer to a renewal older than its patience": func(t *testing.T, st *store) {
			st.answer = func(ctx context.Context) error { return confirmAfter(8700 * time.Millisecond)(ctx) }
			s := st.newSession()
			st.sleepUntil(8600 * time.Millisecond)
			require.Equal(t, registry.SessionSuspended, state(s))
			<-s.Lost() // the first answer would arrive at 11.7 s
			require.Equal(t, 9*second, time.Since(st.start))
		},
		"is extended by a late answer, counted from when the renewal was sent": func(t *testing.T, st *store) {
			late := make(chan error)
			st.answer = func(ctx context.Context) error {
				select {
				case err := <-late:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			s := st.newSession()
			st.sleepUntil(3 * second) // the first renewal waits for late
			st.set(func() { st.answer = neverAnswer })
			st.sleepUntil(8900 * time.Millisecond)
			late <- nil
			synctest.Wait()
			require.Equal(t, 12*second, safeUntil(s, st.start))
			require.Equal(t, registry.SessionConnected, state(s))
			<-s.Lost()
			require.Equal(t, 12*second, time.Since(st.start))
		},
		"stays lost after a late answer": func(t *testing.T, st *store) {
			st.answer = func(context.Context) error {
				time.Sleep(20 * second) // it ignores its context
				return nil
			}
			s := st.newSession()
			<-s.Lost()
			err := s.Err()
			st.sleepUntil(60 * second)
			require.Equal(t, registry.SessionLost, state(s))
			require.Equal(t, err, s.Err())
			require.NoError(t, s.Close(t.Context()))
			require.Equal(t, registry.SessionLost, state(s))
			require.Len(t, st.renewals, 2, "none is sent for a lost session")
		},
		"is lost at once when the store has ended it, and is not ended there again": func(t *testing.T, st *store) {
			s := st.newSession()
			st.set(func() {
				st.answer = func(context.Context) error {
					return fmt.Errorf("renew: %w", registry.ErrSessionLost)
				}
			})
			<-s.Lost()
			require.Equal(t, 3*second, time.Since(st.start))
			require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
			require.NoError(t, s.Close(t.Context()))
			require.Zero(t, st.ends)
			require.Equal(t, registry.SessionLost, state(s))
		},
		"is lost when the backend reports its expiry": func(t *testing.T, st *store) {
			s := st.newSession()
			s.Expired()
			<-s.Lost()
			require.Zero(t, time.Since(st.start))
			require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
		},
		"is lost when its record was deleted, and ended at the store": func(t *testing.T, st *store) {
			s := st.newSession()
			s.Vanished()
			<-s.Lost()
			require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
			synctest.Wait()
			require.Equal(t, 1, st.ends)
		},
		"retries soon when a renewal fails": func(t *testing.T, st *store) {
			cause := errors.New("cause")
			st.answer = func(context.Context) error { return cause }
			s := st.newSession()
			st.sleepUntil(5 * second)
			require.Equal(t, []time.Duration{3000, 3750, 4500}, milliseconds(st.renewals))
			require.Equal(t, registry.SessionConnected, state(s))
			<-s.Lost()
			require.ErrorIs(t, s.Err(), cause)
		},
		"does not hurry the next renewal if one before the last fails": func(t *testing.T, st *store) {
			st.answer = func(context.Context) error {
				time.Sleep(1500 * time.Millisecond)
				return errors.New("cause")
			}
			s := st.newSession()
			st.sleepUntil(3500 * time.Millisecond)
			st.set(func() { st.answer = confirmAfter(2 * second) })
			s.Disconnected()
			s.Reconnected()
			st.sleepUntil(7 * second)
			require.Equal(t, []time.Duration{3000, 3500, 6500}, milliseconds(st.renewals))
		},
		"is suspended when the connection breaks, until a later renewal is confirmed": func(t *testing.T, st *store) {
			st.answer = confirmAfter(2 * second)
			s := st.newSession()
			st.sleepUntil(4 * second) // one is under way
			s.Disconnected()
			require.Equal(t, registry.SessionSuspended, state(s))
			st.sleepUntil(5500 * time.Millisecond)
			require.Equal(t, registry.SessionSuspended, state(s), "the renewal was sent before the connection broke")
			require.Equal(t, 12*second, safeUntil(s, st.start), "but it extends the session")
			s.Reconnected()
			st.sleepUntil(7500 * time.Millisecond)
			require.Equal(t, registry.SessionConnected, state(s))
			require.Equal(t, 14500*time.Millisecond, safeUntil(s, st.start))
		},
		"is lost after its span without a connection": func(t *testing.T, st *store) {
			st.answer = neverAnswer
			s := st.newSession()
			s.Disconnected()
			<-s.Lost()
			require.Equal(t, 9*second, time.Since(st.start))
			s.Disconnected()
			s.Reconnected()
			require.Equal(t, registry.SessionLost, state(s))
		},
		"counts the time that the machine slept": func(t *testing.T, st *store) {
			s := st.newSession()
			st.sleepUntil(4 * second) // confirmed at 3 s
			st.set(func() { st.slept, st.answer = 2*second, neverAnswer })
			require.Equal(t, 10*second, safeUntil(s, st.start), "two seconds earlier than by the monotonic clock")
			st.set(func() { st.slept = time.Hour })
			require.False(t, isLost(s))
			require.Equal(t, registry.SessionLost, state(s), "State reads the clock before the timer has fired")
			require.True(t, isLost(s))
		},
		"notices by itself that the machine slept, within an interval": func(t *testing.T, st *store) {
			st.answer = neverAnswer
			s := st.newSession()
			st.sleepUntil(second)
			st.set(func() { st.slept = time.Hour })
			<-s.Lost()
			require.Equal(t, 3*second, time.Since(st.start))
		},
		"is not renewed while it is starved, and renewed at once when fed": func(t *testing.T, st *store) {
			s := st.newSession()
			feed := s.Starve()
			st.sleepUntil(6 * second)
			require.Empty(t, st.renewals)
			feed()
			feed()
			st.sleepUntil(7 * second)
			require.Equal(t, []time.Duration{6 * second}, st.renewals)
			s.Starve()
			<-s.Lost()
			require.Equal(t, 15*second, time.Since(st.start))
		},
		"is ended at the store once by Close": func(t *testing.T, st *store) {
			s := st.newSession()
			changed := s.Changed()
			require.NoError(t, s.Close(t.Context()))
			<-changed
			require.True(t, isLost(s))
			require.Equal(t, registry.SessionClosed, state(s))
			require.Equal(t, registry.ErrClosed, s.Err())
			require.NoError(t, s.Close(t.Context()))
			st.sleepUntil(60 * second)
			require.Equal(t, 1, st.ends)
			require.Empty(t, st.renewals)
			require.Equal(t, registry.SessionClosed, state(s))
		},
		"can be closed again if Close did not reach the store": func(t *testing.T, st *store) {
			st.end = neverAnswer
			s := st.newSession()
			ctx, cancel := context.WithTimeout(t.Context(), second)
			defer cancel()
			err := s.Close(ctx)
			require.ErrorIs(t, err, registry.ErrUnavailable)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, registry.SessionClosed, state(s))
			st.set(func() { st.end = nil })
			require.NoError(t, s.Close(t.Context()))
			require.Equal(t, 2, st.ends)
		},
		"sends nothing after its handle is closed": func(t *testing.T, st *store) {
			st.answer = neverAnswer
			s := st.newSession()
			st.sleepUntil(4 * second)
			require.NoError(t, st.handle.Close(t.Context(), nil))
			require.Equal(t, registry.SessionClosed, state(s))
			require.Equal(t, 4*second, time.Since(st.start), "renewals under way end")
		},
		"stops the request that ends a lost one when the handle is closed": func(t *testing.T, st *store) {
			st.answer, st.end = neverAnswer, neverAnswer
			s := st.newSession()
			<-s.Lost()
			synctest.Wait()
			require.Equal(t, 1, st.ends)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			require.Error(t, st.handle.Close(ended, nil))
			require.Equal(t, 9*second, time.Since(st.start))
		},
		"signals each change by Changed": func(t *testing.T, st *store) {
			st.answer = neverAnswer
			s := st.newSession()
			changed := s.Changed()
			for _, want := range []registry.SessionState{registry.SessionSuspended, registry.SessionLost} {
				select {
				case <-changed:
					t.Fatal("the state has not changed yet")
				default:
				}
				<-changed
				changed = s.Changed()
				require.Equal(t, want, state(s))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &store{}
				f(t, st)
				_ = st.handle.Close(t.Context(), nil)
			})
		})
	}
}

// milliseconds makes failure messages readable.
func milliseconds(all []time.Duration) []time.Duration {
	var ms []time.Duration
	for _, d := range all {
		ms = append(ms, time.Duration(d.Milliseconds()))
	}
	return ms
}

// TestSession_AllowsConcurrentCalls calls all methods concurrently, for the race detector.
func TestSession_AllowsConcurrentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &store{answer: confirmAfter(100 * time.Millisecond)}
		s := st.newSession()
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for range 50 {
					time.Sleep(time.Duration(i+1) * 10 * time.Millisecond)
					s.State()
					s.Disconnected()
					s.Changed()
					s.Reconnected()
					s.Starve()()
					_ = s.Err()
				}
			})
		}
		wg.Wait()
		require.NoError(t, s.Err())
		for range 4 {
			wg.Go(func() { assert.NoError(t, s.Close(t.Context())) })
		}
		wg.Wait()
		require.Equal(t, registry.SessionClosed, state(s))
		require.NoError(t, st.handle.Close(t.Context(), nil))
	})
}

// lease is a session at a store behind a network whose latency changes and that loses messages.
type lease struct {
	mu             sync.Mutex
	request, reply time.Duration
	lost           bool
	expires        time.Time // TTL after the last renewal that arrived
}

func (l *lease) network(request, reply time.Duration, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.request, l.reply, l.lost = request, reply, lost
}

func (l *lease) state() (request, reply time.Duration, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.request, l.reply, l.lost
}

// renew extends the lease when the request arrives, whether or not the caller still waits.
func (l *lease) renew(ctx context.Context) error {
	answer := make(chan error, 1)
	go func() {
		request, reply, lost := l.state()
		time.Sleep(request)
		if lost {
			return
		}
		l.mu.Lock()
		dead := !time.Now().Before(l.expires)
		if !dead {
			l.expires = time.Now().Add(ttl)
		}
		l.mu.Unlock()
		time.Sleep(reply)
		if dead {
			answer <- registry.ErrSessionLost
			return
		}
		answer <- nil
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// requireSafe requires that the store keeps the lease while its owner believes to be safe.
func (l *lease) requireSafe(t *testing.T, s *Session, what string) {
	t.Helper()
	st, until := s.State()
	l.mu.Lock()
	defer l.mu.Unlock()
	if st == registry.SessionConnected || st == registry.SessionSuspended {
		require.False(t, until.After(l.expires), "%s: safe until %v after the store ends the session", what, until.Sub(l.expires))
		require.True(t, time.Now().Before(l.expires), "%s: %v after its end", what, st)
	}
}

// TestSession_IsNeverSafeBeyondTheStore makes answers late and cuts the network then: what is
// confirmed by a late answer was sent long before, and counts from then.
func TestSession_IsNeverSafeBeyondTheStore(t *testing.T) {
	open := func(t *testing.T, h *Handle, l *lease) *Session {
		t.Helper()
		s, err := h.OpenSession(t.Context(), registry.SessionOptions{TTL: ttl}, func(context.Context, time.Duration) (Grant, error) {
			request, reply, _ := l.state()
			time.Sleep(request)
			l.mu.Lock()
			l.expires = time.Now().Add(ttl)
			l.mu.Unlock()
			time.Sleep(reply)
			return Grant{ID: "id", TTL: ttl, Renew: l.renew, End: func(context.Context) error { return nil }}, nil
		})
		require.NoError(t, err)
		return s
	}
	watch := func(t *testing.T, l *lease, s *Session, d time.Duration, what string) {
		t.Helper()
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			l.requireSafe(t, s, what)
		}
	}

	run := func(name string, f func(t *testing.T, h *Handle)) {
		inBubble(t, name, func(t *testing.T, h *Handle) {
			f(t, h)
			_ = h.Close(t.Context(), nil)
			time.Sleep(2 * ttl) // for the messages under way
		})
	}
	run("late replies, then a cut", func(t *testing.T, h *Handle) {
		l := &lease{}
		s := open(t, h, l)
		l.network(0, ttl/2, false)
		watch(t, l, s, 3*ttl, "late")
		require.Equal(t, registry.SessionConnected, state(s))
		l.network(0, ttl/2, true) // replies under way still arrive
		watch(t, l, s, 2*ttl, "cut")
		require.Equal(t, registry.SessionLost, state(s))
	})
	run("a session opened while replies are late, then a cut", func(t *testing.T, h *Handle) {
		l := &lease{reply: 4 * time.Second}
		s := open(t, h, l)
		l.network(0, 0, true)
		watch(t, l, s, 2*ttl, "cut")
		require.Equal(t, registry.SessionLost, state(s))
	})
	run("a session opened again, with answers for the lost one under way", func(t *testing.T, h *Handle) {
		l := &lease{}
		s := open(t, h, l)
		l.network(0, 8*time.Second, false)
		time.Sleep(3 * time.Second) // a renewal is sent whose answer comes when the session is lost
		l.network(0, 0, true)
		<-s.Lost()
		fresh := &lease{reply: time.Second}
		s2 := open(t, h, fresh)
		watch(t, fresh, s2, 3*ttl, "opened again")
		require.Equal(t, registry.SessionConnected, state(s2))
		require.Equal(t, registry.SessionLost, state(s))
	})
	for seed := range uint64(30) {
		run(fmt.Sprintf("seed %d", seed), func(t *testing.T, h *Handle) {
			random := rand.New(rand.NewPCG(seed, seed))
			l := &lease{}
			s := open(t, h, l)
			for range 100 {
				l.network(time.Duration(random.Int64N(int64(ttl/3))), time.Duration(random.Int64N(int64(ttl/2))), random.IntN(8) == 0)
				watch(t, l, s, time.Duration(random.IntN(4000))*time.Millisecond, "random")
				if s.Err() != nil {
					l = &lease{}
					s = open(t, h, l)
				}
			}
		})
	}
}
