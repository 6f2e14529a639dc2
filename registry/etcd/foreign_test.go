package etcd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rota-dev/rota/registry"
)

const validHeader = "rota1 1f0c000000000000000000000000006d\n"

func TestForeign_GetNamesKeyAndRule(t *testing.T) {
	p := newFixture(t)
	c := p.open()
	lease, err := p.raw.Grant(t.Context(), 60)
	require.NoError(t, err)
	p.put("/d//text", "hello")
	p.put("/d//~free", validHeader)
	p.put("/d//leased", validHeader, clientv3.WithLease(lease.ID))
	for key, rule := range map[registry.Key]string{
		"d/text":   `its value does not begin with "rota1"`,
		"d/~free":  "it is an owned key and has no lease",
		"d/leased": "it has a lease and is not an owned key",
	} {
		_, err := c.Get(t.Context(), key, fresh)
		require.ErrorIs(t, err, registry.ErrForeign)
		require.NotErrorIs(t, err, registry.ErrUnavailable)
		require.ErrorContains(t, err, string(key))
		require.ErrorContains(t, err, rule)
	}
}

func TestForeign_ListSkipsItAndLogsItOnce(t *testing.T) {
	p := newFixture(t)
	c := p.open()
	mustCommit(t, c, registry.Create("d/a", nil), registry.Create("d/z", nil))
	p.put("/d//m", "hello")
	p.put("/d//not a name", validHeader)
	p.put("/d//deeper/k", validHeader)
	p.put("/d//", validHeader)
	for range 3 {
		l, err := c.List(t.Context(), "d", fresh)
		require.NoError(t, err)
		require.Equal(t, []registry.Key{"d/a", "d/z"}, keys(l.Entries))
	}
	log := p.log.String()
	require.Equal(t, 4, strings.Count(log, "skipped a key with a foreign value"), log)
	for _, part := range []string{"d/m", "does not begin with", "not a name", "is not a valid key segment", "deeper/k"} {
		require.Contains(t, log, part)
	}
	p.put("/d//m", "hello again")
	_, err := c.List(t.Context(), "d", fresh)
	require.NoError(t, err)
	require.Equal(t, 5, strings.Count(p.log.String(), "skipped a key with a foreign value"))
}

func TestForeign_WatchSkipsIt(t *testing.T) {
	p := newFixture(t)
	c := p.open()
	p.put("/d//before", "hello")
	rev := mustCommit(t, c, registry.Create("d/a", nil), registry.Create("d/b", nil))
	w := openWatch(t, c, "d")
	require.Equal(t, []registry.Key{"d/a", "d/b"}, keys(nextBatch(t, w).Puts))

	p.put("/d//while", "hello")
	p.put("/d//not a name", validHeader)
	p.put("/d//a", "overwritten")
	b := nextBatch(t, w)
	require.Empty(t, b.Puts)
	require.Equal(t, []registry.Key{"d/a"}, b.Deletes, "the entry that the reader has is outdated")
	l, err := c.List(t.Context(), "d", fresh)
	require.NoError(t, err)
	require.Equal(t, []registry.Key{"d/b"}, keys(l.Entries), "the watch agrees with a list")

	mustCommit(t, c, registry.Set("d/b", rev, []byte("goes on")))
	require.Equal(t, "goes on", string(nextBatch(t, w).Puts[0].Value))
	p.put("/d//a", validHeader+"sound again")
	b = nextBatch(t, w)
	require.Equal(t, "sound again", string(b.Puts[0].Value))
	require.Equal(t, rev, b.Puts[0].Created)
}

// TestForeign_TxnDoesNotOverwriteIt shows why lists may skip a foreign value: a transaction
// that rests on such a list conflicts.
func TestForeign_TxnDoesNotOverwriteIt(t *testing.T) {
	p := newFixture(t)
	c := p.open()
	p.put("/d//k", "hello")
	for _, x := range []registry.Txn{
		{Then: []registry.Op{registry.Create("d/k", nil)}},
		{If: []registry.Cond{registry.Absent("d/k")}, Then: []registry.Op{registry.Create("d/other", nil)}},
	} {
		_, err := c.Txn(t.Context(), x)
		require.ErrorIs(t, err, registry.ErrConflict)
	}
	require.Equal(t, "hello", string(p.get("/d//k").Kvs[0].Value))
}
