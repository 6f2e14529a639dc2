package conformance_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
)

var delaySaboteurs = []saboteur{
	{
		conformance.TxnIsSentOnce, "sends a transaction again a second after its outcome became unknown", "F24",
		replaceTxn(resendAfter(time.Second)),
	},
	{
		conformance.TxnIsSentOnce, "sends a transaction again 20 ms after its outcome became unknown", "F24",
		replaceTxn(resendAfter(20 * time.Millisecond)),
	},
	{
		conformance.LostBeforeTheStoreActs, "counts the TTL from the receipt of an answer", "F25",
		func(_ testing.TB, s *conformance.Store) {
			var late sync.Map // by machine
			delay := s.Delay
			s.Delay = func(machine string, d time.Duration) func() {
				late.Store(machine, d)
				return delay(machine, d)
			}
			wrapSessions(s, func(machine string, x registry.Session) registry.Session {
				return lossByReceipt(x, func() time.Duration {
					d, _ := late.Load(machine)
					by, _ := d.(time.Duration)
					return by
				})
			})
		},
	},
	{
		conformance.SafeUntilIsKept, "counts the safe-until of a new session from the receipt of the answer", "F26",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
				began := time.Now()
				x, err := r.OpenSession(ctx, o)
				if err != nil {
					return nil, err
				}
				took := time.Since(began)
				return &brokenSession{Session: x, state: func() (registry.SessionState, time.Time) {
					st, until := x.State()
					return st, until.Add(took)
				}}, nil
			}}
		}),
	},
	{
		conformance.SessionsAreRenewed, "begins to renew a session half a TTL after the answer", "F26",
		func(_ testing.TB, s *conformance.Store) {
			connect := s.Connect
			s.Connect = func(t testing.TB, machine string) registry.Registry {
				r := connect(t, machine)
				return &broken{Registry: r, session: func(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
					feed := s.Starve(machine)
					x, err := r.OpenSession(ctx, o)
					if err != nil {
						feed()
						return nil, err
					}
					time.AfterFunc(x.TTL()/2, feed)
					return x, nil
				}}
			}
		},
	},
	{
		conformance.CallsEndWithTheirContext, "stops for a minute when twelve calls are in flight", "F27",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			var inFlight atomic.Int64
			return &broken{Registry: r, get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
				defer inFlight.Add(-1)
				if inFlight.Add(1) > 12 {
					time.Sleep(time.Minute)
				}
				return r.Get(ctx, key, o)
			}}
		}),
	},
	{
		conformance.ManyGoroutines, "gives the reply of one call to another when many are in flight", "F27",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			var inFlight atomic.Int64
			return &broken{Registry: r, get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
				defer inFlight.Add(-1)
				if inFlight.Add(1) > 3 {
					key = "load/k00"
				}
				return r.Get(ctx, key, o)
			}}
		}),
	},
	{
		conformance.OutcomesAreTrue, "reports a transaction that Close ended as closed, and nothing more", "H04",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrClosed) {
				err = registry.ErrClosed
			}
			return rev, err
		}),
	},
	{
		conformance.CloseEndsGoroutines, "leaves a goroutine behind when Close does not reach the store", "H06",
		wrapEachHandle(func(r registry.Registry) registry.Registry {
			return &broken{Registry: r, close: func(ctx context.Context) error {
				err := r.Close(ctx)
				if err != nil {
					go func() { time.Sleep(time.Minute) }()
				}
				return err
			}}
		}),
	},
}

// resendAfter sends a transaction with an unknown outcome again after d.
func resendAfter(d time.Duration) func(registry.Registry, context.Context, registry.Txn) (registry.Rev, error) {
	return func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
		t.ID = t.ID.OrNew()
		rev, err := r.Txn(ctx, t)
		if errors.Is(err, registry.ErrUnknownOutcome) {
			time.AfterFunc(d, func() { _, _ = r.Txn(context.Background(), t) })
		}
		return rev, err
	}
}

// lossByReceipt reports the loss of a session, and its safe-until, later by the time that the
// last answer was under way.
func lossByReceipt(s registry.Session, late func() time.Duration) registry.Session {
	lost := make(chan struct{})
	go func() {
		<-s.Lost()
		by := late()
		if !errors.Is(s.Err(), registry.ErrSessionLost) {
			by = 0
		}
		time.AfterFunc(by, func() { close(lost) })
	}()
	return &brokenSession{
		Session: s,
		lost:    func() <-chan struct{} { return lost },
		state: func() (registry.SessionState, time.Time) {
			st, until := s.State()
			select {
			case <-lost:
			default:
				if st == registry.SessionLost {
					st = registry.SessionSuspended
				}
			}
			return st, until.Add(late())
		},
	}
}
