// Package etcdbackend describes registry/etcd to the conformance suite, for its own test
// and for the tests of what is built on it.
package etcdbackend

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/registry/etcd"
)

// Config is what the suite runs on.
type Config struct {
	// Cluster is the suite's alone while it runs: it is stopped and started.
	Cluster *testserver.Cluster
	// Members is how many members the cluster has, for who only wants the description and
	// gives no Cluster.
	Members int
	// RootPassword is that of the cluster, if it asks for credentials. Each machine has a
	// user of its own then, the rights of which can be taken away.
	RootPassword string
}

// New describes the etcd registry on a cluster.
func New(c Config) conformance.Backend {
	return conformance.Backend{
		Name: c.name(),
		Open: func(t testing.TB) *conformance.Store { return newStore(t, c).faultControls() },
		TTL:  c.ttl(),
		Packages: []string{
			reflect.TypeFor[etcd.Client]().PkgPath(), reflect.TypeFor[remote.Session]().PkgPath(),
			"go.etcd.io/etcd/client/v3", "google.golang.org/grpc",
		},
		Lacks: c.lacks(),
	}
}

// ttl is more than the 1 s that the servers would grant, of which a busy machine takes too
// much; members, which share it, take more.
func (c Config) ttl() time.Duration {
	if c.single() {
		return 2 * time.Second
	}
	return 3 * time.Second
}

func (c Config) lacks() conformance.Lacks {
	l := conformance.Lacks{}
	if c.single() {
		for _, control := range []string{
			conformance.HalfOpen, conformance.KillLeader, conformance.PauseLeader,
			conformance.RollingRestart, conformance.Isolate, conformance.Replace,
		} {
			l[control] = "this cluster has one member only"
		}
	}
	if c.RootPassword == "" {
		l[conformance.Revoke] = "this cluster asks for no credentials"
	}
	return l
}

func (c Config) single() bool { return c.members() == 1 }

func (c Config) members() int {
	if c.Cluster == nil {
		return c.Members
	}
	return len(c.Cluster.Members())
}

func (c Config) name() string {
	if c.single() {
		return "etcd"
	}
	return fmt.Sprintf("etcd of %d", c.members())
}
