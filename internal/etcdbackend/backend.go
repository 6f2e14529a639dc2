// Package etcdbackend describes registry/etcd to the conformance suite, for its own test
// and for the tests of what is built on it.
package etcdbackend

import (
	"reflect"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/driver"
	"github.com/rota-dev/rota/internal/testserver"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

// New describes the etcd registry on a cluster, each handle of which is passed through
// wrap. The cluster is the suite's alone while it runs: it is stopped and started.
func New(cluster *testserver.Cluster, wrap func(registry.Registry) registry.Registry) conformance.Backend {
	return conformance.Backend{
		Open: func(t testing.TB) *conformance.Store { return newStore(t, cluster, wrap).levers() },
		// The servers' elections would let it be 1 s, of which a busy machine takes too much.
		TTL: 2 * time.Second,
		Packages: []string{
			reflect.TypeFor[etcd.Client]().PkgPath(), reflect.TypeFor[driver.Session]().PkgPath(),
			"go.etcd.io/etcd/client/v3", "google.golang.org/grpc",
		},
		Lacks: lacks(cluster),
	}
}

func lacks(cluster *testserver.Cluster) conformance.Lacks {
	l := conformance.Lacks{
		conformance.Isolate: "not yet",
		conformance.Replace: "not yet",
		conformance.Revoke:  "not yet",
	}
	if len(cluster.Members()) < 3 {
		for _, lever := range []string{
			conformance.HalfOpen, conformance.KillLeader, conformance.PauseLeader,
			conformance.RollingRestart, conformance.Isolate, conformance.Replace,
		} {
			l[lever] = "has one member only"
		}
	}
	return l
}
