package filelock

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTryAcquire_FailsWhileHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := TryAcquire(path)
	require.NoError(t, err)
	_, err = TryAcquire(path)
	require.ErrorIs(t, err, ErrHeld)

	l.Release()
	l, err = TryAcquire(path)
	require.NoError(t, err)
	l.Release()
}

func TestAcquire_WaitsForTheHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Acquire(t.Context(), path)
	require.NoError(t, err)

	taken := make(chan *Lock)
	go func() {
		l, err := Acquire(t.Context(), path)
		if err != nil {
			t.Error(err)
		}
		taken <- l
	}()
	select {
	case <-taken:
		t.Fatal("two holders at once")
	case <-time.After(3 * pollInterval):
	}
	first.Release()
	(<-taken).Release()
}

func TestAcquire_EndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Acquire(t.Context(), path)
	require.NoError(t, err)
	defer l.Release()

	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = Acquire(ctx, path)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestTryAcquire_NamesThePathItCannotOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "lock")
	_, err := TryAcquire(path)
	require.ErrorContains(t, err, path)
}
