package testserver_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
)

func TestTLS(t *testing.T) {
	start := map[string]func(t *testing.T, o testserver.TLS) *testserver.Cluster{
		"etcd": func(t *testing.T, o testserver.TLS) *testserver.Cluster {
			return servertest.StartEtcd(t, testserver.EtcdOptions{TLS: o})
		},
		"ZooKeeper": func(t *testing.T, o testserver.TLS) *testserver.Cluster {
			return servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{TLS: o})
		},
	}
	for _, k := range kinds {
		t.Run(k.name+" presents a certificate", func(t *testing.T) {
			w := &world{t, start[k.name](t, testserver.ServerTLS), k.store}
			m := w.Members()[0]
			w.awaitWrite(m, "a")
			w.awaitKey(m, "a")

			config := w.TLS()
			config.Certificates = nil
			require.NoError(t, handshake(m, config))
			config.RootCAs = nil
			require.Error(t, handshake(m, config))
		})
		t.Run(k.name+" requires a certificate", func(t *testing.T) {
			w := &world{t, start[k.name](t, testserver.MutualTLS), k.store}
			m := w.Members()[0]
			w.awaitWrite(m, "a")

			config := w.TLS()
			require.NoError(t, handshake(m, config))
			config.Certificates = nil
			require.Error(t, handshake(m, config))
			require.NoError(t, m.Restart(t.Context()))
			w.awaitKey(m, "a")
		})
	}
}

// handshake connects and waits long enough for a refusal.
func handshake(m *testserver.Member, config *tls.Config) error {
	config.ServerName = "localhost"
	conn, err := tls.Dial("tcp", m.Addr(), config)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	if timeout, ok := err.(interface{ Timeout() bool }); ok && timeout.Timeout() {
		return nil // the server waits for a request
	}
	return err
}

func TestRootPassword(t *testing.T) {
	for _, members := range []int{1, 3} {
		c := servertest.StartEtcd(t, testserver.EtcdOptions{Members: members, RootPassword: "secret"})
		m := c.Members()[0]
		nobody, root := &world{t, c, etcdStore{}}, &world{t, c, etcdStore{password: "secret"}}
		nobody.expectRefused(m, "a")
		(&world{t, c, etcdStore{password: "wrong"}}).expectRefused(m, "a")
		root.awaitWrite(m, "a")
		require.NoError(t, m.Restart(t.Context()))
		nobody.expectRefused(m, "b")
		root.awaitKey(m, "a")
		if members > 1 {
			require.NoError(t, m.Replace(t.Context()))
			root.awaitKey(m, "a")
		}
		c.Stop()
	}
}

func TestSuperPassword(t *testing.T) {
	c := servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{SuperPassword: "secret"})
	m := c.Members()[0]
	(&world{t, c, zookeeperStore{acl: "digest:somebody:else"}}).awaitWrite(m, "a")
	_, err := zookeeperStore{}.get(t.Context(), c, m, "a")
	require.Equal(t, zkError(-102), err) // no authority
	_, err = zookeeperStore{super: "wrong"}.get(t.Context(), c, m, "a")
	require.Error(t, err)
	(&world{t, c, zookeeperStore{super: "secret"}}).awaitKey(m, "a")
}

func TestQuotaBytes(t *testing.T) {
	c := servertest.StartEtcd(t, testserver.EtcdOptions{QuotaBytes: 1 << 20})
	m := c.Members()[0]
	big := strings.Repeat("x", 200<<10)
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		err = etcdStore{}.put(t.Context(), c, m, string(rune('a'+i)), big)
	}
	require.ErrorContains(t, err, "space exceeded")
	require.NoError(t, m.Restart(t.Context())) // which does not wait for room
}

func TestCompaction(t *testing.T) {
	c := servertest.StartEtcd(t, testserver.EtcdOptions{Compaction: time.Second})
	m := c.Members()[0]
	(&world{t, c, etcdStore{}}).awaitWrite(m, "a")
	// The revision of that is no longer there after the next ones.
	require.Eventually(t, func() bool {
		if (etcdStore{}).put(t.Context(), c, m, "b", "v") != nil {
			return false
		}
		err := etcdStore{}.call(t.Context(), c, m, "kv/range", map[string]any{"key": []byte("a"), "revision": 2}, nil)
		return err != nil && strings.Contains(err.Error(), "compacted")
	}, patience, 10*tick)
}

func TestDirectPeers_CannotBeIsolated(t *testing.T) {
	for _, c := range []*testserver.Cluster{
		servertest.StartEtcd(t, testserver.EtcdOptions{Members: 3, DirectPeers: true}),
		servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, DirectPeers: true}),
	} {
		leader, err := c.Leader(t.Context())
		require.NoError(t, err)
		require.Panics(t, func() { leader.Isolate() })
		c.Stop()
	}
}
