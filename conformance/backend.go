package conformance

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Backend describes an implementation of the contract to the suite.
type Backend struct {
	// Name is what the backend is called on the page that Page writes.
	Name string
	// Open returns a fresh and empty namespace. It is called once for each case, inside
	// the case's bubble if there is one, and undoes what it did by t.Cleanup.
	Open func(t testing.TB) *Store
	// TTL is what cases ask for that wait for a session to end: the shortest that the
	// backend grants makes the suite quick. Zero means DefaultSessionTTL.
	TTL time.Duration
	// Bubble runs each case in a testing/synctest bubble, with virtual time. It needs a
	// backend without sockets, and processes, of its own.
	Bubble bool
	// Packages are the import paths whose goroutines are the backend's: its own, and those
	// of the client library below it. None may run before Open and after Close.
	Packages []string
	// Below, if there is one, is a directory below which the suite looks at registry.Prefix
	// of each handle, instead of the handle: it has to be as good a registry as the one it
	// is a part of. There is less room for keys and in transactions.
	Below registry.Key
	// Seed is the first seed of the histories that are recorded under random faults, and
	// Seeds how many of them case C06 records. Zero means 1, and a few.
	Seed  uint64
	Seeds int
	// Lacks names the levers that Open does not give and the cases that are not to be
	// run, with the reason for each.
	Lacks Lacks
}

// Lacks maps levers and codes of cases to the reason why a backend does without.
type Lacks map[string]string

func (b Backend) ttl() time.Duration {
	if b.TTL == 0 {
		return registry.DefaultSessionTTL
	}
	return b.TTL
}

func (b Backend) seed() uint64 { return max(b.Seed, 1) }

func (b Backend) seeds() int {
	switch {
	case b.Seeds > 0:
		return b.Seeds
	case b.Bubble:
		return 100
	}
	return 2
}
