package filelock

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTry_FailsWhileHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Try(path)
	require.NoError(t, err)
	_, err = Try(path)
	require.ErrorIs(t, err, ErrHeld)

	l.Release()
	l, err = Try(path)
	require.NoError(t, err)
	l.Release()
}

func TestTake_WaitsForTheHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Take(t.Context(), path)
	require.NoError(t, err)

	taken := make(chan *Lock)
	go func() {
		l, err := Take(t.Context(), path)
		if err != nil {
			t.Error(err)
		}
		taken <- l
	}()
	select {
	case <-taken:
		t.Fatal("both hold it")
	case <-time.After(3 * pollInterval):
	}
	first.Release()
	(<-taken).Release()
}

func TestTake_EndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Take(t.Context(), path)
	require.NoError(t, err)
	defer l.Release()

	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = Take(ctx, path)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestTry_NamesThePathItCannotOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "lock")
	_, err := Try(path)
	require.ErrorContains(t, err, path)
}
