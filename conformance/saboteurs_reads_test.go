package conformance_test

import (
	"bytes"
	"cmp"
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

var readSaboteurs = []saboteur{
	{
		conformance.GetReturnsTheEntry, "trims zeros at the end of values, as C strings do", "K01",
		alterEntries(func() func(*registry.Entry) {
			return func(e *registry.Entry) { e.Value = bytes.TrimRight(e.Value, "\x00") }
		}),
	},
	{
		conformance.AbsentIsErrNotFound, "returns an empty entry for an absent key", "R07",
		replaceGet(func(r registry.Registry, ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
			e, err := r.Get(ctx, key, o)
			if errors.Is(err, registry.ErrNotFound) {
				return registry.Entry{Key: key}, nil
			}
			return e, err
		}),
	},
	{
		conformance.ReadsBelongToTheReader, "returns the cached value itself", "K12",
		alterEntries(sharedValues),
	},
	{
		conformance.BufferReceivesTheValue, "ignores the buffer", "R09",
		replaceGet(func(r registry.Registry, ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
			return r.Get(ctx, key, registry.ReadOptions{Fresh: o.Fresh})
		}),
	},
	{
		conformance.PlainReadsNeverGoBack, "serves every tenth plain read from a slower member", "R04",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			var reads int
			var old registry.Entry
			return &broken{Registry: r, get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
				reads++
				if !o.Fresh && reads%10 == 0 && old.Key == key {
					return old, nil
				}
				e, err := r.Get(ctx, key, o)
				if reads%10 == 1 {
					old = e
				}
				return e, err
			}}
		}),
	},
	{
		conformance.PlainReadsNeverGoBack, "reconnects to a member that is behind", "R02",
		func(_ testing.TB, s *conformance.Store) {
			moved := false
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				var old registry.Entry
				return &broken{Registry: r, get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
					e, err := r.Get(ctx, key, o)
					if moved && !o.Fresh && err == nil && old.Key == key {
						return old, nil
					}
					if old.Key == "" {
						old = e
					}
					return e, err
				}}
			})
			partition := s.Partition
			s.Partition = func(machine string, c conformance.Cut) (heal func()) {
				moved = true
				return partition(machine, c)
			}
		},
	},
	{
		conformance.ReadYourWrites, "reads from a follower that lacks the handle's last write", "R01",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			cached := map[registry.Key]registry.Entry{}
			return &broken{Registry: r, get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
				if e, ok := cached[key]; ok && !o.Fresh {
					delete(cached, key) // the next read sees the write
					return e, nil
				}
				e, err := r.Get(ctx, key, o)
				if err == nil {
					cached[key] = e
				}
				return e, err
			}}
		}),
	},
	{
		conformance.FreshReadsSeeAll, "treats Fresh as a hint and answers from its cache", "R03",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			cached := map[registry.Key]registry.Entry{}
			return &broken{Registry: r, get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
				if e, ok := cached[key]; ok {
					return e, nil
				}
				e, err := r.Get(ctx, key, o)
				if err == nil {
					cached[key] = e
				}
				return e, err
			}}
		}),
	},
	{
		conformance.ListIsOneLevel, "lists grandchildren too, as a range over a prefix does", "K10",
		replaceList(func(r registry.Registry, ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			l, err := r.List(ctx, dir, o)
			for _, e := range l.Entries {
				if e.Key.Owned() {
					continue
				}
				below, err := r.List(ctx, e.Key, o)
				if err != nil {
					return below, err
				}
				l.Entries = append(l.Entries, below.Entries...)
			}
			return l, err
		}),
	},
	{
		conformance.ListHoldsValuesOnly, "creates ancestors without a value, and lists them", "K03",
		func(_ testing.TB, s *conformance.Store) {
			ancestors := map[registry.Key]bool{}
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{
					Registry: r,
					txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
						for _, op := range t.Then {
							for dir := op.Key.Dir(); dir != ""; dir = dir.Dir() {
								ancestors[dir] = true
							}
						}
						return r.Txn(ctx, t)
					},
					list: func(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
						l, err := r.List(ctx, dir, o)
						for key := range ancestors {
							has := slices.ContainsFunc(l.Entries, func(e registry.Entry) bool { return e.Key == key })
							if key.Dir() == dir && !has {
								l.Entries = append(l.Entries, registry.Entry{Key: key})
							}
						}
						return l, err
					},
				}
			})
		},
	},
	{
		conformance.ListIsComplete, "lists at most a thousand entries", "Z04",
		replaceList(func(r registry.Registry, ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			l, err := r.List(ctx, dir, o)
			l.Entries = l.Entries[:min(len(l.Entries), 999)]
			return l, err
		}),
	},
	{
		conformance.ListIsSorted, "sorts without regard to case", "K14",
		replaceList(func(r registry.Registry, ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			l, err := r.List(ctx, dir, o)
			slices.SortStableFunc(l.Entries, func(x, y registry.Entry) int {
				return cmp.Compare(strings.ToLower(string(x.Key)), strings.ToLower(string(y.Key)))
			})
			return l, err
		}),
	},
	{
		conformance.ListOfNothingIsEmpty, "returns ErrNotFound for an empty directory", "K11",
		replaceList(func(r registry.Registry, ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			l, err := r.List(ctx, dir, o)
			if err == nil && len(l.Entries) == 0 {
				err = registry.ErrNotFound
			}
			return l, err
		}),
	},
	{
		conformance.ListedEntriesWereCommitted, "reads values and metadata one after the other", "R08",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			old := map[registry.Key][]byte{}
			return &broken{Registry: r, list: func(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
				l, err := r.List(ctx, dir, o)
				for i, e := range l.Entries {
					if v, ok := old[e.Key]; ok {
						l.Entries[i].Value = v
					}
					old[e.Key] = e.Value
				}
				return l, err
			}}
		}),
	},
	{
		conformance.AtomicListingIsOneCommit, "reports Atomic for entries that it read one by one", "T14",
		replaceList(func(r registry.Registry, ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			l, err := r.List(ctx, dir, o)
			for i := range l.Entries {
				time.Sleep(time.Microsecond)
				e, err := r.Get(ctx, l.Entries[i].Key, o)
				if err != nil {
					return l, err
				}
				l.Entries[i] = e
				l.Rev.Seq = max(l.Rev.Seq, e.Modified.Seq)
			}
			return l, err
		}),
	},
	{
		conformance.ListingRevBoundsEntries, "reads the Rev first and then the entries", "R08",
		replaceList(func(r registry.Registry, ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			before, err := r.List(ctx, dir, o)
			if err != nil {
				return before, err
			}
			time.Sleep(time.Millisecond)
			l, err := r.List(ctx, dir, o)
			l.Rev = before.Rev
			return l, err
		}),
	},
}

// sharedValues returns one shared value to all readers of a state of a key.
func sharedValues() func(*registry.Entry) {
	type state struct {
		key registry.Key
		rev registry.Rev
	}
	var mu sync.Mutex
	values := map[state][]byte{}
	return func(e *registry.Entry) {
		mu.Lock()
		defer mu.Unlock()
		at := state{e.Key, e.Modified}
		if _, ok := values[at]; !ok {
			values[at] = e.Value
		}
		e.Value = values[at]
	}
}
