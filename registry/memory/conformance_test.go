package memory_test

import (
	"flag"
	"testing"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/internal/test/memorybackend"
)

var (
	seed  = flag.Uint64("conformance.seed", 0, "first `seed` of the histories under random faults")
	seeds = flag.Int("conformance.seeds", long.Pick(0, 2000), "`number` of seeds that case C06 runs; 0: the suite's default")
)

// TestConformance runs the suite. A long run of random histories is started by
//
//	go test ./registry/memory -run 'TestConformance$/Histories/C06' -conformance.seed 1000 -conformance.seeds 100000
func TestConformance(t *testing.T) {
	b := memorybackend.New()
	b.Seed, b.Seeds = *seed, *seeds
	conformance.Run(t, b)
}

// TestConformanceBelowDirectory runs the suite on registry.Prefix.
func TestConformanceBelowDirectory(t *testing.T) {
	b := memorybackend.New()
	b.Below = "some/dir"
	b.Seeds = 20
	conformance.Run(t, b)
}
