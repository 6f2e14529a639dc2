package layout

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// tree is the repository without hidden directories and files ignored by git, such as
// build output.
type tree struct {
	module  string            // path of the root module
	files   map[string][]byte // contents by path below the root
	sources []source          // Go files of the modules in go.work, sorted by path
}

type source struct {
	path string
	fset *token.FileSet
	file *ast.File
}

func readTree(fsys fs.FS) (*tree, error) {
	tr := &tree{files: map[string][]byte{}}
	ignore, err := fs.ReadFile(fsys, ".gitignore")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	err = fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p != "." && strings.HasPrefix(d.Name(), ".") && d.IsDir():
			return fs.SkipDir
		case d.IsDir() || !d.Type().IsRegular() || isIgnored(p, string(ignore)):
			return nil
		}
		tr.files[p], err = fs.ReadFile(fsys, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(tr.files["go.mod"])) {
		if m, ok := strings.CutPrefix(line, "module "); ok {
			tr.module = strings.TrimSpace(m)
		}
	}
	return tr, tr.parse()
}

// isIgnored supports the two forms used in .gitignore: a pattern for file names anywhere
// and, after a slash, one for files at the root.
func isIgnored(p, patterns string) bool {
	for pattern := range strings.FieldsSeq(patterns) {
		name := path.Base(p)
		if root, ok := strings.CutPrefix(pattern, "/"); ok {
			pattern, name = root, p
		}
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return false
}

func (tr *tree) parse() error {
	fset := token.NewFileSet()
	for _, p := range tr.paths() {
		if path.Ext(p) != ".go" || tr.inOtherModule(p) || slices.Contains(strings.Split(p, "/"), "testdata") {
			continue
		}
		file, err := parser.ParseFile(fset, p, tr.files[p], parser.ParseComments)
		if err != nil {
			return err
		}
		tr.sources = append(tr.sources, source{path: p, fset: fset, file: file})
	}
	return nil
}

func (tr *tree) paths() []string { return slices.Sorted(maps.Keys(tr.files)) }

// inOtherModule reports whether the file at p belongs to a module outside go.work.
func (tr *tree) inOtherModule(p string) bool {
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if _, ok := tr.files[dir+"/go.mod"]; ok {
			return !bytes.Contains(tr.files["go.work"], []byte("\t./"+dir+"\n"))
		}
	}
	return false
}

// exists reports whether a file or directory exists at p.
func (tr *tree) exists(p string) bool {
	for f := range tr.files {
		if f == p || strings.HasPrefix(f, p+"/") {
			return true
		}
	}
	return false
}

// dirOfImport returns the directory below the root that an import path of this module
// names.
func (tr *tree) dirOfImport(importPath string) (dir string, ok bool) {
	if importPath == tr.module {
		return ".", true
	}
	return strings.CutPrefix(importPath, tr.module+"/")
}

func (s source) dir() string { return path.Dir(s.path) }

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) position(n ast.Node) string { return s.fset.Position(n.Pos()).String() }

func (s source) imports() []string {
	var paths []string
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value) // cannot fail after parsing
		paths = append(paths, p)
	}
	return paths
}

func (s source) importsAny(paths ...string) bool {
	return slices.ContainsFunc(s.imports(), func(p string) bool { return slices.Contains(paths, p) })
}

// matchesPattern reports whether the slash-separated path p matches pattern: equal, or at
// or below it if pattern ends in "/...".
func matchesPattern(p, pattern string) bool {
	root, subtree := strings.CutSuffix(pattern, "/...")
	return p == root || subtree && strings.HasPrefix(p, root+"/")
}

func matchesAny(p string, patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matchesPattern(p, pattern) })
}
