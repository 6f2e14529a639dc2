package lock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// clientOf returns a handle of that name, which is closed with the test.
func clientOf(t *testing.T, s *memory.Server, name string) *memory.Client {
	c := s.Client(name)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c
}

func commit(t *testing.T, reg registry.Registry, ops ...registry.Op) registry.Rev {
	t.Helper()
	rev, err := reg.Txn(context.Background(), registry.Txn{Then: ops})
	require.NoError(t, err)
	return rev
}

func get(t *testing.T, reg registry.Registry, key registry.Key) registry.Entry {
	t.Helper()
	e, err := reg.Get(context.Background(), key, registry.ReadOptions{Fresh: true})
	require.NoError(t, err)
	return e
}
