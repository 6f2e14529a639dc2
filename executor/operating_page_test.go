package executor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOperatingPage_HasEveryProblem(t *testing.T) {
	_, section, found := strings.Cut(page(t), "## Problems")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, cells := range rows(section) {
		if len(cells) == 3 && cells[0] != "problem" && !strings.HasPrefix(cells[0], "---") {
			documented = append(documented, cells[0])
		}
	}
	texts := problemTexts(slices.Concat(sourcesBelow(t, "../coordinator"), sourcesBelow(t, "../internal/group")))
	assert.Greater(t, len(texts), 8)
	slices.Sort(documented)
	assert.Equal(t, slices.Compact(slices.Sorted(slices.Values(texts))), documented)
}

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/operating/messages.md")
	require.NoError(t, err)
	return string(text)
}

// rows returns the cells of the rows of all tables in a text.
func rows(text string) (all [][]string) {
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 3 || cells[0] != "" {
			continue
		}
		cells = cells[1 : len(cells)-1]
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		all = append(all, cells)
	}
	return all
}

// sourcesBelow returns the production files in a directory and below it.
func sourcesBelow(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		files = append(files, f)
		return err
	})
	require.NoError(t, err)
	return files
}

// problemTexts returns the texts that the files assign to a variable or field named problem, or
// add to one, with "..." for each verb of a format. It follows constants and functions by name.
func problemTexts(files []*ast.File) (texts []string) {
	consts, funcs := map[string]ast.Expr{}, map[string]*ast.FuncDecl{}
	for _, f := range files {
		for n := range ast.Preorder(f) {
			switch n := n.(type) {
			case *ast.FuncDecl:
				funcs[n.Name.Name] = n
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if i < len(n.Values) {
						consts[name.Name] = n.Values[i]
					}
				}
			}
		}
	}
	followed := map[string]bool{}
	var follow func(ast.Expr)
	follow = func(e ast.Expr) {
		switch e := e.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(e.Value); err == nil && strings.Contains(text, " ") {
				texts = append(texts, strings.TrimPrefix(formatVerb.ReplaceAllString(text, "..."), ", "))
			}
		case *ast.Ident:
			if value := consts[e.Name]; value != nil && !followed[e.Name] {
				followed[e.Name] = true
				follow(value)
			}
		case *ast.CallExpr:
			name := lastName(e.Fun)
			if name == "Sprintf" && len(e.Args) > 0 {
				follow(e.Args[0])
			}
			if f := funcs[name]; f != nil && !followed[name] && name != "joinProblems" {
				followed[name] = true
				for n := range ast.Preorder(f.Body) {
					if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
						follow(lit)
					}
				}
			}
		}
	}
	for _, f := range files {
		for n := range ast.Preorder(f) {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					if strings.EqualFold(lastName(to), "problem") && len(n.Lhs) == len(n.Rhs) {
						follow(n.Rhs[i])
					}
				}
			case *ast.CallExpr:
				if strings.HasSuffix(strings.ToLower(lastName(n.Fun)), "problem") || lastName(n.Fun) == "joinProblems" {
					for _, arg := range n.Args {
						follow(arg)
					}
				}
			}
		}
	}
	return texts
}

// formatVerb matches a verb of a format.
var formatVerb = regexp.MustCompile(`%[.0-9]*[a-z]`)

// lastName returns the last name of a selector, or that of an identifier.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
