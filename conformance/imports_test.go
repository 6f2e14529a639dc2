package conformance_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestImports holds the arrows: the contract needs the standard library only, and the
// suite nothing of any backend.
func TestImports(t *testing.T) {
	const module = "github.com/rota-dev/rota/"
	for dir, allowed := range map[string][]string{
		"../registry": nil,
		".":           {module + "registry", "github.com/stretchr/testify/require"},
	} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			require.NoError(t, err)
			for _, spec := range f.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				require.NoError(t, err)
				first, _, _ := strings.Cut(path, "/")
				std := !strings.Contains(first, ".")
				assert.True(t, std || slices.Contains(allowed, path), "%s imports %s", name, path)
			}
		}
	}
}
