package conformance_test

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
)

var readFormSaboteurs = []saboteur{
	{
		conformance.FreshReadsSeeAll, "answers a fresh List from the state of its watch", "R10",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			var mu sync.Mutex
			watched := map[registry.Key]map[registry.Key]registry.Entry{}
			return &broken{
				Registry: r,
				watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
					w, err := r.Watch(ctx, dir, registry.WatchOptions{})
					if err != nil {
						return nil, err
					}
					return wrapNext(w, func(b *registry.Batch) {
						mu.Lock()
						defer mu.Unlock()
						if b.Kind == registry.Snapshot {
							watched[dir] = map[registry.Key]registry.Entry{}
						}
						for _, e := range b.Puts {
							watched[dir][e.Key] = e
						}
						for _, key := range b.Deletes {
							delete(watched[dir], key)
						}
					}), nil
				},
				list: func(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
					l, err := r.List(ctx, dir, o)
					mu.Lock()
					defer mu.Unlock()
					if has, ok := watched[dir]; ok && o.Fresh {
						l.Entries = slices.Collect(maps.Values(has))
					}
					return l, err
				},
			}
		}),
	},
	{
		conformance.FreshReadsSeeAll, "is one fresh Get behind when it has opened a second session", "R10",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			sessions := 0
			last := map[registry.Key]registry.Entry{}
			return &broken{
				Registry: r,
				session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
					sessions++
					return r.OpenSession(ctx, o)
				},
				get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
					e, err := r.Get(ctx, key, o)
					old, seen := last[key]
					last[key] = e
					if err == nil && o.Fresh && sessions > 1 && seen {
						return old, nil
					}
					return e, err
				},
			}
		}),
	},
	{
		conformance.PlainReadsNeverGoBack, "has a cache for each key, filled at different times", "R11",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			n := 0
			cache := map[registry.Key]registry.Entry{}
			return &broken{Registry: r, get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
				old, cached := cache[key]
				if n++; cached && !o.Fresh && n%4 > 0 {
					return old, nil
				}
				e, err := r.Get(ctx, key, o)
				cache[key] = e
				return e, err
			}}
		}),
	},
	{
		conformance.ReadsCatchUpWithBatches, "catches up with batches in the watched directory only", "R12",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			var watched registry.Key
			cache := map[registry.Key]registry.Listing{}
			return &broken{
				Registry: r,
				watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
					watched = dir
					return r.Watch(ctx, dir, registry.WatchOptions{})
				},
				list: func(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
					old, cached := cache[dir]
					if cached && !o.Fresh && dir != watched {
						delete(cache, dir)
						return old, nil
					}
					l, err := r.List(ctx, dir, o)
					cache[dir] = l
					return l, err
				},
			}
		}),
	},
	{
		conformance.ReadsCatchUpWithBatches, "lists once more what a batch has reported as deleted", "R12",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			deleted := map[registry.Key]registry.Entry{}
			has := map[registry.Key]registry.Entry{}
			return &broken{
				Registry: r,
				watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
					w, err := r.Watch(ctx, dir, registry.WatchOptions{})
					if err != nil {
						return nil, err
					}
					return wrapNext(w, func(b *registry.Batch) {
						for _, e := range b.Puts {
							has[e.Key] = e
						}
						for _, key := range b.Deletes {
							deleted[key] = has[key]
						}
					}), nil
				},
				list: func(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
					l, err := r.List(ctx, dir, o)
					for key, e := range deleted {
						if key.Dir() == dir && !o.Fresh {
							l.Entries = append([]registry.Entry{e}, l.Entries...)
							delete(deleted, key)
						}
					}
					return l, err
				},
			}
		}),
	},
	{
		conformance.ReadYourWrites, "lists the value from before its own Set", "R01",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			var before registry.Listing
			return &broken{
				Registry: r,
				txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
					if len(t.Then) == 1 && t.Then[0].Kind == registry.OpSet {
						before, _ = r.List(ctx, t.Then[0].Key.Dir(), registry.ReadOptions{})
					}
					return r.Txn(ctx, t)
				},
				list: func(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
					if l := before; len(l.Entries) > 0 && !o.Fresh {
						before = registry.Listing{}
						return l, nil
					}
					return r.List(ctx, dir, o)
				},
			}
		}),
	},
	{
		conformance.ReadsBelongToTheReader, "lists values that share one array", "K12",
		replaceList(func(r registry.Registry, ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			l, err := r.List(ctx, dir, o)
			shareArray(l.Entries)
			return l, err
		}),
	},
	{
		conformance.BatchesBelongToTheReader, "delivers values that share one array", "W17",
		alterBatches(func() func(*registry.Batch) {
			return func(b *registry.Batch) { shareArray(b.Puts) }
		}),
	},
}

// shareArray copies the values of entries into one array, with room up to its end.
func shareArray(entries []registry.Entry) {
	var array []byte
	for _, e := range entries {
		array = append(array, e.Value...)
	}
	start := 0
	for i, e := range entries {
		end := start + len(e.Value)
		entries[i].Value = array[start:end]
		start = end
	}
}
