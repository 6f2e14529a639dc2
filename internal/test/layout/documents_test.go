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

// directoriesPage has the table of directories.
const directoriesPage = "CONTRIBUTING.md"

// tableRow matches a row of the table of directories and captures its path.
var tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)/` \\|")

// directoriesAreDocumented compares the top-level directories with the table.
func directoriesAreDocumented(tr *tree) (faults []string) {
	var documented []string
	for _, row := range tableRow.FindAllSubmatch(tr.files[directoriesPage], -1) {
		dir := string(row[1])
		if !tr.exists(dir) {
			faults = append(faults, fmt.Sprintf("%s: nothing at %s/", directoriesPage, dir))
		}
		top, _, _ := strings.Cut(dir, "/")
		documented = append(documented, top)
	}
	var reported string
	for _, p := range tr.paths() {
		dir, _, below := strings.Cut(p, "/")
		if below && dir != reported && !slices.Contains(documented, dir) {
			faults = append(faults, fmt.Sprintf("%s/: not in the table of directories of %s", dir, directoriesPage))
			reported = dir
		}
	}
	return faults
}

// frontPageIsShort bounds the lines of README.md.
func frontPageIsShort(tr *tree) (faults []string) {
	const most = 120
	if n := bytes.Count(tr.files["README.md"], []byte("\n")); n > most {
		faults = append(faults, fmt.Sprintf("README.md: %d lines, above %d", n, most))
	}
	return faults
}

// shown matches a Go block in a document and the preceding comment with its file name.
var shown = regexp.MustCompile("(?s)<!-- (\\S+) -->\n```go\n(.*?)```")

const (
	shownFrom = "// A document shows from here:\n\n"
	shownTo   = "\n// To here.\n"
)

// documentsShowWhatCompiles requires a Go block in README.md. Each Go block in a document
// must name a file and equal, byte for byte, the marked part of that file.
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

// runsTest matches a command that runs a test and captures package and test name.
var runsTest = regexp.MustCompile("\\./(\\S+) -run ('Test[^'\\n]+'|Test[^\\s`]+)")

// namedTestsExist requires that each test named in a document exists, including the names
// of its subtests.
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

// testTexts returns the string literals of a test function.
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
						panic(err) // cannot fail after parsing
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

// link matches a link in a Markdown file and captures its target and the fragment.
var link = regexp.MustCompile(`\]\(([^)#\s]*)#?([^)\s]*)[^)]*\)`)

func linksLeadSomewhere(tr *tree) (faults []string) {
	for _, p := range tr.documents() {
		for _, m := range link.FindAllSubmatch(tr.files[p], -1) {
			target, section := string(m[1]), string(m[2])
			if strings.Contains(target, "://") {
				continue
			}
			to := p
			if target != "" {
				to = path.Join(path.Dir(p), target)
			}
			switch {
			case !tr.exists(to):
				faults = append(faults, fmt.Sprintf("%s: nothing at %s", p, target))
			case section != "" && path.Ext(to) == ".md" && !slices.Contains(sectionsOf(tr.files[to]), section):
				faults = append(faults, fmt.Sprintf("%s: no section #%s in %s", p, section, to))
			}
		}
	}
	return faults
}

// notInSection matches the characters that GitHub leaves out of the fragment of a heading.
var notInSection = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// sectionsOf returns the fragments of the headings of a Markdown file, as GitHub makes them.
func sectionsOf(page []byte) (sections []string) {
	code := false
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if title, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); is && !code && line[0] == '#' {
			title = notInSection.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			sections = append(sections, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return sections
}
