// Package registrytest makes calls of a registry that must succeed in a test.
package registrytest

import (
	"context"
	"testing"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// Client returns a handle of that name, which is closed with the test.
func Client(t testing.TB, s *memory.Server, name string) *memory.Client {
	c := s.Client(name)
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Commit commits a transaction without conditions.
func Commit(t testing.TB, reg registry.Registry, ops ...registry.Op) registry.Rev {
	t.Helper()
	rev, err := reg.Txn(context.Background(), registry.Txn{Then: ops})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// Get is a fresh read of a key that exists.
func Get(t testing.TB, reg registry.Registry, key registry.Key) registry.Entry {
	t.Helper()
	e, err := reg.Get(context.Background(), key, registry.ReadOptions{Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
