package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/zkwire"
	"github.com/rota-dev/rota/registry"
)

func TestVersions(t *testing.T) {
	t.Run("continue when a key is deleted and created again", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connectRaw(t)
		stale := mustCommit(t, c, registry.Create("k", nil))
		require.EqualValues(t, 1, versionOf(t, raw, ns+"/k"))
		others := openWithCached(t, ns, "k")
		mustCommit(t, c, registry.Delete("k", stale))
		data, _, err := raw.Get(ns + "/k")
		require.NoError(t, err)
		require.Equal(t, "rota1 none\n", string(data))
		mustCommit(t, c, registry.Create("k", nil))
		require.EqualValues(t, 3, versionOf(t, raw, ns+"/k"))
		requireStaleConflicts(t, append(others, c), "k", stale)
	})
	t.Run("of a removed znode are stale although they repeat", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connectRaw(t)
		stale := mustCommit(t, c, registry.Create("k", []byte("old")))
		others := openWithCached(t, ns, "k")
		mustCommit(t, c, registry.Delete("k", stale))
		c.reapWithAncestors(t.Context(), []registry.Key{"k"})
		requireMissing(t, raw, ns+"/k")

		mustCommit(t, open(t, ns), registry.Create("k", []byte("new")))
		require.EqualValues(t, 1, versionOf(t, raw, ns+"/k"), "the version of the stale Rev")
		requireStaleConflicts(t, append(others, c, open(t, ns)), "k", stale)
	})
	t.Run("that were sent before the znode was removed are refused after it", func(t *testing.T) {
		ns := newNamespace()
		c, late, raw := open(t, ns), open(t, ns), connectRaw(t)
		rev := mustCommit(t, c, registry.Create("k", []byte("old")))
		req := newMultiRequest(late, registry.Txn{Then: []registry.Op{registry.Set("k", rev, []byte("late"))}}, nil)
		stale, err := req.build(t.Context())
		require.NoError(t, err)
		require.Equal(t, -1, stale)
		mustCommit(t, c, registry.Delete("k", rev))
		c.reapWithAncestors(t.Context(), []registry.Key{"k"})
		mustCommit(t, c, registry.Create("k", []byte("new")))
		require.EqualValues(t, 1, versionOf(t, raw, ns+"/k"))

		_, err = raw.Multi(req.entries...)
		require.ErrorIs(t, err, zk.ErrBadVersion)
		require.Equal(t, guardItem, req.items[0], "the check of the count comes first")
	})
	t.Run("of a deleted key's znode are stale after it was removed, although they repeat", func(t *testing.T) {
		ns := newNamespace()
		script, other, raw := startScript(t), open(t, ns), connectRaw(t)
		c := script.open(t, ns)
		mustCommit(t, other, registry.Delete("k", mustCommit(t, other, registry.Create("k", nil))))
		require.EqualValues(t, 2, versionOf(t, raw, ns+"/k"))
		script.before(zkwire.Multi, func() {}) // refused, because the znode exists
		script.before(zkwire.Multi, func() {
			other.reapWithAncestors(t.Context(), []registry.Key{"k"})
			rev := mustCommit(t, other, registry.Create("k", nil))
			mustCommit(t, other, registry.Set("k", rev, []byte("in use")))
			require.EqualValues(t, 2, versionOf(t, raw, ns+"/k"))
		})
		requireConflict(t, c, registry.Txn{Then: []registry.Op{registry.Create("k", []byte("overwritten"))}})
		script.requireDone(t)
		e, err := other.Get(t.Context(), "k", fresh)
		require.NoError(t, err)
		require.Equal(t, "in use", string(e.Value))
	})
	t.Run("of other keys remain valid after a znode was removed", func(t *testing.T) {
		ns := newNamespace()
		c, other := open(t, ns), open(t, ns)
		rev := mustCommit(t, other, registry.Create("stays", nil))
		mustCommit(t, c, registry.Delete("k", mustCommit(t, c, registry.Create("k", nil))))
		c.reapWithAncestors(t.Context(), []registry.Key{"k"})
		rev = mustCommit(t, other, registry.Set("stays", rev, []byte("1")))
		mustCommit(t, other, registry.Delete("stays", rev))
		mustCommit(t, other, registry.Create("stays", []byte("2")))
	})
	t.Run("of an owned key are stale after another session created the key, although they repeat", func(t *testing.T) {
		ns := newNamespace()
		a, b, raw := open(t, ns), open(t, ns), connectRaw(t)
		first, second := newSession(t, a), newSession(t, b)
		stale := mustCommit(t, a, registry.CreateOwned("~k", []byte("first"), first.ID()))
		others := openWithCached(t, ns, "~k")
		mustCommit(t, b, registry.Delete("~k", stale))
		requireMissing(t, raw, ns+"/~k")
		mustCommit(t, b, registry.CreateOwned("~k", []byte("second"), second.ID()))
		require.EqualValues(t, 1, versionOf(t, raw, ns+"/~k"), "the version of the stale Rev")
		require.NoError(t, first.Err(), "the first session is still alive")
		requireStaleConflicts(t, append(others, a, b), "~k", stale)
	})
	t.Run("of an owned key that were sent before its deletion are refused after it", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connectRaw(t)
		s := newSession(t, c)
		rev := mustCommit(t, c, registry.CreateOwned("~k", nil, s.ID()))
		req := newMultiRequest(c, registry.Txn{Then: []registry.Op{registry.Set("~k", rev, []byte("late"))}}, nil)
		_, err := req.build(t.Context())
		require.NoError(t, err)
		mustCommit(t, c, registry.Delete("~k", rev))
		mustCommit(t, c, registry.CreateOwned("~k", []byte("again"), s.ID()))
		require.EqualValues(t, 1, versionOf(t, raw, ns+"/~k"))
		_, err = raw.Multi(req.entries...)
		require.ErrorIs(t, err, zk.ErrNoNode, "the new key has another birth")
	})
}

func TestReap(t *testing.T) {
	deleted := func(t *testing.T, c *Client, key registry.Key) {
		mustCommit(t, c, registry.Delete(key, mustCommit(t, c, registry.Create(key, nil))))
	}
	t.Run("removes empty ancestors up to one in use", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connectRaw(t)
		mustCommit(t, c, registry.Create("used/k", nil))
		deleted(t, c, "used/a/b/c")
		c.reapWithAncestors(t.Context(), []registry.Key{"used/a/b/c"})
		requireMissing(t, raw, ns+"/used/a")
		versionOf(t, raw, ns+"/used/k")
	})
	t.Run("keeps keys, parents and foreign znodes", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connectRaw(t)
		mustCommit(t, c, registry.Create("key", nil), registry.Create("above/k", nil))
		_, err := raw.Create(ns+"/foreign", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		deleted(t, c, "gone")
		c.reapWithAncestors(t.Context(), []registry.Key{"key", "above", "foreign", "never", "gone"})
		requireMissing(t, raw, ns+"/gone")
		for _, name := range []string{"key", "above", "above/k", "foreign"} {
			versionOf(t, raw, ns+"/"+name)
		}
	})
	t.Run("removes the others when one is in use again", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connectRaw(t)
		deleted(t, c, "a")
		deleted(t, c, "b")
		c.reapedCount.Store(7) // outdated, so the first attempt fails
		gone1, err := c.reapZnodes(t.Context(), []registry.Key{"a", "b"})
		require.NoError(t, err)
		require.ElementsMatch(t, []registry.Key{"a", "b"}, gone1)
		requireMissing(t, raw, ns+"/a")
		requireMissing(t, raw, ns+"/b")
	})
	t.Run("keeps a key that was created after its znode was found empty", func(t *testing.T) {
		ns := newNamespace()
		script, other, raw := startScript(t), open(t, ns), connectRaw(t)
		c := script.open(t, ns)
		deleted(t, c, "a")
		deleted(t, c, "b")
		script.before(zkwire.Multi, func() { mustCommit(t, other, registry.Create("a", []byte("in use"))) })
		c.reapWithAncestors(t.Context(), []registry.Key{"a", "b"})
		script.requireDone(t)
		e, err := other.Get(t.Context(), "a", fresh)
		require.NoError(t, err)
		require.Equal(t, "in use", string(e.Value))
		requireMissing(t, raw, ns+"/b")
	})
	t.Run("removes old znodes by itself", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns, func(o *Options) { o.ReapAfter = 200 * time.Millisecond }), connectRaw(t)
		deleted(t, c, "dir/k")
		versionOf(t, raw, ns+"/dir/k")
		eventually(t, func() bool { there, _, _ := raw.Exists(ns + "/dir"); return !there })
	})
	t.Run("removes those of another handle only when they are old", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connectRaw(t)
		deleted(t, c, "k")
		_, stat, err := raw.Exists(ns + "/k")
		require.NoError(t, err)
		require.NoError(t, (&sweep{client: c, before: stat.Mtime - 1}).sweepDir(t.Context(), ""))
		versionOf(t, raw, ns+"/k")
		require.NoError(t, (&sweep{client: c, before: stat.Mtime}).sweepDir(t.Context(), ""))
		requireMissing(t, raw, ns+"/k")
	})
	t.Run("removes the znodes that a closed handle left", func(t *testing.T) {
		ns := newNamespace()
		first, err := Open(t.Context(), Options{Endpoints: open(t, ns).options.Endpoints, Namespace: ns, ReapAfter: -1})
		require.NoError(t, err)
		deleted(t, first, "dir/k")
		mustCommit(t, first, registry.Create("dir2/stays", nil))
		require.NoError(t, first.Close(context.Background()))
		raw := connectRaw(t)
		open(t, ns, func(o *Options) { o.ReapAfter = 50 * time.Millisecond })
		open(t, ns, func(o *Options) { o.ReapAfter = 50 * time.Millisecond })
		eventually(t, func() bool { there, _, _ := raw.Exists(ns + "/dir"); return !there })
		versionOf(t, raw, ns+"/dir2/stays")
	})
}

// eventually fails the test unless ok becomes true within a time that is long for a server.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 20*time.Second, 10*time.Millisecond)
}
