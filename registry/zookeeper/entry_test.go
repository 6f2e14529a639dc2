package zookeeper

import (
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestZnode(t *testing.T) {
	const txn = "ab010000000000000000000000000000"
	id := registry.TxnID{0xab, 0x01}
	stat := func(owner int64) *zk.Stat { return &zk.Stat{Version: 3, Mzxid: 50, Mtime: 1234, EphemeralOwner: owner} }
	t.Run("decodes what it encodes", func(t *testing.T) {
		for text, n := range map[string]znode{
			"rota1 none\n":                                     {empty: true},
			"rota1 " + txn + "\nline 1\nline 2":                {txn: id, created: 50, value: []byte("line 1\nline 2")},
			"rota1 " + txn + " created=40\n":                   {txn: id, created: 40, value: []byte{}},
			"rota1 " + txn + " owner=s-1 birth=7\nv":           {txn: id, created: 50, owner: "s-1", birth: 7, value: []byte("v")},
			"rota1 " + txn + " owner=s birth=7 created=9\n \n": {txn: id, created: 9, owner: "s", birth: 7, value: []byte(" \n")},
		} {
			key, session := registry.Key("d/k"), int64(0)
			if n.owner != "" {
				key, session = "d/~k", 1
			}
			n.version, n.mzxid, n.mtime, n.size = 3, 50, 1234, len(text)
			got, err := decode(key, []byte(text), stat(session))
			require.NoError(t, err)
			require.Equal(t, &n, got)
			if n.created == 50 {
				got.created = 0 // it is in no content: its zxid is not known before the commit
			}
			require.Equal(t, text, string(got.encode()))
		}
	})
	t.Run("without a value may end in blanks", func(t *testing.T) {
		n, err := decode("k", []byte("rota1 none\n      "), stat(0))
		require.NoError(t, err)
		require.True(t, n.empty)
		require.Empty(t, n.value)
		require.Zero(t, n.created)
	})
	t.Run("may contain words without a value", func(t *testing.T) {
		n, err := decode("k", []byte("rota1 "+txn+" created= birth= owner=\nv"), stat(0))
		require.NoError(t, err)
		require.EqualValues(t, 50, n.created)
	})
	t.Run("of another form is foreign", func(t *testing.T) {
		for _, c := range []struct {
			key   registry.Key
			text  string
			owner int64
		}{
			{"k", "", 0},
			{"k", "rota2 " + txn + "\n", 0},
			{"k", "rota1 " + txn, 0},
			{"k", "rota1\n", 0},
			{"k", "rota1 ab\n", 0},
			{"k", "rota1 zz010000000000000000000000000000\n", 0},
			{"k", "rota1 " + txn + "00\n", 0},
			{"k", "rota1 " + txn + " created=-1\n", 0},
			{"k", fmt.Sprintf("rota1 %s created=%d\n", txn, uint64(1)<<63), 0},
			{"~k", "rota1 " + txn + " owner=s birth=x\n", 1},
			{"~k", "rota1 " + txn + "\n", 1},
			{"~k", "rota1 " + txn + " owner=s birth=1\n", 0},
			{"~k", "rota1 " + txn + "\n", 0},
			{"k", "rota1 " + txn + " owner=s birth=1\n", 1},
			{"k", "rota1 none\n", 1},
		} {
			_, err := decode(c.key, []byte(c.text), stat(c.owner))
			require.ErrorIs(t, err, registry.ErrForeign, "%q", c.text)
			require.ErrorContains(t, err, string(c.key))
		}
	})
	t.Run("is a copy as an entry", func(t *testing.T) {
		n := znode{version: 3, mzxid: 50, created: 40, txn: id, owner: "s", value: []byte("value")}
		small, exact, large := make([]byte, 0, 4), make([]byte, 5), make([]byte, 9)
		for _, buf := range [][]byte{nil, small, exact, large} {
			e := n.entry("~k", buf)
			require.Equal(t, registry.Entry{
				Key: "~k", Value: []byte("value"), Created: registry.Rev{Seq: 40}, Modified: registry.Rev{Seq: 50}, Owner: "s", Txn: id,
			}, e)
			e.Value[0] = 'V'
			require.Equal(t, "value", string(n.value))
		}
		require.Equal(t, "Value", string(large[:5]))
		require.Equal(t, "Value", string(exact))
	})
	t.Run("has the Rev of its last write while it holds a value", func(t *testing.T) {
		n := znode{mzxid: 50}
		require.True(t, n.hasRev(registry.Rev{Seq: 50}))
		require.False(t, n.hasRev(registry.Rev{Seq: 51}))
		require.False(t, n.hasRev(registry.Rev{Seq: 50, Aux: 1}))
		n.empty = true
		require.False(t, n.hasRev(registry.Rev{Seq: 50}))
	})
}

func TestVersionCache(t *testing.T) {
	key := func(i int) registry.Key { return registry.Key(fmt.Sprint("k", i)) }
	t.Run("it holds the plans and claims records of 30,000 jobs, which claims use in turns", func(t *testing.T) {
		var c versionCache
		for i := range 60_000 {
			c.put(registry.Key(fmt.Sprint("k", i)), &znode{}, 0)
		}
		for i := range 60_000 {
			_, ok := c.get(registry.Key(fmt.Sprint("k", i)), 0)
			require.True(t, ok, i)
		}
	})
	t.Run("keeps the versions that were used last", func(t *testing.T) {
		var c versionCache
		for _, reaped := range []int32{0, 1} {
			_, ok := c.get("k0", reaped)
			require.False(t, ok)
		}
		for i := range 3 * versionCacheSize {
			c.put(key(i), &znode{version: int32(i), value: []byte("v")}, 1)
			f, ok := c.get("k0", 1)
			require.True(t, ok, "after %d others", i)
			require.Zero(t, f.version)
			require.Nil(t, f.value)
		}
		for i := 2*versionCacheSize + 2; i < 3*versionCacheSize; i++ {
			f, ok := c.get(key(i), 1)
			require.True(t, ok)
			require.EqualValues(t, i, f.version)
		}
		_, ok := c.get("k1", 1)
		require.False(t, ok)
		require.LessOrEqual(t, len(c.recent), versionCacheSize)
		require.LessOrEqual(t, len(c.older), versionCacheSize)
	})
	t.Run("returns none from before a removal", func(t *testing.T) {
		var c versionCache
		c.put("k", &znode{version: 1}, 1)
		_, ok := c.get("k", 2)
		require.False(t, ok)
		c.put("k", &znode{version: 2}, 2)
		f, ok := c.get("k", 2)
		require.True(t, ok)
		require.EqualValues(t, 2, f.version)
	})
	t.Run("drops a key, however long ago it was used", func(t *testing.T) {
		var c versionCache
		c.put("old", &znode{}, 1)
		for i := range versionCacheSize {
			c.put(key(i), &znode{}, 1)
		}
		c.put("new", &znode{}, 1)
		for _, k := range []registry.Key{"old", "new"} {
			c.drop(k)
			_, ok := c.get(k, 1)
			require.False(t, ok)
		}
	})
}

func TestLayout(t *testing.T) {
	l := layout{"/a/b"}
	for key, path := range map[registry.Key]string{"": "/a/b", "k": "/a/b/k", "d/~k": "/a/b/d/~k"} {
		require.Equal(t, path, l.keyPath(key))
		got, ok := l.keyAt(path)
		require.True(t, ok)
		require.Equal(t, key, got)
	}
	for _, path := range []string{"/a", "/a/bc", "/a/b/", "/a/b/:reaped", "/a/b/:sessions/s", "/", "k"} {
		_, ok := l.keyAt(path)
		require.False(t, ok, path)
	}
	path, ok := l.sessionPath("s")
	require.True(t, ok)
	require.Equal(t, "/a/b/:sessions/s", path)
	for _, id := range []registry.SessionID{"", "a/b", "..", "~s", "ä"} {
		_, ok := l.sessionPath(id)
		require.False(t, ok, id)
	}
	require.Equal(t, "/a/b/:births/s.12", l.birthPath("s", 12))
	require.Equal(t, []string{"/a/b/:sessions", "/a/b/:births", "/a/b/:reaped", "/a/b/:swept"},
		[]string{l.sessionsPath(), l.birthsPath(), l.reapedPath(), l.sweptPath()})
	for path, above := range map[string]string{"/a/b/c": "/a/b", "/a": "/", "/": "/"} {
		require.Equal(t, above, parentPath(path))
	}
}
