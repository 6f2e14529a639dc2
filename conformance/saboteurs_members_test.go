package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
)

// memberSaboteurs break promises when members fail, when the store is full, and when it
// denies permission.
var memberSaboteurs = []saboteur{
	{
		conformance.SilentMembersAreSkipped, "waits for the first member forever", "F03",
		func(_ testing.TB, s *conformance.Store) {
			s.HalfOpen = func(machine string) func() { return s.Partition(machine, conformance.Blackhole) }
		},
	},
	{
		conformance.LostBeforeTheStoreActs, "accepts the answers of an isolated member as the store's", "F04",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session { return delayLoss(s, 2*time.Second) }),
	},
	{
		conformance.FreshReadsSeeAll, "serves fresh reads from the nearest member", "F04",
		replaceGet(func(r registry.Registry, ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
			o.Fresh = false
			return r.Get(ctx, key, o)
		}),
	},
	{
		conformance.WatchOutlivesConnections, "stays connected to an isolated member", "W11",
		func(_ testing.TB, s *conformance.Store) {
			s.Isolate = func(machine string) func() {
				return s.Partition(machine, conformance.FromStore)
			}
		},
	},
	{
		conformance.SessionsAreRenewed, "drops the sessions at a change of leader", "S19",
		func(_ testing.TB, s *conformance.Store) {
			kill, forget := s.KillLeader, trackSessions(s)
			s.KillLeader = func() func() {
				forget()
				return kill()
			}
		},
	},
	{
		conformance.OutcomesAreTrue, "acknowledges a commit before a majority has it", "F08",
		func(_ testing.TB, s *conformance.Store) {
			kill := s.KillLeader
			s.KillLeader = func() func() {
				undoLastCreate(s)
				return kill()
			}
		},
	},
	{
		conformance.OutcomesAreTrue, "lets an old leader overwrite newer commits", "F22",
		func(_ testing.TB, s *conformance.Store) {
			pause := s.PauseLeader
			s.PauseLeader = func() func() {
				resume := pause()
				return sync.OnceFunc(func() {
					resume()
					undoLastCreate(s)
				})
			}
		},
	},
	{
		conformance.LostBeforeTheStoreActs, "reports an expired session as connected", "F22",
		func(_ testing.TB, s *conformance.Store) {
			pause, forget := s.PauseLeader, trackSessions(s)
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
					s, err := r.OpenSession(ctx, o)
					if err != nil {
						return nil, err
					}
					return &brokenSession{Session: s, state: func() (registry.SessionState, time.Time) {
						_, until := s.State()
						return registry.SessionConnected, until
					}}, nil
				}}
			})
			s.PauseLeader = func() func() {
				forget()
				return pause()
			}
		},
	},
	{
		conformance.SessionsAreRenewed, "ends the sessions of a member that is restarted", "F09",
		func(_ testing.TB, s *conformance.Store) {
			roll, forget := s.RollingRestart, trackSessions(s)
			s.RollingRestart = func() {
				forget()
				roll()
			}
		},
	},
	{
		conformance.PlainReadsNeverGoBack, "reads from a member that is still catching up", "F09",
		func(_ testing.TB, s *conformance.Store) {
			roll, behind := s.RollingRestart, serveOldReads(s)
			s.RollingRestart = func() {
				roll()
				behind()
			}
		},
	},
	{
		conformance.WatchOutlivesConnections, "drops its watchers with the member that served them", "F09",
		func(_ testing.TB, s *conformance.Store) {
			var mu sync.Mutex
			var deaf bool
			wrapEachWatcher(func(w registry.Watcher) registry.Watcher {
				return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
					mu.Lock()
					dropped := deaf
					mu.Unlock()
					if dropped {
						<-ctx.Done()
						return registry.Batch{}, ctx.Err()
					}
					return w.Next(ctx)
				}}
			})(nil, s)
			roll := s.RollingRestart
			s.RollingRestart = func() {
				roll()
				mu.Lock()
				defer mu.Unlock()
				deaf = true
			}
		},
	},
	{
		conformance.OutcomesAreTrue, "counts the vote of an empty member", "F13",
		func(_ testing.TB, s *conformance.Store) {
			replace := s.Replace
			s.Replace = func() {
				replace()
				undoLastCreate(s)
			}
		},
	},
	{
		conformance.PlainReadsNeverGoBack, "reads from an empty member", "F13",
		func(_ testing.TB, s *conformance.Store) {
			replace, behind := s.Replace, serveOldReads(s)
			s.Replace = func() {
				replace()
				behind()
			}
		},
	},
	{
		conformance.SuspendedComesBack, "resolves the address only once", "F14",
		func(_ testing.TB, s *conformance.Store) {
			s.Move = func(machine string) { s.Partition(machine, conformance.Refuse) }
		},
	},
	{
		conformance.LastStateArrives, "drops events that a reader has not fetched within half a minute", "F10",
		wrapEachWatcher(func(w registry.Watcher) registry.Watcher {
			asked := time.Now()
			return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
				if time.Since(asked) > 30*time.Second {
					_, _ = w.Next(ctx)
				}
				asked = time.Now()
				return w.Next(ctx)
			}}
		}),
	},
	{
		conformance.FullStoreIsErrQuota, "reports a full store as retryable", "F15",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrQuota) {
				err = fmt.Errorf("%w: %w", registry.ErrNotApplied, err)
			}
			return rev, err
		}),
	},
	{
		conformance.DeletesNeedNoRoom, "refuses deletes in a full store", "F23",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.Then) > 0 && t.Then[0].Kind == registry.OpDelete {
				probe := registry.Txn{Then: []registry.Op{registry.Create("probe", nil)}}
				if _, err := r.Txn(ctx, probe); errors.Is(err, registry.ErrQuota) {
					return registry.Rev{}, err
				}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.ForbiddenIsErrPermission, "lists a forbidden directory as empty", "F16",
		replaceList(func(r registry.Registry, ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			l, err := r.List(ctx, dir, o)
			if errors.Is(err, registry.ErrPermission) {
				err = nil
			}
			return l, err
		}),
	},
	{
		conformance.ForbiddenIsErrPermission, "reports a forbidden call as retryable", "F16",
		replaceGet(func(r registry.Registry, ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
			e, err := r.Get(ctx, key, o)
			if errors.Is(err, registry.ErrPermission) {
				err = fmt.Errorf("%w: %w", registry.ErrUnavailable, err)
			}
			return e, err
		}),
	},
	{
		conformance.LostBeforeTheStoreActs, "reports the loss of sessions one after the other", "F17",
		func(_ testing.TB, s *conformance.Store) {
			turn := time.Duration(0)
			wrapSessions(s, func(_ string, x registry.Session) registry.Session {
				turn += 30 * time.Millisecond
				return delayLoss(x, turn)
			})
		},
	},
}

// trackSessions returns a function that expires all sessions opened since the call.
func trackSessions(s *conformance.Store) func() {
	var mu sync.Mutex
	var open []registry.SessionID
	wrapSessions(s, func(_ string, x registry.Session) registry.Session {
		mu.Lock()
		defer mu.Unlock()
		open = append(open, x.ID())
		return x
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range open {
			s.Expire(id)
		}
	}
}

// undoLastCreate deletes the last key that machine a created under load.
func undoLastCreate(s *conformance.Store) {
	r := s.Connect(discard{}, "helper")
	defer r.Close(context.Background())
	l, err := r.List(context.Background(), "load/a", registry.ReadOptions{})
	if err != nil || len(l.Entries) == 0 {
		return
	}
	e := l.Entries[len(l.Entries)-1]
	_, _ = r.Txn(context.Background(), registry.Txn{Then: []registry.Op{registry.Delete(e.Key, e.Modified)}})
}

// serveOldReads returns a function after whose call every plain Get returns the first
// entry that was read of its key.
func serveOldReads(s *conformance.Store) func() {
	var mu sync.Mutex
	first := map[registry.Key]registry.Entry{}
	behind := false
	replaceGet(func(r registry.Registry, ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
		e, err := r.Get(ctx, key, o)
		mu.Lock()
		defer mu.Unlock()
		if old, seen := first[key]; !seen && err == nil {
			first[key] = e
		} else if behind && !o.Fresh {
			return old, nil
		}
		return e, err
	})(nil, s)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		behind = true
	}
}
