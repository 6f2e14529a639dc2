package provision

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// emptyCache gives a test its own cache.
func emptyCache(t *testing.T) (root string) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	root, err := cacheRoot()
	require.NoError(t, err)
	return root
}

func write(t *testing.T, path, content string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o755))
}

func TestCached(t *testing.T) {
	fill := func(_ context.Context, dir string) error {
		return os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
	}
	t.Run("creates a directory once", func(t *testing.T) {
		emptyCache(t)
		var made atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				dir, err := cached(t.Context(), nil, "thing", "making", func(ctx context.Context, dir string) error {
					made.Add(1)
					return fill(ctx, dir)
				})
				assert.NoError(t, err)
				assert.FileExists(t, filepath.Join(dir, "file"))
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, made.Load())
	})
	t.Run("keeps nothing after a failure", func(t *testing.T) {
		root := emptyCache(t)
		failure := errors.New("failure")
		_, err := cached(t.Context(), nil, "thing", "making", func(ctx context.Context, dir string) error {
			return errors.Join(fill(ctx, dir), failure)
		})
		require.ErrorIs(t, err, failure)
		require.NoDirExists(t, filepath.Join(root, "thing"))
		dir, err := cached(t.Context(), nil, "thing", "making", fill)
		require.NoError(t, err)
		require.FileExists(t, filepath.Join(dir, "file"))
	})
	t.Run("discards the files of a killed process", func(t *testing.T) {
		root := emptyCache(t)
		write(t, filepath.Join(root, "thing.part", "half"), "")
		dir, err := cached(t.Context(), nil, "thing", "making", fill)
		require.NoError(t, err)
		require.NoFileExists(t, filepath.Join(dir, "half"))
		require.NoDirExists(t, filepath.Join(root, "thing.part"))
	})
	t.Run("logs only when it creates", func(t *testing.T) {
		emptyCache(t)
		for _, want := range []string{"making it into ", ""} {
			var log strings.Builder
			_, err := cached(t.Context(), &log, "thing", "making it", fill)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(log.String(), want) && (want == "") == (log.Len() == 0), log.String())
		}
	})
	t.Run("fails without a home directory", func(t *testing.T) {
		t.Setenv("XDG_CACHE_HOME", "")
		t.Setenv("HOME", "")
		t.Setenv("TMPDIR", t.TempDir())
		_, err := cached(t.Context(), nil, "thing", "making", fill)
		require.ErrorContains(t, err, "set HOME or XDG_CACHE_HOME")
	})
	t.Run("refuses a cache that others may write", func(t *testing.T) {
		root := emptyCache(t)
		require.NoError(t, os.Chmod(root, 0o777))
		_, err := cached(t.Context(), nil, "thing", "making", fill)
		require.ErrorContains(t, err, "others may write to it")
	})
}
