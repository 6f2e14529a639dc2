package coordinator

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestLeader_BuriesTheDeadAndPassesOverTheLiving(t *testing.T) {
	reg := memory.New().Client("a")
	m, err := NewMember(reg, MemberOptions{Namespace: "test", Instance: "a"})
	require.NoError(t, err)
	joined, err := reg.OpenSession(t.Context(), registry.SessionOptions{})
	require.NoError(t, err)
	l := &leader{progress: &progress{}, m: m, log: slog.New(slog.DiscardHandler), view: view{keys: m.keys, members: map[string]memberItem{}}}

	var burials []burial
	for _, incarnation := range []string{"b." + string(joined.ID()), "c.C"} {
		key := m.keys.Member(incarnation)
		rev, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
		require.NoError(t, err)
		l.view.members[incarnation] = memberItem{rev: rev}
		burials = append(burials, burial{incarnation: incarnation, parts: []share{{ops: []registry.Op{registry.Delete(key, rev)}}}})
	}
	leader, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(m.keys.Leader(), nil)}})
	require.NoError(t, err)

	require.NoError(t, l.bury(t.Context(), burials, []registry.Cond{registry.At(m.keys.Leader(), leader)}))
	_, err = reg.Get(t.Context(), m.keys.Member(burials[0].incarnation), registry.ReadOptions{})
	assert.NoError(t, err)
	assert.Contains(t, l.view.members, burials[0].incarnation)
	_, err = reg.Get(t.Context(), m.keys.Member("c.C"), registry.ReadOptions{})
	assert.ErrorIs(t, err, registry.ErrNotFound)
	assert.NotContains(t, l.view.members, "c.C")

	wrong := []registry.Cond{registry.Absent(m.keys.Leader())}
	require.ErrorIs(t, l.bury(t.Context(), burials[:1], wrong), errTermOver)
}
