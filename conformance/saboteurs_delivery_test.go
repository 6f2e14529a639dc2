package conformance_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
)

// wrapWatches wraps every watcher of a store.
func wrapWatches(s *conformance.Store, wrap func(r registry.Registry, dir registry.Key, w registry.Watcher) registry.Watcher) {
	wrapHandles(s, func(r registry.Registry) registry.Registry {
		return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
			w, err := r.Watch(ctx, dir, registry.WatchOptions{})
			if err != nil {
				return nil, err
			}
			return wrap(r, dir, w), nil
		}}
	})
}

// wrapNext replaces Next of a watcher by a function that changes its result.
func wrapNext(w registry.Watcher, change func(*registry.Batch)) registry.Watcher {
	return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
		b, err := w.Next(ctx)
		if err == nil {
			change(&b)
		}
		return b, err
	}}
}

// alterResyncs lets a saboteur change each Snapshot but the first. It calls change once per
// watcher.
func alterResyncs(change func(*registry.Batch)) func(testing.TB, *conformance.Store) {
	return alterBatches(func() func(*registry.Batch) {
		first := true
		return func(b *registry.Batch) {
			if b.Kind == registry.Snapshot && !first {
				change(b)
			}
			first = false
		}
	})
}

var deliverySaboteurs = []saboteur{
	{
		conformance.WatchFollowsChanges, "notifies one of the directories that a commit changes", "W24",
		func(_ testing.TB, s *conformance.Store) {
			var mu sync.Mutex
			notified := map[registry.Rev]registry.Key{}
			wrapWatches(s, func(_ registry.Registry, dir registry.Key, w registry.Watcher) registry.Watcher {
				return wrapNext(w, func(b *registry.Batch) {
					mu.Lock()
					defer mu.Unlock()
					b.Puts = slices.DeleteFunc(b.Puts, func(e registry.Entry) bool {
						if _, ok := notified[e.Modified]; !ok {
							notified[e.Modified] = dir
						}
						return b.Kind == registry.Delta && notified[e.Modified] != dir
					})
				})
			})
		},
	},
	{
		conformance.WatchFollowsChanges, "delivers nothing but the snapshot of the root", "W25",
		func(_ testing.TB, s *conformance.Store) {
			wrapWatches(s, func(_ registry.Registry, dir registry.Key, w registry.Watcher) registry.Watcher {
				if dir == "" {
					return silentAfterSnapshot(w)
				}
				return w
			})
		},
	},
	{
		conformance.InvalidKeysAreRefused, "refuses to watch a directory of more than 255 bytes", "W25",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
				if len(dir) > 255 {
					return nil, registry.ErrInvalidKey
				}
				return r.Watch(ctx, dir, registry.WatchOptions{})
			}}
		}),
	},
	{
		conformance.WatchFollowsChanges, "ends the events of a directory when its key is deleted", "W26",
		func(_ testing.TB, s *conformance.Store) {
			var mu sync.Mutex
			deleted := map[registry.Key]bool{}
			wrapWatches(s, func(_ registry.Registry, dir registry.Key, w registry.Watcher) registry.Watcher {
				return wrapNext(w, func(b *registry.Batch) {
					mu.Lock()
					defer mu.Unlock()
					if deleted[dir] {
						b.Puts, b.Deletes = nil, nil
					}
				})
			})
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{Registry: r, txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
					rev, err := r.Txn(ctx, t)
					mu.Lock()
					defer mu.Unlock()
					for _, op := range t.Then {
						deleted[op.Key] = deleted[op.Key] || err == nil && op.Kind == registry.OpDelete
					}
					return rev, err
				}}
			})
		},
	},
	{
		conformance.LastStateArrives, "keeps at most 128 written keys for a reader", "W27",
		alterBatches(func() func(*registry.Batch) {
			return func(b *registry.Batch) {
				if b.Kind == registry.Delta {
					b.Puts = b.Puts[:min(len(b.Puts), 128)]
				}
			}
		}),
	},
	{
		conformance.LastStateArrives, "keeps at most 128 deleted keys for a reader", "W27",
		alterBatches(func() func(*registry.Batch) { // as a delta, or in a snapshot that replaces one
			var has []registry.Entry
			return func(b *registry.Batch) {
				gone := func(e registry.Entry) bool {
					return !slices.ContainsFunc(b.Puts, func(p registry.Entry) bool { return p.Key == e.Key })
				}
				if b.Kind == registry.Snapshot {
					dropped := 0
					for _, e := range has {
						if gone(e) {
							if dropped++; dropped > 128 {
								b.Puts = append(b.Puts, e)
							}
						}
					}
					slices.SortFunc(b.Puts, func(x, y registry.Entry) int { return bytes.Compare([]byte(x.Key), []byte(y.Key)) })
					has = slices.Clone(b.Puts)
					return
				}
				b.Deletes = b.Deletes[:min(len(b.Deletes), 128)]
				has = append(has, b.Puts...)
			}
		}),
	},
	{
		conformance.LastStateArrives, "fits 256 entries into the snapshot after a reconnection", "W28",
		alterResyncs(func(b *registry.Batch) { b.Puts = b.Puts[:min(len(b.Puts), 256)] }),
	},
	{
		conformance.LastStateArrives, "compares values after a reconnection, and keeps the entry of an equal one", "W29",
		alterBatches(func() func(*registry.Batch) {
			has := map[registry.Key]registry.Entry{}
			return func(b *registry.Batch) {
				for i, e := range b.Puts {
					if old, ok := has[e.Key]; ok && b.Kind == registry.Snapshot && bytes.Equal(old.Value, e.Value) {
						b.Puts[i] = old
					}
					has[e.Key] = b.Puts[i]
				}
			}
		}),
	},
	{
		conformance.WatchedEntriesAreComplete, "keeps Created of the entries it had before a reconnection", "W29",
		alterBatches(func() func(*registry.Batch) {
			has := map[registry.Key]registry.Rev{}
			return func(b *registry.Batch) {
				for i, e := range b.Puts {
					if created, ok := has[e.Key]; ok && b.Kind == registry.Snapshot {
						b.Puts[i].Created = created
					}
					has[e.Key] = e.Created
				}
			}
		}),
	},
	{
		conformance.NextEndsWithItsContext, "drops a batch that is ready when the context of Next has ended", "W30",
		wrapEachWatcher(func(w registry.Watcher) registry.Watcher {
			return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
				if err := ctx.Err(); err != nil {
					short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
					defer cancel()
					_, _ = w.Next(short)
					return registry.Batch{}, err
				}
				return w.Next(ctx)
			}}
		}),
	},
	{
		conformance.BatchRevBoundsChanges, "leaves deletes out of the Rev of a batch", "W31",
		alterBatches(func() func(*registry.Batch) {
			var newest registry.Rev
			return func(b *registry.Batch) {
				if b.Kind == registry.Snapshot {
					newest = b.Rev
				}
				for _, e := range b.Puts {
					if e.Modified.Seq > newest.Seq {
						newest = e.Modified
					}
				}
				b.Rev = newest
			}
		}),
	},
	{
		conformance.SnapshotFirst, "begins its watch 2 ms after the list, and lists again at each event", "W32",
		func(_ testing.TB, s *conformance.Store) {
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
					l, err := r.List(ctx, dir, registry.ReadOptions{})
					if err != nil {
						return nil, err
					}
					time.Sleep(2 * time.Millisecond)
					w, err := r.Watch(ctx, dir, registry.WatchOptions{})
					if err != nil {
						return nil, err
					}
					first := true
					return wrapNext(w, func(b *registry.Batch) {
						if !first {
							l, err = r.List(ctx, dir, registry.ReadOptions{Fresh: true})
						}
						if err == nil {
							b.Kind, b.Rev, b.Puts, b.Deletes = registry.Snapshot, l.Rev, l.Entries, nil
						}
						first = false
					}), nil
				}}
			})
		},
	},
	{
		conformance.LastStateArrives, "drops the deletes of a commit with one written key", "W33",
		alterBatches(func() func(*registry.Batch) {
			return func(b *registry.Batch) {
				if len(b.Puts) == 1 {
					b.Deletes = nil
				}
			}
		}),
	},
	{
		conformance.SnapshotFirst, "begins a watch with the state that it had before the connection broke", "W34",
		func(_ testing.TB, s *conformance.Store) {
			var mu sync.Mutex
			away := false
			partition := s.Partition
			s.Partition = func(machine string, c conformance.Cut) func() {
				heal := partition(machine, c)
				mu.Lock()
				defer mu.Unlock()
				away = true
				return heal
			}
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				var last registry.Listing
				return &broken{
					Registry: r,
					list: func(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
						l, err := r.List(ctx, dir, o)
						if last.Rev.IsZero() {
							last = l
						}
						return l, err
					},
					watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
						w, err := r.Watch(ctx, dir, registry.WatchOptions{})
						if err != nil {
							return nil, err
						}
						return wrapNext(w, func(b *registry.Batch) {
							mu.Lock()
							defer mu.Unlock()
							if away && b.Kind == registry.Snapshot {
								b.Rev, b.Puts = last.Rev, last.Entries
							}
						}), nil
					},
				}
			})
		},
	},
	{
		conformance.LastStateArrives, "notifies one of the directories of a session that ends", "E10",
		func(_ testing.TB, s *conformance.Store) {
			wrapWatches(s, func(_ registry.Registry, dir registry.Key, w registry.Watcher) registry.Watcher {
				return wrapNext(w, func(b *registry.Batch) {
					if dir != "d" {
						b.Deletes = slices.DeleteFunc(b.Deletes, registry.Key.Owned)
					}
				})
			})
		},
	},
}
