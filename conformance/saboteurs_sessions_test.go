package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
)

var sessionSaboteurs = []saboteur{
	{
		conformance.SessionIDsAreUnique, "counts sessions from one again on each handle", "S01",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			n := 0
			return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
				s, err := r.OpenSession(ctx, o)
				if err != nil {
					return nil, err
				}
				n++
				id := registry.SessionID(fmt.Sprint(n))
				return &brokenSession{Session: s, id: func() registry.SessionID { return id }}, nil
			}}
		}),
	},
	{
		conformance.SessionIDsAreSegments, "puts an address into the id", "S01",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, id: func() registry.SessionID { return "10.0.0.1:2181/" + s.ID() }}
		}),
	},
	{
		conformance.GrantedTTLIsNoShorter, "grants whole seconds, rounded down", "S02",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
				o.TTL = o.TTL.Truncate(time.Second)
				return r.OpenSession(ctx, o)
			}}
		}),
	},
	{
		conformance.SessionOutlivesItsContext, "ends a session with the context it was opened with", "S16",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
				s, err := r.OpenSession(ctx, o)
				if err == nil {
					context.AfterFunc(ctx, func() { _ = s.Close(context.Background()) })
				}
				return s, err
			}}
		}),
	},
	{
		conformance.SessionsAreRenewed, "renews a session only once", "S03",
		func(_ testing.TB, s *conformance.Store) {
			wrapSessions(s, func(machine string, x registry.Session) registry.Session {
				time.AfterFunc(x.TTL()/2, func() { s.Starve(machine) })
				return x
			})
		},
	},
	{
		conformance.SessionsAreRenewed, "gives up a session whose reply takes a third of the TTL", "F11",
		func(_ testing.TB, s *conformance.Store) {
			delay := s.Delay
			s.Delay = func(machine string, d time.Duration) func() {
				feed, restore := s.Starve(machine), delay(machine, d)
				return func() {
					feed()
					restore()
				}
			}
		},
	},
	{
		conformance.SessionsAreRenewed, "opens new sessions after a restart of the store", "S04",
		func(_ testing.TB, s *conformance.Store) {
			var open []registry.SessionID
			wrapSessions(s, func(_ string, x registry.Session) registry.Session {
				open = append(open, x.ID())
				return x
			})
			restart := s.Restart
			s.Restart = func() {
				for _, id := range open {
					s.Expire(id)
				}
				restart()
			}
		},
	},
	{
		conformance.SessionsAreIndependent, "has one lease for all sessions of a handle", "S14",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			var all []registry.Session
			return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
				s, err := r.OpenSession(ctx, o)
				if err != nil {
					return nil, err
				}
				all = append(all, s)
				return &brokenSession{Session: s, close: func(ctx context.Context) error {
					for _, s := range all {
						if err := s.Close(ctx); err != nil {
							return err
						}
					}
					return nil
				}}, nil
			}}
		}),
	},
	{
		conformance.SilentSessionsExpire, "grants ten times the TTL that it reports", "E01",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
				s, err := r.OpenSession(ctx, registry.SessionOptions{TTL: 10 * o.TTL})
				if err != nil {
					return nil, err
				}
				return &brokenSession{Session: s, ttl: func() time.Duration { return o.TTL }}, nil
			}}
		}),
	},
	{
		conformance.SuspendedComesBack, "ends a session when its connection breaks", "S06",
		func(_ testing.TB, s *conformance.Store) {
			var mu sync.Mutex
			of := map[string][]registry.SessionID{}
			wrapSessions(s, func(machine string, x registry.Session) registry.Session {
				mu.Lock()
				defer mu.Unlock()
				of[machine] = append(of[machine], x.ID())
				return x
			})
			partition := s.Partition
			s.Partition = func(machine string, c conformance.Cut) (heal func()) {
				mu.Lock()
				defer mu.Unlock()
				for _, id := range of[machine] {
					s.Expire(id)
				}
				return partition(machine, c)
			}
		},
	},
	{
		conformance.SuspendedComesBack, "reports Connected while the connection is broken", "S06",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, state: func() (registry.SessionState, time.Time) {
				st, until := s.State()
				if st == registry.SessionSuspended {
					st = registry.SessionConnected
				}
				return st, until
			}}
		}),
	},
	{
		conformance.SilenceSuspends, "reports Connected until the session is Lost", "S18",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, state: func() (registry.SessionState, time.Time) {
				st, until := s.State()
				if st == registry.SessionSuspended {
					st = registry.SessionConnected
				}
				return st, until
			}}
		}),
	},
	{
		conformance.SilenceSuspends, "reports Connected until the session of a stalled store is Lost", "S26",
		whileStalled(func(st registry.SessionState, until time.Time) (registry.SessionState, time.Time) {
			if st == registry.SessionSuspended {
				st = registry.SessionConnected
			}
			return st, until
		}),
	},
	{
		conformance.SafeUntilIsKept, "moves the safe-until when a stalled store accepts a renewal", "S26",
		whileStalled(func(st registry.SessionState, until time.Time) (registry.SessionState, time.Time) {
			return st, until.Add(3 * time.Second)
		}),
	},
	{
		conformance.SuspendedComesBack, "re-creates an owned key after a broken connection", "E03",
		func(_ testing.TB, s *conformance.Store) {
			partition := s.Partition
			s.Partition = func(machine string, c conformance.Cut) func() {
				heal := partition(machine, c)
				return sync.OnceFunc(func() {
					heal()
					r := s.Connect(discard{}, "helper")
					defer r.Close(context.Background())
					e, err := r.Get(context.Background(), "~k", registry.ReadOptions{})
					if err != nil {
						return
					}
					_, _ = r.Txn(context.Background(), registry.Txn{Then: []registry.Op{registry.Delete("~k", e.Modified)}})
					_, _ = r.Txn(context.Background(), registry.Txn{Then: []registry.Op{registry.CreateOwned("~k", e.Value, e.Owner)}})
				})
			}
		},
	},
	{
		conformance.LostBeforeTheStoreActs, "counts the TTL from the answer to a renewal, and checks once a second", "S05",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session { return delayLoss(s, 2*time.Second) }),
	},
	{
		conformance.LostBeforeTheStoreActs, "treats events as confirmations of its renewals", "F12",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session { return delayLoss(s, 3*time.Second) }),
	},
	{
		conformance.SafeUntilIsKept, "reports a safe-until later than the store waits", "S15",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, state: func() (registry.SessionState, time.Time) {
				st, until := s.State()
				return st, until.Add(s.TTL() / 5)
			}}
		}),
	},
	{
		conformance.SafeUntilIsKept, "stays Connected beyond its safe-until", "S15",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session { return delayLoss(s, time.Second) }),
	},
	{
		conformance.SafeUntilIsKept, "waits for the store to report the loss", "F18",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session { return delayLoss(s, 2*time.Second) }),
	},
	{
		conformance.SessionCloseIsFinal, "leaves a session that its owner has lost to the store's clock", "F18",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, close: func(ctx context.Context) error {
				if st, _ := s.State(); st == registry.SessionLost {
					return nil
				}
				return s.Close(ctx)
			}}
		}),
	},
	{
		conformance.LostIsFinal, "becomes Connected again after Lost when the connection recovers", "S13",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			var died time.Time
			return &brokenSession{Session: s, state: func() (registry.SessionState, time.Time) {
				st, until := s.State()
				if st == registry.SessionLost && died.IsZero() {
					died = time.Now()
				}
				if st == registry.SessionLost && time.Since(died) >= 0 && time.Since(until) > time.Second {
					return registry.SessionConnected, time.Now().Add(s.TTL())
				}
				return st, until
			}}
		}),
	},
	{
		conformance.ExpiryBecomesLost, "never closes Lost", "S07",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			never := make(chan struct{})
			return &brokenSession{Session: s, lost: func() <-chan struct{} { return never }}
		}),
	},
	{
		conformance.ExpiryBecomesLost, "reports no error for a lost session", "S07",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, err: func() error { return nil }}
		}),
	},
	{
		conformance.ChangedClosesOnChange, "signals only the end of the session", "S17",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, changed: s.Lost}
		}),
	},
	{
		conformance.EndedSessionsStayEnded, "continues with a new session after the old one expired", "S09",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
				rev, err := r.Txn(ctx, t)
				if !errors.Is(err, registry.ErrSessionLost) {
					return rev, err
				}
				s, err := r.OpenSession(ctx, registry.SessionOptions{})
				if err != nil {
					return rev, err
				}
				for i := range t.Then {
					t.Then[i].Session = s.ID()
				}
				return r.Txn(ctx, t)
			}}
		}),
	},
	{
		conformance.EndedSessionsStayEnded, "applies writes that an ended session had in flight", "S09",
		func(_ testing.TB, s *conformance.Store) {
			var late registry.Registry
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				late = r
				return r
			})
			hold := s.HoldCommit
			s.HoldCommit = func(machine string) func() {
				release := hold(machine)
				return func() {
					release()
					_, _ = late.Txn(context.Background(), registry.Txn{Then: []registry.Op{registry.Create("d/held", nil)}})
				}
			}
		},
	},
	{
		conformance.SessionEndsAtOneCommit, "deletes the owned keys one by one, and then ends the session", "E06",
		wrapEachSession(func(r registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, close: func(ctx context.Context) error {
				for _, dir := range []registry.Key{"d", "e"} {
					l, err := r.List(ctx, dir, registry.ReadOptions{})
					if err != nil {
						return err
					}
					for _, e := range l.Entries {
						if e.Owner == s.ID() {
							_, _ = r.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Delete(e.Key, e.Modified)}})
							time.Sleep(time.Millisecond)
						}
					}
				}
				return s.Close(ctx)
			}}
		}),
	},
	{
		conformance.CloseRemovesOwnedKeys, "returns from Close before the store has ended the session", "E02",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, close: func(ctx context.Context) error {
				time.AfterFunc(time.Millisecond, func() { _ = s.Close(context.Background()) })
				return nil
			}}
		}),
	},
	{
		conformance.SessionCloseIsFinal, "reports Lost for a session that its owner closed", "S11",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, state: func() (registry.SessionState, time.Time) {
				st, until := s.State()
				if st == registry.SessionClosed {
					st = registry.SessionLost
				}
				return st, until
			}}
		}),
	},
	{
		conformance.SessionCloseIsFinal, "fails the second Close of a session", "S11",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			closed := false
			return &brokenSession{Session: s, close: func(ctx context.Context) error {
				if closed {
					return registry.ErrClosed
				}
				closed = true
				return s.Close(ctx)
			}}
		}),
	},
	{
		conformance.CloseUnreachedLeavesExpiry, "reports a session as closed when the store was not reached", "S12",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, close: func(ctx context.Context) error {
				_ = s.Close(ctx)
				return nil
			}}
		}),
	},
	{
		conformance.CloseUnreachedLeavesExpiry, "keeps renewing a session that it could not close", "F21",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, close: func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}}
		}),
	},
}

// wrapSessions wraps every session of a store.
func wrapSessions(s *conformance.Store, wrap func(machine string, x registry.Session) registry.Session) {
	connect := s.Connect
	s.Connect = func(t testing.TB, machine string) registry.Registry {
		r := connect(t, machine)
		return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
			x, err := r.OpenSession(ctx, o)
			if err != nil {
				return nil, err
			}
			return wrap(machine, x), nil
		}}
	}
}

// discard is the testing.TB for handles that a saboteur opens itself.
type discard struct{ testing.TB }

// delayLoss reports the loss of a session late.
func delayLoss(s registry.Session, by time.Duration) registry.Session {
	lost := make(chan struct{})
	go func() {
		<-s.Lost()
		if !errors.Is(s.Err(), registry.ErrSessionLost) {
			by = 0
		}
		time.AfterFunc(by, func() { close(lost) })
	}()
	return &brokenSession{
		Session: s,
		lost:    func() <-chan struct{} { return lost },
		state: func() (registry.SessionState, time.Time) {
			st, until := s.State()
			select {
			case <-lost:
			default:
				if st == registry.SessionLost {
					st = registry.SessionSuspended
				}
			}
			return st, until
		},
	}
}

// whileStalled lets a saboteur change what sessions report while the store is stalled.
func whileStalled(change func(registry.SessionState, time.Time) (registry.SessionState, time.Time)) func(testing.TB, *conformance.Store) {
	return func(_ testing.TB, s *conformance.Store) {
		var stalled atomic.Bool
		stall := s.Stall
		s.Stall = func() func() {
			stalled.Store(true)
			resume := stall()
			return func() {
				stalled.Store(false)
				resume()
			}
		}
		wrapSessions(s, func(_ string, x registry.Session) registry.Session {
			return &brokenSession{Session: x, state: func() (registry.SessionState, time.Time) {
				st, until := x.State()
				if stalled.Load() {
					return change(st, until)
				}
				return st, until
			}}
		})
	}
}
