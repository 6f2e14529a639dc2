// Package servertest provides servers to tests. If a server cannot be started the test
// fails; no test is skipped.
package servertest

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/rota-dev/rota/internal/test/testserver"
)

// shared are the servers that the tests of one binary share. The first test that needs
// one starts it.
var shared struct {
	mu        sync.Mutex
	byMain    bool // Main runs the tests
	etcd      *testserver.Cluster
	zookeeper *testserver.Cluster
}

// Main runs the tests of a binary and stops their shared servers:
//
//	func TestMain(m *testing.M) { servertest.Main(m) }
func Main(m *testing.M) {
	shared.mu.Lock()
	shared.byMain = true
	shared.mu.Unlock()
	defer stopShared()
	m.Run()
}

func stopShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for _, c := range []*testserver.Cluster{shared.etcd, shared.zookeeper} {
		if c != nil {
			c.Stop()
		}
	}
}

// Etcd returns a single server that all tests of the binary share. Each test uses keys of
// its own and leaves the server running. The binary needs Main.
func Etcd(t testing.TB) *testserver.Cluster {
	t.Helper()
	return startShared(t, &shared.etcd, func(ctx context.Context) (*testserver.Cluster, error) {
		return testserver.Etcd(ctx, testserver.EtcdOptions{})
	})
}

// ZooKeeper is Etcd for ZooKeeper.
func ZooKeeper(t testing.TB) *testserver.Cluster {
	t.Helper()
	return startShared(t, &shared.zookeeper, func(ctx context.Context) (*testserver.Cluster, error) {
		return testserver.ZooKeeper(ctx, testserver.ZooKeeperOptions{})
	})
}

func startShared(t testing.TB, c **testserver.Cluster, start func(context.Context) (*testserver.Cluster, error)) *testserver.Cluster {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.byMain {
		t.Fatal("TestMain does not call servertest.Main, which stops the server")
	}
	if *c == nil {
		started, err := start(context.Background()) // it outlives t
		if err != nil {
			t.Fatal(err)
		}
		*c = started
	}
	return *c
}

// StartEtcd starts servers for t alone and stops them when t ends. If t fails, it logs
// the end of their output.
func StartEtcd(t testing.TB, o testserver.EtcdOptions) *testserver.Cluster {
	t.Helper()
	c, err := testserver.Etcd(context.Background(), o)
	return stopWithTest(t, c, err)
}

// StartZooKeeper is StartEtcd for ZooKeeper.
func StartZooKeeper(t testing.TB, o testserver.ZooKeeperOptions) *testserver.Cluster {
	t.Helper()
	c, err := testserver.ZooKeeper(context.Background(), o)
	return stopWithTest(t, c, err)
}

func stopWithTest(t testing.TB, c *testserver.Cluster, err error) *testserver.Cluster {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, m := range c.Members() {
				t.Logf("output of the server at %s ends with:\n%s", m.Addr(), lastLines(m.Output(), 20))
			}
		}
		c.Stop()
	})
	return c
}

// lastLines shortens the output, since go test prints it before the failures of subtests.
func lastLines(out []byte, n int) []byte {
	lines := bytes.SplitAfter(out, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], nil)
}
