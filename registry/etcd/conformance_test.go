package etcd_test

import (
	"testing"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/etcdbackend"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
)

// The modes run side by side, since they mostly wait, each on servers of its own.

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, etcdbackend.New(etcdbackend.Config{Cluster: servertest.StartEtcd(t, testserver.EtcdOptions{})}))
}

// TestConformanceOfMembers runs the suite on three members that require credentials.
func TestConformanceOfMembers(t *testing.T) {
	t.Parallel()
	const password = "of the tests"
	cluster := servertest.StartEtcd(t, testserver.EtcdOptions{
		Members: 3, RootPassword: password,
		Flags: []string{"--bcrypt-cost", "4"}, // the cheapest password check
	})
	conformance.Run(t, etcdbackend.New(etcdbackend.Config{Cluster: cluster, RootPassword: password}))
}

// TestConformanceBelowDirectory runs the suite on registry.Prefix.
func TestConformanceBelowDirectory(t *testing.T) {
	t.Parallel()
	b := etcdbackend.New(etcdbackend.Config{Cluster: servertest.StartEtcd(t, testserver.EtcdOptions{})})
	b.Below = "some/dir"
	conformance.Run(t, b)
}
