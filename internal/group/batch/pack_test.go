package batch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestPack(t *testing.T) {
	limits := registry.PortableLimits
	limits.TxnItems = 64
	common := []registry.Cond{registry.Alive("me")}
	key := func(i int) registry.Key { return registry.Key(fmt.Sprintf("k/%d", i)) }
	rev := registry.Rev{Seq: 1}
	plain := func(i int) Items {
		return Items{Conds: []registry.Cond{registry.At(key(i), rev)}, Ops: []registry.Op{registry.Set(key(i), rev, nil)}}
	}
	never := func(int) bool { return false }
	parts := make([]int, 100)
	for i := range parts {
		parts[i] = i
	}

	t.Run("each part is in one transaction, in order, within the limits", func(t *testing.T) {
		loads := Pack(common, parts, limits, plain, never)
		assert.Len(t, loads, 4, "31 parts of two items each, besides the common one")
		var all []int
		for _, l := range loads {
			require.NoError(t, registry.CheckTxn(l.Txn, limits))
			assert.Equal(t, common[0], l.Txn.If[0])
			assert.Len(t, l.Txn.Then, len(l.Parts))
			all = append(all, l.Parts...)
		}
		assert.Equal(t, parts, all)
	})
	t.Run("an item of a transaction belongs to its part", func(t *testing.T) {
		for _, l := range Pack(common, parts, limits, plain, never) {
			_, ok := l.PartOf(0)
			assert.False(t, ok, "the common condition belongs to no part")
			for i := 1; i < len(l.Txn.If)+len(l.Txn.Then); i++ {
				n, ok := l.PartOf(i)
				require.True(t, ok)
				want := l.Txn.If[min(i, len(l.Txn.If)-1)].Key
				if i >= len(l.Txn.If) {
					want = l.Txn.Then[i-len(l.Txn.If)].Key
				}
				assert.Equal(t, want, key(l.Parts[n]))
			}
		}
	})
	t.Run("a part that has to be alone has its own transaction", func(t *testing.T) {
		loads := Pack(common, parts[:3], limits, plain, func(i int) bool { return i == 1 })
		require.Len(t, loads, 3)
		assert.Equal(t, []int{1}, loads[1].Parts)
	})
	t.Run("bytes are limited as well", func(t *testing.T) {
		big := []byte(strings.Repeat("x", 100<<10))
		loads := Pack(common, parts[:6], limits, func(i int) Items {
			return Items{Ops: []registry.Op{registry.Create(key(i), big)}}
		}, never)
		assert.Len(t, loads, 3)
		for _, l := range loads {
			assert.NoError(t, registry.CheckTxn(l.Txn, limits))
		}
	})
	t.Run("a condition on a session that several parts have is added once", func(t *testing.T) {
		loads := Pack(common, parts[:5], limits, func(i int) Items {
			return Items{Conds: []registry.Cond{registry.Dead("x")}, Ops: []registry.Op{registry.Create(key(i), nil)}}
		}, never)
		require.Len(t, loads, 1)
		assert.Len(t, loads[0].Txn.If, 2)
	})
	t.Run("a transaction is made before the parts of later ones are asked for", func(t *testing.T) {
		asked := 0
		for range PackLazily(common, func(yield func(int, Items) bool) {
			for _, i := range parts {
				asked++
				if !yield(i, plain(i)) {
					return
				}
			}
		}, limits, never) {
			break
		}
		assert.Equal(t, 32, asked, "31 parts fit, and the next one shows that")
	})
	t.Run("no parts make no transactions", func(t *testing.T) {
		assert.Empty(t, Pack(common, nil, limits, plain, never))
	})
	t.Run("a transaction may be as large as the limits", func(t *testing.T) {
		l := limits
		l.TxnItems = 1 + 2*2
		assert.Len(t, Pack(common, parts[:2], l, plain, never), 1)
		l.TxnItems--
		assert.Len(t, Pack(common, parts[:2], l, plain, never), 2)

		l = limits
		items := plain(0)
		l.TxnBytes = common[0].Size() + 2*(items.Conds[0].Size()+items.Ops[0].Size())
		assert.Len(t, Pack(common, parts[:2], l, plain, never), 1)
		l.TxnBytes--
		assert.Len(t, Pack(common, parts[:2], l, plain, never), 2)
	})
	t.Run("a part that exceeds the limits has its own transaction", func(t *testing.T) {
		l := limits
		l.TxnItems = 2
		loads := Pack(common, parts[:3], l, plain, never)
		require.Len(t, loads, 3)
		assert.Equal(t, []int{2}, loads[2].Parts)
	})
	t.Run("a condition on a key that several parts have belongs to each", func(t *testing.T) {
		loads := Pack(common, parts[:2], limits, func(i int) Items {
			return Items{Conds: []registry.Cond{registry.At("k/both", rev)}, Ops: []registry.Op{registry.Create(key(i), nil)}}
		}, never)
		require.Len(t, loads, 1)
		for item, want := range []int{-1, 0, 1, 0, 1, -1} {
			n, ok := loads[0].PartOf(item)
			assert.Equal(t, want >= 0, ok, "item %d", item)
			assert.Equal(t, max(want, 0), n, "item %d", item)
		}
		_, ok := loads[0].PartOf(-1)
		assert.False(t, ok)
	})
	t.Run("without common conditions the first item belongs to the first part", func(t *testing.T) {
		n, ok := Pack(nil, parts[:2], limits, plain, never)[0].PartOf(0)
		assert.True(t, ok)
		assert.Zero(t, n)
	})
	t.Run("each transaction has an ID", func(t *testing.T) {
		loads := Pack(common, parts, limits, plain, never)
		ids := map[registry.TxnID]bool{}
		for _, l := range loads {
			ids[l.Txn.ID] = true
		}
		assert.Len(t, ids, len(loads))
		assert.NotContains(t, ids, registry.TxnID{})
	})
}

func TestFindConflict(t *testing.T) {
	conflict := &registry.ConflictError{Index: 3}
	found, ok := FindConflict(fmt.Errorf("commit: %w", conflict))
	assert.True(t, ok)
	assert.Same(t, conflict, found)
	for _, err := range []error{
		nil,
		registry.ErrNotApplied,
		fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, conflict),
	} {
		found, ok := FindConflict(err)
		assert.False(t, ok, "%v", err)
		assert.Nil(t, found)
	}
}
