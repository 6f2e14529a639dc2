package storelog_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/internal/test/storelog"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
)

// store is a server with its log.
type store struct {
	cluster *testserver.Cluster
	url     string
	log     storelog.Log
}

func stores(t *testing.T) map[string]*store {
	e := servertest.StartEtcd(t, testserver.EtcdOptions{})
	elog, err := storelog.Etcd(t.Context(), e.Addrs(), "/some/root", nil)
	require.NoError(t, err)
	t.Cleanup(func() { elog.Close() })
	z := servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{})
	zlog, err := storelog.ZooKeeper(t.Context(), z.Addrs()[0], z.Members()[0].DataDir(), "/some/root")
	require.NoError(t, err)
	t.Cleanup(func() { zlog.Close() })
	return map[string]*store{
		"etcd":      {e, "etcd://" + e.Addrs()[0] + "/some/root", elog},
		"zookeeper": {z, "zk://" + z.Addrs()[0] + "/some/root", zlog},
	}
}

// text returns a commit as text, with names instead of session ids.
func text(c judge.Commit, names map[registry.SessionID]string) string {
	var b strings.Builder
	if c.Opened != "" {
		fmt.Fprintf(&b, "opened %s", names[c.Opened])
	}
	if c.Ended != "" {
		fmt.Fprintf(&b, "ended %s", names[c.Ended])
	}
	for _, op := range c.Then {
		kind := map[registry.OpKind]string{
			registry.OpCreate: "create", registry.OpCreateOwned: "own", registry.OpSet: "set", registry.OpDelete: "delete",
		}[op.Kind]
		fmt.Fprintf(&b, "%s %s=%q%s;", kind, op.Key, op.Value, names[op.Session])
	}
	return b.String()
}

// TestLog_HasAllCommits compares the log of a server with the transactions that were made through the library.
func TestLog_HasAllCommits(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			reg, err := registryurl.Open(ctx, s.url, nil)
			require.NoError(t, err)
			defer reg.Close(ctx)
			names := map[registry.SessionID]string{}
			open := func(name string) registry.Session {
				x, err := reg.OpenSession(ctx, registry.SessionOptions{TTL: 2 * time.Second})
				require.NoError(t, err)
				names[x.ID()] = name
				return x
			}
			var revs []registry.Rev
			do := func(cond []registry.Cond, ops ...registry.Op) registry.Rev {
				rev, err := reg.Txn(ctx, registry.Txn{If: cond, Then: ops})
				require.NoError(t, err)
				revs = append(revs, rev)
				return rev
			}
			first, second := open("first"), open("second")
			made := do(nil, registry.Create("d/a", []byte("1")), registry.CreateOwned("d/~own", []byte("mine"), first.ID()))
			set := do([]registry.Cond{registry.Absent("d/b"), registry.Dead("nobody"), registry.Alive(second.ID())}, registry.Set("d/a", made, []byte("2")))
			do(nil, registry.Delete("d/a", set), registry.Create("deep/er/k", nil))
			_, err = reg.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Set("d/a", set, []byte("late"))}})
			require.ErrorIs(t, err, registry.ErrConflict)
			do([]registry.Cond{registry.Absent("d/a")}, registry.Create("d/a", []byte("again\nand again")))
			_, err = reg.Txn(ctx, registry.Txn{If: []registry.Cond{registry.Absent("d/c")}})
			require.NoError(t, err)
			require.NoError(t, first.Close(ctx))
			require.NoError(t, second.Close(ctx))
			require.NoError(t, s.log.Sync(ctx))
			var got []string
			var seqs []uint64
			for _, c := range s.log.Take() {
				if c.Err != nil {
					continue // ZooKeeper's log holds refused transactions too
				}
				got = append(got, text(c, names))
				if len(c.Then) > 0 {
					seqs = append(seqs, c.Rev.Seq)
				}
			}
			assert.Equal(t, []string{
				"opened first", "opened second",
				`create d/a="1";own d/~own="mine"first;`,
				`set d/a="2";`,
				`delete d/a="";create deep/er/k="";`,
				`create d/a="again\nand again";`,
				"ended first", "ended second",
			}, got)
			for i, rev := range revs {
				assert.Equal(t, rev.Seq, seqs[i], "the number of commit %d", i)
			}
			assert.Empty(t, s.log.Take(), "a commit is returned once")
		})
		t.Run(name+" continues after a restart of the server", func(t *testing.T) {
			ctx := t.Context()
			require.NoError(t, s.cluster.Restart(ctx))
			reg, err := registryurl.Open(ctx, s.url, nil)
			require.NoError(t, err)
			defer reg.Close(ctx)
			_, err = reg.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create("after", []byte("it"))}})
			require.NoError(t, err)
			within, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			require.NoError(t, s.log.Sync(within))
			log := slices.DeleteFunc(s.log.Take(), func(c judge.Commit) bool { return c.Err != nil })
			require.Len(t, log, 1)
			assert.Equal(t, `create after="it";`, text(log[0], nil))
		})
	}
}

// ensembles are stores of three members.
func ensembles(t *testing.T) map[string]*store {
	e := servertest.StartEtcd(t, testserver.EtcdOptions{Members: 3})
	elog, err := storelog.Etcd(t.Context(), e.Addrs(), "/some/root", nil)
	require.NoError(t, err)
	t.Cleanup(func() { elog.Close() })
	z := servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3})
	var members []storelog.ZooKeeperMember
	for _, m := range z.Members() {
		members = append(members, storelog.ZooKeeperMember{Addr: m.Addr(), Dir: m.DataDir()})
	}
	zlog, err := storelog.ZooKeeperEnsemble(t.Context(), members, "/some/root")
	require.NoError(t, err)
	t.Cleanup(func() { zlog.Close() })
	return map[string]*store{
		"etcd":      {e, "etcd://" + strings.Join(e.Addrs(), ",") + "/some/root", elog},
		"zookeeper": {z, "zk://" + strings.Join(z.Addrs(), ",") + "/some/root", zlog},
	}
}

// TestLog_OfAnEnsembleThatLosesMembers kills one member after the other, the leader
// first, while values are written.
func TestLog_OfAnEnsembleThatLosesMembers(t *testing.T) {
	for name, s := range ensembles(t) {
		t.Run(name+" returns each commit once and in order", func(t *testing.T) {
			ctx := t.Context()
			reg, err := registryurl.Open(ctx, s.url, nil)
			require.NoError(t, err)
			defer reg.Close(ctx)
			writing, stop := context.WithCancel(ctx)
			written := make(chan []uint64)
			go func() {
				var seqs []uint64
				rev, _ := registry.Apply(ctx, reg, registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
				for rev != (registry.Rev{}) && writing.Err() == nil {
					seqs = append(seqs, rev.Seq)
					rev, _ = registry.Apply(ctx, reg, registry.Txn{Then: []registry.Op{registry.Set("k", rev, []byte("v"))}})
				}
				written <- seqs
			}()
			leader, err := s.cluster.Leader(ctx)
			require.NoError(t, err)
			for _, m := range append([]*testserver.Member{leader}, s.cluster.Members()...) {
				m.Kill()
				require.NoError(t, s.log.Sync(ctx))
				require.NoError(t, m.Restart(ctx))
				require.NoError(t, s.log.Sync(ctx))
			}
			stop()
			want := <-written
			require.NoError(t, s.log.Sync(ctx))
			var got []uint64
			for _, c := range s.log.Take() {
				if c.Err == nil && len(c.Then) > 0 {
					got = append(got, c.Rev.Seq)
				}
			}
			require.Greater(t, len(want), 50)
			require.GreaterOrEqual(t, len(got), len(want))
			assert.Equal(t, want, got[:len(want)])
			assert.LessOrEqual(t, len(got), len(want)+1, "the outcome of the last write may be unknown")
		})
	}
}

func TestLog_RefusesACompactedEtcd(t *testing.T) {
	c := servertest.StartEtcd(t, testserver.EtcdOptions{Compaction: time.Second})
	ctx := t.Context()
	reg, err := registryurl.Open(ctx, "etcd://"+c.Addrs()[0]+"/some/root", nil)
	require.NoError(t, err)
	defer reg.Close(ctx)
	rev, err := reg.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		next, err := reg.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Set("k", rev, nil)}})
		if err == nil {
			rev = next
		}
		log, err := storelog.Etcd(ctx, c.Addrs(), "/some/root", nil)
		require.NoError(t, err)
		defer log.Close()
		assert.ErrorContains(t, log.Sync(ctx), "compacted")
	}, 30*time.Second, 200*time.Millisecond)
}
