package conformance_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
)

var sessionEndSaboteurs = []saboteur{
	{
		conformance.CloseRemovesOwnedKeys, "closes a suspended session without asking the store", "S20",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, close: func(ctx context.Context) error {
				suspended := false
				if st, _ := s.State(); st == registry.SessionSuspended {
					suspended = true
				}
				err := s.Close(ctx)
				if suspended {
					err = nil
				}
				return err
			}}
		}),
	},
	{
		conformance.CloseUnreachedLeavesExpiry, "renews a session that it closed while it was suspended", "S20",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, close: func(ctx context.Context) error {
				if st, _ := s.State(); st == registry.SessionSuspended {
					return registry.ErrUnavailable
				}
				return s.Close(ctx)
			}}
		}),
	},
	{
		conformance.ExpiryBecomesLost, "treats a reconnection as proof that its session lives", "S21",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			wasSuspended := false
			never := make(chan struct{})
			return &brokenSession{
				Session: s,
				state: func() (registry.SessionState, time.Time) {
					st, until := s.State()
					wasSuspended = wasSuspended || st == registry.SessionSuspended
					if wasSuspended && st == registry.SessionLost {
						st = registry.SessionConnected
					}
					return st, until
				},
				lost: func() <-chan struct{} {
					if wasSuspended {
						return never
					}
					return s.Lost()
				},
			}
		}),
	},
	{
		conformance.SessionCloseIsFinal, "fails Close of a session that the store does not know", "S22",
		func(_ testing.TB, s *conformance.Store) {
			var expired sync.Map
			expire := s.Expire
			s.Expire = func(id registry.SessionID) {
				expire(id)
				expired.Store(id, true)
			}
			wrapSessions(s, func(_ string, x registry.Session) registry.Session {
				return &brokenSession{Session: x, close: func(ctx context.Context) error {
					err := x.Close(ctx)
					if _, gone := expired.Load(x.ID()); gone {
						err = errors.New("requested lease not found")
					}
					return err
				}}
			})
		},
	},
	{
		conformance.SuspendedComesBack, "forgets the keys of a session when its connection breaks", "S23",
		wrapEachSession(func(r registry.Registry, s registry.Session) registry.Session {
			var wasSuspended atomic.Bool
			return &brokenSession{
				Session: s,
				state: func() (registry.SessionState, time.Time) {
					st, until := s.State()
					if st == registry.SessionSuspended {
						wasSuspended.Store(true)
					}
					return st, until
				},
				close: func(ctx context.Context) error { // the keys stay until another session ends
					if !wasSuspended.Load() {
						return s.Close(ctx)
					}
					e, err := r.Get(ctx, "d/~before", registry.ReadOptions{})
					if err := errors.Join(err, s.Close(ctx)); err != nil {
						return err
					}
					other, err := r.OpenSession(ctx, registry.SessionOptions{})
					if err != nil {
						return err
					}
					_, err = r.Txn(ctx, registry.Txn{Then: []registry.Op{registry.CreateOwned("d/~before", e.Value, other.ID())}})
					return err
				},
			}
		}),
	},
	{
		conformance.SessionsAreRenewed, "measures TTLs by the time of day", "S24",
		func(_ testing.TB, s *conformance.Store) {
			expireAll := trackSessions(s)
			step := s.StepClock
			s.StepClock = func(d time.Duration) func() {
				if d > 0 {
					expireAll()
				}
				return step(d)
			}
		},
	},
	{
		conformance.SilentSessionsExpire, "waits for a clock that was set back", "S24",
		func(_ testing.TB, s *conformance.Store) {
			var behind atomic.Bool
			step, partition := s.StepClock, s.Partition
			s.StepClock = func(d time.Duration) func() {
				behind.Store(d < 0)
				return step(d)
			}
			s.Partition = func(machine string, c conformance.Cut) func() {
				if behind.Load() { // the session lives on
					return func() {}
				}
				return partition(machine, c)
			}
		},
	},
	{
		conformance.EndedSessionsFreeAll, "keeps a goroutine of each ended session for ten minutes", "S25",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			go func() {
				<-s.Lost()
				time.Sleep(10 * time.Minute)
			}()
			return s
		}),
	},
	{
		conformance.CloseRemovesOwnedKeys, "checks the session first, and creates the owned key later", "E14",
		func(_ testing.TB, s *conformance.Store) {
			var other registry.Session
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{Registry: r, txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
					if len(t.Then) != 1 || t.Then[0].Kind != registry.OpCreateOwned {
						return r.Txn(ctx, t)
					}
					if _, err := r.Txn(ctx, registry.Txn{If: []registry.Cond{registry.Alive(t.Then[0].Session)}}); err != nil {
						return registry.Rev{}, registry.ErrSessionLost
					}
					time.Sleep(20 * time.Microsecond)
					rev, err := r.Txn(ctx, t)
					if !errors.Is(err, registry.ErrSessionLost) {
						return rev, err
					}
					if other == nil {
						if other, err = r.OpenSession(ctx, registry.SessionOptions{}); err != nil {
							return registry.Rev{}, err
						}
					}
					return r.Txn(ctx, registry.Txn{Then: []registry.Op{registry.CreateOwned(t.Then[0].Key, nil, other.ID())}})
				}}
			})
		},
	},
	{
		conformance.ExpiryBecomesLost, "reports ErrClosed for a lost session that was closed", "S07",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			closed := false
			return &brokenSession{
				Session: s,
				close: func(ctx context.Context) error {
					closed = true
					return s.Close(ctx)
				},
				err: func() error {
					if closed {
						return registry.ErrClosed
					}
					return s.Err()
				},
			}
		}),
	},
	{
		conformance.CloseUnreachedLeavesExpiry, "keeps Lost open when a session could not be closed", "S12",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			never := make(chan struct{})
			failed := false
			return &brokenSession{
				Session: s,
				close: func(ctx context.Context) error {
					err := s.Close(ctx)
					failed = err != nil
					return err
				},
				lost: func() <-chan struct{} {
					if failed {
						return never
					}
					return s.Lost()
				},
			}
		}),
	},
	{
		conformance.SessionEndsAtOneCommit, "deletes by the name whatever a session once owned", "E11",
		deleteOnceOwned,
	},
	{
		conformance.SessionEndsAtOneCommit, "ends a session before it deletes its keys", "E12",
		replaceDead(func(registry.Registry, registry.Registry) bool { return true }),
	},
	{
		conformance.DeadOnceEnded, "takes its own view of a session for the store's", "E12",
		replaceDead(func(owner, asked registry.Registry) bool { return owner == asked }),
	},
	{
		conformance.SessionEndsAtOneCommit, "deletes a hundred owned keys at a time", "E13",
		wrapEachSession(func(r registry.Registry, s registry.Session) registry.Session {
			return &brokenSession{Session: s, close: func(ctx context.Context) error {
				for _, dir := range []registry.Key{"d", "e"} {
					l, err := r.List(ctx, dir, registry.ReadOptions{})
					if err != nil {
						return err
					}
					if len(l.Entries) > 100 {
						var ops []registry.Op
						for _, e := range l.Entries[:100] {
							ops = append(ops, registry.Delete(e.Key, e.Modified))
						}
						_, _ = r.Txn(ctx, registry.Txn{Then: ops})
						time.Sleep(time.Millisecond)
					}
				}
				return s.Close(ctx)
			}}
		}),
	},
	{
		conformance.SilentSessionsExpire, "keeps an owned key that was set after its creation", "E01",
		func(_ testing.TB, s *conformance.Store) {
			var kept sync.Map
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{
					Registry: r,
					txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
						rev, err := r.Txn(ctx, t)
						for _, op := range t.Then {
							if e, e2 := r.Get(ctx, op.Key, registry.ReadOptions{}); err == nil && e2 == nil && op.Kind == registry.OpSet && op.Key.Owned() {
								kept.Store(op.Key, e)
							}
						}
						return rev, err
					},
					get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
						e, err := r.Get(ctx, key, o)
						if old, ok := kept.Load(key); ok && errors.Is(err, registry.ErrNotFound) {
							return old.(registry.Entry), nil
						}
						return e, err
					},
				}
			})
		},
	},
}

// deleteOnceOwned deletes, when a session ends, each key that it ever created, also if another session owns it now.
func deleteOnceOwned(_ testing.TB, s *conformance.Store) {
	var mu sync.Mutex
	created := map[registry.SessionID][]registry.Key{}
	var any registry.Registry
	purge := func(id registry.SessionID) {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range created[id] {
			if e, err := any.Get(context.Background(), key, registry.ReadOptions{}); err == nil {
				_, _ = any.Txn(context.Background(), registry.Txn{Then: []registry.Op{registry.Delete(key, e.Modified)}})
			}
		}
	}
	wrapHandles(s, func(r registry.Registry) registry.Registry {
		any = r
		return &broken{
			Registry: r,
			txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
				rev, err := r.Txn(ctx, t)
				mu.Lock()
				defer mu.Unlock()
				for _, op := range t.Then {
					if err == nil && op.Kind == registry.OpCreateOwned {
						created[op.Session] = append(created[op.Session], op.Key)
					}
				}
				return rev, err
			},
			session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
				x, err := r.OpenSession(ctx, o)
				if err != nil {
					return nil, err
				}
				return &brokenSession{Session: x, close: func(ctx context.Context) error {
					err := x.Close(ctx)
					purge(x.ID())
					return err
				}}, nil
			},
		}
	})
	expire := s.Expire
	s.Expire = func(id registry.SessionID) {
		expire(id)
		purge(id)
	}
}

// replaceDead makes Dead hold for a session that is Lost for its owner, where the handle of
// the owner and the handle that is asked satisfy applies.
func replaceDead(applies func(owner, asked registry.Registry) bool) func(testing.TB, *conformance.Store) {
	type owned struct {
		session registry.Session
		owner   registry.Registry
	}
	return func(_ testing.TB, s *conformance.Store) {
		var mu sync.Mutex
		all := map[registry.SessionID]owned{}
		wrapHandles(s, func(r registry.Registry) registry.Registry {
			return &broken{
				Registry: r,
				session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
					x, err := r.OpenSession(ctx, o)
					if err == nil {
						mu.Lock()
						defer mu.Unlock()
						all[x.ID()] = owned{x, r}
					}
					return x, err
				},
				txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
					conds := t.If
					t.If = nil
					for _, c := range conds {
						mu.Lock()
						x, known := all[c.Session]
						mu.Unlock()
						if c.Kind == registry.CondDead && known && x.session.Err() != nil && applies(x.owner, r) {
							continue
						}
						t.If = append(t.If, c)
					}
					return r.Txn(ctx, t)
				},
			}
		})
	}
}
