package recordedit_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/recordedit"
	"github.com/rota-dev/rota/registry"
)

func newEdit(t *testing.T, kind recordedit.Kind, change recordedit.Change) recordedit.Edit {
	t.Helper()
	keys, err := record.NewKeys("ns", "default")
	require.NoError(t, err)
	e := recordedit.Edit{Kind: kind, Change: change}
	e.SetKey(keys, "pay", "web-1.S7")
	return e
}

func TestEdit_SetKeyGivesEachKindAKeyOfItsOwn(t *testing.T) {
	kinds := map[registry.Key]recordedit.Kind{}
	for _, kind := range recordedit.Kinds {
		e := newEdit(t, kind, recordedit.Delete)
		require.NotEmpty(t, e.Key, kind)
		assert.Empty(t, kinds[e.Key], "%s has the key of another kind", kind)
		kinds[e.Key] = kind
	}
}

func TestEdit_IsUnreadableReportsTheRecordsWhoseWrittenValueRotaRefuses(t *testing.T) {
	refused := map[recordedit.Change][]recordedit.Kind{
		recordedit.Garbage: {recordedit.Meta, recordedit.Job, recordedit.Control, recordedit.GroupControl, recordedit.Plan, recordedit.Claims},
		recordedit.Invalid: {recordedit.Job, recordedit.Control, recordedit.Plan, recordedit.Claims},
	}
	for _, kind := range recordedit.Kinds {
		for _, change := range recordedit.Changes {
			e := newEdit(t, kind, change)
			op, _ := e.Op(registry.Entry{Key: e.Key}, nil, nil)
			assert.Equal(t, slices.Contains(refused[change], kind), e.IsUnreadable(op.Value), "%s, %s", kind, change)
			assert.Equal(t, len(op.Value) > 0, recordedit.IsWrittenValue(op.Value))
		}
	}
}

func TestEdit_OpRollsBackToAValueThatDiffersFromTheCurrentOne(t *testing.T) {
	e := newEdit(t, recordedit.Plan, recordedit.RollBack)
	current := registry.Entry{Key: e.Key, Value: []byte("new")}
	_, ok := e.Op(current, []string{"new"}, func(int) int { return 0 })
	assert.False(t, ok, "there is no older value")
	op, ok := e.Op(current, []string{"old", "new"}, func(int) int { return 0 })
	require.True(t, ok)
	assert.Equal(t, "old", string(op.Value))
}
