package zookeeper

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
)

func TestReadOnly_NeedsTheRightToReadOnly(t *testing.T) {
	ns := newNamespace()
	w := open(t, ns, func(o *Options) {
		o.Username, o.Password = "owner", "pw"
		o.ACL = append(zk.DigestACL(zk.PermAll, "owner", "pw"), zk.DigestACL(zk.PermRead, "reader", "pw")...)
	})
	rev := mustCommit(t, w, registry.Create("d/k", []byte("v")))
	reader := func(o *Options) { o.Username, o.Password, o.ReadOnly = "reader", "pw", true }

	c := open(t, ns, reader)
	e, err := c.Get(t.Context(), "d/k", fresh)
	require.NoError(t, err)
	require.Equal(t, "v", string(e.Value))
	watcher, err := c.Watch(t.Context(), "d", registry.WatchOptions{})
	require.NoError(t, err)
	b, err := watcher.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, b.Puts, 1)
	mustCommit(t, w, registry.Set("d/k", rev, []byte("new")))
	b, err = watcher.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, "new", string(b.Puts[0].Value))

	requireReadOnly(t, c)
	other := Options{Endpoints: servertest.ZooKeeper(t).Addrs(), Namespace: ns, Username: "other", Password: "pw", ReadOnly: true}
	_, err = Open(t.Context(), other)
	require.ErrorIs(t, err, registry.ErrPermission)
	require.ErrorContains(t, err, ns)
}

func TestReadOnly_CreatesNothingAndSeesAMissingNamespaceAsEmpty(t *testing.T) {
	ns := newNamespace() + "/below"
	c := open(t, ns, func(o *Options) { o.ReadOnly = true })
	_, err := c.Get(t.Context(), "k", fresh)
	require.ErrorIs(t, err, registry.ErrNotFound)
	l, err := c.List(t.Context(), "d", fresh)
	require.NoError(t, err)
	require.Empty(t, l.Entries)
	watcher, err := c.Watch(t.Context(), "d", registry.WatchOptions{})
	require.NoError(t, err)
	b, err := watcher.Next(t.Context())
	require.NoError(t, err)
	require.Empty(t, b.Puts)
	requireReadOnly(t, c)
	requireMissing(t, connectRaw(t), parentPath(ns))

	mustCommit(t, open(t, ns), registry.Create("d/k", nil))
	b, err = watcher.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, b.Puts, 1, "the watch continues when another handle creates the namespace")
	_, err = c.Get(t.Context(), "d/k", fresh)
	require.NoError(t, err)
}

func requireReadOnly(t *testing.T, c *Client) {
	t.Helper()
	_, err := c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("x", nil)}})
	require.ErrorIs(t, err, registry.ErrReadOnly)
	require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
	require.False(t, registry.Retryable(err))
	_, err = c.OpenSession(t.Context(), registry.SessionOptions{TTL: testTTL})
	require.ErrorIs(t, err, registry.ErrReadOnly)
	require.False(t, registry.Retryable(err))
}
