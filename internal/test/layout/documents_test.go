package layout

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tableRow matches a row of README.md's table of directories and takes its path.
var tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)/` \\|")

// directoriesAreDocumented wants every directory at the top in the table, and everything
// in the table to be there.
func directoriesAreDocumented(tr *tree) (faults []string) {
	var documented []string
	for _, row := range tableRow.FindAllSubmatch(tr.files["README.md"], -1) {
		dir := string(row[1])
		if !tr.exists(dir) {
			faults = append(faults, fmt.Sprintf("README.md: nothing at %s/", dir))
		}
		top, _, _ := strings.Cut(dir, "/")
		documented = append(documented, top)
	}
	var reported string
	for _, p := range tr.paths() {
		dir, _, below := strings.Cut(p, "/")
		if below && dir != reported && !slices.Contains(documented, dir) {
			faults = append(faults, fmt.Sprintf("%s/: not in README.md's table of directories", dir))
			reported = dir
		}
	}
	return faults
}

// shown matches a Go block in a document and the comment before it that names its file.
var shown = regexp.MustCompile("(?s)<!-- (\\S+) -->\n```go\n(.*?)```")

const (
	shownFrom = "// README.md shows from here:\n\n"
	shownTo   = "\n// To here.\n"
)

// documentsShowWhatCompiles wants a Go block in README.md, a file for each one in any
// document, and the block to be what stands in that file between two comments, byte for
// byte.
func documentsShowWhatCompiles(tr *tree) (faults []string) {
	if !bytes.Contains(tr.files["README.md"], []byte("```go")) {
		faults = append(faults, "README.md: no Go block")
	}
	for _, p := range tr.documents() {
		blocks := shown.FindAllSubmatch(tr.files[p], -1)
		if n := bytes.Count(tr.files[p], []byte("```go")); n != len(blocks) {
			faults = append(faults, fmt.Sprintf("%s: %d Go blocks, of which %d name a file", p, n, len(blocks)))
		}
		for _, b := range blocks {
			_, rest, from := strings.Cut(string(tr.files[string(b[1])]), shownFrom)
			code, _, to := strings.Cut(rest, shownTo)
			switch {
			case !from || !to:
				faults = append(faults, fmt.Sprintf("%s: no part of it is marked as shown in %s", b[1], p))
			case code != string(b[2]):
				faults = append(faults, fmt.Sprintf("%s: its block differs from %s", p, b[1]))
			}
		}
	}
	return faults
}

// runsTest matches how a document tells to run a test, and takes the package and the
// test's name.
var runsTest = regexp.MustCompile("\\./(\\S+) -run ('Test[^'\\n]+'|Test[^\\s`]+)")

// namedTestsExist wants for each test that a document tells to run a function of that
// name, in which the names of its subtests stand.
func namedTestsExist(tr *tree) (faults []string) {
	for _, p := range tr.documents() {
		for _, m := range runsTest.FindAllSubmatch(tr.files[p], -1) {
			names := strings.Split(strings.Trim(string(m[2]), "'"), "/")
			texts, ok := tr.testTexts(string(m[1]), names[0])
			if !ok {
				faults = append(faults, fmt.Sprintf("%s: no %s in %s", p, names[0], m[1]))
				continue
			}
			for _, name := range names[1:] {
				if !slices.Contains(texts, name) {
					faults = append(faults, fmt.Sprintf("%s: no subtest %q in %s of %s", p, name, names[0], m[1]))
				}
			}
		}
	}
	return faults
}

// testTexts returns the texts in a test function.
func (tr *tree) testTexts(dir, name string) (texts []string, ok bool) {
	for _, s := range tr.sources {
		if s.dir() != dir || !s.isTest() {
			continue
		}
		for _, decl := range s.file.Decls {
			f, is := decl.(*ast.FuncDecl)
			if !is || f.Recv != nil || f.Name.Name != name {
				continue
			}
			for n := range ast.Preorder(f) {
				if lit, is := n.(*ast.BasicLit); is && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					if err != nil {
						panic(err) // it has been parsed
					}
					texts = append(texts, text)
				}
			}
			return texts, true
		}
	}
	return nil, false
}

// documents returns the paths of all Markdown files.
func (tr *tree) documents() []string {
	return slices.DeleteFunc(tr.paths(), func(p string) bool { return path.Ext(p) != ".md" })
}

// link matches a link in a Markdown file and takes its target, without a fragment.
var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

func linksLeadSomewhere(tr *tree) (faults []string) {
	for _, p := range tr.documents() {
		for _, m := range link.FindAllSubmatch(tr.files[p], -1) {
			target := string(m[1])
			if strings.Contains(target, "://") || tr.exists(path.Join(path.Dir(p), target)) {
				continue
			}
			faults = append(faults, fmt.Sprintf("%s: nothing at %s", p, target))
		}
	}
	return faults
}
