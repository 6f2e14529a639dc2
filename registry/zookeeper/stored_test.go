package zookeeper

import (
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestStored(t *testing.T) {
	t.Run("is a line and the value", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connectRaw(t)
		s := newSession(t, c)
		id := registry.TxnID{0xab, 0x01}
		const hex = "ab010000000000000000000000000000"
		made, err := c.Txn(t.Context(), registry.Txn{ID: id, Then: []registry.Op{
			registry.Create("jobs/daily", []byte(`{"at":"03:00"}`)), registry.CreateOwned("~me", []byte("here"), s.ID()),
		}})
		require.NoError(t, err)
		_, err = c.Txn(t.Context(), registry.Txn{ID: id, Then: []registry.Op{registry.Set("jobs/daily", made, []byte("later\n"))}})
		require.NoError(t, err)
		for path, want := range map[string]string{
			"/jobs":                             "rota1 none\n",
			"/jobs/daily":                       fmt.Sprintf("rota1 %s created=%d\nlater\n", hex, made.Seq),
			"/~me":                              fmt.Sprintf("rota1 %s owner=%s birth=1\nhere", hex, s.ID()),
			"/:sessions/" + string(s.ID()):      "rota1 session\n",
			"/:births/" + string(s.ID()) + ".1": "",
		} {
			data, stat, err := raw.Get(ns + path)
			require.NoError(t, err, path)
			require.Equal(t, want, string(data), path)
			if path == "/~me" {
				require.Contains(t, string(s.ID()), fmt.Sprintf("%016x-", uint64(stat.EphemeralOwner)), "the server's id of the session")
			}
		}
	})
	t.Run("may contain words of a later version", func(t *testing.T) {
		n, err := decode("k", []byte("rota1 ab010000000000000000000000000000 created=5 colour=blue\nv"), &zk.Stat{Mzxid: 9})
		require.NoError(t, err)
		require.EqualValues(t, 5, n.created)
		require.Equal(t, "v", string(n.value))
	})
}
