package memory_test

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/memorybackend"
)

// TestConformanceInRealTime runs the suite as it is run on servers, where no case can
// lean on the exactness of virtual time.
func TestConformanceInRealTime(t *testing.T) {
	b := memorybackend.New()
	b.Bubble = false
	b.TTL = time.Second
	conformance.Run(t, b)
}
