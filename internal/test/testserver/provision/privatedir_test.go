package provision

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMakePrivateDir(t *testing.T) {
	t.Run("creates a directory for this user alone, once", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "parent", "private")
		for range 2 {
			require.NoError(t, MakePrivateDir(path))
			info, err := os.Lstat(path)
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		}
	})
	for name, c := range map[string]struct {
		plant func(t *testing.T, path string)
		want  string
	}{
		"a link": {func(t *testing.T, path string) {
			require.NoError(t, os.Symlink(t.TempDir(), path))
		}, "it is a link"},
		"a file": {func(t *testing.T, path string) { write(t, path, "") }, "it is not a directory"},
		"a directory that others may write": {func(t *testing.T, path string) {
			require.NoError(t, os.Mkdir(path, 0o700))
			require.NoError(t, os.Chmod(path, 0o777))
		}, "others may write to it (drwxrwxrwx)"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "private")
			c.plant(t, path)
			err := MakePrivateDir(path)
			require.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, path)
		})
	}
	t.Run("refuses a directory of another user", func(t *testing.T) {
		foreign := "/" // of root
		if os.Geteuid() == 0 {
			foreign = filepath.Join(t.TempDir(), "private")
			require.NoError(t, os.Mkdir(foreign, 0o700))
			require.NoError(t, os.Chown(foreign, 54321, -1))
		}
		require.ErrorContains(t, MakePrivateDir(foreign), "it belongs to another user")
	})
}
