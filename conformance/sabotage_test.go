package conformance_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/memorybackend"
	"github.com/rota-dev/rota/registry"
)

// saboteur is a registry that breaks one promise and otherwise behaves as well as it can.
type saboteur struct {
	promise conformance.Promise
	does    string
	code    string // of the case that must fail
	open    func(testing.TB, *conformance.Store)
}

// backend is the memory registry with the saboteur's defect.
func (s saboteur) backend() conformance.Backend {
	b := soundBackend()
	open := b.Open
	b.Open = func(t testing.TB) *conformance.Store {
		store := open(t)
		s.open(t, store)
		return store
	}
	return b
}

// soundBackend is the memory registry with every fault control. It keeps no history, so
// Compact does nothing, and it has one member, so the effects that clients would see of
// three members are faked.
func soundBackend() conformance.Backend {
	b := memorybackend.New()
	b.Seeds = 20 // enough for C06 to fail
	open := b.Open
	b.Open = func(t testing.TB) *conformance.Store {
		s := open(t)
		s.Compact = func() {}
		fakeMembers(s)
		return s
	}
	return b
}

func fakeMembers(s *conformance.Store) {
	const leaves, elects = 11 * time.Second, 300 * time.Millisecond
	isolate, partition, stall, restart := s.Isolate, s.Partition, s.Stall, s.Restart
	after := func(d time.Duration, undo func()) func() {
		time.AfterFunc(d, undo)
		return undo
	}
	s.Members = func() int { return 3 }
	s.Isolate = func(machine string) func() { return after(leaves, isolate(machine)) }
	s.HalfOpen = func(machine string) func() { return after(elects, partition(machine, conformance.Blackhole)) }
	s.Move = func(machine string) { after(elects, partition(machine, conformance.Refuse)) }
	s.PauseLeader = func() func() { return after(elects, stall()) }
	s.KillLeader = func() func() {
		restart()
		return after(elects, stall())
	}
	s.Replace = func() {
		resume := s.KillLeader()
		time.Sleep(elects)
		resume()
	}
	s.RollingRestart = func() {
		for range 3 {
			s.Replace()
		}
	}
}

// wrapEachHandle lets a saboteur wrap each handle separately.
func wrapEachHandle(wrap func(registry.Registry) registry.Registry) func(testing.TB, *conformance.Store) {
	return func(_ testing.TB, s *conformance.Store) { wrapHandles(s, wrap) }
}

func wrapHandles(s *conformance.Store, wrap func(registry.Registry) registry.Registry) {
	connect := s.Connect
	s.Connect = func(t testing.TB, machine string) registry.Registry { return wrap(connect(t, machine)) }
}

// broken is a handle with some methods replaced; a nil field keeps the original.
type broken struct {
	registry.Registry
	get     func(context.Context, registry.Key, registry.ReadOptions) (registry.Entry, error)
	list    func(context.Context, registry.Key, registry.ReadOptions) (registry.Listing, error)
	txn     func(context.Context, registry.Txn) (registry.Rev, error)
	watch   func(context.Context, registry.Key) (registry.Watcher, error)
	session func(context.Context, registry.SessionOptions) (registry.Session, error)
	close   func(context.Context) error
}

func (b *broken) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if b.get == nil {
		return b.Registry.Get(ctx, key, o)
	}
	return b.get(ctx, key, o)
}

func (b *broken) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	if b.list == nil {
		return b.Registry.List(ctx, dir, o)
	}
	return b.list(ctx, dir, o)
}

func (b *broken) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	if b.txn == nil {
		return b.Registry.Txn(ctx, t)
	}
	return b.txn(ctx, t)
}

func (b *broken) Watch(ctx context.Context, dir registry.Key, o registry.WatchOptions) (registry.Watcher, error) {
	if b.watch == nil {
		return b.Registry.Watch(ctx, dir, o)
	}
	return b.watch(ctx, dir)
}

func (b *broken) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	if b.session == nil {
		return b.Registry.OpenSession(ctx, o)
	}
	return b.session(ctx, o)
}

func (b *broken) Close(ctx context.Context) error {
	if b.close == nil {
		return b.Registry.Close(ctx)
	}
	return b.close(ctx)
}

// brokenWatcher is a watcher with some methods replaced.
type brokenWatcher struct {
	registry.Watcher
	next  func(context.Context) (registry.Batch, error)
	close func() error
}

func (w *brokenWatcher) Next(ctx context.Context) (registry.Batch, error) {
	if w.next == nil {
		return w.Watcher.Next(ctx)
	}
	return w.next(ctx)
}

func (w *brokenWatcher) Close() error {
	if w.close == nil {
		return w.Watcher.Close()
	}
	return w.close()
}

// wrapEachWatcher lets a saboteur wrap the watchers of each handle.
func wrapEachWatcher(wrap func(registry.Watcher) registry.Watcher) func(testing.TB, *conformance.Store) {
	return wrapEachHandle(func(r registry.Registry) registry.Registry {
		return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
			w, err := r.Watch(ctx, dir, registry.WatchOptions{})
			if err != nil {
				return nil, err
			}
			return wrap(w), nil
		}}
	})
}

// alterBatches lets a saboteur change each batch. It calls change once per watcher.
func alterBatches(change func() func(*registry.Batch)) func(testing.TB, *conformance.Store) {
	return wrapEachWatcher(func(w registry.Watcher) registry.Watcher {
		spoil := change()
		return &brokenWatcher{Watcher: w, next: func(ctx context.Context) (registry.Batch, error) {
			b, err := w.Next(ctx)
			if err == nil {
				spoil(&b)
			}
			return b, err
		}}
	})
}

// alterEntries lets a saboteur change every entry read by Get, List or Watch. It calls
// change once per store.
func alterEntries(change func() func(*registry.Entry)) func(testing.TB, *conformance.Store) {
	return func(_ testing.TB, s *conformance.Store) {
		spoil := change()
		wrapHandles(s, func(r registry.Registry) registry.Registry {
			return &broken{
				Registry: r,
				get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
					e, err := r.Get(ctx, key, o)
					if err == nil {
						spoil(&e)
					}
					return e, err
				},
				list: func(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
					l, err := r.List(ctx, dir, o)
					for i := range l.Entries {
						spoil(&l.Entries[i])
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
						for i := range b.Puts {
							spoil(&b.Puts[i])
						}
						return b, err
					}}, nil
				},
			}
		})
	}
}

// replaceGet, replaceList and replaceTxn let a saboteur replace one method of each
// handle.
func replaceGet(f func(registry.Registry, context.Context, registry.Key, registry.ReadOptions) (registry.Entry, error)) func(testing.TB, *conformance.Store) {
	return wrapEachHandle(func(r registry.Registry) registry.Registry {
		return &broken{Registry: r, get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
			return f(r, ctx, key, o)
		}}
	})
}

func replaceList(f func(registry.Registry, context.Context, registry.Key, registry.ReadOptions) (registry.Listing, error)) func(testing.TB, *conformance.Store) {
	return wrapEachHandle(func(r registry.Registry) registry.Registry {
		return &broken{Registry: r, list: func(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
			return f(r, ctx, dir, o)
		}}
	})
}

func replaceTxn(f func(registry.Registry, context.Context, registry.Txn) (registry.Rev, error)) func(testing.TB, *conformance.Store) {
	return wrapEachHandle(func(r registry.Registry) registry.Registry {
		return &broken{Registry: r, txn: func(ctx context.Context, t registry.Txn) (registry.Rev, error) {
			return f(r, ctx, t)
		}}
	})
}

// brokenSession is a session with some methods replaced.
type brokenSession struct {
	registry.Session
	id      func() registry.SessionID
	ttl     func() time.Duration
	state   func() (registry.SessionState, time.Time)
	changed func() <-chan struct{}
	lost    func() <-chan struct{}
	err     func() error
	close   func(context.Context) error
}

func (s *brokenSession) ID() registry.SessionID {
	if s.id == nil {
		return s.Session.ID()
	}
	return s.id()
}

func (s *brokenSession) TTL() time.Duration {
	if s.ttl == nil {
		return s.Session.TTL()
	}
	return s.ttl()
}

func (s *brokenSession) State() (registry.SessionState, time.Time) {
	if s.state == nil {
		return s.Session.State()
	}
	return s.state()
}

func (s *brokenSession) Changed() <-chan struct{} {
	if s.changed == nil {
		return s.Session.Changed()
	}
	return s.changed()
}

func (s *brokenSession) Lost() <-chan struct{} {
	if s.lost == nil {
		return s.Session.Lost()
	}
	return s.lost()
}

func (s *brokenSession) Err() error {
	if s.err == nil {
		return s.Session.Err()
	}
	return s.err()
}

func (s *brokenSession) Close(ctx context.Context) error {
	if s.close == nil {
		return s.Session.Close(ctx)
	}
	return s.close(ctx)
}

// wrapEachSession lets a saboteur wrap the sessions of each handle.
func wrapEachSession(wrap func(registry.Registry, registry.Session) registry.Session) func(testing.TB, *conformance.Store) {
	return wrapEachHandle(func(r registry.Registry) registry.Registry {
		return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
			s, err := r.OpenSession(ctx, o)
			if err != nil {
				return nil, err
			}
			return wrap(r, s), nil
		}}
	})
}

func TestRun_RunsWhatABackendSelects(t *testing.T) {
	b := memorybackend.New()
	b.Which = func(c conformance.Case) bool { return c.Code == "K02" || c.Code == "L01" }
	var ran []string
	for _, r := range conformance.Run(t, b).Results {
		ran = append(ran, r.Case.Code)
	}
	require.Equal(t, []string{"K02", "L01"}, ran)
}
