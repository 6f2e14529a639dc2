package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

func TestStored_IsReadableWithEtcdctl(t *testing.T) {
	p := newFixture(t)
	c := p.open()
	s := openSession(t, c)
	id := registry.TxnID{0x1f, 0x0c, 15: 0x6d}
	rev, err := c.Txn(t.Context(), registry.Txn{ID: id, Then: []registry.Op{
		registry.Create("jobs/daily", []byte(`{"schedule":"0 3 * * *"}`)),
		registry.Create("meta", nil),
		registry.CreateOwned("a/b/~c", []byte("owned\n"), s.ID()),
	}})
	require.NoError(t, err)

	const line = "rota1 1f0c000000000000000000000000006d\n"
	stored, err := p.raw.Get(t.Context(), p.o.Namespace+"/", clientv3.WithPrefix())
	require.NoError(t, err)
	values, leases := map[string]string{}, map[string]int64{}
	for _, kv := range stored.Kvs {
		key := string(kv.Key)[len(p.o.Namespace):]
		values[key], leases[key] = string(kv.Value), kv.Lease
		if key != "/:sessions/"+string(s.ID()) {
			require.Equal(t, rev, registry.Rev{Seq: uint64(kv.ModRevision)})
		}
	}
	node := "/:sessions/" + string(s.ID())
	require.Regexp(t, "^rota1 [0-9a-f]{32}\n$", values[node])
	delete(values, node)
	require.Equal(t, map[string]string{
		"/jobs//daily": line + `{"schedule":"0 3 * * *"}`,
		"//meta":       line,
		"/a/b//~c":     line + "owned\n",
	}, values)
	require.Zero(t, leases["/jobs//daily"])
	require.NotZero(t, leases["/a/b//~c"])
	require.Equal(t, leases[node], leases["/a/b//~c"])

	left, err := p.raw.TimeToLive(t.Context(), clientv3.LeaseID(leases[node]), clientv3.WithAttachedKeys())
	require.NoError(t, err)
	require.EqualValues(t, ttl/time.Second, left.GrantedTTL)
	require.Len(t, left.Keys, 2, "the session key and the owned key")
}

func TestStored_ValuesWrittenByEtcdctlAreRead(t *testing.T) {
	p := newFixture(t)
	c := p.open()
	p.put("/d//k", "rota1 1f0c000000000000000000000000006d\nby etcdctl")
	e, err := c.Get(t.Context(), "d/k", fresh)
	require.NoError(t, err)
	require.Equal(t, "by etcdctl", string(e.Value))
	require.Equal(t, registry.TxnID{0x1f, 0x0c, 15: 0x6d}, e.Txn)
	rev := mustCommit(t, c, registry.Set("d/k", e.Modified, []byte("by us")))
	require.EqualValues(t, rev.Seq, p.get("/d//k").Kvs[0].ModRevision)
}

func TestStored_NamespacesAreSeparate(t *testing.T) {
	p := newFixture(t)
	a := p.open()
	b := p.open(func(o *etcd.Options) { o.Namespace += "x" })
	s := openSession(t, a)
	mustCommit(t, a, registry.Create("d/k", nil))
	_, err := b.Get(t.Context(), "d/k", fresh)
	require.ErrorIs(t, err, registry.ErrNotFound)
	_, err = b.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Alive(s.ID())}})
	require.ErrorIs(t, err, registry.ErrConflict)
	_, err = b.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.CreateOwned("~k", nil, s.ID())}})
	require.ErrorIs(t, err, registry.ErrSessionLost)
}

func TestStored_RevsThatEtcdCannotIssueConflict(t *testing.T) {
	p := newFixture(t)
	c := p.open()
	rev := mustCommit(t, c, registry.Create("k", nil))
	for name, wrong := range map[string]registry.Rev{
		"the zero Rev":  {},
		"another Aux":   {Seq: rev.Seq, Aux: 1},
		"a Seq too big": {Seq: 1<<63 + rev.Seq},
	} {
		for _, key := range []registry.Key{"k", "none"} {
			for _, x := range []registry.Txn{
				{If: []registry.Cond{registry.At(key, wrong)}},
				{Then: []registry.Op{registry.Set(key, wrong, nil)}},
				{Then: []registry.Op{registry.Delete(key, wrong)}},
			} {
				_, err := c.Txn(t.Context(), x)
				require.ErrorIs(t, err, registry.ErrConflict, "%s of %s", name, key)
			}
		}
	}
}

// TestStored_LargestTxn uses etcd's default limit fully: each item has two preconditions.
func TestStored_LargestTxn(t *testing.T) {
	p := newFixture(t)
	c := p.open()
	s := openSession(t, c)
	x := registry.Txn{}
	for i := range registry.PortableLimits.TxnItems / 2 {
		x.Then = append(x.Then, registry.CreateOwned(registry.Join("d", "~"+string(rune('A'+i%26))+string(rune('a'+i/26))), nil, s.ID()))
	}
	_, err := c.Txn(t.Context(), x)
	require.NoError(t, err)
	_, err = c.Txn(t.Context(), x)
	require.ErrorIs(t, err, registry.ErrConflict)
}
