package conformance_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
)

var txnSaboteurs = []saboteur{
	{
		conformance.TxnIsAtomic, "commits the two halves of a transaction one after the other", "T01",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			half := len(t.Then) / 2
			if half > 0 {
				if rev, err := r.Txn(ctx, registry.Txn{ID: t.ID, If: t.If, Then: t.Then[:half]}); err != nil {
					return rev, err
				}
			}
			return r.Txn(ctx, registry.Txn{ID: t.ID, If: t.If, Then: t.Then[half:]})
		}),
	},
	{
		conformance.TxnIsAtomic, "lets readers see half of a transaction", "T14",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.Then) != 2 || t.Then[0].Kind != registry.OpSet {
				return r.Txn(ctx, t)
			}
			if _, err := r.Txn(ctx, registry.Txn{Then: t.Then[:1], If: []registry.Cond{registry.At(t.Then[1].Key, t.Then[1].Rev)}}); err != nil {
				return registry.Rev{}, err
			}
			time.Sleep(time.Microsecond)
			return r.Txn(ctx, registry.Txn{Then: t.Then[1:]})
		}),
	},
	{
		conformance.TxnCommitsEveryOp, "forgets the last of many operations", "T09",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.Then) > 4 {
				t.Then = t.Then[:len(t.Then)-1]
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.TxnHasOneRev, "commits each operation at a Rev of its own", "T04",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (rev registry.Rev, err error) {
			if len(t.Then) < 2 {
				return r.Txn(ctx, t)
			}
			for i := range t.Then {
				if rev, err = r.Txn(ctx, registry.Txn{ID: t.ID, Then: t.Then[i : i+1]}); err != nil {
					return rev, err
				}
			}
			return rev, nil
		}),
	},
	{
		conformance.ConditionsAreChecked, "ignores conditions of a transaction that writes", "T02",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.Then) > 0 {
				t.If = nil
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.ConditionsAreChecked, "compares an owned key by its name only", "E08",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			t.If = slices.Clone(t.If)
			for i, c := range t.If {
				if e, err := r.Get(ctx, c.Key, registry.ReadOptions{}); c.Kind == registry.CondAt && c.Key.Owned() && err == nil {
					t.If[i].Rev = e.Modified
				}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.ConditionsSeeTheStateBefore, "skips a condition on a key that the transaction writes", "T06",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			t.If = slices.DeleteFunc(slices.Clone(t.If), func(c registry.Cond) bool {
				return slices.ContainsFunc(t.Then, func(op registry.Op) bool { return op.Key == c.Key })
			})
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.CreateNeedsAbsence, "overwrites an existing key on Create", "K02",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			return r.Txn(ctx, rebaseOps(r, ctx, t, registry.OpCreate))
		}),
	},
	{
		conformance.CreateNeedsAbsence, "checks that the key is absent, and then creates it", "T16",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.Then) != 1 || t.Then[0].Kind != registry.OpCreate {
				return r.Txn(ctx, t)
			}
			if _, err := r.Get(ctx, t.Then[0].Key, registry.ReadOptions{}); err == nil {
				return registry.Rev{}, registry.Conflict(t, 0)
			}
			time.Sleep(time.Microsecond)
			return r.Txn(ctx, rebaseOps(r, ctx, t, registry.OpCreate))
		}),
	},
	{
		conformance.ChangeNeedsTheRev, "writes regardless of the Rev", "T11",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			return r.Txn(ctx, rebaseOps(r, ctx, t, registry.OpSet))
		}),
	},
	{
		conformance.ChangeNeedsTheRev, "deletes regardless of the Rev", "T11",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			return r.Txn(ctx, rebaseOps(r, ctx, t, registry.OpDelete))
		}),
	},
	{
		conformance.ChangeNeedsTheRev, "sets a deleted key, as a blind put does", "K05",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			t.Then = slices.Clone(t.Then)
			for i, op := range t.Then {
				if _, err := r.Get(ctx, op.Key, registry.ReadOptions{}); op.Kind == registry.OpSet && errors.Is(err, registry.ErrNotFound) {
					t.Then[i] = registry.Create(op.Key, op.Value)
				}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.ChangeNeedsTheRev, "compares, and then sets, with a gap between", "T13",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			for _, op := range t.Then {
				if op.Kind == registry.OpSet {
					if _, err := r.Txn(ctx, registry.Txn{If: []registry.Cond{registry.At(op.Key, op.Rev)}}); err != nil {
						return registry.Rev{}, err
					}
				}
			}
			time.Sleep(time.Microsecond)
			return r.Txn(ctx, rebaseOps(r, ctx, t, registry.OpSet))
		}),
	},
	{
		conformance.ZeroRevNamesNothing, "treats the zero Rev as any Rev", "K09",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			t.Then = slices.Clone(t.Then)
			for i, op := range t.Then {
				if e, err := r.Get(ctx, op.Key, registry.ReadOptions{}); err == nil && op.Rev.IsZero() {
					t.Then[i].Rev = e.Modified
				}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.AbsentHoldsWithoutKey, "treats a key as present when it has descendants", "T05",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			for i, c := range t.If {
				if c.Kind != registry.CondAbsent || c.Key.Owned() {
					continue
				}
				if l, err := r.List(ctx, c.Key, registry.ReadOptions{}); err != nil || len(l.Entries) > 0 {
					return registry.Rev{}, registry.Conflict(t, i)
				}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.AliveUntilTheEnd, "trusts the client's view that its session lives", "S08",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			return r.Txn(ctx, withoutConds(t, registry.CondAlive))
		}),
	},
	{
		conformance.AliveUntilTheEnd, "holds Alive of a session that was closed", "T10",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			return r.Txn(ctx, withoutConds(t, registry.CondAlive))
		}),
	},
	{
		conformance.DeadOnceEnded, "holds Dead of a session that lives", "T10",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			return r.Txn(ctx, withoutConds(t, registry.CondDead))
		}),
	},
	{
		conformance.CreateOwnedNeedsLiveSession, "reports an ended session as a conflict", "E07",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrSessionLost) {
				err = registry.Conflict(t, 0)
			}
			return rev, err
		}),
	},
	{
		conformance.CreateOwnedNeedsLiveSession, "leaves out the keys of an ended session and commits the rest", "E07",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrSessionLost) {
				t.Then = slices.DeleteFunc(slices.Clone(t.Then), func(op registry.Op) bool { return op.Kind == registry.OpCreateOwned })
				_, _ = r.Txn(ctx, t)
			}
			return rev, err
		}),
	},
	{
		conformance.SetKeepsTheOwner, "changes the owner of an owned key to its last writer", "E05",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			var own registry.Session
			return &broken{Registry: r, txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
				if len(t.Then) != 1 || t.Then[0].Kind != registry.OpSet || !t.Then[0].Key.Owned() {
					return r.Txn(ctx, t)
				}
				if own == nil {
					var err error
					if own, err = r.OpenSession(ctx, registry.SessionOptions{}); err != nil {
						return registry.Rev{}, err
					}
				}
				op := t.Then[0]
				if rev, err := r.Txn(ctx, registry.Txn{If: t.If, Then: []registry.Op{registry.Delete(op.Key, op.Rev)}}); err != nil {
					return rev, err
				}
				return r.Txn(ctx, registry.Txn{ID: t.ID, Then: []registry.Op{registry.CreateOwned(op.Key, op.Value, own.ID())}})
			}}
		}),
	},
	{
		conformance.DeleteSparesDescendants, "deletes the descendants of a key with it", "K04",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			for _, op := range t.Then {
				if op.Kind != registry.OpDelete || op.Key.Owned() {
					continue
				}
				l, err := r.List(ctx, op.Key, registry.ReadOptions{})
				if err != nil {
					return registry.Rev{}, err
				}
				for _, e := range l.Entries {
					t.Then = append(t.Then, registry.Delete(e.Key, e.Modified))
				}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.CheckOnlyWritesNothing, "checks by a write, and leaves it there", "T08",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.Then) == 0 && len(t.If) > 0 && t.If[0].Key != "" {
				t.Then = []registry.Op{registry.Create(t.If[0].Key.Dir().Join("check"), nil)}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.ConflictChangesNothing, "writes, checks the conditions, and reverts the write", "T17",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrConflict) && t.Then[0].Kind == registry.OpCreate {
				if made, e := r.Txn(ctx, registry.Txn{Then: t.Then[:1]}); e == nil {
					time.Sleep(time.Microsecond) // time for the watcher to receive it
					_, _ = r.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Delete(t.Then[0].Key, made)}})
				}
			}
			return rev, err
		}),
	},
	{
		conformance.ConflictNamesTheItem, "names the first item of any conflict", "T03",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrConflict) {
				err = registry.Conflict(t, 0)
			}
			return rev, err
		}),
	},
	{
		conformance.ConflictNamesTheItem, "returns a bare ErrConflict", "T03",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrConflict) {
				err = registry.ErrConflict
			}
			return rev, err
		}),
	},
	{
		conformance.ConflictNamesTheItem, "counts the operations before the conditions", "T03",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			var conflict *registry.ConflictError
			if errors.As(err, &conflict) {
				n := len(t.If) + len(t.Then)
				err = registry.Conflict(t, (conflict.Index+len(t.Then))%n)
			}
			return rev, err
		}),
	},
	{
		conformance.MalformedTxnIsRefused, "applies only the last of two operations on a key", "T07",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			last := map[registry.Key]int{}
			for i, op := range t.Then {
				last[op.Key] = i
			}
			var ops []registry.Op
			for i, op := range t.Then {
				if last[op.Key] == i {
					ops = append(ops, op)
				}
			}
			t.Then = ops
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.TooLargeIsRefused, "cuts values to the limit", "Z01",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			t.Then = slices.Clone(t.Then)
			for i, op := range t.Then {
				t.Then[i].Value = op.Value[:min(len(op.Value), r.Limits().ValueBytes)]
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.TooLargeIsRefused, "drops the connection on a large value, so that its outcome is unknown", "Z01",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrTooLarge) {
				err = errors.Join(registry.ErrUnknownOutcome, err)
			}
			return rev, err
		}),
	},
	{
		conformance.TooLargeIsRefused, "sends an oversized transaction, which costs the connection and its sessions", "Z03",
		func(_ testing.TB, s *conformance.Store) {
			var last registry.SessionID
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{
					Registry: r,
					txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
						rev, err := r.Txn(ctx, t)
						if errors.Is(err, registry.ErrTooLarge) {
							s.Expire(last)
						}
						return rev, err
					},
					session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
						x, err := r.OpenSession(ctx, o)
						if err == nil {
							last = x.ID()
						}
						return x, err
					},
				}
			})
		},
	},
	{
		conformance.LimitsAreKept, "refuses a transaction that is just within the limits", "Z02",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.If)+len(t.Then) >= r.Limits().TxnItems {
				return registry.Rev{}, registry.ErrTooLarge
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.LimitsArePortable, "accepts values only up to half the portable size", "Z07",
		wrapEachHandle(func(r registry.Registry) registry.Registry { return lowLimits{r} }),
	},
	{
		conformance.WritesAreCopied, "keeps the writer's slice", "K15",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			written := map[registry.Rev]map[registry.Key][]byte{}
			return &broken{
				Registry: r,
				txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
					rev, err := r.Txn(ctx, t)
					if err == nil {
						written[rev] = map[registry.Key][]byte{}
						for _, op := range t.Then {
							written[rev][op.Key] = op.Value
						}
					}
					return rev, err
				},
				get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
					e, err := r.Get(ctx, key, o)
					if v, ok := written[e.Modified][key]; ok {
						e.Value = slices.Clone(v)
					}
					return e, err
				},
			}
		}),
	},
	{
		conformance.ManyGoroutines, "answers two calls at once with one reply", "T13",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			var busy atomic.Bool
			return &broken{Registry: r, txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
				if !busy.CompareAndSwap(false, true) {
					return registry.Rev{Seq: 1}, nil
				}
				defer busy.Store(false)
				time.Sleep(time.Microsecond)
				return r.Txn(ctx, t)
			}}
		}),
	},
}

// rebaseOps changes the operations of one kind so that they succeed on the current state.
func rebaseOps(r registry.Registry, ctx context.Context, t registry.Txn, kind registry.OpKind) registry.Txn {
	t.Then = slices.Clone(t.Then)
	for i, op := range t.Then {
		e, err := r.Get(ctx, op.Key, registry.ReadOptions{})
		if op.Kind != kind || err != nil {
			continue
		}
		t.Then[i].Rev = e.Modified
		if kind == registry.OpCreate {
			t.Then[i] = registry.Set(op.Key, e.Modified, op.Value)
		}
	}
	return t
}

func withoutConds(t registry.Txn, kind registry.CondKind) registry.Txn {
	t.If = slices.DeleteFunc(slices.Clone(t.If), func(c registry.Cond) bool { return c.Kind == kind })
	return t
}

type lowLimits struct{ registry.Registry }

func (lowLimits) Limits() registry.Limits {
	l := registry.PortableLimits
	l.ValueBytes /= 2
	return l
}

var outcomeSaboteurs = []saboteur{
	{
		conformance.OutcomesAreTrue, "reports an unknown outcome as not applied", "F19",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrUnknownOutcome) {
				err = registry.ErrNotApplied
			}
			return rev, err
		}),
	},
	{
		conformance.OutcomesAreTrue, "reports an unknown outcome as applied", "F19",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrUnknownOutcome) {
				return registry.Rev{Seq: 1, Aux: 1}, nil
			}
			return rev, err
		}),
	},
	{
		conformance.OutcomesAreTrue, "sends a transaction after its context has ended", "T18",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(context.WithoutCancel(ctx), t)
			if ctx.Err() != nil {
				return registry.Rev{}, errors.Join(registry.ErrNotApplied, ctx.Err())
			}
			return rev, err
		}),
	},
	{
		conformance.LostReplyIsUnknownOutcome, "returns ErrUnavailable when a reply is lost", "F06",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrUnknownOutcome) {
				err = registry.ErrUnavailable
			}
			return rev, err
		}),
	},
	{
		conformance.TxnIsSentOnce, "sends a transaction again when the reply is lost", "F06",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrUnknownOutcome) {
				return r.Txn(ctx, t)
			}
			return rev, err
		}),
	},
	{
		conformance.TxnIsSentOnce, "sends a transaction again and still reports its outcome as unknown", "F06",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrUnknownOutcome) {
				_, _ = r.Txn(ctx, t)
			}
			return rev, err
		}),
	},
	{
		conformance.TxnFalsifiesItself, "applies a transaction again when it is sent again", "T15",
		func(_ testing.TB, s *conformance.Store) {
			var mu sync.Mutex
			seen := map[registry.TxnID]bool{}
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{Registry: r, txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
					mu.Lock()
					again := t.ID != registry.TxnID{} && seen[t.ID]
					seen[t.ID] = true
					mu.Unlock()
					if again {
						for _, kind := range []registry.OpKind{registry.OpCreate, registry.OpSet, registry.OpDelete} {
							t = rebaseOps(r, ctx, t, kind)
						}
					}
					return r.Txn(ctx, t)
				}}
			})
		},
	},
	{
		conformance.TxnFalsifiesItself, "writes twice when the reply to the first write is lost", "F20",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrUnknownOutcome) {
				return r.Txn(ctx, rebaseOps(r, ctx, rebaseOps(r, ctx, t, registry.OpCreate), registry.OpSet))
			}
			return rev, err
		}),
	},
	{
		conformance.LateTxnDoesNoHarm, "applies a late transaction to the current state", "F07",
		func(_ testing.TB, s *conformance.Store) {
			var held *registry.Txn // of machine a, the only one with a held Txn
			holding := false
			connect := s.Connect
			s.Connect = func(t testing.TB, machine string) registry.Registry {
				r := connect(t, machine)
				return &broken{Registry: r, txn: func(ctx context.Context, x registry.Txn) (registry.Rev, error) {
					if machine == "a" && holding {
						held, holding = &x, false
						return registry.Rev{}, registry.ErrUnknownOutcome
					}
					return r.Txn(ctx, x)
				}}
			}
			s.HoldCommit = func(string) (release func()) {
				holding = true
				return func() {
					if held == nil {
						return
					}
					x := *held
					held = nil
					r := connect(nil, "late")
					defer r.Close(context.Background())
					ctx := context.Background()
					for _, kind := range []registry.OpKind{registry.OpCreate, registry.OpSet, registry.OpDelete} {
						x = rebaseOps(r, ctx, x, kind)
					}
					_, _ = r.Txn(ctx, x)
				}
			}
		},
	},
	{
		conformance.UnreachableIsErrUnavailable, "returns ErrNotFound when the store does not answer", "F01",
		replaceGet(func(r registry.Registry, ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
			e, err := r.Get(ctx, key, o)
			if errors.Is(err, registry.ErrUnavailable) {
				err = registry.ErrNotFound
			}
			return e, err
		}),
	},
	{
		conformance.UnreachableIsErrUnavailable, "returns the store's own error", "F05",
		replaceGet(func(r registry.Registry, ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
			e, err := r.Get(ctx, key, o)
			if errors.Is(err, registry.ErrUnavailable) {
				err = errors.New("etcdserver: no leader")
			}
			return e, err
		}),
	},
	{
		conformance.UnreachableIsErrUnavailable, "returns only the cause of a context that has ended", "T18",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				return r.OpenSession(ctx, o)
			}}
		}),
	},
	{
		conformance.CallsEndWithTheirContext, "drops the cause of a context that has ended", "T18",
		replaceList(func(r registry.Registry, ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			l, err := r.List(ctx, dir, o)
			if ctx.Err() != nil {
				err = errors.Join(registry.ErrUnavailable, ctx.Err())
			}
			return l, err
		}),
	},
	{
		conformance.CallsEndWithTheirContext, "drops the cause of a context that ends while it waits", "F02",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrUnknownOutcome) && ctx.Err() != nil {
				err = errors.Join(registry.ErrUnknownOutcome, ctx.Err())
			}
			return rev, err
		}),
	},
	{
		conformance.CallsEndWithTheirContext, "ignores the context while it waits", "F02",
		replaceGet(func(r registry.Registry, ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
			return r.Get(context.WithoutCancel(ctx), key, o)
		}),
	},
	{
		conformance.CallsEndWithTheirContext, "drops the cause from the error", "F02",
		replaceList(func(r registry.Registry, ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			l, err := r.List(ctx, dir, o)
			if errors.Is(err, registry.ErrUnavailable) {
				err = registry.ErrUnavailable
			}
			return l, err
		}),
	},
	{
		conformance.CallsAreBounded, "asks a silent server again and again", "F02",
		replaceGet(func(r registry.Registry, ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
			for {
				e, err := r.Get(ctx, key, o)
				if !errors.Is(err, registry.ErrUnavailable) || ctx.Err() != nil {
					return e, err
				}
			}
		}),
	},
}
