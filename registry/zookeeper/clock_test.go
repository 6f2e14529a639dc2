package zookeeper

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestWrittenAt(t *testing.T) {
	c := open(t, newNamespace())
	between := func(t *testing.T, key registry.Key, before, after time.Time) {
		t.Helper()
		at, err := c.WrittenAt(t.Context(), key)
		require.NoError(t, err)
		assert.False(t, at.Before(before.Truncate(time.Millisecond)), "%v is before %v", at, before)
		assert.False(t, at.After(after), "%v is after %v", at, after) // the server is on this machine
	}
	t.Run("is the instant of the last write, by the server's clock", func(t *testing.T) {
		began := time.Now()
		rev := do(t, c, registry.Create("k", nil))
		created := time.Now()
		between(t, "k", began, created)
		for !time.Now().Truncate(time.Millisecond).After(created) { // the server's clock has milliseconds
			runtime.Gosched()
		}
		began = time.Now()
		do(t, c, registry.Set("k", rev, []byte("v")))
		between(t, "k", began, time.Now())
	})
	t.Run("is that of owned keys as well", func(t *testing.T) {
		s := newSession(t, c)
		began := time.Now()
		do(t, c, registry.CreateOwned("~k", nil, s.ID()))
		between(t, "~k", began, time.Now())
	})
	t.Run("of a key that is not there, was deleted or is none is an error", func(t *testing.T) {
		rev := do(t, c, registry.Create("gone", nil))
		do(t, c, registry.Delete("gone", rev))
		for _, key := range []registry.Key{"gone", "never"} {
			_, err := c.WrittenAt(t.Context(), key)
			assert.ErrorIs(t, err, registry.ErrNotFound, key)
		}
		_, err := c.WrittenAt(t.Context(), "//")
		assert.ErrorIs(t, err, registry.ErrInvalidKey)
	})
}
