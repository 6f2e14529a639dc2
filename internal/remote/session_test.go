package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// store is the other side of a session: what becomes of its renewals is up to the test.
type store struct {
	answer func(ctx context.Context) error // to a renewal; nil confirms it at once
	end    func(ctx context.Context) error // nil succeeds

	mu       sync.Mutex
	renewals []time.Duration // when they were sent, since the beginning
	ends     int
	start    time.Time
	slept    time.Duration // by how much the wall clock has run ahead
	log      strings.Builder
	calls    *Calls
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

// confirmed is an answer after d.
func confirmed(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// silence is no answer.
func silence(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// begin opens a session whose renewals are sent every 3 s. Without them it is suspended
// after 8.5 s and lost after 9.
func (s *store) begin() *Session {
	s.start = time.Now()
	s.calls = NewCalls(time.Second)
	return newSession(SessionConfig{
		ID: "id", TTL: ttl, Opened: Now(),
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
		Calls:  s.calls,
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	}, s.clock)
}

func state(s *Session) registry.SessionState {
	st, _ := s.State()
	return st
}

func safe(s *Session, start time.Time) time.Duration {
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

// at lets time pass until d after the beginning, and all that falls due then happen.
func (s *store) at(d time.Duration) {
	time.Sleep(time.Until(s.start.Add(d)))
	synctest.Wait()
}

func TestSession(t *testing.T) {
	const second = time.Second
	for name, f := range map[string]func(t *testing.T, st *store){
		"is renewed on its timer, and safe from when a confirmed renewal was sent": func(t *testing.T, st *store) {
			st.answer = confirmed(second)
			s := st.begin()
			require.Equal(t, registry.SessionID("id"), s.ID())
			require.Equal(t, ttl, s.TTL())
			require.Equal(t, 9*second, safe(s, st.start))
			st.at(3900 * time.Millisecond)
			require.Equal(t, 9*second, safe(s, st.start))
			st.at(4 * second)
			require.Equal(t, 12*second, safe(s, st.start))
			st.at(100 * second)
			require.Equal(t, registry.SessionConnected, state(s))
			require.Len(t, st.renewals, 33)
			require.Equal(t, []time.Duration{3 * second, 6 * second, 9 * second}, st.renewals[:3])
			require.NoError(t, s.Err())
		},
		"lives with answers that take half a TTL, and does not wait for one to ask again": func(t *testing.T, st *store) {
			st.answer = confirmed(ttl / 2)
			s := st.begin()
			changed := s.Changed()
			st.at(20 * ttl)
			require.Equal(t, registry.SessionConnected, state(s))
			select {
			case <-changed:
				t.Error("it changed")
			default:
			}
			require.Len(t, st.renewals, 66)
		},
		"is suspended when two renewals go unanswered, then lost on its own clock": func(t *testing.T, st *store) {
			st.answer = silence
			s := st.begin()
			changed := s.Changed()
			st.at(8400 * time.Millisecond)
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
			require.Equal(t, 9*second, safe(s, st.start))
			synctest.Wait()
			require.Equal(t, 1, st.ends, "the store is told that it was given up")
			require.Contains(t, st.log.String(), "session is suspended")
			require.Contains(t, st.log.String(), "session is lost")
		},
		"comes back when an answer comes in time": func(t *testing.T, st *store) {
			s := st.begin()
			st.set(func() { st.answer = silence })
			st.at(8600 * time.Millisecond)
			require.Equal(t, registry.SessionSuspended, state(s))
			st.set(func() { st.answer = nil })
			s.Reconnected()
			synctest.Wait()
			require.Equal(t, registry.SessionConnected, state(s))
			require.Equal(t, 17600*time.Millisecond, safe(s, st.start))
		},
		"does not come back by an answer that is as old as its patience": func(t *testing.T, st *store) {
			st.answer = func(ctx context.Context) error { return confirmed(8700 * time.Millisecond)(ctx) }
			s := st.begin()
			st.at(8600 * time.Millisecond)
			require.Equal(t, registry.SessionSuspended, state(s))
			<-s.Lost() // the first answer would come at 11.7 s
			require.Equal(t, 9*second, time.Since(st.start))
		},
		"is prolonged by a late answer, from when it was asked for": func(t *testing.T, st *store) {
			late := make(chan error)
			st.answer = func(ctx context.Context) error {
				select {
				case err := <-late:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			s := st.begin()
			st.at(3 * second) // the first renewal waits for late
			st.set(func() { st.answer = silence })
			st.at(8900 * time.Millisecond)
			late <- nil
			synctest.Wait()
			require.Equal(t, 12*second, safe(s, st.start))
			require.Equal(t, registry.SessionConnected, state(s))
			<-s.Lost()
			require.Equal(t, 12*second, time.Since(st.start))
		},
		"stays lost, whatever is answered later": func(t *testing.T, st *store) {
			st.answer = func(context.Context) error {
				time.Sleep(20 * second) // it heeds no context
				return nil
			}
			s := st.begin()
			<-s.Lost()
			err := s.Err()
			st.at(60 * second)
			require.Equal(t, registry.SessionLost, state(s))
			require.Equal(t, err, s.Err())
			require.NoError(t, s.Close(t.Context()))
			require.Equal(t, registry.SessionLost, state(s))
			require.Len(t, st.renewals, 2, "none is sent for a session that is lost")
		},
		"is lost at once when the store says so, which is told no more": func(t *testing.T, st *store) {
			s := st.begin()
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
		"is lost by what the backend has heard elsewhere": func(t *testing.T, st *store) {
			s := st.begin()
			s.Expired()
			<-s.Lost()
			require.Zero(t, time.Since(st.start))
			require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
		},
		"is lost when what stands for it is gone, and the store is told": func(t *testing.T, st *store) {
			s := st.begin()
			s.Vanished()
			<-s.Lost()
			require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
			synctest.Wait()
			require.Equal(t, 1, st.ends)
		},
		"asks again soon when a renewal fails": func(t *testing.T, st *store) {
			trouble := errors.New("trouble")
			st.answer = func(context.Context) error { return trouble }
			s := st.begin()
			st.at(5 * second)
			require.Equal(t, []time.Duration{3000, 3750, 4500}, milliseconds(st.renewals))
			require.Equal(t, registry.SessionConnected, state(s))
			<-s.Lost()
			require.ErrorIs(t, s.Err(), trouble, "the cause is kept")
		},
		"is suspended when the connection is gone, until a renewal sent after that": func(t *testing.T, st *store) {
			st.answer = confirmed(2 * second)
			s := st.begin()
			st.at(4 * second) // one is under way
			s.Disconnected()
			require.Equal(t, registry.SessionSuspended, state(s))
			st.at(5500 * time.Millisecond)
			require.Equal(t, registry.SessionSuspended, state(s), "the answer is to what was sent before")
			require.Equal(t, 12*second, safe(s, st.start), "but it counts")
			s.Reconnected()
			st.at(7500 * time.Millisecond)
			require.Equal(t, registry.SessionConnected, state(s))
			require.Equal(t, 14500*time.Millisecond, safe(s, st.start))
		},
		"is lost after its span also without a connection": func(t *testing.T, st *store) {
			st.answer = silence
			s := st.begin()
			s.Disconnected()
			<-s.Lost()
			require.Equal(t, 9*second, time.Since(st.start))
			s.Disconnected()
			s.Reconnected()
			require.Equal(t, registry.SessionLost, state(s))
		},
		"counts the time a machine slept": func(t *testing.T, st *store) {
			s := st.begin()
			st.at(4 * second) // confirmed at 3 s
			st.set(func() { st.slept, st.answer = 2*second, silence })
			require.Equal(t, 10*second, safe(s, st.start), "two seconds less than the timers think")
			st.set(func() { st.slept = time.Hour })
			require.False(t, isLost(s))
			require.Equal(t, registry.SessionLost, state(s), "who asks is told before any timer has run")
			require.True(t, isLost(s))
		},
		"notices by itself that the machine slept, within an interval": func(t *testing.T, st *store) {
			st.answer = silence
			s := st.begin()
			st.at(second)
			st.set(func() { st.slept = time.Hour })
			<-s.Lost()
			require.Equal(t, 3*second, time.Since(st.start))
		},
		"is not renewed while it is starved, and at once when fed": func(t *testing.T, st *store) {
			s := st.begin()
			feed := s.Starve()
			st.at(6 * second)
			require.Empty(t, st.renewals)
			feed()
			feed()
			st.at(7 * second)
			require.Equal(t, []time.Duration{6 * second}, st.renewals)
			s.Starve()
			<-s.Lost()
			require.Equal(t, 15*second, time.Since(st.start))
		},
		"Close ends it at the store, once": func(t *testing.T, st *store) {
			s := st.begin()
			changed := s.Changed()
			require.NoError(t, s.Close(t.Context()))
			<-changed
			require.True(t, isLost(s))
			require.Equal(t, registry.SessionClosed, state(s))
			require.Equal(t, registry.ErrClosed, s.Err())
			require.NoError(t, s.Close(t.Context()))
			st.at(60 * second)
			require.Equal(t, 1, st.ends)
			require.Empty(t, st.renewals)
			require.Equal(t, registry.SessionClosed, state(s))
		},
		"Close that does not reach the store says so, and may be called again": func(t *testing.T, st *store) {
			st.end = silence
			s := st.begin()
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
		"does nothing for a handle that is closed": func(t *testing.T, st *store) {
			st.answer = silence
			s := st.begin()
			st.at(4 * second)
			st.calls.Close()
			require.NoError(t, s.Close(t.Context()))
			st.calls.Wait()
			require.Equal(t, 4*second, time.Since(st.start), "renewals under way end")
		},
		"telling the store of a lost one ends with the handle": func(t *testing.T, st *store) {
			st.answer, st.end = silence, silence
			s := st.begin()
			<-s.Lost()
			synctest.Wait()
			require.Equal(t, 1, st.ends)
			st.calls.Close()
			st.calls.Wait()
			require.Equal(t, 9*second, time.Since(st.start))
		},
		"Changed tells each change": func(t *testing.T, st *store) {
			st.answer = silence
			s := st.begin()
			changed := s.Changed()
			for _, want := range []registry.SessionState{registry.SessionSuspended, registry.SessionLost} {
				select {
				case <-changed:
					t.Fatal("nothing has changed yet")
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
				st.calls.Close()
				st.calls.Wait()
			})
		})
	}
}

// milliseconds makes failures readable.
func milliseconds(all []time.Duration) []time.Duration {
	var ms []time.Duration
	for _, d := range all {
		ms = append(ms, time.Duration(d.Milliseconds()))
	}
	return ms
}

// TestSession_UnderManyHands has everything called at once, for the race detector.
func TestSession_UnderManyHands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &store{answer: confirmed(100 * time.Millisecond)}
		s := st.begin()
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
		st.calls.Close()
		st.calls.Wait()
	})
}
