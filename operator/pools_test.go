package operator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
)

func TestOperator_AddPoolsSetsMissingSizesOnly(t *testing.T) {
	newOperator := func(t *testing.T) *operator.Operator {
		t.Helper()
		o, err := operator.New(memory.New().Client("console"), "test", "")
		require.NoError(t, err)
		return o
	}
	sizesOf := func(t *testing.T, o *operator.Operator) map[string]int {
		t.Helper()
		sizes := map[string]int{}
		pools, err := o.Pools(t.Context())
		require.NoError(t, err)
		for _, p := range pools {
			sizes[p.Pool] = p.Size
		}
		return sizes
	}
	t.Run("in one act, and returns all that are in force", func(t *testing.T) {
		o := newOperator(t)
		require.NoError(t, o.SetPool(t.Context(), "db", 3))
		require.NoError(t, o.SetPool(t.Context(), "other", 1))
		want := map[string]int{"db": 3, "other": 1, "held": 0, "licence": 2}
		for range 2 {
			inForce, err := o.AddPools(t.Context(), map[string]int{"db": 8, "held": 0, "licence": 2})
			require.NoError(t, err)
			assert.Equal(t, want, inForce)
			assert.Equal(t, want, sizesOf(t, o))
		}
		acts, err := o.Acts(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, acts, 3)
		assert.Equal(t, "set pool held to 0, licence to 2", acts[2].What)
	})
	t.Run("and without sizes it returns those in force", func(t *testing.T) {
		o := newOperator(t)
		inForce, err := o.AddPools(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, inForce)
		require.NoError(t, o.SetPool(t.Context(), "db", 3))
		inForce, err = o.AddPools(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, map[string]int{"db": 3}, inForce)
	})
	t.Run("or none, if one is refused", func(t *testing.T) {
		o := newOperator(t)
		for name, size := range map[string]int{"db": -1, "licence": 10_001, "": 1, strings.Repeat("x", 65): 1} {
			_, err := o.AddPools(t.Context(), map[string]int{"good": 1, name: size})
			require.ErrorIs(t, err, operator.ErrInvalidArgument, name)
		}
		many := map[string]int{}
		for n := range 256 {
			many[fmt.Sprint("pool-", n)] = 1
		}
		require.NoError(t, o.SetPool(t.Context(), "db", 3))
		_, err := o.AddPools(t.Context(), many)
		require.ErrorIs(t, err, operator.ErrTooManyPools)
		assert.Equal(t, map[string]int{"db": 3}, sizesOf(t, o))
	})
}
