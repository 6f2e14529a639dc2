package memory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestWrittenAt(t *testing.T) {
	bubble(t, "is the instant of the last write, by package time, for every handle and through a prefix", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		created := time.Now()
		rev := create(t, a, "dir/k", "1")
		time.Sleep(time.Hour)
		for _, reg := range []registry.Registry{a, b} {
			at, err := registry.WrittenAt(t.Context(), reg, "dir/k")
			require.NoError(t, err)
			assert.Equal(t, created, at)
		}
		set := time.Now()
		apply(t, a, registry.Set("dir/k", rev, []byte("2")))
		time.Sleep(time.Hour)
		below := registry.Prefix(b, "dir")
		at, err := registry.WrittenAt(t.Context(), below, "k")
		require.NoError(t, err)
		assert.Equal(t, set, at)
		require.NoError(t, below.Close(t.Context()))
		_, err = registry.WrittenAt(t.Context(), below, "k")
		assert.ErrorIs(t, err, registry.ErrClosed)
	})
	bubble(t, "is moved by StepClock, whose steps add up, and sessions are not", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := openOwner(t, a)
		forth, back := s.StepClock(3*time.Hour), s.StepClock(-time.Hour)
		create(t, a, "k", "1")
		stepped := time.Now().Add(2 * time.Hour)
		time.Sleep(time.Minute)
		forth()
		forth()
		at, err := registry.WrittenAt(t.Context(), a, "k")
		require.NoError(t, err)
		assert.Equal(t, stepped, at)
		create(t, a, "k2", "1")
		at, err = registry.WrittenAt(t.Context(), a, "k2")
		require.NoError(t, err)
		assert.Equal(t, time.Now().Add(-time.Hour), at)
		back()
		assert.Equal(t, registry.SessionConnected, state(x))
	})
	bubble(t, "of a missing or invalid key is an error", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		for _, reg := range []registry.Registry{a, registry.Prefix(a, "dir")} {
			_, err := registry.WrittenAt(t.Context(), reg, "k")
			assert.ErrorIs(t, err, registry.ErrNotFound)
			_, err = registry.WrittenAt(t.Context(), reg, "//")
			assert.ErrorIs(t, err, registry.ErrInvalidKey)
		}
	})
	bubble(t, "has the errors of a plain Get", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		create(t, a, "k", "1")
		restore := s.Revoke("a")
		_, err := registry.WrittenAt(t.Context(), a, "k")
		require.ErrorIs(t, err, registry.ErrPermission)
		restore()
		heal := s.Partition("a")
		checkDuration(t, memory.CallTimeout, func() {
			_, err := registry.WrittenAt(t.Context(), a, "k")
			require.ErrorIs(t, err, registry.ErrUnavailable)
		})
		heal()
		s.Isolate("a") // the member answers, as it does plain reads
		checkDuration(t, 0, func() {
			_, err := registry.WrittenAt(t.Context(), a, "k")
			require.NoError(t, err)
		})
	})
	bubble(t, "of a registry without a clock is ErrNoClock, also through a prefix", func(t *testing.T, s *memory.Server) {
		type plain struct{ registry.Registry }
		reg := plain{connect(t, s, "a")}
		for _, reg := range []registry.Registry{reg, registry.Prefix(reg, "dir")} {
			_, err := registry.WrittenAt(t.Context(), reg, "k")
			assert.ErrorIs(t, err, registry.ErrNoClock)
		}
	})
}
