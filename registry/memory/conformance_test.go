package memory_test

import (
	"testing"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/memorybackend"
	"github.com/rota-dev/rota/registry"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, memorybackend.New(func(r registry.Registry) registry.Registry { return r }))
}
