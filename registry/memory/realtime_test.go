package memory_test

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/memorybackend"
	"github.com/rota-dev/rota/registry"
)

// TestConformanceInRealTime runs the suite as it is run on servers, where no case can
// lean on the exactness of virtual time.
func TestConformanceInRealTime(t *testing.T) {
	b := memorybackend.New(func(r registry.Registry) registry.Registry { return r })
	b.Bubble = false
	b.TTL = time.Second
	conformance.Run(t, b)
}
