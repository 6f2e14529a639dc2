package mapstore_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/examples/mapstore"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// description describes the backend to the suite. Bubble is set because this store is plain Go:
// with a server, the suite runs in real time.
func description() conformance.Backend {
	return conformance.Backend{
		Name:     "mapstore",
		Open:     openStore,
		TTL:      2 * time.Second,
		Bubble:   true,
		Packages: []string{reflect.TypeFor[mapstore.Client]().PkgPath(), reflect.TypeFor[backend.Handle]().PkgPath()},
	}
}

// openStore returns an empty store with the one fault control that needs no proxy.
func openStore(testing.TB) *conformance.Store {
	s := mapstore.NewStore()
	return &conformance.Store{
		Connect: func(testing.TB, string) registry.Registry { return mapstore.Open(s) },
		Expire:  s.Expire,
	}
}

// TestCasesWithoutFaults runs the cases that need no further fault control. The test of a
// finished backend is conformance.Run(t, description()), which fails as long as a control is
// missing that a safety case needs.
func TestCasesWithoutFaults(t *testing.T) {
	ran := map[string]int{}
	for _, c := range conformance.Cases() {
		if slices.ContainsFunc(c.Needs, func(control string) bool { return control != conformance.Expire }) {
			continue
		}
		ran[c.Group]++
		t.Run(c.Group+"/"+c.Title(), func(t *testing.T) {
			for _, complaint := range conformance.Try(t, description(), c.Code) {
				t.Error(complaint)
			}
		})
	}
	t.Logf("cases: %v", ran)
}
