// Package memorybackend describes registry/memory to the conformance suite, for its own
// test and for the tests of the suite.
package memorybackend

import (
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// New returns the description of the memory registry.
func New() conformance.Backend {
	return conformance.Backend{
		Name:     "memory",
		Open:     func(testing.TB) *conformance.Store { return openStore() },
		TTL:      10 * time.Second,
		Bubble:   true,
		Packages: []string{reflect.TypeFor[memory.Server]().PkgPath()},
		Lacks: conformance.Lacks{
			conformance.Compact:        "keeps no history",
			conformance.HalfOpen:       oneMember,
			conformance.KillLeader:     oneMember,
			conformance.PauseLeader:    oneMember,
			conformance.RollingRestart: oneMember,
			conformance.Replace:        oneMember,
			conformance.Move:           "is in the client's process and has no address",
		},
	}
}

const oneMember = "has one member"

func openStore() *conformance.Store {
	s := memory.New()
	return &conformance.Store{
		Connect: func(_ testing.TB, machine string) registry.Registry { return s.Client(machine) },
		Expire:  s.ExpireSession,
		Partition: func(machine string, c conformance.Cut) (heal func()) {
			switch c {
			case conformance.Refuse:
				return s.Partition(machine)
			case conformance.ToStore:
				return s.PartitionOneWay(machine, memory.Requests)
			case conformance.FromStore:
				return s.PartitionOneWay(machine, memory.Replies)
			}
			healRequests := s.PartitionOneWay(machine, memory.Requests)
			healReplies := s.PartitionOneWay(machine, memory.Replies)
			return func() {
				healRequests()
				healReplies()
			}
		},
		LoseReply:   func(machine string) { s.LoseReply(machine, 1) },
		LoseRequest: func(machine string) { s.LoseRequest(machine, 1) },
		HoldCommit:  s.HoldCommit,
		Delay: func(machine string, d time.Duration) (restore func()) {
			s.Delay(machine, 0, d)
			return sync.OnceFunc(func() { s.Delay(machine, 0, 0) })
		},
		Stall:     s.Pause,
		Restart:   s.Restart,
		Starve:    s.Starve,
		StepClock: s.StepClock,
		Isolate:   s.Isolate,
		Lag:       s.Lag,
		FillQuota: s.Fill,
		Revoke:    s.Revoke,
	}
}
