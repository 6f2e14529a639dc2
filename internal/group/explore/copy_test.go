package explore

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The exploration has to run the library's functions, not copies of them. So no two consecutive
// statements, except short ones, occur in both, whatever their variables are named.
func TestExploration_HoldsNoCopyOfAProductionFunction(t *testing.T) {
	library := map[string]string{}
	production := func(file string) bool { return !strings.HasSuffix(file, "_test.go") }
	for _, f := range functionsIn(t, coordinatorDirs(t), production) {
		for _, passage := range statementPairs(t, f) {
			library[passage] = functionName(f)
		}
	}
	require.NotEmpty(t, library)
	explored := func(file string) bool { return file != "copy_test.go" && !strings.HasPrefix(file, "guards") }
	for _, f := range functionsIn(t, []string{"."}, explored) {
		for _, passage := range statementPairs(t, f) {
			assert.Empty(t, library[passage], "%s is a copy of a part of a library function:\n%s", functionName(f), passage)
		}
	}
}

func TestExploration_FindsACopy(t *testing.T) {
	const original = `package p
func (o *elector) lead(k Keys) error {
	value, err := record.Encode(record.Leader{Session: o.session})
	if err != nil { return err }
	return o.commit(k.Leader(), value)
}`
	copied := strings.NewReplacer("o *elector", "x *exploration", "o.", "x.", "value", "text", "lead(", "model(").Replace(original)
	other := strings.ReplaceAll(original, "err != nil", "err == nil")
	of := func(source string) []string {
		file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
		require.NoError(t, err)
		return statementPairs(t, file.Decls[0].(*ast.FuncDecl))
	}
	assert.NotEmpty(t, of(original))
	assert.Equal(t, of(original), of(copied))
	assert.NotEqual(t, of(original), of(other))
}

// functionsIn returns the functions in the Go files of directories that in selects.
func functionsIn(t *testing.T, dirs []string, in func(file string) bool) (all []*ast.FuncDecl) {
	t.Helper()
	var files []string
	for _, dir := range dirs {
		in, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		files = append(files, in...)
	}
	for _, name := range files {
		if !in(name) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				all = append(all, f)
			}
		}
	}
	return all
}

// statementPairs returns the text of each two consecutive statements, without the names of variables. It
// omits short pairs, which are alike by chance.
func statementPairs(t *testing.T, f *ast.FuncDecl) (all []string) {
	t.Helper()
	ast.Inspect(f.Body, func(n ast.Node) bool {
		block, ok := n.(*ast.BlockStmt)
		if !ok {
			return true
		}
		for i := 1; i < len(block.List); i++ {
			if text := withoutNames(t, block.List[i-1]) + "\n" + withoutNames(t, block.List[i]); len(text) > 60 {
				all = append(all, text)
			}
		}
		return true
	})
	return all
}

// withoutNames returns the text of a statement with all variables named alike. The names of fields,
// methods and identifiers of other packages stay.
func withoutNames(t *testing.T, s ast.Stmt) string {
	t.Helper()
	kept := map[*ast.Ident]bool{}
	renamed := map[*ast.Ident]string{}
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			kept[n.Sel] = true
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok {
				kept[key] = true
			}
		case *ast.Ident:
			if !kept[n] {
				renamed[n], n.Name = n.Name, "v"
			}
		}
		return true
	})
	defer func() {
		for id, name := range renamed {
			id.Name = name
		}
	}()
	var out strings.Builder
	require.NoError(t, format.Node(&out, token.NewFileSet(), s))
	return out.String()
}
