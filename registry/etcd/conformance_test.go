package etcd_test

import (
	"testing"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/etcdbackend"
	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, etcdbackend.New(etcdbackend.Config{Cluster: servertest.Etcd(t)}))
}

// TestConformanceOfMembers runs the suite on three members that require credentials: by default the cases that one member lacks, and
// those of reads, which may reach a member that is behind.
func TestConformanceOfMembers(t *testing.T) {
	const password = "of the tests"
	cluster := servertest.StartEtcd(t, testserver.EtcdOptions{
		Members: 3, RootPassword: password,
		Flags: []string{"--bcrypt-cost", "4"}, // the cheapest password check
	})
	b := etcdbackend.New(etcdbackend.Config{Cluster: cluster, RootPassword: password})
	one := etcdbackend.New(etcdbackend.Config{Members: 1})
	b.Which = long.Pick(func(c conformance.Case) bool { return one.Lacking(c) || c.Group == "Reads" }, nil)
	conformance.Run(t, b)
}

// TestConformanceBelowDirectory runs the suite on registry.Prefix: by default its shortest groups, since registry/memory runs all of
// them, and Prefix has no part for each backend.
func TestConformanceBelowDirectory(t *testing.T) {
	b := etcdbackend.New(etcdbackend.Config{Cluster: servertest.Etcd(t)})
	b.Below = "some/dir"
	b.Which = long.Pick(func(c conformance.Case) bool { return c.Group == "Keys" || c.Group == "Transactions" }, nil)
	conformance.Run(t, b)
}
