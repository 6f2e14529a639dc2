package etcd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rota-dev/rota/registry"
)

const ours = "rota1 1f0c000000000000000000000000006d\n"

func TestForeign_GetNamesTheKeyAndTheRule(t *testing.T) {
	p := newPlace(t)
	c := p.open()
	lease, err := p.raw.Grant(t.Context(), 60)
	require.NoError(t, err)
	p.put("/d//text", "hello")
	p.put("/d//~free", ours)
	p.put("/d//leased", ours, clientv3.WithLease(lease.ID))
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

func TestForeign_ListLeavesItOutAndSaysSoOnce(t *testing.T) {
	p := newPlace(t)
	c := p.open()
	commit(t, c, registry.Create("d/a", nil), registry.Create("d/z", nil))
	p.put("/d//m", "hello")
	p.put("/d//not a name", ours)
	p.put("/d//deeper/k", ours)
	for range 3 {
		l, err := c.List(t.Context(), "d", fresh)
		require.NoError(t, err)
		require.Equal(t, []registry.Key{"d/a", "d/z"}, keys(l.Entries))
	}
	log := p.log.String()
	require.Equal(t, 3, strings.Count(log, "a foreign value is left out"), log)
	for _, said := range []string{"d/m", "does not begin with", "not a name", "breaks a rule of keys", "deeper/k"} {
		require.Contains(t, log, said)
	}
	p.put("/d//m", "hello again")
	_, err := c.List(t.Context(), "d", fresh)
	require.NoError(t, err)
	require.Equal(t, 4, strings.Count(p.log.String(), "a foreign value is left out"))
}

func TestForeign_WatchGoesOnWithoutIt(t *testing.T) {
	p := newPlace(t)
	c := p.open()
	p.put("/d//before", "hello")
	rev := commit(t, c, registry.Create("d/a", nil), registry.Create("d/b", nil))
	w := watch(t, c, "d")
	require.Equal(t, []registry.Key{"d/a", "d/b"}, keys(next(t, w).Puts))

	p.put("/d//while", "hello")
	p.put("/d//not a name", ours)
	p.put("/d//a", "overwritten")
	b := next(t, w)
	require.Empty(t, b.Puts)
	require.Equal(t, []registry.Key{"d/a"}, b.Deletes, "what the reader had of it is not true any more")
	l, err := c.List(t.Context(), "d", fresh)
	require.NoError(t, err)
	require.Equal(t, []registry.Key{"d/b"}, keys(l.Entries), "as a list says")

	commit(t, c, registry.Set("d/b", rev, []byte("goes on")))
	require.Equal(t, "goes on", string(next(t, w).Puts[0].Value))
	p.put("/d//a", ours+"sound again")
	b = next(t, w)
	require.Equal(t, "sound again", string(b.Puts[0].Value))
	require.Equal(t, rev, b.Puts[0].Created)
}

// TestForeign_IsNotOverwritten is why lists can leave it out: a decision taken on a list
// fails when it is carried out.
func TestForeign_IsNotOverwritten(t *testing.T) {
	p := newPlace(t)
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
