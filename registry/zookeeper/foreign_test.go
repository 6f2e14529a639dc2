package zookeeper

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestForeign(t *testing.T) {
	t.Run("Get returns an error, List and Watch skip it, Txn does not overwrite it", func(t *testing.T) {
		for rule, data := range map[string]string{
			`does not begin with "rota1"`:      "something else",
			"its first line is not terminated": "rota1 ab010000000000000000000000000000",
			"names no transaction":             "rota1\n",
			"no transaction of 16 bytes":       "rota1 ab\n",
			"names no transaction: ":           "rota1 zz010000000000000000000000000000\n",
			`"created=x"`:                      "rota1 ab010000000000000000000000000000 created=x\n",
			"it must be ephemeral exactly if its first line names an owner": "rota1 ab010000000000000000000000000000 owner=me birth=1\n",
		} {
			ns := newNamespace()
			c, raw := open(t, ns), connectRaw(t)
			mustCommit(t, c, registry.Create("d/good", []byte("v")))
			_, err := raw.Create(ns+"/d/bad", []byte(data), 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)

			_, err = c.Get(t.Context(), "d/bad", fresh)
			require.ErrorIs(t, err, registry.ErrForeign, data)
			require.NotErrorIs(t, err, registry.ErrNotFound)
			require.ErrorContains(t, err, "d/bad")
			require.ErrorContains(t, err, rule)
			l, err := c.List(t.Context(), "d", fresh)
			require.NoError(t, err)
			require.Len(t, l.Entries, 1)
			w, err := c.Watch(t.Context(), "d", registry.WatchOptions{})
			require.NoError(t, err)
			b, err := w.Next(t.Context())
			require.NoError(t, err)
			require.Len(t, b.Puts, 1)
			mustCommit(t, c, registry.Create("d/next", nil))
			b, err = w.Next(t.Context())
			require.NoError(t, err)
			require.Equal(t, registry.Key("d/next"), b.Puts[0].Key, "the watch continues")
			require.NoError(t, w.Close())

			requireConflict(t, c, registry.Txn{Then: []registry.Op{registry.Create("d/bad", nil)}})
			requireConflict(t, c, registry.Txn{If: []registry.Cond{registry.Absent("d/bad")}})
			requireConflict(t, c, registry.Txn{Then: []registry.Op{registry.Set("d/bad", l.Entries[0].Modified, nil)}})
			requireConflict(t, c, registry.Txn{Then: []registry.Op{registry.Delete("d/bad", l.Entries[0].Modified)}})
			now, _, err := raw.Get(ns + "/d/bad")
			require.NoError(t, err)
			require.Equal(t, data, string(now))
		}
	})
	t.Run("Watch reports a damaged key as deleted and a repaired one as written", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connectRaw(t)
		mustCommit(t, c, registry.Create("d/k", []byte("v")))
		good, _, err := raw.Get(ns + "/d/k")
		require.NoError(t, err)
		w, err := c.Watch(t.Context(), "d", registry.WatchOptions{})
		require.NoError(t, err)
		defer w.Close()
		_, err = w.Next(t.Context())
		require.NoError(t, err)
		_, err = raw.Set(ns+"/d/k", []byte("damaged"), -1)
		require.NoError(t, err)
		b, err := w.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, []registry.Key{"d/k"}, b.Deletes)
		_, err = raw.Set(ns+"/d/k", good, -1)
		require.NoError(t, err)
		b, err = w.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, "v", string(b.Puts[0].Value))
	})
}
