package zookeeper_test

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/fullstore"
	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/internal/test/zookeeperbackend"
)

// The session TTLs in the suite. A restart, or an election among three members, has to take
// less than two thirds of them.
const (
	singleTTL   = 3 * time.Second
	ensembleTTL = 4 * time.Second
)

// superPassword belongs to the user who revokes rights in the suite.
const superPassword = "super secret"

func startCluster(t *testing.T, members int) *testserver.Cluster {
	return servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{
		Members: members, SuperPassword: superPassword, Lines: []string{fullstore.EnforceQuota},
	})
}

func TestConformance(t *testing.T) {
	conformance.Run(t, zookeeperbackend.New(zookeeperbackend.Config{
		Cluster: startCluster(t, 1), TTL: singleTTL, SuperPassword: superPassword, Quota: true,
	}))
}

// TestConformanceOfThreeMembers runs, by default, the cases that one member lacks, and those of reads, which may reach a member that
// is behind.
func TestConformanceOfThreeMembers(t *testing.T) {
	b := zookeeperbackend.New(zookeeperbackend.Config{
		Cluster: startCluster(t, 3), TTL: ensembleTTL, SuperPassword: superPassword, Quota: true,
	})
	one := zookeeperbackend.New(zookeeperbackend.Config{Members: 1, SuperPassword: superPassword, Quota: true})
	b.Which = long.Pick(func(c conformance.Case) bool { return one.Lacking(c) || c.Group == "Reads" }, nil)
	conformance.Run(t, b)
}

// TestConformanceBelowDirectory runs the suite on registry.Prefix: by default its shortest groups, since registry/memory runs all of
// them, and Prefix has no part for each backend.
func TestConformanceBelowDirectory(t *testing.T) {
	b := zookeeperbackend.New(zookeeperbackend.Config{
		Cluster: startCluster(t, 1), TTL: singleTTL, SuperPassword: superPassword, Quota: true,
	})
	b.Below = "some/dir"
	b.Which = long.Pick(func(c conformance.Case) bool { return c.Group == "Keys" || c.Group == "Transactions" }, nil)
	conformance.Run(t, b)
}
