package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

var handleSaboteurs = []saboteur{
	{
		conformance.HandlesAreIndependent, "has one connection for all handles of a process", "H07",
		func(_ testing.TB, s *conformance.Store) {
			shared := map[string]registry.Registry{}
			connect := s.Connect
			s.Connect = func(t testing.TB, machine string) registry.Registry {
				if shared[machine] == nil {
					shared[machine] = connect(t, machine)
				}
				return shared[machine]
			}
		},
	},
	{
		conformance.ClosedIsErrClosed, "returns ErrUnavailable from a closed handle", "H02",
		replaceGet(func(r registry.Registry, ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
			e, err := r.Get(ctx, key, o)
			if errors.Is(err, registry.ErrClosed) {
				err = registry.ErrUnavailable
			}
			return e, err
		}),
	},
	{
		conformance.CloseIsLegalTwice, "fails the second Close of a handle", "H02",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			closed := false
			return &broken{Registry: r, close: func(ctx context.Context) error {
				if closed {
					return registry.ErrClosed
				}
				closed = true
				return r.Close(ctx)
			}}
		}),
	},
	{
		conformance.CloseEndsPendingCalls, "leaves pending calls waiting", "H04",
		replaceGet(func(r registry.Registry, ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
			e, err := r.Get(ctx, key, o)
			if errors.Is(err, registry.ErrClosed) {
				<-ctx.Done()
			}
			return e, err
		}),
	},
	{
		conformance.CloseClosesSessions, "leaves sessions to expire", "H05",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, close: func(context.Context) error {
				time.AfterFunc(time.Second, func() { _ = r.Close(context.Background()) })
				return nil
			}}
		}),
	},
	{
		conformance.CloseReturnsByItsContext, "ignores the context of Close", "H06",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, close: func(ctx context.Context) error { return r.Close(context.WithoutCancel(ctx)) }}
		}),
	},
	{
		conformance.CloseReturnsByItsContext, "returns nil although a session was not closed", "H06",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, close: func(ctx context.Context) error {
				_ = r.Close(ctx)
				return nil
			}}
		}),
	},
	{
		conformance.CloseEndsGoroutines, "leaves a goroutine behind", "H01",
		func(_ testing.TB, s *conformance.Store) {
			connect := s.Connect
			s.Connect = func(t testing.TB, machine string) registry.Registry {
				end := make(chan struct{})
				t.Cleanup(func() { close(end) })
				go func() { <-end }()
				return connect(t, machine)
			}
		},
	},
	{
		conformance.NothingRunsBeforeOpen, "starts a goroutine before a handle is opened", "H03",
		func(t testing.TB, _ *conformance.Store) {
			early := memory.New().Client("early")
			w, err := early.Watch(context.Background(), "d", registry.WatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = early.Close(context.Background()) })
			_, _ = w.Next(context.Background())
			go func() { _, _ = w.Next(context.Background()) }()
			time.Sleep(time.Millisecond) // until it blocks
		},
	},
	{
		conformance.CloseClosesSessions, "leaves sessions open whose opening overlaps Close", "H08",
		closeWhatIsOpen(func(r, other registry.Registry, opened func(end func())) *broken {
			return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
				x, err := other.OpenSession(ctx, o)
				if err == nil {
					opened(func() { _ = x.Close(context.Background()) })
				}
				return x, err
			}}
		}),
	},
	{
		conformance.CloseEndsPendingCalls, "leaves watchers open whose opening overlaps Close", "H08",
		closeWhatIsOpen(func(r, other registry.Registry, opened func(end func())) *broken {
			return &broken{Registry: r, watch: func(ctx context.Context, dir registry.Key) (registry.Watcher, error) {
				w, err := other.Watch(ctx, dir, registry.WatchOptions{})
				if err == nil {
					opened(func() { _ = w.Close() })
				}
				return w, err
			}}
		}),
	},
	{
		conformance.OutcomesAreTrue, "reports a transaction that Close ended as not applied", "H08",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrClosed) {
				err = fmt.Errorf("%w: %w", registry.ErrNotApplied, registry.ErrClosed)
			}
			return rev, err
		}),
	},
}

// closeWhatIsOpen lets a saboteur open sessions or watchers by another handle. Close ends those
// whose opening has returned.
func closeWhatIsOpen(wrap func(r, other registry.Registry, opened func(end func())) *broken) func(testing.TB, *conformance.Store) {
	return func(_ testing.TB, s *conformance.Store) {
		connect := s.Connect
		s.Connect = func(t testing.TB, machine string) registry.Registry {
			r, other := connect(t, machine), connect(t, machine)
			t.Cleanup(func() { _ = other.Close(context.Background()) })
			var mu sync.Mutex
			var ends []func()
			b := wrap(r, other, func(end func()) {
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, end)
			})
			b.close = func(ctx context.Context) error {
				mu.Lock()
				all := ends
				mu.Unlock()
				for _, end := range all {
					end()
				}
				return r.Close(ctx)
			}
			return b
		}
	}
}
