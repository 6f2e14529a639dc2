package layout

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

func packagesHaveComments(tr *tree) (faults []string) {
	want := map[string]string{} // expected start of the comment, by package
	got := map[string]string{}
	for _, s := range tr.sources {
		if s.isTest() {
			continue
		}
		want[s.dir()] = "Package " + s.file.Name.Name + " "
		if s.file.Name.Name == "main" {
			want[s.dir()] = "Command " + path.Base(s.dir()) + " "
		}
		got[s.dir()] += s.file.Doc.Text()
	}
	for _, pkg := range slices.Sorted(maps.Keys(want)) {
		if !strings.HasPrefix(got[pkg], want[pkg]) {
			faults = append(faults, fmt.Sprintf("%s: no package comment that begins with %q", pkg, want[pkg]))
		}
	}
	return faults
}

// testsDoNotSleep allows sleeping where a package's tests import testing/synctest: there
// time is virtual, and helpers may share it.
func testsDoNotSleep(tr *tree) (faults []string) {
	virtual := map[string]bool{}
	for _, s := range tr.sources {
		if s.importsAny("testing/synctest", tr.module+"/rotatest", tr.module+"/internal/group/membertest") {
			virtual[s.dir()] = true
		}
	}
	for _, s := range tr.sources {
		if !s.isTest() || virtual[s.dir()] {
			continue
		}
		for sel := range s.selectors() {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && sel.Sel.Name == "Sleep" {
				faults = append(faults, s.position(sel)+": sleeps outside a synctest bubble")
			}
		}
	}
	return faults
}

// testsDoNotSkip excludes the conformance suite, which skips cases that a backend
// declares as lacking, with the reason.
func testsDoNotSkip(tr *tree) (faults []string) {
	for _, s := range tr.sources {
		if !s.importsAny("testing") || matchesPattern(s.dir(), "conformance/...") {
			continue
		}
		for sel := range s.selectors() {
			if slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				faults = append(faults, s.position(sel)+": skips")
			}
		}
	}
	return faults
}

// pure are the packages that make decisions. They depend on their arguments only, so that a
// decision can be explored, replayed and tested without a clock or a store.
var pure = []string{
	"coordinator/strategy", "internal/group/balance", "internal/group/batch", "internal/group/claiming",
	"internal/group/diagnosis", "internal/group/due", "internal/group/election", "internal/group/explain",
	"internal/group/planning", "internal/group/skew", "internal/group/snapshot",
}

// decisionsArePure finds imports, calls and statements by which such a package would wait, share
// state or read a clock.
func decisionsArePure(tr *tree) (faults []string) {
	for _, s := range tr.sources {
		if s.isTest() || !slices.Contains(pure, s.dir()) {
			continue
		}
		for _, imp := range s.imports() {
			if matchesAny(imp, "context", "sync/...", "log/...", "os/...", "math/rand/...", "crypto/rand", "net/...") {
				faults = append(faults, fmt.Sprintf("%s: package %s decides, and may not import %s", s.path, s.dir(), imp))
			}
		}
		for n := range ast.Preorder(s.file) {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Sleep", "Tick"}, n.Sel.Name) {
					faults = append(faults, s.position(n)+": a decision reads the clock")
				}
			case *ast.GoStmt, *ast.ChanType:
				faults = append(faults, s.position(n)+": a decision runs beside others")
			}
		}
	}
	return faults
}

// loadingDoesNothing excludes commands, which no package imports.
func loadingDoesNothing(tr *tree) (faults []string) {
	for _, s := range tr.sources {
		if matchesAny(s.dir(), "cmd/...", "examples/...") {
			continue
		}
		for _, decl := range s.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					faults = append(faults, s.position(d)+": init function")
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR {
					faults = append(faults, s.sharedByBubbles(d)...)
				}
			}
		}
	}
	return faults
}

// sharedByBubbles reports values of a package-level variable that two synctest bubbles
// cannot share: a channel, or a goroutine started by its initialization.
func (s source) sharedByBubbles(decl ast.Node) (faults []string) {
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.FuncLit); ok { // called at once
				faults = append(faults, s.sharedByBubbles(f.Body)...)
			}
		case *ast.FuncLit, *ast.FuncType:
			return false // a function literal acts only when it is called
		case *ast.ChanType:
			faults = append(faults, s.position(n)+": package-level channel")
		case *ast.GoStmt:
			faults = append(faults, s.position(n)+": package-level goroutine")
		}
		return true
	})
	return faults
}

func (s source) selectors() func(yield func(*ast.SelectorExpr) bool) {
	return func(yield func(*ast.SelectorExpr) bool) {
		for n := range ast.Preorder(s.file) {
			if sel, ok := n.(*ast.SelectorExpr); ok && !yield(sel) {
				return
			}
		}
	}
}

// modulePathIsWrittenOnce allows the module path in go.mod, go.work, import paths and the
// command in README.md that adds the module, so that it can be changed by two edits and one
// replacement.
func modulePathIsWrittenOnce(tr *tree) (faults []string) {
	imported := map[string]int{} // by file
	for _, s := range tr.sources {
		for _, imp := range s.imports() {
			if _, ok := tr.dirOfImport(imp); ok {
				imported[s.path]++
			}
		}
	}
	for _, p := range tr.paths() {
		if path.Base(p) == "go.mod" || p == "go.work" || tr.inOtherModule(p) {
			continue
		}
		n := bytes.Count(tr.files[p], []byte(tr.module)) - imported[p]
		if p == "README.md" {
			n -= bytes.Count(tr.files[p], []byte("\ngo get "+tr.module+"@"))
		}
		if n > 0 {
			faults = append(faults, fmt.Sprintf("%s: names the module's path, %d times", p, n))
		}
	}
	return faults
}

// mostFiles is the number of files of a package that a reader can still survey.
const mostFiles = 30

// packagesAreSmall counts production files. The suite has a file for each group of cases.
func packagesAreSmall(tr *tree) (faults []string) {
	count := map[string]int{}
	for _, s := range tr.sources {
		if !s.isTest() {
			count[s.dir()]++
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(count)) {
		if n := count[dir]; n > mostFiles && dir != "conformance" {
			faults = append(faults, fmt.Sprintf("%s has %d files, above %d: give a part of it a package of its own", dir, n, mostFiles))
		}
	}
	return faults
}

var fileName = regexp.MustCompile(`\b[a-z][a-z0-9_]*\.go\b`)

// commentsNameFiles finds the names of Go files in comments that no directory has.
func commentsNameFiles(tr *tree) (faults []string) {
	known := map[string]bool{}
	for p := range tr.files {
		known[path.Base(p)] = true
	}
	for _, s := range tr.sources {
		for _, c := range s.file.Comments {
			for _, name := range fileName.FindAllString(c.Text(), -1) {
				if !known[name] {
					faults = append(faults, fmt.Sprintf("%s: a comment names %s, which does not exist", s.path, name))
				}
			}
		}
	}
	return faults
}
