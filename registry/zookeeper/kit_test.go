package zookeeper

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
)

const testTTL = 2 * time.Second

var fresh = registry.ReadOptions{Fresh: true}

var namespaces atomic.Int64

// newNamespace returns a namespace that no other test uses.
func newNamespace() string { return fmt.Sprintf("/test-%d", namespaces.Add(1)) }

// open opens a handle on the server that the tests share.
func open(t *testing.T, namespace string, change ...func(*Options)) *Client {
	t.Helper()
	o := Options{Endpoints: servertest.ZooKeeper(t).Addrs(), Namespace: namespace}
	for _, f := range change {
		f(&o)
	}
	c, err := Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c
}

type silentLogger struct{}

func (silentLogger) Printf(string, ...any) {}

// connectRaw returns a connection that bypasses the registry.
func connectRaw(t *testing.T) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(servertest.ZooKeeper(t).Addrs(), 10*time.Second, zk.WithLogger(silentLogger{}))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range events { // until the library's goroutines have returned
		}
	})
	return conn
}

func mustCommit(t *testing.T, c *Client, ops ...registry.Op) registry.Rev {
	t.Helper()
	rev, err := c.Txn(t.Context(), registry.Txn{Then: ops})
	require.NoError(t, err)
	return rev
}

func newSession(t *testing.T, c *Client) registry.Session {
	t.Helper()
	s, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: testTTL})
	require.NoError(t, err)
	return s
}

// requireConflict fails the test unless x conflicts at its first item.
func requireConflict(t *testing.T, c *Client, x registry.Txn) {
	t.Helper()
	_, err := c.Txn(t.Context(), x)
	var conflict *registry.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Zero(t, conflict.Index)
}

// staleTxns returns all kinds of transactions that require key at a stale Rev.
func staleTxns(key registry.Key, stale registry.Rev) []registry.Txn {
	return []registry.Txn{
		{If: []registry.Cond{registry.At(key, stale)}},
		{Then: []registry.Op{registry.Set(key, stale, nil)}},
		{Then: []registry.Op{registry.Delete(key, stale)}},
	}
}

// openWithCached returns handles that have cached the present version of key, one for each of
// staleTxns, because a conflict removes the version from the cache.
func openWithCached(t *testing.T, namespace string, key registry.Key) []*Client {
	t.Helper()
	var all []*Client
	for range staleTxns(key, registry.Rev{}) {
		c := open(t, namespace)
		_, err := c.Get(t.Context(), key, fresh)
		require.NoError(t, err)
		all = append(all, c)
	}
	return all
}

// requireStaleConflicts makes each handle commit all staleTxns, each handle beginning with
// another one, so that every kind is tried once with the cached version.
func requireStaleConflicts(t *testing.T, handles []*Client, key registry.Key, stale registry.Rev) {
	t.Helper()
	reader := open(t, handles[0].options.Namespace)
	before, err := reader.Get(t.Context(), key, fresh)
	require.NoError(t, err)
	txns := staleTxns(key, stale)
	for i, c := range handles {
		for j := range txns {
			requireConflict(t, c, txns[(i+j)%len(txns)])
		}
	}
	after, err := reader.Get(t.Context(), key, fresh)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func versionOf(t *testing.T, raw *zk.Conn, path string) int32 {
	t.Helper()
	there, stat, err := raw.Exists(path)
	require.NoError(t, err)
	require.True(t, there, path)
	return stat.Version
}

func requireMissing(t *testing.T, raw *zk.Conn, path string) {
	t.Helper()
	there, _, err := raw.Exists(path)
	require.NoError(t, err)
	require.False(t, there, path)
}
