package conformance_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
)

var watchSaboteurs = []saboteur{
	{
		conformance.SnapshotFirst, "begins with a delta", "W01",
		alterBatches(func() func(*registry.Batch) {
			return func(b *registry.Batch) { b.Kind = registry.Delta }
		}),
	},
	{
		conformance.SnapshotFirst, "begins with an empty snapshot and delivers only changes", "W01",
		alterBatches(func() func(*registry.Batch) {
			first := true
			return func(b *registry.Batch) {
				if first {
					b.Puts = nil
				}
				first = false
			}
		}),
	},
	{
		conformance.SnapshotFirst, "loses changes between the list and the watch", "W20",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
				l, err := r.List(ctx, dir, registry.ReadOptions{})
				if err != nil {
					return nil, err
				}
				time.Sleep(5 * time.Millisecond)
				w, err := r.Watch(ctx, dir, registry.WatchOptions{})
				if err != nil {
					return nil, err
				}
				first := true
				return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
					b, err := w.Next(ctx)
					if first && err == nil {
						b.Puts, b.Rev = l.Entries, l.Rev
						first = false
					}
					return b, err
				}}, nil
			}}
		}),
	},
	{
		conformance.WatchFollowsChanges, "delivers nothing after the snapshot", "W02",
		wrapEachWatcher(silentAfterSnapshot),
	},
	{
		conformance.WatchFollowsChanges, "notifies one of two watchers of a directory", "W04",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			watched := map[registry.Key]bool{}
			return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
				w, err := r.Watch(ctx, dir, registry.WatchOptions{})
				if err != nil || !watched[dir] {
					watched[dir] = true
					return w, err
				}
				return silentAfterSnapshot(w), nil
			}}
		}),
	},
	{
		conformance.WatchIsOneLevel, "delivers grandchildren, as a watch of a prefix does", "W03",
		func(_ testing.TB, s *conformance.Store) {
			var mu sync.Mutex
			deep := map[registry.Key][]registry.Entry{} // by grandparent directory
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{
					Registry: r,
					txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
						rev, err := r.Txn(ctx, t)
						mu.Lock()
						defer mu.Unlock()
						for _, op := range t.Then {
							if dir := op.Key.Dir(); err == nil && dir != "" {
								deep[dir.Dir()] = append(deep[dir.Dir()], registry.Entry{Key: op.Key, Value: op.Value, Created: rev, Modified: rev})
							}
						}
						return rev, err
					},
					watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
						w, err := r.Watch(ctx, dir, registry.WatchOptions{})
						if err != nil {
							return nil, err
						}
						return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
							b, err := w.Next(ctx)
							mu.Lock()
							defer mu.Unlock()
							b.Puts = append(b.Puts, deep[dir]...)
							delete(deep, dir)
							return b, err
						}}, nil
					},
				}
			})
		},
	},
	{
		conformance.WatchedEntriesAreComplete, "omits Created from the entries of a batch", "W10",
		alterBatches(func() func(*registry.Batch) {
			return func(b *registry.Batch) {
				for i := range b.Puts {
					b.Puts[i].Created = registry.Rev{}
				}
			}
		}),
	},
	{
		conformance.WatchedEntriesAreComplete, "omits Owner from the entries of a batch", "W10",
		alterBatches(func() func(*registry.Batch) {
			return func(b *registry.Batch) {
				for i := range b.Puts {
					b.Puts[i].Owner = ""
				}
			}
		}),
	},
	{
		conformance.DirNeedNotExist, "refuses to watch an empty directory", "W13",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
				if l, err := r.List(ctx, dir, registry.ReadOptions{}); err != nil || len(l.Entries) == 0 {
					return nil, registry.ErrNotFound
				}
				return r.Watch(ctx, dir, registry.WatchOptions{})
			}}
		}),
	},
	{
		conformance.NeverOlderAfterNewer, "sometimes delivers an event from before a reconnection again", "W18",
		alterBatches(func() func(*registry.Batch) {
			n := 0
			first := map[registry.Key]registry.Entry{}
			return func(b *registry.Batch) {
				n++
				for i, e := range b.Puts {
					if _, ok := first[e.Key]; !ok {
						first[e.Key] = e
					} else if n%5 == 0 {
						b.Puts[i] = first[e.Key]
					}
				}
			}
		}),
	},
	{
		conformance.LastStateArrives, "is always one batch behind", "W02",
		wrapEachWatcher(func(w registry.Watcher) registry.Watcher {
			var kept *registry.Batch
			first := true
			return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
				for {
					b, err := w.Next(ctx)
					if err != nil || first {
						first = false
						return b, err
					}
					last := kept
					kept = &b
					if last != nil {
						return *last, nil
					}
				}
			}}
		}),
	},
	{
		conformance.LastStateArrives, "drops events that do not fit a full buffer", "W06",
		wrapEachWatcher(func(w registry.Watcher) registry.Watcher {
			return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
				b, err := w.Next(ctx)
				if b.Kind == registry.Delta && len(b.Puts) > 3 {
					b.Puts = b.Puts[:3]
				}
				return b, err
			}}
		}),
	},
	{
		conformance.LastStateArrives, "misses deletes made while it was disconnected", "W09",
		alterBatches(func() func(*registry.Batch) {
			known := map[registry.Key]registry.Entry{}
			return func(b *registry.Batch) {
				for _, e := range b.Puts {
					known[e.Key] = e
				}
				if b.Kind == registry.Delta {
					for _, key := range b.Deletes {
						delete(known, key)
					}
					return
				}
				b.Puts = slices.SortedFunc(maps.Values(known), func(x, y registry.Entry) int {
					return strings.Compare(string(x.Key), string(y.Key))
				})
			}
		}),
	},
	{
		conformance.LastStateArrives, "fits fifty keys of a commit into an event", "W23",
		alterBatches(func() func(*registry.Batch) {
			return func(b *registry.Batch) { b.Puts = b.Puts[:min(len(b.Puts), 50)] }
		}),
	},
	{
		conformance.LastStateArrives, "misses deletes of owned keys", "E09",
		wrapEachWatcher(func(w registry.Watcher) registry.Watcher {
			return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
				b, err := w.Next(ctx)
				b.Deletes = slices.DeleteFunc(b.Deletes, registry.Key.Owned)
				return b, err
			}}
		}),
	},
	{
		conformance.SlowReaderBlocksNoWriter, "makes writers wait for room in the reader's queue", "W06",
		func(_ testing.TB, s *conformance.Store) {
			unread := make(chan struct{}, 100)
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{
					Registry: r,
					txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
						select {
						case unread <- struct{}{}:
							return r.Txn(ctx, t)
						case <-ctx.Done():
							return registry.Rev{}, ctx.Err()
						}
					},
					watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
						w, err := r.Watch(ctx, dir, registry.WatchOptions{})
						if err != nil {
							return nil, err
						}
						return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
							for len(unread) > 0 {
								<-unread
							}
							return w.Next(ctx)
						}}, nil
					},
				}
			})
		},
	},
	{
		conformance.WatchOutlivesConnections, "ends its watchers when the connection breaks", "W07",
		func(_ testing.TB, s *conformance.Store) {
			var open []registry.Watcher
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
					w, err := r.Watch(ctx, dir, registry.WatchOptions{})
					open = append(open, w)
					return w, err
				}}
			})
			partition := s.Partition
			s.Partition = func(machine string, c conformance.Cut) (heal func()) {
				for _, w := range open {
					w.Close()
				}
				return partition(machine, c)
			}
		},
	},
	{
		conformance.WatchOutlivesConnections, "skips the changes it missed during a broken connection", "W07",
		alterBatches(func() func(*registry.Batch) {
			first := true
			return func(b *registry.Batch) {
				if b.Kind == registry.Snapshot && !first {
					b.Kind, b.Puts = registry.Delta, nil
				}
				first = false
			}
		}),
	},
	{
		conformance.WatchOutlivesConnections, "returns the store's error about compacted history", "W08",
		func(_ testing.TB, s *conformance.Store) {
			var open []registry.Watcher
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
					w, err := r.Watch(ctx, dir, registry.WatchOptions{})
					open = append(open, w)
					return w, err
				}}
			})
			s.Compact = func() {
				for _, w := range open {
					w.Close()
				}
			}
		},
	},
	{
		conformance.WatchOutlivesConnections, "resumes only a limited number of watches after a reconnection", "Z05",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			n := 0
			return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
				w, err := r.Watch(ctx, dir, registry.WatchOptions{})
				if n++; err != nil || n < 128 {
					return w, err
				}
				return silentAfterSnapshot(w), nil
			}}
		}),
	},
	{
		conformance.WatchEndsWithItsContext, "ignores the context of Watch", "W21",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
				return r.Watch(context.WithoutCancel(ctx), dir, registry.WatchOptions{})
			}}
		}),
	},
	{
		conformance.WatchEndsWithItsContext, "returns only the cause when the context of Watch has ended", "W21",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
				w, err := r.Watch(ctx, dir, registry.WatchOptions{})
				if err != nil {
					return nil, err
				}
				return &brokenWatcher{Watcher: w, next: func(next context.Context) (registry.Batch, error) {
					b, err := w.Next(next)
					if err != nil && ctx.Err() != nil {
						err = context.Cause(ctx)
					}
					return b, err
				}}, nil
			}}
		}),
	},
	{
		conformance.NextEndsWithItsContext, "ends the watcher with the context of Next", "W05",
		wrapEachWatcher(func(w registry.Watcher) registry.Watcher {
			return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
				b, err := w.Next(ctx)
				if ctx.Err() != nil {
					w.Close()
				}
				return b, err
			}}
		}),
	},
	{
		conformance.WatcherCloseWakesNext, "leaves Next waiting after Close", "W22",
		wrapEachWatcher(func(w registry.Watcher) registry.Watcher {
			return &brokenWatcher{Watcher: w, close: func() error { return nil }}
		}),
	},
	{
		conformance.WatcherCloseFreesAll, "keeps a goroutine per watcher until the context of Watch ends", "W14",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
				go func() { <-ctx.Done() }()
				return r.Watch(ctx, dir, registry.WatchOptions{})
			}}
		}),
	},
	{
		conformance.BatchesBelongToTheReader, "hands the stored value to every watcher", "W17",
		alterEntries(sharedValues),
	},
	{
		conformance.BatchesAreSorted, "delivers a batch in the order of a map", "W19",
		alterBatches(func() func(*registry.Batch) {
			return func(b *registry.Batch) { slices.Reverse(b.Puts) }
		}),
	},
	{
		conformance.BatchesAreSorted, "delivers two changes of a key in one batch", "W19",
		alterBatches(func() func(*registry.Batch) {
			return func(b *registry.Batch) {
				if b.Kind == registry.Delta && len(b.Puts) == 1 {
					b.Puts = append(b.Puts, b.Puts[0])
				}
			}
		}),
	},
	{
		conformance.BatchRevBoundsChanges, "stamps a batch with the Rev of the previous one", "W19",
		alterBatches(func() func(*registry.Batch) {
			var last registry.Rev
			return func(b *registry.Batch) {
				if !last.IsZero() {
					b.Rev, last = last, b.Rev
					return
				}
				last = b.Rev
			}
		}),
	},
	{
		conformance.ReadsCatchUpWithBatches, "reads on a connection that lags behind the watch's", "R05",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			behind := map[registry.Key]registry.Entry{}
			return &broken{Registry: r, get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
				now, err := r.Get(ctx, key, o)
				if err != nil || o.Fresh {
					return now, err
				}
				old, ok := behind[key]
				behind[key] = now
				if ok {
					return old, nil
				}
				return now, nil
			}}
		}),
	},
	{
		conformance.EventsArePrompt, "polls for changes ten times a second", "W16",
		wrapEachWatcher(func(w registry.Watcher) registry.Watcher {
			return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
				time.Sleep(100 * time.Millisecond)
				return w.Next(ctx)
			}}
		}),
	},
}

// silentAfterSnapshot delivers nothing after the first batch.
func silentAfterSnapshot(w registry.Watcher) registry.Watcher {
	told := false
	return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
		if told {
			<-ctx.Done()
			return registry.Batch{}, ctx.Err()
		}
		told = true
		return w.Next(ctx)
	}}
}
