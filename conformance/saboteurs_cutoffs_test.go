package conformance_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
)

var cutOffSaboteurs = []saboteur{
	{
		conformance.PlainReadsNeverGoBack, "answers plain reads at an isolated member from an empty state", "F28",
		whileIsolated(func(r registry.Registry, isolated *atomic.Bool) *broken {
			return &broken{Registry: r, get: func(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
				if isolated.Load() && !o.Fresh {
					return registry.Entry{}, registry.ErrNotFound
				}
				return r.Get(ctx, key, o)
			}}
		}),
	},
	{
		conformance.ReadYourWrites, "lists at an isolated member what others have written", "F28",
		whileIsolated(func(r registry.Registry, isolated *atomic.Bool) *broken {
			return &broken{Registry: r, list: func(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
				l, err := r.List(ctx, dir, o)
				if isolated.Load() && !o.Fresh {
					l.Entries = slices.DeleteFunc(l.Entries, func(e registry.Entry) bool { return e.Key == "d/own" })
				}
				return l, err
			}}
		}),
	},
	{
		conformance.SessionsAreRenewed, "renews a session no more once a renewal went unanswered", "F29",
		func(_ testing.TB, s *conformance.Store) {
			starve := s.Starve
			s.Starve = func(machine string) func() {
				starve(machine)
				return func() {}
			}
		},
	},
	{
		conformance.OutcomesAreTrue, "reports a transaction without an answer as not applied", "F30",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			rev, err := r.Txn(ctx, t)
			if errors.Is(err, registry.ErrUnknownOutcome) {
				err = registry.ErrNotApplied
			}
			return rev, err
		}),
	},
	{
		conformance.TxnIsSentOnce, "sends a transaction again when its connection is back", "F30",
		replaceTxn(func(r registry.Registry, ctx context.Context, t registry.Txn) (registry.Rev, error) {
			t.ID = t.ID.OrNew()
			rev, err := r.Txn(ctx, t)
			if len(t.Then) > 0 && errors.Is(err, registry.ErrUnknownOutcome) {
				go func() {
					again := err
					for errors.Is(again, registry.ErrUnknownOutcome) {
						_, again = r.Txn(context.Background(), t)
					}
				}()
			}
			return rev, err
		}),
	},
	{
		conformance.LateTxnDoesNoHarm, "loses a transaction that was held up", "F07",
		func(_ testing.TB, s *conformance.Store) {
			s.HoldCommit = func(machine string) func() {
				s.LoseRequest(machine)
				return func() {}
			}
		},
	},
}

// whileIsolated lets a saboteur wrap each handle, with whether its machine is isolated.
func whileIsolated(wrap func(r registry.Registry, isolated *atomic.Bool) *broken) func(testing.TB, *conformance.Store) {
	return func(_ testing.TB, s *conformance.Store) {
		isolated := map[string]*atomic.Bool{}
		connect, isolate := s.Connect, s.Isolate
		s.Connect = func(t testing.TB, machine string) registry.Registry {
			isolated[machine] = &atomic.Bool{}
			return wrap(connect(t, machine), isolated[machine])
		}
		s.Isolate = func(machine string) func() {
			heal := isolate(machine)
			isolated[machine].Store(true)
			return func() {
				isolated[machine].Store(false)
				heal()
			}
		}
	}
}
