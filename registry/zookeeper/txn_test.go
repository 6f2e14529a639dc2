package zookeeper

import (
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/internal/zkwire"
	"github.com/rota-dev/rota/registry"
)

func TestTxn(t *testing.T) {
	t.Run("creates owned keys of one session of its handle only", func(t *testing.T) {
		ns := newNamespace()
		c, other := open(t, ns), open(t, ns)
		s1, s2, s3 := newSession(t, c), newSession(t, c), newSession(t, other)
		_, err := c.Txn(t.Context(), registry.Txn{Then: []registry.Op{
			registry.CreateOwned("~1", nil, s1.ID()), registry.CreateOwned("~2", nil, s2.ID()),
		}})
		require.ErrorIs(t, err, registry.ErrInvalidTxn)
		_, err = c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.CreateOwned("~3", nil, s3.ID())}})
		require.ErrorIs(t, err, registry.ErrInvalidTxn)
		require.NoError(t, s3.Close(t.Context()))
		for _, gone := range []registry.SessionID{s3.ID(), "never-was", "no segment/", "~x"} {
			_, err = c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.CreateOwned("~3", nil, gone)}})
			require.ErrorIs(t, err, registry.ErrSessionLost, gone)
			require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
		}
		l, err := c.List(t.Context(), "", fresh)
		require.NoError(t, err)
		require.Empty(t, l.Entries)
	})
	t.Run("regards malformed session IDs as dead", func(t *testing.T) {
		c := open(t, newNamespace())
		for _, id := range []registry.SessionID{"a/b", "..", "ä", "a b"} {
			_, err := c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Dead(id)}})
			require.NoError(t, err)
			requireConflict(t, c, registry.Txn{If: []registry.Cond{registry.Alive(id)}})
		}
	})
	t.Run("writes keys that share a Rev but not a version", func(t *testing.T) {
		ns := newNamespace()
		c, other := open(t, ns), open(t, ns)
		rev := mustCommit(t, c, registry.Create("often", nil))
		for range 5 {
			rev = mustCommit(t, c, registry.Set("often", rev, nil))
		}
		rev = mustCommit(t, c, registry.Set("often", rev, nil), registry.Create("once", nil))
		rev = mustCommit(t, other, registry.Set("often", rev, nil), registry.Set("once", rev, nil))
		mustCommit(t, c, registry.Delete("often", rev), registry.Delete("once", rev))
	})
	t.Run("conflicts at a Rev that the server cannot have issued", func(t *testing.T) {
		c := open(t, newNamespace())
		rev := mustCommit(t, c, registry.Create("k", nil))
		for _, bogus := range []registry.Rev{{Seq: rev.Seq, Aux: 1}, {Seq: 1<<63 - 1}, {Seq: 1<<64 - 1}} {
			requireConflict(t, c, registry.Txn{If: []registry.Cond{registry.At("k", bogus)}})
		}
	})
	t.Run("names the lowest item even if a later one is known to fail first", func(t *testing.T) {
		c := open(t, newNamespace())
		rev := mustCommit(t, c, registry.Create("k", nil))
		mustCommit(t, c, registry.Create("there", nil))
		_, err := c.Txn(t.Context(), registry.Txn{
			If:   []registry.Cond{registry.At("k", rev), registry.Absent("there")},
			Then: []registry.Op{registry.Set("k2", rev, nil)}, // known to fail before a request is sent
		})
		var conflict *registry.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, 1, conflict.Index)
	})
	t.Run("names no item that did not hold only while an earlier one did not either", func(t *testing.T) {
		ns := newNamespace()
		script, other := startScript(t), open(t, ns)
		c := script.open(t, ns)
		mustCommit(t, other, registry.Delete("k", mustCommit(t, other, registry.Create("k", nil))))
		var rev registry.Rev
		// The first request is refused because the deleted key has a znode. Either both keys exist
		// from then on, or none does.
		script.before(getData, func() { rev = mustCommit(t, other, registry.Create("first", nil), registry.Create("k", nil)) })
		script.before(zkwire.Multi, func() { mustCommit(t, other, registry.Delete("first", rev), registry.Delete("k", rev)) })
		_, err := c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Absent("first")}, Then: []registry.Op{registry.Create("k", nil)}})
		require.NoError(t, err)
		script.requireDone(t)
	})
	t.Run("creates missing znodes of the namespace", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connectRaw(t)
		for _, name := range []string{c.layout.sessionsPath(), c.layout.birthsPath(), c.layout.reapedPath()} {
			require.NoError(t, raw.Delete(name, -1))
		}
		rev := mustCommit(t, c, registry.Create("k", nil))
		mustCommit(t, c, registry.Set("k", rev, nil))
		_, err := c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Dead("never-was")}})
		require.NoError(t, err)
		s := newSession(t, c)
		mustCommit(t, c, registry.CreateOwned("~k", nil, s.ID()))
	})
	t.Run("needs one more request for all keys below a missing directory", func(t *testing.T) {
		c := open(t, newNamespace())
		var all []registry.Cond
		for i := range 30 {
			all = append(all, registry.Absent(registry.Key(fmt.Sprintf("not/there/k%d", i))))
		}
		before := countWrites(t)
		_, err := c.Txn(t.Context(), registry.Txn{If: all})
		require.NoError(t, err)
		require.Equal(t, 2, countWrites(t)-before)

		mustCommit(t, c, registry.Create("not/there/k29", nil))
		_, err = c.Txn(t.Context(), registry.Txn{If: all})
		var conflict *registry.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, 29, conflict.Index)
	})
	t.Run("reports that an ephemeral znode cannot have children", func(t *testing.T) {
		ns := newNamespace()
		c, raw := open(t, ns), connectRaw(t)
		_, err := raw.Create(ns+"/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		_, err = c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("e/k", nil)}})
		require.ErrorIs(t, err, registry.ErrForeign)
	})
}

// countWrites returns the number of write requests that the server has processed.
func countWrites(t *testing.T) int {
	counters, err := servertest.ZooKeeper(t).Members()[0].Counters(t.Context())
	require.NoError(t, err)
	return int(counters["zk_cnt_updatelatency"])
}
