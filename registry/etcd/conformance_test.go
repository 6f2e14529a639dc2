package etcd_test

import (
	"context"
	"errors"
	"testing"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/etcdbackend"
	"github.com/rota-dev/rota/internal/testserver"
	"github.com/rota-dev/rota/internal/testserver/servertest"
	"github.com/rota-dev/rota/registry"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, etcdbackend.New(etcdbackend.Config{Cluster: servertest.Etcd(t)}))
}

// TestConformanceOfMembers runs the suite on three members that ask for credentials.
func TestConformanceOfMembers(t *testing.T) {
	const password = "of the tests"
	cluster := servertest.StartEtcd(t, testserver.EtcdOptions{
		Members: 3, RootPassword: password,
		Flags: []string{"--bcrypt-cost", "4"}, // the lowest: it is not what is tested
	})
	conformance.Run(t, etcdbackend.New(etcdbackend.Config{Cluster: cluster, RootPassword: password}))
}

// TestConformanceBelowDirectory runs the suite on registry.Prefix, which has to be as good
// a registry as the one it is a part of.
func TestConformanceBelowDirectory(t *testing.T) {
	const dir = "some/dir"
	b := etcdbackend.New(etcdbackend.Config{
		Cluster: servertest.Etcd(t),
		Wrap:    func(r registry.Registry) registry.Registry { return below{registry.Prefix(r, dir), r} },
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
