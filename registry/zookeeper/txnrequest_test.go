package zookeeper

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// offlineClient returns a handle without a server that knows some znodes.
func offlineClient() *Client {
	c := &Client{options: Options{ACL: zk.WorldACL(zk.PermAll)}, layout: layout{"/r"}}
	c.reapedCount.Store(7)
	for key, n := range map[registry.Key]znode{
		"k":     {version: 3, mzxid: 50, created: 40, size: 90},
		"k2":    {version: 4, mzxid: 50, created: 41},
		"~k":    {version: 1, mzxid: 60, created: 60, owner: "s", birth: 5},
		"~k2":   {version: 6, mzxid: 60, created: 60, owner: "s", birth: 6},
		"empty": {version: 2, mzxid: 55, empty: true},
	} {
		c.versions.put(key, &n, 7)
	}
	c.versions.put("outdated", &znode{version: 9, empty: true}, 6)
	return c
}

// describeEntries returns the entries of a multi in words.
func describeEntries(entries []any) (all []string) {
	for _, e := range entries {
		var text string
		switch e := e.(type) {
		case *zk.CheckVersionRequest:
			text = fmt.Sprintf("check %s at %d", e.Path, e.Version)
		case *zk.CreateRequest:
			text = "create " + e.Path
			if e.Flags == zk.FlagEphemeral {
				text = "create ephemeral " + e.Path
			}
			if len(e.Data) > 0 || len(e.Acl) != 1 {
				text += fmt.Sprintf(" with %q and %v", e.Data, e.Acl)
			}
		case *zk.SetDataRequest:
			text = fmt.Sprintf("set %s at %d: %q", e.Path, e.Version, e.Data)
		case *zk.DeleteRequest:
			text = fmt.Sprintf("delete %s at %d", e.Path, e.Version)
		default:
			text = fmt.Sprintf("%T", e)
		}
		all = append(all, text)
	}
	return all
}

func TestMultiRequest(t *testing.T) {
	const (
		txn   = "ab010000000000000000000000000000"
		guard = "check /r/:reaped at 7"
	)
	id := registry.TxnID{0xab, 0x01}
	at, owned := registry.Rev{Seq: 50}, registry.Rev{Seq: 60}
	none := "rota1 none\n"
	for name, c := range map[string]struct {
		txn     registry.Txn
		prepare func(*multiRequest)
		want    []string
		items   []int
	}{
		"Absent creates and deletes the znode": {
			txn:  registry.Txn{If: []registry.Cond{registry.Absent("new")}},
			want: []string{"create /r/new", "delete /r/new at -1"}, items: []int{0, 0},
		},
		"Absent of a deleted key checks the version of its znode": {
			txn:  registry.Txn{If: []registry.Cond{registry.Absent("empty")}},
			want: []string{guard, "check /r/empty at 2"}, items: []int{guardItem, 0},
		},
		"Absent below a missing directory tests that directory, once": {
			txn:     registry.Txn{If: []registry.Cond{registry.Absent("a/b/c"), registry.Absent("a/d"), registry.Absent("b")}},
			prepare: func(m *multiRequest) { m.missingPaths["/r/a"] = true },
			want:    []string{"create /r/a", "delete /r/a at -1", "create /r/b", "delete /r/b at -1"}, items: []int{0, 0, 2, 2},
		},
		"At checks the version, and that no znode was removed since it was read": {
			txn:  registry.Txn{If: []registry.Cond{registry.At("k", at)}},
			want: []string{guard, "check /r/k at 3"}, items: []int{guardItem, 0},
		},
		"At of an owned key checks its birth and its version": {
			txn:  registry.Txn{If: []registry.Cond{registry.At("~k", owned)}},
			want: []string{"check /r/:births/s.5 at -1", "check /r/~k at 1"}, items: []int{0, 0},
		},
		"Alive checks the znode of the session": {
			txn:  registry.Txn{If: []registry.Cond{registry.Alive("s")}},
			want: []string{"check /r/:sessions/s at -1"}, items: []int{0},
		},
		"Dead creates and deletes the znode of the session": {
			txn:  registry.Txn{If: []registry.Cond{registry.Dead("s")}},
			want: []string{"create /r/:sessions/s", "delete /r/:sessions/s at -1"}, items: []int{0, 0},
		},
		"Dead of an ID that no session has holds": {
			txn:  registry.Txn{If: []registry.Cond{registry.Dead("s/..")}},
			want: []string{"check /r at -1"}, items: []int{guardItem},
		},
		"nothing checks that the namespace exists": {
			want: []string{"check /r at -1"}, items: []int{guardItem},
		},
		"Create creates and sets the znode": {
			txn:  registry.Txn{Then: []registry.Op{registry.Create("new", []byte("v"))}},
			want: []string{"create /r/new", `set /r/new at 0: "rota1 ` + txn + `\nv"`}, items: []int{0, 0},
		},
		"Create of a deleted key sets its znode": {
			txn:  registry.Txn{Then: []registry.Op{registry.Create("empty", []byte("v"))}},
			want: []string{guard, `set /r/empty at 2: "rota1 ` + txn + `\nv"`}, items: []int{guardItem, 0},
		},
		"Create of a deleted key whose znode was read again sets it": {
			txn: registry.Txn{Then: []registry.Op{registry.Create("new", nil)}},
			prepare: func(m *multiRequest) {
				m.emptyZnodes["new"] = cachedZnode{znode{version: 8, empty: true}, 7}
			},
			want: []string{guard, `set /r/new at 8: "rota1 ` + txn + `\n"`}, items: []int{guardItem, 0},
		},
		"Create of a deleted key whose znode was read before a removal creates it": {
			txn: registry.Txn{Then: []registry.Op{registry.Create("new", nil)}},
			prepare: func(m *multiRequest) {
				m.emptyZnodes["new"] = cachedZnode{znode{version: 8, empty: true}, 6}
			},
			want: []string{"create /r/new", `set /r/new at 0: "rota1 ` + txn + `\n"`}, items: []int{0, 0},
		},
		"Create of a deleted key that was cached before a removal creates it": {
			txn:  registry.Txn{Then: []registry.Op{registry.Create("outdated", nil)}},
			want: []string{"create /r/outdated", `set /r/outdated at 0: "rota1 ` + txn + `\n"`}, items: []int{0, 0},
		},
		"Create of a key that is known to exist does not set it": {
			txn:  registry.Txn{Then: []registry.Op{registry.Create("k", nil)}},
			want: []string{"create /r/k", `set /r/k at 0: "rota1 ` + txn + `\n"`}, items: []int{0, 0},
		},
		"Absent of a key that is known to exist tests it": {
			txn:  registry.Txn{If: []registry.Cond{registry.Absent("k")}},
			want: []string{"create /r/k", "delete /r/k at -1"}, items: []int{0, 0},
		},
		"CreateOwned creates a birth, the znode and its content": {
			txn: registry.Txn{If: []registry.Cond{registry.Alive("s")}, Then: []registry.Op{registry.CreateOwned("~a", []byte("v"), "s"), registry.CreateOwned("~b", nil, "s")}},
			want: []string{
				"check /r/:sessions/s at -1",
				"create ephemeral /r/:births/s.1", "create ephemeral /r/~a", `set /r/~a at 0: "rota1 ` + txn + ` owner=s birth=1\nv"`,
				"create ephemeral /r/:births/s.2", "create ephemeral /r/~b", `set /r/~b at 0: "rota1 ` + txn + ` owner=s birth=2\n"`,
			}, items: []int{0, 1, 1, 1, 2, 2, 2},
		},
		"Set keeps the creation": {
			txn:  registry.Txn{Then: []registry.Op{registry.Set("k", at, []byte("v"))}},
			want: []string{guard, `set /r/k at 3: "rota1 ` + txn + ` created=40\nv"`}, items: []int{guardItem, 0},
		},
		"Set of an owned key checks its birth and keeps its owner": {
			txn:  registry.Txn{Then: []registry.Op{registry.Set("~k", owned, []byte("v"))}},
			want: []string{"check /r/:births/s.5 at -1", `set /r/~k at 1: "rota1 ` + txn + ` owner=s birth=5 created=60\nv"`}, items: []int{0, 0},
		},
		"Delete sets no value": {
			txn:  registry.Txn{Then: []registry.Op{registry.Delete("k", at), registry.Delete("k2", at)}},
			want: []string{guard, fmt.Sprintf("set /r/k at 3: %q", none), fmt.Sprintf("set /r/k2 at 4: %q", none)}, items: []int{guardItem, 0, 1},
		},
		"Delete in a full store keeps the size": {
			txn:     registry.Txn{Then: []registry.Op{registry.Delete("k", at), registry.Delete("k2", at)}},
			prepare: func(m *multiRequest) { m.padded = true },
			want:    []string{guard, fmt.Sprintf("set /r/k at 3: %q", none+strings.Repeat(" ", 90-len(none))), fmt.Sprintf("set /r/k2 at 4: %q", none)}, items: []int{guardItem, 0, 1},
		},
		"Set beside a Delete in a full store adds nothing to the value": {
			txn:     registry.Txn{Then: []registry.Op{registry.Delete("k2", at), registry.Set("k", at, []byte("v"))}},
			prepare: func(m *multiRequest) { m.padded = true },
			want:    []string{guard, fmt.Sprintf("set /r/k2 at 4: %q", none), `set /r/k at 3: "rota1 ` + txn + ` created=40\nv"`}, items: []int{guardItem, 0, 1},
		},
		"Delete of an owned key beside a Set of another sets no other znode": {
			txn: registry.Txn{Then: []registry.Op{registry.Delete("~k", owned), registry.Set("~k2", owned, nil)}},
			want: []string{
				"delete /r/:births/s.5 at -1", "delete /r/~k at 1",
				"check /r/:births/s.6 at -1", `set /r/~k2 at 6: "rota1 ` + txn + ` owner=s birth=6 created=60\n"`,
			}, items: []int{0, 0, 1, 1},
		},
		"Delete of an owned key deletes its birth and sets the znode of its owner": {
			txn:  registry.Txn{Then: []registry.Op{registry.Delete("~k", owned)}},
			want: []string{"delete /r/:births/s.5 at -1", "delete /r/~k at 1", `set /r/:sessions/s at -1: "rota1 session\n"`}, items: []int{0, 0, 0},
		},
		"Delete of an owned key beside another change sets no other znode": {
			txn:  registry.Txn{Then: []registry.Op{registry.Delete("~k", owned), registry.Delete("k", at)}},
			want: []string{guard, "delete /r/:births/s.5 at -1", "delete /r/~k at 1", fmt.Sprintf("set /r/k at 3: %q", none)}, items: []int{guardItem, 0, 0, 1},
		},
		"conditions come first, and one check of the count before them": {
			txn:  registry.Txn{If: []registry.Cond{registry.Absent("new"), registry.At("k2", at)}, Then: []registry.Op{registry.Set("k", at, nil)}},
			want: []string{guard, "create /r/new", "delete /r/new at -1", "check /r/k2 at 4", `set /r/k at 3: "rota1 ` + txn + ` created=40\n"`}, items: []int{guardItem, 0, 0, 1, 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.txn.ID = id
			m := newMultiRequest(offlineClient(), c.txn, &session{})
			if c.prepare != nil {
				c.prepare(m)
			}
			for range 2 { // every attempt makes the same request
				stale, err := m.build(t.Context())
				require.NoError(t, err)
				require.Equal(t, -1, stale)
				require.Equal(t, c.want, describeEntries(m.entries))
				require.Equal(t, c.items, m.items)
			}
		})
	}
}

func TestMultiRequest_FindsTheFirstItemThatCanNeverHold(t *testing.T) {
	at, other := registry.Rev{Seq: 50}, registry.Rev{Seq: 51}
	for name, c := range map[string]struct {
		txn  registry.Txn
		want int
	}{
		"At another Rev":      {registry.Txn{If: []registry.Cond{registry.Absent("new"), registry.At("k", other)}}, 1},
		"At the zero Rev":     {registry.Txn{If: []registry.Cond{registry.At("unknown", registry.Rev{})}}, 0},
		"At two Revs":         {registry.Txn{If: []registry.Cond{registry.At("k", at), registry.At("k", other)}}, 1},
		"Alive of no session": {registry.Txn{If: []registry.Cond{registry.Alive("s/..")}}, 0},
		"Set and Delete": {registry.Txn{
			If:   []registry.Cond{registry.Absent("new")},
			Then: []registry.Op{registry.Create("x", nil), registry.Set("k", other, nil), registry.Delete("~k", registry.Rev{Seq: 60, Aux: 1})},
		}, 2},
		"Delete of an owned key": {registry.Txn{Then: []registry.Op{registry.Set("k", at, nil), registry.Delete("~k", other)}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMultiRequest(offlineClient(), c.txn, nil)
			m.reapedCount = 7
			for key := range m.requiredRevs() {
				if f, ok := m.client.versions.get(key, 7); ok {
					m.known[key] = f
				}
			}
			require.Equal(t, c.want, m.assembleEntries())
		})
	}
}

func TestMultiRequest_KnowsNoZnodeBeforeTheFirstRemoval(t *testing.T) {
	c := offlineClient()
	c.reapedCount.Store(0)
	m := newMultiRequest(c, registry.Txn{Then: []registry.Op{registry.Create("new", nil)}}, nil)
	require.Equal(t, -1, m.assembleEntries())
	require.Len(t, m.entries, 2)
	require.Equal(t, "create /r/new", describeEntries(m.entries)[0])
}
