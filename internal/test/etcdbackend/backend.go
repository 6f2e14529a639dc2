// Package etcdbackend describes registry/etcd to the conformance suite, for its own test
// and for the tests of packages built on it.
package etcdbackend

import (
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/registry/backend"
	"github.com/rota-dev/rota/registry/etcd"
)

// Config describes the cluster that the suite runs on.
type Config struct {
	// Cluster is used by the suite alone: it is stopped and restarted.
	Cluster *testserver.Cluster
	// Members is the number of members, for a description without a Cluster.
	Members int
	// RootPassword is the password of the cluster's user root, if it requires credentials.
	// Each machine then has a user of its own, whose permissions can be removed.
	RootPassword string
}

// New returns the description of the etcd registry on a cluster.
func New(c Config) conformance.Backend {
	return conformance.Backend{
		Name: c.name(),
		Open: func(t testing.TB) *conformance.Store { return newStore(t, c).faultControls() },
		TTL:  c.ttl(),
		Packages: []string{
			reflect.TypeFor[etcd.Client]().PkgPath(), reflect.TypeFor[backend.Session]().PkgPath(),
			"go.etcd.io/etcd/client/v3", "google.golang.org/grpc",
		},
		Lacks: c.lacks(),
	}
}

// ttl exceeds the 1 s that servers would grant: on a busy machine scheduling delays take
// too much of it, and more so with several members.
func (c Config) ttl() time.Duration {
	if c.single() {
		return 2 * time.Second
	}
	return 3 * time.Second
}

func (c Config) lacks() conformance.Lacks {
	l := conformance.Lacks{
		conformance.StepClock: "its servers use the clock of this machine",
		conformance.Lag:       "its members answer plain reads from their own state, whose delay no test controls",
	}
	if c.single() {
		maps.Copy(l, conformance.SingleServer("this cluster has one member"))
	}
	if c.RootPassword == "" {
		l[conformance.Revoke] = "this cluster requires no credentials"
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
