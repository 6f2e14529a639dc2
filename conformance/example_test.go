package conformance_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// backend describes the backend under test. A new backend declares the fault controls that
// are not written yet; Run reports them until no safety case is lacking.
func backend() conformance.Backend {
	return conformance.Backend{
		Name:     "memory",
		Open:     openStore,
		TTL:      2 * time.Second,
		Bubble:   true, // this backend is plain Go: no sockets, no other processes
		Packages: []string{reflect.TypeFor[memory.Server]().PkgPath()},
		Lacks: conformance.Lacks{
			conformance.Compact: "keeps no history",
			conformance.Delay:   "not written yet",
			// and so on: each nil field of Store needs a reason
		},
	}
}

// openStore starts a server for one case. A backend with real servers would choose an empty
// namespace of a shared one, and clean up with t.Cleanup.
func openStore(testing.TB) *conformance.Store {
	server := memory.New()
	return &conformance.Store{
		Connect: func(_ testing.TB, machine string) registry.Registry {
			return server.Client(machine)
		},
		Expire: server.ExpireSession,
		Partition: func(machine string, c conformance.Cut) (heal func()) {
			switch c {
			case conformance.ToStore:
				return server.PartitionOneWay(machine, memory.Requests)
			case conformance.FromStore:
				return server.PartitionOneWay(machine, memory.Replies)
			}
			return server.Partition(machine)
		},
		LoseReply:   func(machine string) { server.LoseReply(machine, 1) },
		LoseRequest: func(machine string) { server.LoseRequest(machine, 1) },
		Restart:     server.Restart,
	}
}

// The body of ExampleRun is the body of TestConformance(t *testing.T) in the package of a
// backend.
func ExampleRun() {
	var t *testing.T
	conformance.Run(t, backend())
}
