package conformance_test

import (
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance"
)

// outsideContract are the files of package registry that use the contract instead of
// defining it, or that define what only one backend can do. They have tests of their own.
var outsideContract = []string{
	"apply.go", "complete.go", "follow.go", "keep.go", "post.go", "prefix.go",
}

// TestContractIsMapped compares the table with the doc comments of package registry. A
// new or changed sentence fails here until Contract lists its promises, or why it makes
// none that the suite can test.
func TestContractIsMapped(t *testing.T) {
	var text []string
	for _, s := range contractText(t) {
		text = append(text, s.of+": "+s.text)
	}
	var table []string
	for _, c := range conformance.Contract {
		table = append(table, c.Of+": "+c.Text)
		assert.NotEqual(t, len(c.Promises) == 0, c.Because == "", "a clause has either promises or a reason: %s: %s", c.Of, c.Text)
	}
	for _, s := range difference(text, table) {
		t.Errorf("conformance.Contract lacks this sentence of package registry: %s", s)
	}
	for _, s := range difference(table, text) {
		t.Errorf("package registry lacks this sentence of conformance.Contract: %s", s)
	}
	if !t.Failed() {
		require.Equal(t, text, table, "the table must follow the order of the text")
	}
}

// difference returns the elements of x that are not in y.
func difference(x, y []string) []string {
	return slices.DeleteFunc(slices.Clone(x), func(s string) bool { return slices.Contains(y, s) })
}

// TestPromisesAreOfTheContract finds promises that neither Contract nor Beyond lists.
func TestPromisesAreOfTheContract(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "promises.go", nil, 0)
	require.NoError(t, err)
	declared := 0
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && len(spec.Values) == 1 {
			declared++
		}
		return true
	})
	require.Len(t, conformance.Promises(), declared, "each declared promise must be in Contract or Beyond")
	for _, c := range conformance.Cases() {
		for _, p := range c.Proves {
			assert.Contains(t, conformance.Promises(), p, c.Title())
		}
	}
}

// sentence is a sentence of the contract with the declaration that it documents.
type sentence struct{ of, text string }

// contractText returns the sentences of the contract in the order of files and lines.
func contractText(t *testing.T) []sentence {
	t.Helper()
	files, err := filepath.Glob("../registry/*.go")
	require.NoError(t, err)
	var all []sentence
	for _, name := range files {
		base := filepath.Base(name)
		if strings.HasSuffix(base, "_test.go") || slices.Contains(outsideContract, base) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		all = append(all, sentencesOfFile(f)...)
	}
	require.NotEmpty(t, all)
	return all
}

func sentencesOfFile(f *ast.File) []sentence {
	all := sentencesOfComments("package", f.Doc)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				all = append(all, sentencesOfComments(receiver(d)+d.Name.Name, d.Doc)...)
			}
		case *ast.GenDecl:
			all = append(all, sentencesOfDecl(d)...)
		}
	}
	return all
}

func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	return typ.(*ast.Ident).Name + "."
}

func sentencesOfDecl(d *ast.GenDecl) []sentence {
	var all []sentence
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() {
				all = append(all, sentencesOfComments(spec.Name.Name, d.Doc, spec.Doc)...)
				all = append(all, sentencesOfFields(spec)...)
			}
		case *ast.ValueSpec:
			if spec.Names[0].IsExported() {
				if len(all) == 0 {
					all = append(all, sentencesOfComments(spec.Names[0].Name, d.Doc)...)
				}
				all = append(all, sentencesOfComments(spec.Names[0].Name, spec.Doc, spec.Comment)...)
			}
		}
	}
	return all
}

func sentencesOfFields(spec *ast.TypeSpec) []sentence {
	var fields *ast.FieldList
	switch typ := spec.Type.(type) {
	case *ast.InterfaceType:
		fields = typ.Methods
	case *ast.StructType:
		fields = typ.Fields
	default:
		return nil
	}
	var all []sentence
	for _, field := range fields.List {
		name := spec.Name.Name
		if len(field.Names) > 0 {
			name += "." + field.Names[0].Name
		}
		all = append(all, sentencesOfComments(name, field.Doc, field.Comment)...)
	}
	return all
}

// sentencesOfComments returns the sentences of comments. A list item begins a new one.
func sentencesOfComments(of string, groups ...*ast.CommentGroup) []sentence {
	var all []sentence
	for _, g := range groups {
		if g == nil {
			continue
		}
		var p comment.Parser
		for _, text := range paragraphsOf(p.Parse(g.Text()).Content) {
			for _, s := range sentencesOf(text) {
				all = append(all, sentence{of, s})
			}
		}
	}
	return all
}

func paragraphsOf(blocks []comment.Block) []string {
	var all []string
	for _, b := range blocks {
		switch b := b.(type) {
		case *comment.Paragraph:
			all = append(all, plainText(b.Text))
		case *comment.List:
			for _, item := range b.Items {
				all = append(all, paragraphsOf(item.Content)...)
			}
		}
	}
	return all
}

func plainText(text []comment.Text) string {
	var b strings.Builder
	for _, t := range text {
		switch t := t.(type) {
		case comment.Plain:
			b.WriteString(string(t))
		case comment.Italic:
			b.WriteString(string(t))
		case *comment.Link:
			b.WriteString(plainText(t.Text))
		case *comment.DocLink:
			b.WriteString(plainText(t.Text))
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// sentencesOf splits text after each period that ends a word and precedes a blank.
func sentencesOf(text string) []string {
	var all []string
	start := 0
	for i := 1; i < len(text); i++ {
		if text[i] == '.' && text[i-1] != ' ' && (i+1 == len(text) || text[i+1] == ' ') {
			all = append(all, strings.TrimSpace(text[start:i+1]))
			start = i + 1
		}
	}
	if rest := strings.TrimSpace(text[start:]); rest != "" {
		all = append(all, rest)
	}
	return all
}
