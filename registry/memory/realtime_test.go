package memory_test

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/memorybackend"
)

// TestConformanceInRealTime runs the suite in real time, as it runs on servers, so that no
// case depends on the exact times of a bubble.
func TestConformanceInRealTime(t *testing.T) {
	b := memorybackend.New()
	b.Bubble = false
	b.TTL = time.Second
	conformance.Run(t, b)
}
