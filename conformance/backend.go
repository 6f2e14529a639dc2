package conformance

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Backend describes an implementation of registry.Registry to the suite.
type Backend struct {
	// Name heads the backend's column on the page that Page writes.
	Name string
	// Open returns a fresh and empty namespace. Each case calls it once, inside the case's
	// bubble if Bubble is set. It cleans up with t.Cleanup.
	Open func(t testing.TB) *Store
	// TTL is the session TTL requested by cases that wait for a session to expire. The
	// shortest TTL that the backend grants makes the suite fastest. Zero means
	// registry.DefaultSessionTTL.
	TTL time.Duration
	// Bubble runs each case in a testing/synctest bubble, in virtual time. The backend must
	// not use sockets or other processes.
	Bubble bool
	// Packages are the import paths of the backend and of the client library that it uses. A
	// goroutine whose stack contains one of them, or a package below it, belongs to the
	// backend; the suite checks that none runs before Open or after Close. So the test of a
	// backend is in an external test package. A path that no stack contains is not reported.
	Packages []string
	// Below, if not empty, is a directory. The suite then tests registry.Prefix of each
	// handle at this directory instead of the handle itself: a prefixed registry keeps the
	// whole contract, with less room in keys and transactions.
	Below registry.Key
	// Seed is the seed of the first recorded history, and of the sizes and durations that cases
	// draw between their boundary values; Seeds is how many histories case C06
	// records. Zero means 1, and a small number.
	Seed  uint64
	Seeds int
	// Which selects the cases to run, for a second run of a backend in another mode. Nil selects all.
	Which func(Case) bool
	// Lacks declares the fault controls that Open does not provide and the cases that are
	// not to run, each with the reason.
	Lacks Lacks
}

// Lacks maps names of fault controls and codes of cases to the reason why a backend does
// without them.
type Lacks map[string]string

// Lacking reports whether the backend cannot run a case.
func (b Backend) Lacking(c Case) bool { return c.lackReason(b) != "" }

// SingleServer returns the declaration of a store of one server, which has none of the controls
// that need several members. reason is, for example, "is one server without standbys". Add other
// lacks to the map.
func SingleServer(reason string) Lacks {
	l := Lacks{}
	for _, control := range memberControls {
		l[control] = reason
	}
	return l
}

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
