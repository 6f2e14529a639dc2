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
		assert.False(t, at.After(after), "%v is after %v", at, after) // the server's clock is that of this machine
	}
	t.Run("returns the time of the last write by the server's clock", func(t *testing.T) {
		began := time.Now()
		rev := mustCommit(t, c, registry.Create("k", nil))
		created := time.Now()
		between(t, "k", began, created)
		for !time.Now().Truncate(time.Millisecond).After(created) { // the server counts milliseconds
			runtime.Gosched()
		}
		began = time.Now()
		mustCommit(t, c, registry.Set("k", rev, []byte("v")))
		between(t, "k", began, time.Now())
	})
	t.Run("works for owned keys", func(t *testing.T) {
		s := newSession(t, c)
		began := time.Now()
		mustCommit(t, c, registry.CreateOwned("~k", nil, s.ID()))
		between(t, "~k", began, time.Now())
	})
	t.Run("fails for a missing, deleted or invalid key", func(t *testing.T) {
		rev := mustCommit(t, c, registry.Create("gone", nil))
		mustCommit(t, c, registry.Delete("gone", rev))
		for _, key := range []registry.Key{"gone", "never"} {
			_, err := c.WrittenAt(t.Context(), key)
			assert.ErrorIs(t, err, registry.ErrNotFound, key)
		}
		_, err := c.WrittenAt(t.Context(), "//")
		assert.ErrorIs(t, err, registry.ErrInvalidKey)
	})
}
