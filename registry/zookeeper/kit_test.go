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

// newNamespace returns one that no other test uses.
func newNamespace() string { return fmt.Sprintf("/test/%d", namespaces.Add(1)) }

// open connects to the server that the tests share.
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

type silent struct{}

func (silent) Printf(string, ...any) {}

// connect is for looking at znodes, and for meddling with them.
func connect(t *testing.T) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(servertest.ZooKeeper(t).Addrs(), 10*time.Second, zk.WithLogger(silent{}))
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		for range events { // until the library's goroutines have ended
		}
	})
	return conn
}

func do(t *testing.T, c *Client, ops ...registry.Op) registry.Rev {
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

// refused fails the test unless x conflicts at its first item.
func refused(t *testing.T, c *Client, x registry.Txn) {
	t.Helper()
	_, err := c.Txn(t.Context(), x)
	var conflict *registry.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Zero(t, conflict.Index)
}

// staleTxns are all that can be done at a Rev that is over.
func staleTxns(key registry.Key, stale registry.Rev) []registry.Txn {
	return []registry.Txn{
		{If: []registry.Cond{registry.At(key, stale)}},
		{Then: []registry.Op{registry.Set(key, stale, nil)}},
		{Then: []registry.Op{registry.Delete(key, stale)}},
	}
}

// remembering returns handles that know the version of key now, one for each of staleTxns:
// a handle whose transaction was refused has forgotten it.
func remembering(t *testing.T, namespace string, key registry.Key) []*Client {
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

// staleConflicts has each handle try staleTxns, beginning with another of them, by what it
// remembers: it reads nothing before.
func staleConflicts(t *testing.T, handles []*Client, key registry.Key, stale registry.Rev) {
	t.Helper()
	reader := open(t, handles[0].o.Namespace)
	before, err := reader.Get(t.Context(), key, fresh)
	require.NoError(t, err)
	txns := staleTxns(key, stale)
	for i, c := range handles {
		for j := range txns {
			refused(t, c, txns[(i+j)%len(txns)])
		}
	}
	after, err := reader.Get(t.Context(), key, fresh)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func version(t *testing.T, raw *zk.Conn, path string) int32 {
	t.Helper()
	there, stat, err := raw.Exists(path)
	require.NoError(t, err)
	require.True(t, there, path)
	return stat.Version
}

func gone(t *testing.T, raw *zk.Conn, path string) {
	t.Helper()
	there, _, err := raw.Exists(path)
	require.NoError(t, err)
	require.False(t, there, path)
}
