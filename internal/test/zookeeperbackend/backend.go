// Package zookeeperbackend describes registry/zookeeper to the conformance suite. It uses
// real servers; each machine reaches each of them through a proxy of its own, which
// injects the faults.
package zookeeperbackend

import (
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/registry/backend"
	"github.com/rota-dev/rota/registry/zookeeper"
)

// Config describes the cluster that the suite runs on.
type Config struct {
	// Cluster is used by the suite alone: it is stopped and restarted.
	Cluster *testserver.Cluster
	// Members is the number of members, for a description without a Cluster.
	Members int
	// TTL is requested by cases that wait for a session to expire.
	TTL time.Duration
	// SuperPassword is the password of the cluster's user super, if it has one. Each machine
	// then has credentials of its own, whose permissions can be removed.
	SuperPassword string
	// Quota reports that the servers enforce quotas.
	Quota bool
}

// New returns the description of the ZooKeeper registry on a cluster.
func New(c Config) conformance.Backend {
	return conformance.Backend{
		Name: c.name(),
		Open: func(t testing.TB) *conformance.Store { return newStore(t, c).faultControls() },
		TTL:  c.TTL,
		Packages: []string{
			reflect.TypeFor[zookeeper.Client]().PkgPath(), reflect.TypeFor[backend.Session]().PkgPath(),
			reflect.TypeFor[zk.Conn]().PkgPath(),
		},
		Lacks: c.lacks(),
	}
}

func (c Config) lacks() conformance.Lacks {
	l := conformance.Lacks{
		conformance.Compact:   "keeps no history",
		conformance.StepClock: "its servers use the clock of this machine",
		conformance.Lag:       "its members answer plain reads from their own state, whose delay no test controls",
	}
	if c.single() {
		maps.Copy(l, conformance.SingleServer("this cluster has one member"))
	}
	if c.SuperPassword == "" {
		l[conformance.Revoke] = "this cluster has no user who may change permissions"
	}
	if !c.Quota {
		l[conformance.FillQuota] = "this cluster enforces no quota"
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
		return "ZooKeeper"
	}
	return fmt.Sprintf("ZooKeeper of %d", c.members())
}
