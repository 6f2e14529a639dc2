package conformance_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
)

// lifetimeSaboteurs keep a promise for the numbers, durations and values that are common.
var lifetimeSaboteurs = []saboteur{
	{
		conformance.SessionsAreRenewed, "renews 64 sessions of a handle", "S27",
		func(_ testing.TB, s *conformance.Store) {
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				sessions := 0
				return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
					x, err := r.OpenSession(ctx, o)
					if sessions++; err == nil && sessions > 64 {
						time.AfterFunc(x.TTL(), func() { s.Expire(x.ID()) })
					}
					return x, err
				}}
			})
		},
	},
	{
		conformance.GrantedTTLIsNoShorter, "grants any TTL, and ends each session after a minute", "S28",
		func(_ testing.TB, s *conformance.Store) {
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
					x, err := r.OpenSession(ctx, o)
					if err == nil && x.TTL() > time.Minute {
						time.AfterFunc(time.Minute, func() { s.Expire(x.ID()) })
					}
					return x, err
				}}
			})
		},
	},
	{
		conformance.CloseRemovesOwnedKeys, "returns nil from Close of a session that was closed before", "S29",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			closed := false
			return &brokenSession{Session: s, close: func(ctx context.Context) error {
				if closed {
					return nil
				}
				closed = true
				return s.Close(ctx)
			}}
		}),
	},
	{
		conformance.CloseClosesSessions, "closes with a handle those of its sessions that live for their owner", "H09",
		closeLiving(func(s registry.Session) bool { return s.Err() == nil }),
	},
	{
		conformance.CreateOwnedNeedsLiveSession, "takes a suspended session for an ended one", "E15",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			sessions := map[registry.SessionID]registry.Session{}
			return &broken{
				Registry: r,
				session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
					x, err := r.OpenSession(ctx, o)
					if err == nil {
						sessions[x.ID()] = x
					}
					return x, err
				},
				txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
					for _, o := range t.Then {
						if x := sessions[o.Session]; x != nil {
							if state, _ := x.State(); state == registry.SessionSuspended {
								return registry.Rev{}, registry.ErrSessionLost
							}
						}
					}
					return r.Txn(ctx, t)
				},
			}
		}),
	},
	{
		conformance.ListHoldsValuesOnly, "lists a deleted key if its value was large", "Z10",
		func(_ testing.TB, s *conformance.Store) {
			var mu sync.Mutex
			large := map[registry.Key]registry.Entry{}
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				return &broken{Registry: r, list: func(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
					l, err := r.List(ctx, dir, o)
					mu.Lock()
					defer mu.Unlock()
					for key, e := range large {
						if key.Dir() == dir && !slices.ContainsFunc(l.Entries, func(x registry.Entry) bool { return x.Key == key }) {
							l.Entries = append(l.Entries, e)
						}
					}
					for _, e := range l.Entries {
						if len(e.Value) > 64<<10 {
							large[e.Key] = e
						}
					}
					return l, err
				}}
			})
		},
	},
	{
		conformance.PlainReadsNeverGoBack, "answers a plain Get of an owned key from a cache that no List updates", "R13",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			cache := map[registry.Key]registry.Entry{}
			return &broken{Registry: r, get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
				if e, ok := cache[key]; ok && !o.Fresh {
					delete(cache, key)
					return e, nil
				}
				e, err := r.Get(ctx, key, o)
				if err == nil && key.Owned() {
					cache[key] = e
				}
				return e, err
			}}
		}),
	},
	{
		conformance.ReadsCatchUpWithBatches, "lists what it had before a batch of deletes", "R14",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			last, stale := map[registry.Key]registry.Listing{}, map[registry.Key]bool{}
			return &broken{
				Registry: r,
				list: func(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
					if stale[dir] && !o.Fresh {
						stale[dir] = false
						return last[dir], nil
					}
					l, err := r.List(ctx, dir, o)
					last[dir] = l
					return l, err
				},
				watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
					w, err := r.Watch(ctx, dir, registry.WatchOptions{})
					if err != nil {
						return nil, err
					}
					return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
						b, err := w.Next(ctx)
						if err == nil && len(b.Puts) == 0 && len(b.Deletes) > 0 {
							for known := range last {
								stale[known] = true
							}
						}
						return b, err
					}}, nil
				},
			}
		}),
	},
	{
		conformance.LastStateArrives, "reads the snapshot of a watch before it follows the changes", "W35",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
				l, err := r.List(ctx, dir, registry.ReadOptions{Fresh: true})
				if err != nil {
					return nil, err
				}
				w, err := r.Watch(ctx, dir, registry.WatchOptions{})
				if err != nil {
					return nil, err
				}
				first := true
				return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
					b, err := w.Next(ctx)
					if err == nil && first {
						first = false
						b.Rev, b.Puts = l.Rev, l.Entries
					}
					return b, err
				}}, nil
			}}
		}),
	},
}

// closeLiving lets a saboteur open sessions by another handle. Close ends those that it chooses.
func closeLiving(chosen func(registry.Session) bool) func(testing.TB, *conformance.Store) {
	return func(_ testing.TB, s *conformance.Store) {
		connect := s.Connect
		s.Connect = func(t testing.TB, machine string) registry.Registry {
			r, other := connect(t, machine), connect(t, machine)
			t.Cleanup(func() { _ = other.Close(context.Background()) })
			var all []registry.Session
			return &broken{
				Registry: r,
				session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
					x, err := other.OpenSession(ctx, o)
					if err == nil {
						all = append(all, x)
					}
					return x, err
				},
				close: func(ctx context.Context) error {
					for _, x := range all {
						if chosen(x) {
							_ = x.Close(ctx)
						}
					}
					return r.Close(ctx)
				},
			}
		}
	}
}

// longRunSaboteurs keep a promise for a short time or for few handles.
var longRunSaboteurs = []saboteur{
	{
		conformance.WatchFollowsChanges, "drops the first change after an hour without one", "W36",
		wrapEachWatcher(func(w registry.Watcher) registry.Watcher {
			last := time.Now()
			return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
				b, err := w.Next(ctx)
				if err == nil && time.Since(last) > time.Hour {
					b, err = w.Next(ctx)
				}
				last = time.Now()
				return b, err
			}}
		}),
	},
	{
		conformance.TxnIsSentOnce, "sends a transaction again that was not answered in a second", "F31",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			again := time.AfterFunc(time.Second, func() { _, _ = r.Txn(ctx, t) })
			defer again.Stop()
			return r.Txn(ctx, t)
		}),
	},
	{
		conformance.WatchOutlivesConnections, "ends a watcher that had no connection for an hour", "F32",
		func(_ testing.TB, s *conformance.Store) {
			partition := s.Partition
			var mu sync.Mutex
			tooLong := map[string]bool{}
			s.Partition = func(machine string, c conformance.Cut) func() {
				heal, began := partition(machine, c), time.Now()
				return func() {
					mu.Lock()
					tooLong[machine] = tooLong[machine] || time.Since(began) >= time.Hour
					mu.Unlock()
					heal()
				}
			}
			connect := s.Connect
			s.Connect = func(t testing.TB, machine string) registry.Registry {
				r := connect(t, machine)
				return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
					w, err := r.Watch(ctx, dir, registry.WatchOptions{})
					if err != nil {
						return nil, err
					}
					return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
						mu.Lock()
						over := tooLong[machine]
						mu.Unlock()
						if over {
							return registry.Batch{}, registry.ErrClosed
						}
						return w.Next(ctx)
					}}, nil
				}}
			}
		},
	},
	{
		conformance.HandlesAreIndependent, "delivers no change to the 33rd handle of a process", "H10",
		func(_ testing.TB, s *conformance.Store) {
			handles := 0
			wrapHandles(s, func(r registry.Registry) registry.Registry {
				handles++
				if handles <= 32 {
					return r
				}
				return &broken{Registry: r, watch: func(ctx context.Context, _ registry.Key) (registry.Watcher, error) {
					return r.Watch(ctx, "nowhere", registry.WatchOptions{})
				}}
			})
		},
	},
	{
		conformance.SessionCloseIsFinal, "connects a session again by an answer that arrives after Close", "S30",
		wrapEachSession(func(_ registry.Registry, s registry.Session) registry.Session {
			var mu sync.Mutex
			var again bool
			return &brokenSession{
				Session: s,
				close: func(ctx context.Context) error {
					err := s.Close(ctx)
					time.AfterFunc(s.TTL()/5, func() {
						mu.Lock()
						defer mu.Unlock()
						again = true
					})
					return err
				},
				state: func() (registry.SessionState, time.Time) {
					mu.Lock()
					defer mu.Unlock()
					state, until := s.State()
					if again {
						state = registry.SessionConnected
					}
					return state, until
				},
			}
		}),
	},
}
