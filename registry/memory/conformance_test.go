package memory_test

import (
	"context"
	"errors"
	"flag"
	"testing"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/memorybackend"
	"github.com/rota-dev/rota/registry"
)

var (
	seed  = flag.Uint64("conformance.seed", 0, "the first `seed` of histories under random faults")
	seeds = flag.Int("conformance.seeds", 0, "how `many` seeds case C06 goes through")
)

// TestConformance runs the suite. Histories without end are had by
//
//	go test ./registry/memory -run 'TestConformance$/Histories/C06' -conformance.seed 1000 -conformance.seeds 100000
func TestConformance(t *testing.T) {
	b := memorybackend.New(func(r registry.Registry) registry.Registry { return r })
	b.Seed, b.Seeds = *seed, *seeds
	conformance.Run(t, b)
}

// TestConformanceBelowDirectory runs the suite on registry.Prefix, which has to be as good
// a registry as the one it is a part of.
func TestConformanceBelowDirectory(t *testing.T) {
	const dir = "some/dir"
	b := memorybackend.New(func(r registry.Registry) registry.Registry {
		return below{registry.Prefix(r, dir), r}
	})
	b.Below = dir
	b.Seeds = 20
	conformance.Run(t, b)
}

// below is a Prefix that closes what it is a part of.
type below struct {
	registry.Registry
	whole registry.Registry
}

func (b below) Close(ctx context.Context) error {
	return errors.Join(b.Registry.Close(ctx), b.whole.Close(ctx))
}
