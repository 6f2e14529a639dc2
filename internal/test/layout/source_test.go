package layout

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

func packagesHaveComments(tr *tree) (faults []string) {
	want := map[string]string{} // beginning of the comment, by package
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

// testsDoNotSleep tells a bubble's clock from the real one by what the tests of a package
// import: where time is virtual, one of them names it. Others may share its helpers.
func testsDoNotSleep(tr *tree) (faults []string) {
	virtual := map[string]bool{}
	for _, s := range tr.sources {
		if s.importsAny("testing/synctest", tr.module+"/rotatest", tr.module+"/coordinator/internal/membertest") {
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

// testsDoNotSkip leaves out the conformance suite, where what a backend lacks is declared
// with its reason and shows as a skip.
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

// pure are the packages that decide. They know their arguments only, so that a decision can be
// explored, replayed and tested without a clock or a store.
var pure = []string{
	"coordinator/strategy", "coordinator/internal/balance", "coordinator/internal/batch", "coordinator/internal/claiming",
	"coordinator/internal/due", "coordinator/internal/election", "coordinator/internal/planning", "coordinator/internal/skew",
}

// decisionsArePure finds imports, calls and statements by which a package that decides would wait,
// share state or read a clock.
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

// loadingDoesNothing leaves out commands, which nobody imports.
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

// sharedByBubbles reports what of a package-level variable cannot be used by two synctest bubbles:
// a channel, or a goroutine that its value starts.
func (s source) sharedByBubbles(decl ast.Node) (faults []string) {
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.FuncLit); ok { // called at once
				faults = append(faults, s.sharedByBubbles(f.Body)...)
			}
		case *ast.FuncLit, *ast.FuncType:
			return false // what a function takes, makes or starts it does when it is called
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

// modulePathIsWrittenOnce allows it in go.mod and go.work, where packages are imported, and where README.md
// shows how to get the module, so that a change of the path is two edits and one replacement of import paths.
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
