package zookeeper_test

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
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
		Members: members, SuperPassword: superPassword, Lines: []string{zookeeperbackend.QuotaLine},
	})
}

// The modes run side by side, since they mostly wait, each on servers of its own.

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, zookeeperbackend.New(zookeeperbackend.Config{
		Cluster: startCluster(t, 1), TTL: singleTTL, SuperPassword: superPassword, Quota: true,
	}))
}

func TestConformanceOfThreeMembers(t *testing.T) {
	t.Parallel()
	conformance.Run(t, zookeeperbackend.New(zookeeperbackend.Config{
		Cluster: startCluster(t, 3), TTL: ensembleTTL, SuperPassword: superPassword, Quota: true,
	}))
}

// TestConformanceBelowDirectory runs the suite on registry.Prefix.
func TestConformanceBelowDirectory(t *testing.T) {
	t.Parallel()
	b := zookeeperbackend.New(zookeeperbackend.Config{
		Cluster: startCluster(t, 1), TTL: singleTTL, SuperPassword: superPassword, Quota: true,
	})
	b.Below = "some/dir"
	conformance.Run(t, b)
}
