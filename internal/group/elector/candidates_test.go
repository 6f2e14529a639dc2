package elector

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestElector_Candidates(t *testing.T) {
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	server := memory.New()
	editor := server.Client("editor")
	o := New(Self{ID: "b.B", Reg: server.Client("b"), Keys: keys}, nil, slog.New(slog.DiscardHandler))
	join := func(incarnations ...string) {
		for _, inc := range incarnations {
			_, err := editor.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(keys.Member(inc), []byte("{}"))}})
			require.NoError(t, err)
		}
	}
	candidates := func() []string {
		all, err := o.listCandidates(t.Context())
		require.NoError(t, err)
		return all
	}
	join("a.A", "b.B", "d.D")
	t.Run("are a ring that begins after this incarnation", func(t *testing.T) {
		require.Equal(t, []string{"d.D", "a.A"}, candidates())
	})
	t.Run("are those in the store, although plain reads are old", func(t *testing.T) {
		defer server.Lag("b")()
		join("c.C")
		assert.Equal(t, []string{"c.C", "d.D", "a.A"}, candidates())
	})
}
