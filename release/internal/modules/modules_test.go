package modules_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"rota/release/internal/modules"
)

func write(t *testing.T, tree, file, text string) {
	t.Helper()
	file = filepath.Join(tree, file)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

func read(t *testing.T, tree, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tree, file))
	require.NoError(t, err)
	return string(text)
}

// newTree returns a tree with each released module and one that is not.
func newTree(t *testing.T) string {
	t.Helper()
	tree := t.TempDir()
	write(t, tree, "go.work", "go 1.26.0\n\nuse .\n\n// The version.\nreplace (\n\texample.org/m v0.0.0 => .\n\texample.org/more => ../more\n)\n")
	for _, dir := range modules.Released {
		text := "module " + modules.PathOf("example.org/m", dir) + "\n"
		if dir != "." {
			text += "\nrequire example.org/m v0.0.0\n\nrequire example.org/more v1.0.0 // indirect\n\nreplace example.org/m => ../\n"
		}
		write(t, tree, dir+"/go.mod", text)
	}
	write(t, tree, "bench/go.mod", "module example.org/m/bench\n\nrequire example.org/m v0.0.0\n\nreplace example.org/m => ../\n")
	return tree
}

func TestWriteVersions(t *testing.T) {
	tree := newTree(t)
	require.NoError(t, modules.WriteVersions(tree, "v0.1.0"))

	t.Run("a released module requires the version and replaces nothing of the tree", func(t *testing.T) {
		require.Equal(t, "module example.org/m/web\n\nrequire example.org/m v0.1.0\n\nrequire example.org/more v1.0.0 // indirect\n", read(t, tree, "web/go.mod"))
	})
	t.Run("a module that is not released keeps its replace", func(t *testing.T) {
		require.Equal(t, "module example.org/m/bench\n\nrequire example.org/m v0.1.0\n\nreplace example.org/m => ../\n", read(t, tree, "bench/go.mod"))
	})
	t.Run("the workspace replaces the version, and keeps its comments and other lines", func(t *testing.T) {
		require.Equal(t, "go 1.26.0\n\nuse .\n\n// The version.\nreplace (\n\texample.org/m v0.1.0 => .\n\texample.org/more => ../more\n)\n", read(t, tree, "go.work"))
	})
}

func TestCheck(t *testing.T) {
	t.Run("accepts this repository", func(t *testing.T) {
		require.NoError(t, modules.Check("../../.."))
	})
	t.Run("names a module that is in no list", func(t *testing.T) {
		tree := newTree(t)
		write(t, tree, "other/go.mod", "module example.org/m/other\n")
		require.ErrorContains(t, modules.Check(tree), "other/go.mod: add the module to Released or unreleased")
	})
	t.Run("names a released module that is missing", func(t *testing.T) {
		tree := newTree(t)
		require.NoError(t, os.Remove(filepath.Join(tree, "web/go.mod")))
		require.ErrorContains(t, modules.Check(tree), "web/go.mod: missing")
	})
}

func TestTag(t *testing.T) {
	require.Equal(t, "v0.1.0", modules.Tag(".", "v0.1.0"))
	require.Equal(t, "cmd/rota/v0.1.0", modules.Tag("cmd/rota", "v0.1.0"))
}
