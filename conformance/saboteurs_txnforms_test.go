package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
)

var txnFormSaboteurs = []saboteur{
	{
		conformance.TxnCommitsEveryOp, "refuses a transaction on a key and a key below it", "T19",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			for _, x := range t.Then {
				for _, y := range t.Then {
					if strings.HasPrefix(string(y.Key), string(x.Key)+"/") {
						return registry.Rev{}, registry.ErrInvalidTxn
					}
				}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.DeleteSparesDescendants, "deletes before it writes, with all descendants", "T19",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			for _, op := range t.Then {
				if err != nil || op.Kind != registry.OpDelete || op.Key.Owned() {
					continue
				}
				l, _ := r.List(ctx, op.Key, registry.ReadOptions{})
				for _, e := range l.Entries {
					_, _ = r.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Delete(e.Key, e.Modified)}})
				}
			}
			return rev, err
		}),
	},
	{
		conformance.AtomicListingIsOneCommit, "reads fifty entries at a time and reports Atomic", "T20",
		replaceList(func(r registry.Registry, ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			first, err := r.List(ctx, dir, o)
			if err != nil || len(first.Entries) <= 50 {
				return first, err
			}
			time.Sleep(5 * time.Microsecond)
			second, err := r.List(ctx, dir, o)
			if err != nil {
				return second, err
			}
			second.Entries = append(first.Entries[:50:50], second.Entries[50:]...)
			return second, nil
		}),
	},
	{
		conformance.ConflictNamesTheItem, "checks that created keys are absent before it checks anything else", "T21",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if !errors.Is(err, registry.ErrConflict) {
				return rev, err
			}
			for i, op := range t.Then {
				if _, e := r.Get(ctx, op.Key, registry.ReadOptions{}); e == nil && op.Kind == registry.OpCreate {
					return rev, registry.Conflict(t, len(t.If)+i)
				}
			}
			return rev, err
		}),
	},
	{
		conformance.ConflictNamesTheItem, "checks keys before it checks sessions", "T21",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			var conflict *registry.ConflictError
			if !errors.As(err, &conflict) || conflict.Index >= len(t.If) || t.If[conflict.Index].Key != "" {
				return rev, err
			}
			for i, c := range t.If {
				if c.Key == "" {
					continue
				}
				if _, e := r.Txn(ctx, registry.Txn{If: []registry.Cond{c}}); e != nil {
					return rev, registry.Conflict(t, i)
				}
			}
			return rev, err
		}),
	},
	{
		conformance.ConditionsAreChecked, "checks the last of several conditions on a key", "T22",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.Then) > 0 {
				return r.Txn(ctx, t)
			}
			all := t.If
			t.If = nil
			for i, c := range all {
				if c.Key == "" || !slices.ContainsFunc(all[i+1:], func(d registry.Cond) bool { return d.Key == c.Key }) {
					t.If = append(t.If, c)
				}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.TxnIsAtomic, "leaves out owned keys of a second session", "T23",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			var owner registry.SessionID
			t.Then = slices.DeleteFunc(slices.Clone(t.Then), func(op registry.Op) bool {
				if owner == "" {
					owner = op.Session
				}
				return op.Session != "" && op.Session != owner
			})
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.OnlyOwnedKeysHaveOwners, "makes the first session the owner of all keys of a transaction", "T23",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			var owner registry.SessionID
			t.Then = slices.Clone(t.Then)
			for i, op := range t.Then {
				if owner == "" {
					owner = op.Session
				}
				if op.Session != "" {
					t.Then[i].Session = owner
				}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.ConditionsAreChecked, "checks the first hundred conditions", "T24",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			t.If = t.If[:min(len(t.If), 100)]
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.TxnIsAtomic, "commits a hundred operations at a time", "T24",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.Then) > 100 {
				if rev, err := r.Txn(ctx, registry.Txn{ID: t.ID, If: t.If, Then: t.Then[:100]}); err != nil {
					return rev, err
				}
				t.If, t.Then = nil, t.Then[100:]
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.OutcomesAreTrue, "opens a session although the context has ended", "T18",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
				return r.OpenSession(context.WithoutCancel(ctx), o)
			}}
		}),
	},
	{
		conformance.LimitsAreKept, "counts the keys of conditions twice", "Z08",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			size := t.Size()
			for _, c := range t.If {
				size += len(c.Key)
			}
			if size > r.Limits().TxnBytes {
				return registry.Rev{}, registry.ErrTooLarge
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.TooLargeIsRefused, "does not count session IDs", "Z08",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			size := t.Size()
			for _, c := range t.If {
				size -= len(c.Session)
			}
			if errors.Is(err, registry.ErrTooLarge) && size <= r.Limits().TxnBytes && t.Items() <= r.Limits().TxnItems {
				return registry.Rev{Seq: 1}, nil
			}
			return rev, err
		}),
	},
	{
		conformance.ListIsComplete, "lists as many entries as fit into four megabytes", "Z09",
		replaceList(func(r registry.Registry, ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			l, err := r.List(ctx, dir, o)
			size := 0
			l.Entries = slices.DeleteFunc(l.Entries, func(e registry.Entry) bool {
				size += len(e.Value)
				return size > 4<<20
			})
			return l, err
		}),
	},
	{
		conformance.SnapshotFirst, "fits four megabytes into a snapshot", "Z09",
		alterBatches(func() func(*registry.Batch) {
			return func(b *registry.Batch) {
				size := 0
				b.Puts = slices.DeleteFunc(b.Puts, func(e registry.Entry) bool {
					size += len(e.Value)
					return size > 4<<20
				})
			}
		}),
	},
	{
		conformance.GetReturnsTheEntry, "keeps the old value when a key is set to an empty one", "K01",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			t.Then = slices.Clone(t.Then)
			for i, op := range t.Then {
				if e, err := r.Get(ctx, op.Key, registry.ReadOptions{}); err == nil && op.Kind == registry.OpSet && len(op.Value) == 0 {
					t.Then[i].Value = e.Value
				}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.ModifiedIsTheLastWrite, "skips a Set of the value that is there", "K16",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.Then) == 1 && t.Then[0].Kind == registry.OpSet {
				op := t.Then[0]
				if e, err := r.Get(ctx, op.Key, registry.ReadOptions{}); err == nil && e.Modified == op.Rev && string(e.Value) == string(op.Value) {
					return e.Modified, nil
				}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.EntryNamesItsTxn, "stores the id with the first written key of a transaction", "K18",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if err == nil && len(t.Then) > 2 && t.Then[1].Kind == registry.OpSet {
				op := t.Then[1]
				_, _ = r.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Set(op.Key, rev, op.Value)}})
			}
			return rev, err
		}),
	},
	{
		conformance.RevNeverHoldsAgain, "remembers the version of a Rev that it has read, and compares versions", "K20",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			var mu sync.Mutex
			unwritten := map[registry.Key]registry.Rev{} // read when nothing had been written since the creation
			translate := func(ctx context.Context, key registry.Key, rev registry.Rev) registry.Rev {
				mu.Lock()
				defer mu.Unlock()
				e, err := r.Get(ctx, key, registry.ReadOptions{})
				if err == nil && !rev.IsZero() && unwritten[key] == rev && e.Created == e.Modified {
					return e.Modified
				}
				return rev
			}
			return &broken{
				Registry: r,
				get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
					e, err := r.Get(ctx, key, o)
					if err == nil && e.Created == e.Modified {
						mu.Lock()
						defer mu.Unlock()
						unwritten[key] = e.Modified
					}
					return e, err
				},
				txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
					t.If, t.Then = slices.Clone(t.If), slices.Clone(t.Then)
					for i, c := range t.If {
						t.If[i].Rev = translate(ctx, c.Key, c.Rev)
					}
					for i, op := range t.Then {
						t.Then[i].Rev = translate(ctx, op.Key, op.Rev)
					}
					return r.Txn(ctx, t)
				},
			}
		}),
	},
	{
		conformance.SeqGrows, "gives one Seq to commits of several directories that overlap", "K21",
		sharedSeqs,
	},
	{
		conformance.WritesAreCopied, "reads the value when it sends the transaction again", "K23",
		func(_ testing.TB, s *conformance.Store) {
			var held func()
			holding := false
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{Registry: r, txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
					if !holding || len(t.Then) == 0 {
						return r.Txn(ctx, t)
					}
					holding = false
					held = func() { _, _ = r.Txn(context.Background(), t) }
					return registry.Rev{}, registry.ErrUnknownOutcome
				}}
			})
			s.HoldCommit = func(string) func() {
				holding = true
				return sync.OnceFunc(func() { held() })
			}
		},
	},
	{
		conformance.WritesAreCopied, "reads the operations when a stalled store serves again", "K24",
		sendWhenResumed(func(t registry.Txn) registry.Txn { return t }),
	},
	{
		conformance.WritesAreCopied, "reads the values when a stalled store serves again", "K24",
		sendWhenResumed(func(t registry.Txn) registry.Txn {
			t.If, t.Then = slices.Clone(t.If), slices.Clone(t.Then)
			return t
		}),
	},
	{
		conformance.WritesAreCopied, "reads the conditions when a stalled store serves again", "K24",
		sendWhenResumed(func(t registry.Txn) registry.Txn {
			t.Then = slices.Clone(t.Then)
			for i := range t.Then {
				t.Then[i].Value = slices.Clone(t.Then[i].Value)
			}
			return t
		}),
	},
	{
		conformance.OnlyOwnedKeysHaveOwners, "makes a plain key owned if its operation names a session", "K19",
		alterNamedCreates,
	},
	{
		conformance.FullStoreIsErrQuota, "asks the first operation whether a full store accepts a transaction", "F15",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrQuota) && t.Then[0].Kind == registry.OpDelete {
				return r.Txn(ctx, registry.Txn{Then: t.Then[:1]})
			}
			return rev, err
		}),
	},
	{
		conformance.InvalidKeysAreRefused, "refuses owned keys of more than 255 bytes", "K22",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			for _, op := range t.Then {
				if op.Kind == registry.OpCreateOwned && len(op.Key) > 255 {
					return registry.Rev{}, registry.ErrInvalidKey
				}
			}
			return r.Txn(ctx, t)
		}),
	},
}

// sharedSeqs reports one Seq for commits in several directories that overlap.
func sharedSeqs(_ testing.TB, s *conformance.Store) {
	var mu sync.Mutex
	inFlight, shared := 0, uint64(0)
	wrapHandles(s, func(r registry.Registry) registry.Registry {
		return &broken{Registry: r, txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
			mu.Lock()
			if inFlight == 0 {
				shared = 0
			}
			inFlight++
			mu.Unlock()
			rev, err := r.Txn(ctx, t)
			mu.Lock()
			defer mu.Unlock()
			inFlight--
			if shared == 0 {
				shared = rev.Seq
			}
			if err == nil && inFlight > 0 {
				rev.Seq = shared
			}
			return rev, err
		}}
	})
}

// alterNamedCreates names the session of an operation as the owner of a plain key.
func alterNamedCreates(_ testing.TB, s *conformance.Store) {
	owners := map[registry.Key]registry.SessionID{}
	wrapHandles(s, func(r registry.Registry) registry.Registry {
		return &broken{Registry: r, txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
			for _, op := range t.Then {
				if op.Kind == registry.OpCreate && op.Session != "" {
					owners[op.Key] = op.Session
				}
			}
			return r.Txn(ctx, t)
		}}
	})
	alterEntries(func() func(*registry.Entry) {
		return func(e *registry.Entry) {
			if id, named := owners[e.Key]; named {
				e.Owner = id
			}
		}
	})(nil, s)
}

// sendWhenResumed lets a saboteur keep the transactions of a stalled store until it serves again.
func sendWhenResumed(keep func(registry.Txn) registry.Txn) func(testing.TB, *conformance.Store) {
	return func(_ testing.TB, s *conformance.Store) {
		var late []func()
		stalled := false
		wrapHandles(s, func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
				if !stalled {
					return r.Txn(ctx, t)
				}
				kept := keep(t)
				late = append(late, func() { _, _ = r.Txn(context.Background(), kept) })
				return registry.Rev{}, registry.ErrUnknownOutcome
			}}
		})
		stall := s.Stall
		s.Stall = func() func() {
			stalled = true
			resume := stall()
			return sync.OnceFunc(func() {
				stalled = false
				resume()
				for _, send := range late {
					send()
				}
			})
		}
	}
}
