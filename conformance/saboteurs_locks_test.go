package conformance_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
)

// lockSaboteurs are registries that make the lock break its promises.
var lockSaboteurs = []saboteur{
	{
		conformance.LockExcludes, "treats the sessions of others as ended", "L01",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{
				Registry: r,
				txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
					return r.Txn(ctx, withoutConds(t, registry.CondDead))
				},
				watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
					w, err := r.Watch(ctx, dir, registry.WatchOptions{})
					if err != nil {
						return nil, err
					}
					return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
						b, err := w.Next(ctx)
						b.Puts = slices.DeleteFunc(b.Puts, func(e registry.Entry) bool { return e.Key.Owned() })
						return b, err
					}}, nil
				},
			}
		}),
	},
	{
		conformance.LockExcludes, "reports the holder's loss too late", "L12",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session { return delayLoss(s, 3*time.Second) }),
	},
	{
		conformance.LockExcludes, "creates a second queue entry after a lost reply", "L15",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrUnknownOutcome) && t.Then[0].Kind == registry.OpCreateOwned {
				again := t.Then[0]
				again.Key += "-again"
				_, _ = r.Txn(ctx, registry.Txn{Then: []registry.Op{again}})
			}
			return rev, err
		}),
	},
	{
		conformance.WaitersCanLeave, "acknowledges a delete without performing it", "L02",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.Then) == 1 && t.Then[0].Kind == registry.OpDelete {
				return registry.Rev{Seq: 1, Aux: 1}, nil
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.WaitersCanLeave, "does not end a session that has expired", "L05",
		func(_ testing.TB, s *conformance.Store) { s.Expire = func(registry.SessionID) {} },
	},
	{
		conformance.LockIsFair, "reports keys as created in reverse order", "L03",
		alterEntries(func() func(*registry.Entry) {
			return func(e *registry.Entry) { e.Created.Seq = math.MaxInt64 - e.Created.Seq }
		}),
	},
	{
		conformance.LockSkipsEndedSessions, "keeps the keys of an expired session", "L04",
		func(_ testing.TB, s *conformance.Store) { s.Expire = func(registry.SessionID) {} },
	},
	{
		conformance.FencesGrow, "counts commits for each handle", "L06",
		func(_ testing.TB, s *conformance.Store) {
			n := uint64(4_000_000)
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				n -= 1_000_000
				return withRevs(r, &offsetRevs{n})
			})
		},
	},
	{
		conformance.GuardEndsWithTheTenure, "ignores conditions when it writes", "L07",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if slices.ContainsFunc(t.Then, func(op registry.Op) bool { return op.Key == "record" }) {
				t.If = nil
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.ReleaseSparesSuccessors, "ignores the Rev of a Set, so that a release frees any lock", "L08",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			return r.Txn(ctx, rebaseOps(r, ctx, t, registry.OpSet))
		}),
	},
	{
		conformance.ReleaseSparesSuccessors, "reports not applied when a reply is lost", "L14",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrUnknownOutcome) {
				err = registry.ErrNotApplied
			}
			return rev, err
		}),
	},
	{
		conformance.LockIsNotReentrant, "delivers no changes, so that the lock cannot see its holder", "L09",
		wrapEachWatcher(silentAfterSnapshot),
	},
	{
		conformance.LockOutlivesTheStore, "loses its sessions in a restart", "L13",
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
}
