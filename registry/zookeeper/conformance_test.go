package zookeeper_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/testserver"
	"github.com/rota-dev/rota/internal/testserver/servertest"
	"github.com/rota-dev/rota/internal/zookeeperbackend"
	"github.com/rota-dev/rota/registry"
)

// What sessions are granted in the suite. A restart, or an election among three, has to
// be over within two thirds of it.
const (
	singleTTL   = 3 * time.Second
	ensembleTTL = 4 * time.Second
)

func itself(r registry.Registry) registry.Registry { return r }

func TestConformance(t *testing.T) {
	conformance.Run(t, zookeeperbackend.New(servertest.ZooKeeper(t), singleTTL, itself))
}

func TestConformanceOfThreeMembers(t *testing.T) {
	cluster := servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3})
	conformance.Run(t, zookeeperbackend.New(cluster, ensembleTTL, itself))
}

// TestConformanceBelowDirectory runs the suite on registry.Prefix, which has to be as good
// a registry as the one it is a part of.
func TestConformanceBelowDirectory(t *testing.T) {
	const dir = "some/dir"
	b := zookeeperbackend.New(servertest.ZooKeeper(t), singleTTL, func(r registry.Registry) registry.Registry {
		return below{registry.Prefix(r, dir), r}
	})
	b.Below = dir
	conformance.Run(t, b)
}

// below is a Prefix that closes what it is a part of.
type below struct {
	registry.Registry
	whole registry.Registry
}

func (b below) Close(ctx context.Context) error {
	return errors.Join(b.Registry.Close(ctx), b.whole.Close(ctx))
}
