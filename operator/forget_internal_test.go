package operator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// TestForget_Guards changes a record, or opens a session, between the reads of Forget and its transaction.
func TestForget_Guards(t *testing.T) {
	reg := memory.New().Client("console")
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	create := func(t *testing.T, key registry.Key, v any) registry.Rev {
		value, err := record.Encode(v)
		require.NoError(t, err)
		rev, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(key, value)}})
		require.NoError(t, err)
		return rev
	}
	e, err := record.NewEpoch(1, 1, []byte(`{"name":"job","shards":2}`))
	require.NoError(t, err)
	plan := func(owners ...string) *record.Plan {
		p := &record.Plan{Job: "job", Epochs: []record.Epoch{e}, Owners: map[string]shardset.Set{}}
		for i, inc := range owners {
			p.Owners[inc] = shardset.Of(i)
		}
		return p
	}
	read := func(t *testing.T) registry.Txn {
		o := &Operator{reg: reg, keys: keys}
		txn, _, err := o.forgetTxn(t.Context(), "job", "job")
		require.NoError(t, err)
		return txn
	}
	t.Run("no plan, no control and no definition", func(t *testing.T) {
		rev := create(t, keys.Job("job"), e.Def)
		assert.Equal(t, registry.Txn{
			If:   []registry.Cond{registry.Absent(keys.Plan("job")), registry.Absent(keys.Control("job"))},
			Then: []registry.Op{registry.Delete(keys.Job("job"), rev)},
		}, read(t))
		_, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Delete(keys.Job("job"), rev)}})
		require.NoError(t, err)
		rev = create(t, keys.Control("job"), &record.Control{Job: "job"})
		assert.Equal(t, registry.Txn{
			If:   []registry.Cond{registry.Absent(keys.Job("job")), registry.Absent(keys.Plan("job"))},
			Then: []registry.Op{registry.Delete(keys.Control("job"), rev)},
		}, read(t))
	})
	t.Run("owners whose sessions have expired, with claims and without", func(t *testing.T) {
		def := create(t, keys.Job("job"), e.Def)
		planned := create(t, keys.Plan("job"), plan("x.X", "y.Y"))
		claims := create(t, keys.Claims("x.X", "job"), &record.Claims{Job: "job"})
		txn := read(t)
		control := txn.Then[2].Rev
		assert.Equal(t, registry.Txn{
			If: []registry.Cond{registry.Dead("X"), registry.Absent(keys.Claims("y.Y", "job")), registry.Dead("Y")},
			Then: []registry.Op{
				registry.Delete(keys.Job("job"), def), registry.Delete(keys.Plan("job"), planned), registry.Delete(keys.Control("job"), control),
				registry.Delete(keys.Claims("x.X", "job"), claims),
			},
		}, txn)
		create(t, keys.Claims("y.Y", "job"), &record.Claims{Job: "job"})
		_, err := reg.Txn(t.Context(), txn)
		require.ErrorIs(t, err, registry.ErrConflict, "a claim has come in between")
		_, err = reg.Txn(t.Context(), read(t))
		require.NoError(t, err)
	})
}
