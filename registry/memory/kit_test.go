package memory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// bubble runs f in virtual time with a new server. The clock of a bubble begins at a whole
// second, and the tests wait in whole fractions of one, so all times are exact.
func bubble(t *testing.T, name string, f func(t *testing.T, s *memory.Server)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, memory.New()) })
	})
}

// connect returns a handle that the test closes.
func connect(t *testing.T, s *memory.Server, name string) *memory.Client {
	t.Helper()
	c := s.Client(name)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		c.Close(ctx) // fails if a fault is still in force
	})
	return c
}

func create(t *testing.T, c *memory.Client, key registry.Key, value string) registry.Rev {
	t.Helper()
	return apply(t, c, registry.Create(key, []byte(value)))
}

func apply(t *testing.T, c *memory.Client, ops ...registry.Op) registry.Rev {
	t.Helper()
	rev, err := c.Txn(t.Context(), registry.Txn{Then: ops})
	require.NoError(t, err)
	return rev
}

func get(t *testing.T, c *memory.Client, key registry.Key) string {
	t.Helper()
	e, err := c.Get(t.Context(), key, registry.ReadOptions{})
	require.NoError(t, err)
	return string(e.Value)
}

func has(t *testing.T, c *memory.Client, key registry.Key) bool {
	t.Helper()
	_, err := c.Get(t.Context(), key, registry.ReadOptions{})
	if err != nil {
		require.ErrorIs(t, err, registry.ErrNotFound)
	}
	return err == nil
}

func open(t *testing.T, c *memory.Client, ttl time.Duration) registry.Session {
	t.Helper()
	x, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: ttl})
	require.NoError(t, err)
	require.Equal(t, ttl, x.TTL())
	return x
}

func watch(t *testing.T, c *memory.Client, dir registry.Key) registry.Watcher {
	t.Helper()
	w, err := c.Watch(t.Context(), dir, registry.WatchOptions{})
	require.NoError(t, err)
	return w
}

func next(t *testing.T, w registry.Watcher) registry.Batch {
	t.Helper()
	b, err := w.Next(t.Context())
	require.NoError(t, err)
	return b
}

// requireNoBatch requires that w delivers no batch for d.
func requireNoBatch(t *testing.T, w registry.Watcher, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	b, err := w.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "%v", b)
}

func keys(b registry.Batch) []registry.Key {
	var keys []registry.Key
	for _, e := range b.Puts {
		keys = append(keys, e.Key)
	}
	return keys
}

func state(x registry.Session) registry.SessionState {
	st, _ := x.State()
	return st
}

// checkDuration runs f and checks how long it takes.
func checkDuration(t *testing.T, want time.Duration, f func()) {
	t.Helper()
	begin := time.Now()
	f()
	assert.Equal(t, want, time.Since(begin))
}

// sleepUntil sleeps until the instant at, and until all goroutines that wake then wait again.
func sleepUntil(at time.Time) {
	time.Sleep(time.Until(at))
	synctest.Wait()
}
