package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
)

func TestList_IsAtomicIfNothingChanged(t *testing.T) {
	c := open(t, newNamespace())
	rev := mustCommit(t, c, registry.Create("d/a", nil), registry.Create("d/b", nil))
	l, err := c.List(t.Context(), "d", fresh)
	require.NoError(t, err)
	require.True(t, l.Atomic)
	require.GreaterOrEqual(t, l.Rev.Seq, rev.Seq)
}

func TestClose_TakesNoLongerThanTheServer(t *testing.T) {
	c, err := Open(t.Context(), Options{Endpoints: servertest.ZooKeeper(t).Addrs(), Namespace: newNamespace()})
	require.NoError(t, err)
	newSession(t, c)
	w, err := c.Watch(t.Context(), "d", registry.WatchOptions{})
	require.NoError(t, err)
	_, err = w.Next(t.Context())
	require.NoError(t, err)
	start := time.Now()
	require.NoError(t, c.Close(context.Background()))
	require.Less(t, time.Since(start), 900*time.Millisecond, "the library alone would wait for a second")
}
