package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestVersions(t *testing.T) {
	t.Run("go on when a key is deleted and made again", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connect(t)
		stale := do(t, c, registry.Create("k", nil))
		require.EqualValues(t, 1, version(t, raw, ns+"/k"))
		others := remembering(t, ns, "k")
		do(t, c, registry.Delete("k", stale))
		data, _, err := raw.Get(ns + "/k")
		require.NoError(t, err)
		require.Equal(t, "rota1 none\n", string(data))
		do(t, c, registry.Create("k", nil))
		require.EqualValues(t, 3, version(t, raw, ns+"/k"))
		staleConflicts(t, append(others, c), "k", stale)
	})
	t.Run("of a znode that was taken away name nothing, though they come again", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connect(t)
		stale := do(t, c, registry.Create("k", []byte("old")))
		others := remembering(t, ns, "k")
		do(t, c, registry.Delete("k", stale))
		c.bury(t.Context(), []registry.Key{"k"})
		gone(t, raw, ns+"/k")

		do(t, open(t, ns), registry.Create("k", []byte("new")))
		require.EqualValues(t, 1, version(t, raw, ns+"/k"), "the version of the stale Rev")
		staleConflicts(t, append(others, c, open(t, ns)), "k", stale)
	})
	t.Run("that were sent before the znode was taken away do nothing after it", func(t *testing.T) {
		ns := newNamespace()
		c, late, raw := open(t, ns), open(t, ns), connect(t)
		rev := do(t, c, registry.Create("k", []byte("old")))
		p := newPlan(late, registry.Txn{Then: []registry.Op{registry.Set("k", rev, []byte("late"))}}, nil)
		stale, err := p.prepare(t.Context())
		require.NoError(t, err)
		require.Equal(t, -1, stale)
		do(t, c, registry.Delete("k", rev))
		c.bury(t.Context(), []registry.Key{"k"})
		do(t, c, registry.Create("k", []byte("new")))
		require.EqualValues(t, 1, version(t, raw, ns+"/k"))

		_, err = raw.Multi(p.entries...)
		require.ErrorIs(t, err, zk.ErrBadVersion)
		require.Equal(t, guard, p.items[0], "the count of reapings comes first")
	})
	t.Run("of other keys hold after a znode was taken away", func(t *testing.T) {
		ns := newNamespace()
		c, other := open(t, ns), open(t, ns)
		rev := do(t, other, registry.Create("stays", nil))
		do(t, c, registry.Delete("k", do(t, c, registry.Create("k", nil))))
		c.bury(t.Context(), []registry.Key{"k"})
		rev = do(t, other, registry.Set("stays", rev, []byte("1")))
		do(t, other, registry.Delete("stays", rev))
		do(t, other, registry.Create("stays", []byte("2")))
	})
	t.Run("of owned keys name nothing when another session made the key, though they come again", func(t *testing.T) {
		ns := newNamespace()
		a, b, raw := open(t, ns), open(t, ns), connect(t)
		first, second := newSession(t, a), newSession(t, b)
		stale := do(t, a, registry.CreateOwned("~k", []byte("first"), first.ID()))
		others := remembering(t, ns, "~k")
		do(t, b, registry.Delete("~k", stale))
		gone(t, raw, ns+"/~k")
		do(t, b, registry.CreateOwned("~k", []byte("second"), second.ID()))
		require.EqualValues(t, 1, version(t, raw, ns+"/~k"), "the version of the stale Rev")
		require.NoError(t, first.Err(), "whose session lives")
		staleConflicts(t, append(others, a, b), "~k", stale)
	})
	t.Run("of owned keys that were sent in time do nothing late", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connect(t)
		s := newSession(t, c)
		rev := do(t, c, registry.CreateOwned("~k", nil, s.ID()))
		p := newPlan(c, registry.Txn{Then: []registry.Op{registry.Set("~k", rev, []byte("late"))}}, nil)
		_, err := p.prepare(t.Context())
		require.NoError(t, err)
		do(t, c, registry.Delete("~k", rev))
		do(t, c, registry.CreateOwned("~k", []byte("again"), s.ID()))
		require.EqualValues(t, 1, version(t, raw, ns+"/~k"))
		_, err = raw.Multi(p.entries...)
		require.ErrorIs(t, err, zk.ErrNoNode, "its birth is another")
	})
}

func TestBury(t *testing.T) {
	deleted := func(t *testing.T, c *Client, key registry.Key) {
		do(t, c, registry.Delete(key, do(t, c, registry.Create(key, nil))))
	}
	t.Run("takes what is above away as well, up to what is in use", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connect(t)
		do(t, c, registry.Create("used/k", nil))
		deleted(t, c, "used/a/b/c")
		c.bury(t.Context(), []registry.Key{"used/a/b/c"})
		gone(t, raw, ns+"/used/a")
		version(t, raw, ns+"/used/k")
	})
	t.Run("spares keys, what is above others, and what is foreign", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connect(t)
		do(t, c, registry.Create("key", nil), registry.Create("above/k", nil))
		_, err := raw.Create(ns+"/foreign", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		deleted(t, c, "gone")
		c.bury(t.Context(), []registry.Key{"key", "above", "foreign", "never", "gone"})
		gone(t, raw, ns+"/gone")
		for _, name := range []string{"key", "above", "above/k", "foreign"} {
			version(t, raw, ns+"/"+name)
		}
	})
	t.Run("goes on with the rest when one is in use again", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connect(t)
		deleted(t, c, "a")
		deleted(t, c, "b")
		c.reaped.Store(7) // outdated: the first try fails
		gone1, err := c.takeAway(t.Context(), []registry.Key{"a", "b"})
		require.NoError(t, err)
		require.ElementsMatch(t, []registry.Key{"a", "b"}, gone1)
		gone(t, raw, ns+"/a")
		gone(t, raw, ns+"/b")
	})
	t.Run("is done by itself for what was deleted long ago", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns, func(o *Options) { o.ReapAfter = 200 * time.Millisecond }), connect(t)
		deleted(t, c, "dir/k")
		version(t, raw, ns+"/dir/k")
		eventually(t, func() bool { there, _, _ := raw.Exists(ns + "/dir"); return !there })
	})
	t.Run("is done by others for a handle that is no more", func(t *testing.T) {
		ns := newNamespace()
		first, err := Open(t.Context(), Options{Endpoints: open(t, ns).o.Endpoints, Namespace: ns, ReapAfter: -1})
		require.NoError(t, err)
		deleted(t, first, "dir/k")
		do(t, first, registry.Create("dir2/stays", nil))
		require.NoError(t, first.Close(context.Background()))
		raw := connect(t)
		open(t, ns, func(o *Options) { o.ReapAfter = 50 * time.Millisecond })
		open(t, ns, func(o *Options) { o.ReapAfter = 50 * time.Millisecond })
		eventually(t, func() bool { there, _, _ := raw.Exists(ns + "/dir"); return !there })
		version(t, raw, ns+"/dir2/stays")
	})
}

// eventually fails the test if ok is not true within a time that is long for a server.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 20*time.Second, 10*time.Millisecond)
}
