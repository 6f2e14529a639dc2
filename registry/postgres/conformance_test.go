package postgres_test

import (
	"context"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/long"
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

// removals remove the servers that tests share.
var removals []func()

// shared is the server of tests that do not disturb it.
var shared = sync.OnceValues(func() (*pgserver.Server, error) {
	s, err := pgserver.Start()
	if err == nil {
		removals = append(removals, s.Remove)
	}
	return s, err
})

func sharedServer(t *testing.T) *pgserver.Server {
	s, err := shared()
	require.NoError(t, err)
	return s
}

func startServer(t *testing.T, settings ...string) *pgserver.Server {
	s, err := pgserver.Start(settings...)
	require.NoError(t, err)
	t.Cleanup(s.Remove)
	return s
}

func startPooler(t *testing.T, s *pgserver.Server) *pgserver.Pooler {
	p, err := pgserver.StartPooler(s, 20)
	require.NoError(t, err)
	t.Cleanup(p.Remove)
	return p
}

// TestConformance runs the suite on a server that is killed with all its processes where it is restarted.
func TestConformance(t *testing.T) {
	conformance.Run(t, postgresbackend.New(postgresbackend.Config{Server: startServer(t)}))
}

// TestConformanceThroughAPooler runs the suite through pgbouncer in transaction mode: by default the groups that it may affect.
func TestConformanceThroughAPooler(t *testing.T) {
	s := startServer(t)
	b := postgresbackend.New(postgresbackend.Config{Server: s, Pooler: startPooler(t, s)})
	b.Which = long.Pick(func(c conformance.Case) bool { return slices.Contains([]string{"Transactions", "Faults"}, c.Group) }, nil)
	conformance.Run(t, b)
}

// TestConformanceWithoutNotifications runs the suite on handles that only ask for changes: by default the cases of watches.
func TestConformanceWithoutNotifications(t *testing.T) {
	b := postgresbackend.New(postgresbackend.Config{Server: sharedServer(t), PollOnly: true})
	b.Which = long.Pick(func(c conformance.Case) bool {
		return c.Group == "Watches" && !slices.Contains(c.Needs, conformance.Restart) && !slices.Contains(c.Needs, conformance.Stall)
	}, nil)
	conformance.Run(t, b)
}

// TestConformanceWithShutdowns runs the cases that restart the server with the two ways in which it is shut down.
func TestConformanceWithShutdowns(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"fast": syscall.SIGINT, "immediate": syscall.SIGQUIT} {
		t.Run(name, func(t *testing.T) {
			b := postgresbackend.New(postgresbackend.Config{Server: startServer(t), Restart: func(s *pgserver.Server) error {
				if err := s.Shutdown(signal); err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				return s.Continue(ctx)
			}})
			b.Which = func(c conformance.Case) bool {
				return slices.Contains(c.Needs, conformance.Restart) && (c.Group != "Histories" || long.Pick(false, true))
			}
			conformance.Run(t, b)
		})
	}
}
