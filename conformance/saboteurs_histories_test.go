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
	"github.com/rota-dev/rota/registry"
)

// historySaboteurs break what shows only when many things happen at once.
var historySaboteurs = []saboteur{
	{
		conformance.TxnIsSentOnce, "sends a transaction again, on what it finds then, if a reply was lost", "C01",
		replaceTxn(sendAgain),
	},
	{
		conformance.ChangeNeedsTheRev, "compares, and then sets, with a gap between", "C01",
		replaceTxn(compareThenSet),
	},
	{
		conformance.FreshReadsSeeAll, "answers a fresh read with what it read before, now and then", "C01",
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
		conformance.OutcomesAreTrue, "says that what got no answer was not applied", "C01",
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
		conformance.ConditionsAreChecked, "looks at the conditions first, and then writes", "C02",
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
		conformance.LockExcludes, "takes a session for dead when it was not heard of for a moment", "C03",
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
		conformance.GuardEndsWithTheTenure, "takes a guard for good while the lock's record is there", "C03",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.Then) == 0 && len(t.If) == 1 && strings.HasPrefix(string(t.If[0].Key), "locks/") {
				t.If = nil
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.CloseRemovesOwnedKeys, "says that a session is closed, and removes its keys a moment later", "C04",
		wrapEachSession(closeLate),
	},
	{
		conformance.CreateOwnedNeedsLiveSession, "makes a plain key of one whose owner has ended", "C04",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrSessionLost) {
				return registry.Rev{Seq: 1 << 62}, nil
			}
			return rev, err
		}),
	},
	{
		conformance.LastStateArrives, "tells of a change when the next one comes", "C05",
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
		conformance.NeverOlderAfterNewer, "tells of a state once more after the next one", "C05",
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
		conformance.DeltasHoldChanges, "reads the directory at each event, and tells all of it", "C05",
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
		conformance.WatchTellsEntriesWhole, "tells values of another write than it says", "C05",
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
		conformance.CloseRemovesOwnedKeys, "says that a session is closed, and removes its keys a moment later", "C06",
		wrapEachSession(closeLate),
	},
	{
		conformance.OutcomesAreTrue, "sends a transaction again, on what it finds then, if a reply was lost", "C06",
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

// TestHistories_KnowWhatAHandleKnows shows that a registry passes which refuses, without
// asking the store, what a session is to own that its handle was told to close: the store
// may let that session live, as the request may be lost.
func TestHistories_KnowWhatAHandleKnows(t *testing.T) {
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
	b.Seeds = 200
	require.Empty(t, conformance.Try(t, b, "C06"))
}
