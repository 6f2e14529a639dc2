// Package zookeeperbackend describes registry/zookeeper to the conformance suite: real
// servers, and for each machine a proxy before each of them that does to it what a
// network does.
package zookeeperbackend

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/registry/zookeeper"
)

// Config is what the suite runs on.
type Config struct {
	// Cluster is the suite's alone while it runs: it is stopped and started.
	Cluster *testserver.Cluster
	// Members is how many members the cluster has, for who only wants the description and
	// gives no Cluster.
	Members int
	// TTL is what sessions are granted that are waited for.
	TTL time.Duration
	// SuperPassword is that of the cluster's user super, if it has one. Each machine has
	// credentials of its own then, whose rights can be taken away.
	SuperPassword string
	// Quota tells that the servers enforce quotas.
	Quota bool
}

// QuotaLine makes a server enforce quotas, as a line of its configuration.
const QuotaLine = "enforceQuota=true"

// New describes the ZooKeeper registry on a cluster.
func New(c Config) conformance.Backend {
	return conformance.Backend{
		Name: c.name(),
		Open: func(t testing.TB) *conformance.Store { return newStore(t, c).faultControls() },
		TTL:  c.TTL,
		Packages: []string{
			reflect.TypeFor[zookeeper.Client]().PkgPath(), reflect.TypeFor[remote.Session]().PkgPath(),
			reflect.TypeFor[zk.Conn]().PkgPath(),
		},
		Lacks: c.lacks(),
	}
}

func (c Config) lacks() conformance.Lacks {
	l := conformance.Lacks{conformance.Compact: "keeps no history that could be forgotten"}
	if c.single() {
		for _, control := range []string{
			conformance.Isolate, conformance.HalfOpen, conformance.KillLeader,
			conformance.PauseLeader, conformance.RollingRestart, conformance.Replace,
		} {
			l[control] = "this cluster has one member only"
		}
	}
	if c.SuperPassword == "" {
		l[conformance.Revoke] = "this cluster has nobody who could take rights away"
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
