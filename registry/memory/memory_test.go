package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestFirstSteps(t *testing.T) {
	ctx := t.Context()
	c := memory.New().Client("a")
	defer func() { require.NoError(t, c.Close(context.Background())) }()

	w, err := c.Watch(ctx, "jobs", registry.WatchOptions{})
	require.NoError(t, err)
	b, err := w.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, registry.Snapshot, b.Kind)
	require.Empty(t, b.Puts)

	x, err := c.OpenSession(ctx, registry.SessionOptions{TTL: time.Minute})
	require.NoError(t, err)
	rev, err := c.Txn(ctx, registry.Txn{
		If: []registry.Cond{registry.Absent("jobs/a"), registry.Alive(x.ID())},
		Then: []registry.Op{
			registry.Create("jobs/a", []byte("1")),
			registry.CreateOwned("jobs/~b", []byte("2"), x.ID()),
		},
	})
	require.NoError(t, err)
	e, err := c.Get(ctx, "jobs/~b", registry.ReadOptions{})
	require.NoError(t, err)
	require.Equal(t, "2", string(e.Value))
	require.Equal(t, rev, e.Modified)
	require.Equal(t, x.ID(), e.Owner)

	_, err = c.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Set("jobs/a", registry.Rev{Seq: rev.Seq}, nil)}})
	var conflict *registry.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Zero(t, conflict.Index)

	require.NoError(t, x.Close(ctx))
	require.NoError(t, x.Close(ctx))
	_, err = c.Get(ctx, "jobs/~b", registry.ReadOptions{})
	require.ErrorIs(t, err, registry.ErrNotFound)
	l, err := c.List(ctx, "jobs", registry.ReadOptions{})
	require.NoError(t, err)
	require.Len(t, l.Entries, 1)

	b, err = w.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, registry.Delta, b.Kind)
	require.Len(t, b.Puts, 1)
	require.Equal(t, []registry.Key{"jobs/~b"}, b.Deletes)
}
