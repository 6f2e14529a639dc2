package goproxy_test

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rota/release/internal/goproxy"
)

// repository returns a repository with a module at its root and one in sub, and the revision of the tree.
func repository(t *testing.T) (dir, tree string) {
	t.Helper()
	dir = t.TempDir()
	for file, text := range map[string]string{
		"go.mod": "module example.org/M\n", "a.go": "package a\n", "LICENSE": "free\n",
		"sub/go.mod": "module example.org/M/sub\n", "sub/b.go": "package b\n",
	} {
		file = filepath.Join(dir, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}} {
		require.NoError(t, exec.Command("git", append([]string{"-C", dir}, args...)...).Run())
	}
	out, err := exec.Command("git", "-C", dir, "write-tree").Output()
	require.NoError(t, err)
	return dir, string(out[:len(out)-1])
}

func namesIn(t *testing.T, file string) (names []string) {
	t.Helper()
	r, err := zip.OpenReader(file)
	require.NoError(t, err)
	defer r.Close()
	for _, f := range r.File {
		names = append(names, f.Name)
	}
	return names
}

func TestAdd(t *testing.T) {
	repo, tree := repository(t)
	proxy := t.TempDir()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	add := func(dir, version string) string {
		sum, err := goproxy.Add(proxy, goproxy.Module{Repository: repo, Revision: tree, Dir: dir, Version: version, Time: at})
		require.NoError(t, err)
		return sum
	}

	t.Run("writes info, mod, zip and list below the escaped path", func(t *testing.T) {
		require.Regexp(t, "^h1:", add(".", "v0.1.0"))
		versions := filepath.Join(proxy, "example.org/!m/@v")
		info, err := os.ReadFile(filepath.Join(versions, "v0.1.0.info"))
		require.NoError(t, err)
		require.JSONEq(t, `{"Version": "v0.1.0", "Time": "2026-01-02T02:04:05Z"}`, string(info))
		mod, err := os.ReadFile(filepath.Join(versions, "v0.1.0.mod"))
		require.NoError(t, err)
		require.Equal(t, "module example.org/M\n", string(mod))
		require.ElementsMatch(t, []string{"example.org/M@v0.1.0/go.mod", "example.org/M@v0.1.0/a.go", "example.org/M@v0.1.0/LICENSE"}, namesIn(t, filepath.Join(versions, "v0.1.0.zip")))
	})
	t.Run("gives a module below the root the licence of the root", func(t *testing.T) {
		add("sub", "v0.1.0")
		require.Contains(t, namesIn(t, filepath.Join(proxy, "example.org/!m/sub/@v/v0.1.0.zip")), "example.org/M/sub@v0.1.0/LICENSE")
	})
	t.Run("lists each version once", func(t *testing.T) {
		add(".", "v0.2.0")
		add(".", "v0.2.0")
		list, err := os.ReadFile(filepath.Join(proxy, "example.org/!m/@v/list"))
		require.NoError(t, err)
		require.Equal(t, "v0.1.0\nv0.2.0\n", string(list))
	})
	t.Run("refuses what is no version", func(t *testing.T) {
		_, err := goproxy.Add(proxy, goproxy.Module{Repository: repo, Revision: tree, Dir: ".", Version: "0.1.0"})
		require.Error(t, err)
	})
}
