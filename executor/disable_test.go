package executor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
)

func TestDisable(t *testing.T) {
	bubble(t, "of shards skips their fires as they come, in the whole fleet, whoever asks", func(t *testing.T, f *fleet) {
		f.start("a", executor.Options{}, 4, takes(0))
		b := f.start("b", executor.Options{}, 4, takes(0))
		s := operator.Scope{Job: "job", Shards: []int{0, 3}}
		require.NoError(t, b.Operator().Disable(t.Context(), s))
		until(2)
		for n := 1; n <= 2; n++ {
			assert.Len(t, f.began(n), 2)
			assert.NotContains(t, f.began(n), 0)
		}
		require.NoError(t, b.Operator().Enable(t.Context(), s))
		until(3)
		assert.Len(t, f.began(2), 2, "it is not made up for")
		assert.Len(t, f.began(3), 4)
	})
	bubble(t, "of a host moves what its instances own, by the name in their options", func(t *testing.T, f *fleet) {
		f.start("a", executor.Options{Host: "rack-7"}, 4, takes(0))
		b := f.start("b", executor.Options{Host: "rack-8"}, 4, takes(0))
		require.NoError(t, b.Operator().Disable(t.Context(), operator.Scope{Hosts: []string{"rack-7"}}))
		until(1)
		for shard, by := range f.began(1) {
			assert.Equal(t, []string{"b1"}, by, shard)
		}
		require.NoError(t, b.Operator().Enable(t.Context(), operator.Scope{Hosts: []string{"rack-7"}}))
		until(2)
		by := map[string]int{}
		for _, who := range f.began(2) {
			by[who[0]]++
		}
		assert.Equal(t, map[string]int{"a1": 2, "b1": 2}, by)
	})
	bubble(t, "refuses with errors that this package names", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 1, takes(0))
		assert.ErrorIs(t, a.Operator().Disable(t.Context(), operator.Scope{Job: "nothing", Shards: []int{0}}), executor.ErrUnknownJob)
		many := make([]string, 1000)
		for i := range many {
			many[i] = fmt.Sprint("rack-", i)
		}
		assert.ErrorIs(t, a.Operator().Disable(t.Context(), operator.Scope{Hosts: many}), executor.ErrTooManyDisabled)
	})
	t.Run("takes no host's name that nobody could write", func(t *testing.T) {
		_, err := executor.New(memory.New().Client("a"), "test", executor.Options{Host: "a\nb"})
		assert.ErrorContains(t, err, "host:")
	})
}
