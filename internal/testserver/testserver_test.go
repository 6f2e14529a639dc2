package testserver_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/testserver"
	"github.com/rota-dev/rota/internal/testserver/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// kinds are what every promise is tried on.
var kinds = []struct {
	name   string
	shared func(testing.TB) *testserver.Cluster
	start  func(t testing.TB, members int) *testserver.Cluster
}{
	{"etcd", servertest.Etcd, func(t testing.TB, members int) *testserver.Cluster {
		return servertest.StartEtcd(t, testserver.EtcdOptions{Members: members})
	}},
	{"ZooKeeper", servertest.ZooKeeper, func(t testing.TB, members int) *testserver.Cluster {
		return servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: members})
	}},
}

func TestSingle(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			c := k.start(t, 1)
			m := c.Members()[0]
			leader, err := c.Leader(t.Context())
			require.NoError(t, err)
			require.Same(t, m, leader)

			addr, pid := m.Addr(), m.Pid()
			require.NoError(t, m.Restart(t.Context()))
			require.Equal(t, addr, m.Addr())
			require.NotEqual(t, pid, m.Pid())

			c.Stop()
			_, err = net.Dial("tcp", addr)
			require.Error(t, err)
		})
	}
}
