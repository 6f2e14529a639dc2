package etcd_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

const rootPassword = "root's"

// withUsers starts a server with authentication, which has a user "u" with a password "p" and the given rights.
func withUsers(t *testing.T, rights ...func(auth clientv3.Auth) error) (o etcd.Options, root *clientv3.Client) {
	t.Helper()
	cluster := servertest.StartEtcd(t, testserver.EtcdOptions{RootPassword: rootPassword, Flags: []string{"--bcrypt-cost", "4"}})
	root, err := clientv3.New(clientv3.Config{Endpoints: cluster.Addrs(), Username: "root", Password: rootPassword, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { root.Close() })
	_, err = root.UserAdd(t.Context(), "u", "p")
	require.NoError(t, err)
	_, err = root.RoleAdd(t.Context(), "u")
	require.NoError(t, err)
	_, err = root.UserGrantRole(t.Context(), "u", "u")
	require.NoError(t, err)
	for _, grant := range rights {
		require.NoError(t, grant(root))
	}
	return etcd.Options{Endpoints: cluster.Addrs(), Username: "u", Password: "p", Logger: slogTo(&logBuffer{})}, root
}

// on returns a right to the keys that begin with prefix.
func on(t *testing.T, prefix string, kind int32) func(clientv3.Auth) error {
	return func(auth clientv3.Auth) error {
		_, err := auth.RoleGrantPermission(t.Context(), "u", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(kind))
		return err
	}
}

// The right to write all keys that begin with a slash is not enough, so docs/stores.md names the role root.
func TestCompaction_NeedsTheRoleRoot(t *testing.T) {
	o, root := withUsers(t, on(t, "/", int32(clientv3.PermReadWrite)))
	log := &logBuffer{}
	o.Logger, o.CompactEvery = slogTo(log), 50*time.Millisecond
	c, err := etcd.Open(t.Context(), o)
	require.NoError(t, err)
	defer c.Close(t.Context())
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "role root only") }, longWait, pollInterval)
	_, err = root.UserGrantRole(t.Context(), "u", "root")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := root.Get(t.Context(), "k", clientv3.WithRev(1))
		return errors.Is(err, rpctypes.ErrCompacted)
	}, longWait, pollInterval)
}

func TestReadOnly_NeedsTheRightToReadOnly(t *testing.T) {
	o, _ := withUsers(t, on(t, "/rota/", int32(clientv3.PermRead)))
	require.ErrorContains(t, requireOpenError(t, o, longWait), "no right to write")
	owner := o
	owner.Username, owner.Password = "root", rootPassword
	w, err := etcd.Open(t.Context(), owner)
	require.NoError(t, err)
	defer w.Close(t.Context())
	rev := mustCommit(t, w, registry.Create("d/k", []byte("v")))

	o.ReadOnly = true
	c, err := etcd.Open(t.Context(), o)
	require.NoError(t, err)
	defer c.Close(t.Context())
	e, err := c.Get(t.Context(), "d/k", fresh)
	require.NoError(t, err)
	require.Equal(t, "v", string(e.Value))
	watcher := openWatch(t, c, "d")
	require.Len(t, nextBatch(t, watcher).Puts, 1)
	mustCommit(t, w, registry.Set("d/k", rev, []byte("new")))
	require.Equal(t, "new", string(nextBatch(t, watcher).Puts[0].Value))

	_, err = c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("x", nil)}})
	require.ErrorIs(t, err, registry.ErrReadOnly)
	require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
	require.False(t, registry.Retryable(err))
	_, err = c.OpenSession(t.Context(), registry.SessionOptions{TTL: time.Second})
	require.ErrorIs(t, err, registry.ErrReadOnly)
	require.False(t, registry.Retryable(err))

	o.Namespace = "/other"
	require.ErrorContains(t, requireOpenError(t, o, longWait), `no right to read the keys that begin with "/other/"`)
	o.CompactEvery = time.Minute
	require.ErrorContains(t, requireOpenError(t, o, longWait), "ReadOnly")
}
