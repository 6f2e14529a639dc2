package zookeeper_test

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/internal/test/zookeeperbackend"
)

// What sessions are granted in the suite. A restart, or an election among three, has to
// be over within two thirds of it.
const (
	singleTTL   = 3 * time.Second
	ensembleTTL = 4 * time.Second
)

// superPassword is that of the user who takes rights away in the suite.
const superPassword = "super secret"

func start(t *testing.T, members int) *testserver.Cluster {
	return servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{
		Members: members, SuperPassword: superPassword, Lines: []string{zookeeperbackend.QuotaLine},
	})
}

func TestConformance(t *testing.T) {
	conformance.Run(t, zookeeperbackend.New(zookeeperbackend.Config{
		Cluster: start(t, 1), TTL: singleTTL, SuperPassword: superPassword, Quota: true,
	}))
}

func TestConformanceOfThreeMembers(t *testing.T) {
	conformance.Run(t, zookeeperbackend.New(zookeeperbackend.Config{
		Cluster: start(t, 3), TTL: ensembleTTL, SuperPassword: superPassword, Quota: true,
	}))
}

// TestConformanceBelowDirectory runs the suite on registry.Prefix.
func TestConformanceBelowDirectory(t *testing.T) {
	b := zookeeperbackend.New(zookeeperbackend.Config{
		Cluster: start(t, 1), TTL: singleTTL, SuperPassword: superPassword, Quota: true,
	})
	b.Below = "some/dir"
	conformance.Run(t, b)
}
