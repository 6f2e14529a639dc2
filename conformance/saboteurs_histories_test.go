package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/registry"
)

// historySaboteurs break promises in ways that only concurrency reveals.
var historySaboteurs = []saboteur{
	{
		conformance.TxnIsSentOnce, "sends a transaction again on the current state after a lost reply", "C01",
		replaceTxn(sendAgain),
	},
	{
		conformance.ChangeNeedsTheRev, "compares, and then sets, with a gap between", "C01",
		replaceTxn(compareThenSet),
	},
	{
		conformance.FreshReadsSeeAll, "sometimes answers a fresh read from its cache", "C01",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			var mu sync.Mutex
			n := 0
			before := map[registry.Key]registry.Entry{}
			return &broken{Registry: r, get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
				e, err := r.Get(ctx, key, o)
				mu.Lock()
				defer mu.Unlock()
				old, seen := before[key]
				if n++; seen && n%10 == 0 {
					return old, nil
				}
				if err == nil {
					before[key] = e
				}
				return e, err
			}}
		}),
	},
	{
		conformance.OutcomesAreTrue, "reports an unanswered transaction as not applied", "C01",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrUnknownOutcome) {
				err = registry.ErrNotApplied
			}
			return rev, err
		}),
	},
	{
		conformance.TxnIsAtomic, "commits the operations of a transaction one after the other", "C02",
		replaceTxn(commitOneByOne),
	},
	{
		conformance.ConditionsAreChecked, "checks the conditions first, and then writes", "C02",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.If) == 0 || len(t.Then) == 0 {
				return r.Txn(ctx, t)
			}
			if _, err := r.Txn(ctx, registry.Txn{If: t.If}); err != nil {
				return registry.Rev{}, err
			}
			time.Sleep(2 * time.Millisecond)
			return r.Txn(ctx, registry.Txn{ID: t.ID, Then: t.Then})
		}),
	},
	{
		conformance.LockExcludes, "treats a briefly silent session as ended", "C03",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			n := 0
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
						if n++; n%5 == 0 {
							b.Puts = slices.DeleteFunc(b.Puts, func(e registry.Entry) bool { return e.Key.Owned() })
						}
						return b, err
					}}, nil
				},
			}
		}),
	},
	{
		conformance.GuardEndsWithTheTenure, "accepts any guard while the lock's record exists", "C03",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.Then) == 0 && len(t.If) == 1 && strings.HasPrefix(string(t.If[0].Key), "locks/") {
				t.If = nil
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.CloseRemovesOwnedKeys, "reports a session as closed, and removes its keys a moment later", "C04",
		wrapEachSession(closeLate),
	},
	{
		conformance.CreateOwnedNeedsLiveSession, "reports success for CreateOwned with an ended session", "C04",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrSessionLost) {
				return registry.Rev{Seq: 1 << 62}, nil
			}
			return rev, err
		}),
	},
	{
		conformance.LastStateArrives, "delivers a change only when the next one arrives", "C05",
		wrapEachWatcher(func(w registry.Watcher) registry.Watcher {
			var held registry.Batch
			return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
				for {
					b, err := w.Next(ctx)
					if err != nil {
						return b, err
					}
					b, held = held, b
					if b.Kind != 0 {
						return b, nil
					}
				}
			}}
		}),
	},
	{
		conformance.NeverOlderAfterNewer, "delivers a state again after a newer one", "C05",
		alterBatches(func() func(*registry.Batch) {
			before := map[registry.Key]registry.Entry{}
			return func(b *registry.Batch) {
				for i, e := range b.Puts {
					if old, ok := before[e.Key]; ok && b.Kind == registry.Delta && len(before) > 3 {
						b.Puts[i] = old
					}
					before[e.Key] = e
				}
			}
		}),
	},
	{
		conformance.DeltasHoldChanges, "delivers the whole directory at each event", "C05",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
				w, err := r.Watch(ctx, dir, registry.WatchOptions{})
				if err != nil {
					return nil, err
				}
				has := map[registry.Key]registry.Entry{}
				return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
					b, err := w.Next(ctx)
					for _, e := range b.Puts {
						has[e.Key] = e
					}
					for _, key := range b.Deletes {
						delete(has, key)
					}
					b.Puts = nil
					for _, e := range has {
						b.Puts = append(b.Puts, e)
					}
					slices.SortFunc(b.Puts, func(x, y registry.Entry) int { return strings.Compare(string(x.Key), string(y.Key)) })
					return b, err
				}}, nil
			}}
		}),
	},
	{
		conformance.WatchedEntriesAreComplete, "delivers one write's value under another write's Rev", "C05",
		alterBatches(func() func(*registry.Batch) {
			before := map[registry.Key][]byte{}
			return func(b *registry.Batch) {
				for i, e := range b.Puts {
					if old, ok := before[e.Key]; ok {
						b.Puts[i].Value = old
					}
					before[e.Key] = e.Value
				}
			}
		}),
	},
	{
		conformance.TxnIsAtomic, "commits the operations of a transaction one after the other", "C06",
		replaceTxn(commitOneByOne),
	},
	{
		conformance.CloseRemovesOwnedKeys, "reports a session as closed, and removes its keys a moment later", "C06",
		wrapEachSession(closeLate),
	},
	{
		conformance.OutcomesAreTrue, "sends a transaction again on the current state after a lost reply", "C06",
		replaceTxn(sendAgain),
	},
}

func sendAgain(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
	rev, err := r.Txn(ctx, t)
	if errors.Is(err, registry.ErrUnknownOutcome) {
		time.Sleep(5 * time.Millisecond)
		_, _ = r.Txn(ctx, rebaseOps(r, ctx, rebaseOps(r, ctx, t, registry.OpSet), registry.OpCreate))
	}
	return rev, err
}

func compareThenSet(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
	for _, op := range t.Then {
		if op.Kind == registry.OpSet {
			if _, err := r.Txn(ctx, registry.Txn{If: []registry.Cond{registry.At(op.Key, op.Rev)}}); err != nil {
				return registry.Rev{}, err
			}
		}
	}
	time.Sleep(4 * time.Millisecond)
	return r.Txn(ctx, rebaseOps(r, ctx, t, registry.OpSet))
}

func commitOneByOne(r registry.Registry, ctx context.Context, t registry.Txn) (rev registry.Rev, err error) {
	if len(t.Then) < 2 {
		return r.Txn(ctx, t)
	}
	for i := range t.Then {
		if rev, err = r.Txn(ctx, registry.Txn{ID: t.ID, If: t.If, Then: t.Then[i : i+1]}); err != nil {
			return rev, err
		}
		t.If = nil
	}
	return rev, nil
}

func closeLate(_ registry.Registry, s registry.Session) registry.Session {
	return &brokenSession{Session: s, close: func(context.Context) error {
		time.AfterFunc(5*time.Millisecond, func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_ = s.Close(ctx)
		})
		return nil
	}}
}

// TestHistories_AllowRefusalByTheHandle shows that the histories allow a registry to
// refuse, without asking the store, an owned key of a session that its handle was asked
// to close. The session may still live in the store, since the request may be lost.
func TestHistories_AllowRefusalByTheHandle(t *testing.T) {
	const lost = 3 // each of so many requests to close
	var closes atomic.Int64
	b := saboteur{open: wrapEachHandle(func(r registry.Registry) registry.Registry {
		var closed sync.Map // of SessionID
		return &broken{
			Registry: r,
			session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
				s, err := r.OpenSession(ctx, o)
				if err != nil {
					return nil, err
				}
				return &brokenSession{Session: s, close: func(ctx context.Context) error {
					closed.Store(s.ID(), true)
					if closes.Add(1)%lost == 0 {
						return registry.ErrUnknownOutcome
					}
					return s.Close(ctx)
				}}, nil
			},
			txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
				for _, o := range t.Then {
					if _, ended := closed.Load(o.Session); ended {
						return registry.Rev{}, registry.ErrSessionLost
					}
				}
				return r.Txn(ctx, t)
			},
		}
	})}.backend()
	b.Seeds = long.Pick(40, 200)
	require.Empty(t, conformance.Try(t, b, "C06"))
}
