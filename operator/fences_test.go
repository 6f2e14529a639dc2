package operator_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// fenceOf returns the fence of the owner of a shard who joins now.
func fenceOf(t *testing.T, reg registry.Registry) uint64 {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	fence := make(chan uint64, 1)
	var joined sync.WaitGroup
	joined.Go(func() {
		assert.NoError(t, coordinator.Join(ctx, reg, coordinator.Config{Namespace: "test", Shards: 1, Own: func(ctx context.Context, s coordinator.Owned) error {
			fence <- s.Fence
			<-ctx.Done()
			return nil
		}}))
	})
	defer joined.Wait()
	defer leave()
	return <-fence
}

func TestOperator_RaiseFences(t *testing.T) {
	bubble := func(name string, f func(t *testing.T, server *memory.Server, op *operator.Operator)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := memory.New()
				op, err := operator.New(server.Client("console"), "test", "")
				require.NoError(t, err)
				f(t, server, op)
			})
		})
	}
	bubble("makes the fences of those who join greater", func(t *testing.T, server *memory.Server, op *operator.Operator) {
		before := fenceOf(t, server.Client("a"))
		require.NoError(t, op.RaiseFences(t.Context(), before+1_000_000))
		assert.Greater(t, fenceOf(t, server.Client("a")), before+1_000_000)
	})
	bubble("makes the fences of later claims of an instance greater that has joined", func(t *testing.T, server *memory.Server, op *operator.Operator) {
		ctx, leave := context.WithCancel(t.Context())
		fences := make(chan uint64)
		release := make(chan error)
		var joined sync.WaitGroup
		joined.Go(func() {
			assert.NoError(t, coordinator.Join(ctx, server.Client("a"), coordinator.Config{Namespace: "test", Shards: 1, Own: func(ctx context.Context, s coordinator.Owned) error {
				fences <- s.Fence
				select {
				case err := <-release:
					return err
				case <-ctx.Done():
					return nil
				}
			}}))
		})
		assert.Less(t, <-fences, uint64(1<<40))
		require.NoError(t, op.RaiseFences(t.Context(), 1<<40))
		release <- errors.New("again")
		assert.Greater(t, <-fences, uint64(1<<40))
		leave()
		joined.Wait()
	})
	bubble("works before the first instance has joined", func(t *testing.T, server *memory.Server, op *operator.Operator) {
		require.NoError(t, op.RaiseFences(t.Context(), 1<<40))
		assert.Greater(t, fenceOf(t, server.Client("a")), uint64(1<<40))
	})
	bubble("lowers nothing", func(t *testing.T, server *memory.Server, op *operator.Operator) {
		require.NoError(t, op.RaiseFences(t.Context(), 1<<40))
		server.Record()
		require.NoError(t, op.RaiseFences(t.Context(), 1<<30))
		assert.Empty(t, server.Log(), "it writes nothing")
		assert.Greater(t, fenceOf(t, server.Client("a")), uint64(1<<40))
	})
	bubble("is made by two at once", func(t *testing.T, server *memory.Server, op *operator.Operator) {
		var all sync.WaitGroup
		for i := range uint64(8) {
			all.Go(func() { assert.NoError(t, op.RaiseFences(t.Context(), 1<<40+i)) })
		}
		all.Wait()
		assert.Greater(t, fenceOf(t, server.Client("a")), uint64(1<<40+7))
	})
	bubble("refuses what leaves no room for commit numbers", func(t *testing.T, _ *memory.Server, op *operator.Operator) {
		require.ErrorContains(t, op.RaiseFences(t.Context(), 1<<63), "greater than 4611686018427387904")
	})
}
