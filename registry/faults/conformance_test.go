package faults_test

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/memorybackend"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/faults"
)

// wrapped describes the memory registry with each handle wrapped by an Injector with rules.
// change, if not nil, replaces the fault controls of a Store.
func wrapped(change func(*conformance.Store, *faults.Injector), rules ...faults.Rule) conformance.Backend {
	b := memorybackend.New()
	open := b.Open
	b.Packages = append(b.Packages, reflect.TypeFor[faults.Injector]().PkgPath())
	b.Seeds = 5
	b.Open = func(t testing.TB) *conformance.Store {
		s := open(t)
		in := faults.New(1, rules...)
		connect := s.Connect
		s.Connect = func(t testing.TB, machine string) registry.Registry { return in.Wrap(machine, connect(t, machine)) }
		if change != nil {
			change(s, in)
		}
		return s
	}
	return b
}

func TestConformance_WithoutFaults(t *testing.T) { conformance.Run(t, wrapped(nil)) }

// TestConformance_UnderFaults runs the suite under faults that no correct client can tell from a
// slow store or a reader that lags. Some reads have to be answered by the store: cases wait until
// they see a change of another handle.
func TestConformance_UnderFaults(t *testing.T) {
	conformance.Run(t, wrapped(nil,
		faults.Rule{Fault: faults.Stale, Chance: 0.5},
		faults.Rule{Fault: faults.DelayRequest, Chance: 0.2, UpTo: time.Millisecond},
		faults.Rule{Fault: faults.DelayReply, Chance: 0.2, UpTo: time.Millisecond}))
}

// TestConformance_AsControls has an Injector provide the fault controls of the suite: the contract
// allows the effect of each fault on calls, sessions and watchers.
func TestConformance_AsControls(t *testing.T) { conformance.Run(t, wrapped(injectFaults)) }

func injectFaults(s *conformance.Store, in *faults.Injector) {
	add := func(rules ...faults.Rule) (end func()) {
		var all []*faults.Control
		for _, r := range rules {
			all = append(all, in.Add(r))
		}
		return sync.OnceFunc(func() {
			for _, c := range all {
				c.End()
			}
		})
	}
	s.LoseReply = func(machine string) {
		in.Add(faults.Rule{Fault: faults.LoseReply, Client: machine, Ops: faults.Txn, Times: 1})
	}
	s.LoseRequest = func(machine string) {
		in.Add(faults.Rule{Fault: faults.LoseRequest, Client: machine, Ops: faults.Txn, Times: 1})
	}
	s.HoldCommit = func(machine string) (release func()) {
		return add(faults.Rule{Fault: faults.Hold, Client: machine, Times: 1})
	}
	s.Delay = func(machine string, d time.Duration) (restore func()) {
		if d == 0 {
			return func() {}
		}
		return add(faults.Rule{Fault: faults.DelayReply, Client: machine, For: d})
	}
	s.Starve = func(machine string) (feed func()) {
		return add(faults.Rule{Fault: faults.Cut, Client: machine, Ops: faults.Renewals})
	}
	s.Partition = func(machine string, c conformance.Cut) (heal func()) {
		switch c {
		case conformance.Refuse, conformance.Blackhole:
			return add(faults.Rule{Fault: faults.Cut, Client: machine})
		case conformance.ToStore:
			return add(faults.Rule{Fault: faults.Cut, Client: machine, Ops: faults.Calls | faults.Renewals})
		case conformance.FromStore:
			return add(faults.Rule{Fault: faults.CutReplies, Client: machine})
		}
		panic(fmt.Sprintf("unknown cut %v", c))
	}
}

// bypass is a wrapped handle of which some methods are those of the inner handle, like a wrapper that
// forgets a part of the contract.
type bypass struct {
	registry.Registry
	txn     func(context.Context, registry.Txn) (registry.Rev, error)
	session func(context.Context, registry.SessionOptions) (registry.Session, error)
}

func (b *bypass) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	if b.txn == nil {
		return b.Registry.Txn(ctx, t)
	}
	return b.txn(ctx, t)
}

func (b *bypass) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	if b.session == nil {
		return b.Registry.OpenSession(ctx, o)
	}
	return b.session(ctx, o)
}

// TestConformance_NoticesDefects shows that the suite would notice a wrapper that breaks the
// contract, and a fault that it does not allow.
func TestConformance_NoticesDefects(t *testing.T) {
	none := faults.Rule{Fault: faults.Cut, Client: "none"}
	for _, defect := range []struct {
		name, code string
		rule       faults.Rule
		change     func(inner registry.Registry, b *bypass)
	}{
		{"sessions do not notice that they are not renewed", "F18", none, func(inner registry.Registry, b *bypass) { b.session = inner.OpenSession }},
		{"replies to transactions are not lost", "F06", none, func(inner registry.Registry, b *bypass) { b.txn = inner.Txn }},
		{"each read fails", "K01", faults.Rule{Fault: faults.LoseReply, Ops: faults.Get}, func(registry.Registry, *bypass) {}},
		{"no session is renewed", "S03", faults.Rule{Fault: faults.Cut, Ops: faults.Renewals}, func(registry.Registry, *bypass) {}},
	} {
		t.Run(defect.name, func(t *testing.T) {
			b := memorybackend.New()
			open := b.Open
			b.Open = func(t testing.TB) *conformance.Store {
				s, in := open(t), faults.New(1, defect.rule)
				connect := s.Connect
				s.Connect = func(t testing.TB, machine string) registry.Registry {
					inner := connect(t, machine)
					b := &bypass{Registry: in.Wrap(machine, inner)}
					defect.change(inner, b)
					return b
				}
				injectFaults(s, in)
				return s
			}
			if complaints := conformance.Try(t, b, defect.code); len(complaints) == 0 {
				t.Errorf("%s passes", defect.code)
			}
		})
	}
}
