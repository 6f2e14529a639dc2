package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
)

var keySaboteurs = []saboteur{
	{
		conformance.InvalidKeysAreRefused, "returns ErrNotFound for a key that breaks the rules", "K13",
		replaceGet(func(r registry.Registry, ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
			e, err := r.Get(ctx, key, o)
			if errors.Is(err, registry.ErrInvalidKey) {
				err = registry.ErrNotFound
			}
			return e, err
		}),
	},
	{
		conformance.InvalidKeysAreRefused, "creates a key with a tilde and without an owner", "K13",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if len(t.Then) == 1 && t.Then[0].Kind == registry.OpCreate && t.Then[0].Key.Owned() {
				t.Then[0].Key = registry.Key(strings.ReplaceAll(string(t.Then[0].Key), "~", ""))
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.KeysAreCheckedFirst, "asks the server before it checks the key", "K17",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			_, _ = r.Get(ctx, "ping", registry.ReadOptions{Fresh: true})
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.OwnedKeysAreLeaves, "stores children of an owned key elsewhere", "E04",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			t.Then = slices.Clone(t.Then)
			for i, op := range t.Then {
				if op.Kind == registry.OpCreate && strings.Contains(string(op.Key), "~") {
					t.Then[i].Key = registry.Key(strings.ReplaceAll(string(op.Key), "~", "-"))
				}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.SeqGrows, "counts the commits of each handle from its own start", "K08",
		func(_ testing.TB, s *conformance.Store) {
			n := uint64(0)
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				n++
				return withRevs(r, &offsetRevs{n * 1_000_000})
			})
		},
	},
	{
		conformance.SeqIsInRange, "has a sign bit in its Seq", "K08",
		wrapEachHandle(func(r registry.Registry) registry.Registry { return withRevs(r, &offsetRevs{1 << 63}) }),
	},
	{
		conformance.CreatedStays, "changes Created with each write", "K16",
		alterEntries(func() func(*registry.Entry) {
			return func(e *registry.Entry) { e.Created = e.Modified }
		}),
	},
	{
		conformance.CreatedChangesOnRecreation, "keeps Created across a delete and a create", "K16",
		alterEntries(func() func(*registry.Entry) {
			first := map[registry.Key]registry.Rev{}
			return func(e *registry.Entry) {
				if _, ok := first[e.Key]; !ok {
					first[e.Key] = e.Created
				}
				e.Created = first[e.Key]
			}
		}),
	},
	{
		conformance.ModifiedIsTheLastWrite, "leaves Modified as it was at the creation", "K16",
		alterEntries(func() func(*registry.Entry) {
			return func(e *registry.Entry) { e.Modified = e.Created }
		}),
	},
	{
		conformance.OnlyOwnedKeysHaveOwners, "names the writer of a plain key as its owner", "K19",
		alterEntries(func() func(*registry.Entry) {
			return func(e *registry.Entry) {
				if !e.Key.Owned() {
					e.Owner = "writer"
				}
			}
		}),
	},
	{
		conformance.EntryNamesItsTxn, "forgets which transaction wrote an entry", "K18",
		alterEntries(func() func(*registry.Entry) {
			return func(e *registry.Entry) { e.Txn = registry.TxnID{} }
		}),
	},
	{
		conformance.EntryNamesItsTxn, "keeps the id of the transaction that created the key", "K18",
		alterEntries(func() func(*registry.Entry) {
			type life struct {
				key     registry.Key
				created registry.Rev
			}
			creators := map[life]registry.TxnID{}
			return func(e *registry.Entry) {
				at := life{e.Key, e.Created}
				if _, ok := creators[at]; !ok {
					creators[at] = e.Txn
				}
				e.Txn = creators[at]
			}
		}),
	},
	{
		conformance.ZeroTxnIDIsDrawn, "stores one id for all transactions that have none", "K18",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			if t.ID == (registry.TxnID{}) {
				t.ID = registry.TxnID{15: 1}
			}
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.RevNeverHoldsAgain, "names a commit by the key's version, which restarts with the key", "K06",
		matchVersions(func(registry.Key) bool { return true }),
	},
	{
		conformance.RevNeverHoldsAgain, "names a commit of an owned key by the key's version", "K07",
		matchVersions(registry.Key.Owned),
	},
}

// revs translates the Revs of a registry.
type revs interface {
	out(registry.Key, registry.Rev) registry.Rev // from the registry's Rev to the saboteur's
	in(registry.Key, registry.Rev) registry.Rev
}

// withRevs makes r use other Revs.
func withRevs(r registry.Registry, names revs) registry.Registry {
	tell := func(e registry.Entry) registry.Entry {
		e.Created, e.Modified = names.out(e.Key, e.Created), names.out(e.Key, e.Modified)
		return e
	}
	return &broken{
		Registry: r,
		get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
			e, err := r.Get(ctx, key, o)
			if err != nil {
				return e, err
			}
			return tell(e), nil
		},
		list: func(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			l, err := r.List(ctx, dir, o)
			l.Rev = names.out("", l.Rev)
			for i, e := range l.Entries {
				l.Entries[i] = tell(e)
			}
			return l, err
		},
		watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
			w, err := r.Watch(ctx, dir, registry.WatchOptions{})
			if err != nil {
				return nil, err
			}
			return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
				b, err := w.Next(ctx)
				b.Rev = names.out("", b.Rev)
				for i, e := range b.Puts {
					b.Puts[i] = tell(e)
				}
				return b, err
			}}, nil
		},
		txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
			t.If, t.Then = slices.Clone(t.If), slices.Clone(t.Then)
			var key registry.Key
			for i, c := range t.If {
				t.If[i].Rev = names.in(c.Key, c.Rev)
			}
			for i, op := range t.Then {
				t.Then[i].Rev = names.in(op.Key, op.Rev)
				key = op.Key
			}
			rev, err := r.Txn(ctx, t)
			if err != nil {
				return rev, err
			}
			return names.out(key, rev), nil
		},
	}
}

// offsetRevs adds an offset to Seq.
type offsetRevs struct{ by uint64 }

func (o *offsetRevs) out(_ registry.Key, rev registry.Rev) registry.Rev {
	rev.Seq += o.by
	return rev
}

func (o *offsetRevs) in(_ registry.Key, rev registry.Rev) registry.Rev {
	rev.Seq -= o.by
	return rev
}

// matchVersions makes a Rev of some keys match when the key's version matches, as in
// ZooKeeper: 0 when it was created, plus one per write.
func matchVersions(of func(registry.Key) bool) func(testing.TB, *conformance.Store) {
	return func(_ testing.TB, s *conformance.Store) {
		v := &versionRevs{of: of, version: map[registry.Rev]uint64{}, current: map[registry.Key]registry.Rev{}}
		wrapHandles(s, func(r registry.Registry) registry.Registry { return withVersions(r, v) })
	}
}

type versionRevs struct {
	of      func(registry.Key) bool
	mu      sync.Mutex
	version map[registry.Rev]uint64 // versions of the written key
	current map[registry.Key]registry.Rev
}

func (v *versionRevs) out(_ registry.Key, rev registry.Rev) registry.Rev { return rev }

func (v *versionRevs) in(key registry.Key, rev registry.Rev) registry.Rev {
	v.mu.Lock()
	defer v.mu.Unlock()
	now, ok := v.current[key]
	if _, known := v.version[rev]; ok && known && v.of(key) && v.version[rev] == v.version[now] {
		return now
	}
	return rev
}

func withVersions(r registry.Registry, v *versionRevs) registry.Registry {
	spoken := withRevs(r, v)
	return &broken{Registry: spoken, txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
		rev, err := spoken.Txn(ctx, t)
		if err != nil {
			return rev, err
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		for _, op := range t.Then {
			switch op.Kind {
			case registry.OpCreate, registry.OpCreateOwned:
				v.version[rev] = 1
				v.current[op.Key] = rev
			case registry.OpSet:
				v.version[rev] = v.version[op.Rev] + 1
				v.current[op.Key] = rev
			case registry.OpDelete:
				delete(v.current, op.Key)
			}
		}
		return rev, nil
	}}
}
