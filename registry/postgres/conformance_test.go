package postgres_test

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/registry/postgres/internal/pgserver"
	"github.com/rota-dev/rota/registry/postgres/internal/postgresbackend"
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, remove := range removals {
		remove()
	}
	os.Exit(code)
}

var removals []func()

// sharedServer is the server of tests that do not disturb it.
var sharedServer = sync.OnceValues(func() (*pgserver.Server, error) {
	s, err := pgserver.Start()
	if err == nil {
		removals = append(removals, s.Remove)
	}
	return s, err
})

func startServer(t *testing.T, settings ...string) *pgserver.Server {
	s, err := pgserver.Start(settings...)
	require.NoError(t, err)
	t.Cleanup(s.Remove)
	return s
}

func TestConformance(t *testing.T) {
	conformance.Run(t, postgresbackend.New(postgresbackend.Config{Server: startServer(t)}))
}

var _ = fmt.Sprint
