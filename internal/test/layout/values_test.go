package layout

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// statement is a value that documents, doc comments and help texts state in words.
type statement struct {
	// pkg and value are the value in the code: an expression over the constants and variables of a package, such as
	// "cancelGrace + leaveTimeout". len counts the elements of a literal and the methods of an interface.
	pkg, value string
	// texts are the sentences that state it. "#" stands for the value, "..." for other words of the paragraph or row.
	// Each begins with words, occurs, and states the same value wherever it occurs.
	texts []string
}

func TestDocuments_StateTheValuesOfTheCode(t *testing.T) {
	tr, corpus := readRepository(t)
	for _, s := range statements {
		for _, fault := range checkStatement(tr, corpus, s) {
			t.Error(fault)
		}
	}
}

func TestCheckStatement_DetectsAValueThatDiffers(t *testing.T) {
	code := "package a; import (\"time\"; \"example.org/m/b\")\n// Wait is how long to wait. Zero means %s.\nvar Wait int\n" +
		"const wait = 2 * b.Unit; var limits = T{Items: 1 << 7}; var kinds = []int{1, 2, 3}; type Store interface { Get(); Set() }"
	page := "The wait is %s.\n\n| `Wait` | 20 s |\n| `Other` | up to 128\nitems |\n\nThere are three kinds.\nA store has two methods. It keeps 4 KiB.\n"
	files := map[string]string{
		"go.mod": "module example.org/m\n", "a/a.go": fmt.Sprintf(code, "20 s"), "docs/a.md": fmt.Sprintf(page, "20 s"),
		"b/b.go": "package b; import \"time\"; const Unit = 10 * time.Second",
	}
	sound := []statement{
		{"a", "wait", []string{"The wait is #", "`Wait` | #", "Wait is how long... Zero means #"}},
		{"a", "limits.Items", []string{"up to # items"}},
		{"a", "len(kinds)", []string{"There are # kinds"}},
		{"a", "len(Store)", []string{"A store has # methods"}},
		{"a", "1 << 12", []string{"It keeps #"}},
	}
	faultsOf := func(changed string, old, with string) (faults []string) {
		all := map[string]string{}
		for p, text := range files {
			if p == changed {
				if !strings.Contains(text, old) {
					t.Fatalf("%s has no %q", p, old)
				}
				text = strings.Replace(text, old, with, 1)
			}
			all[p] = text
		}
		tr := mustRead(t, all)
		for _, s := range sound {
			faults = append(faults, checkStatement(tr, newCorpus(tr), s)...)
		}
		return faults
	}
	if faults := faultsOf("", "", ""); len(faults) > 0 {
		t.Error(faults)
	}
	for _, change := range [][3]string{
		{"docs/a.md", "wait is 20 s", "wait is 20 ms"},
		{"docs/a.md", "| 20 s", "| 2 s"},
		{"docs/a.md", "three", "four"},
		{"docs/a.md", "two methods", "seven methods"},
		{"docs/a.md", "4 KiB", "4 MiB"},
		{"docs/a.md", "up to 128", "at most 128"}, // the sentence has gone
		{"a/a.go", "means 20 s", "means 21 s"},
		{"a/a.go", "2 * b.Unit", "3 * b.Unit"},
		{"a/a.go", "1 << 7", "1 << 8"},
		{"a/a.go", "const wait", "const waits"},
		{"a/a.go", "1, 2, 3", "1, 2"},
		{"a/a.go", "Get(); ", ""},
		{"b/b.go", "10 *", "11 *"},
	} {
		if len(faultsOf(change[0], change[1], change[2])) == 0 {
			t.Errorf("%q instead of %q is not detected in %s", change[2], change[1], change[0])
		}
	}
}

func readRepository(t *testing.T) (*tree, *corpus) {
	t.Helper()
	tr, err := readTree(repository)
	if err != nil {
		t.Fatal(err)
	}
	return tr, newCorpus(tr)
}

// checkStatement compares the texts of a statement, wherever they occur, with the value in the code.
func checkStatement(tr *tree, c *corpus, s statement) (faults []string) {
	want, err := tr.evaluate(s.pkg, s.value)
	if err != nil {
		return []string{fmt.Sprintf("%s: %s: %v", s.pkg, s.value, err)}
	}
	for _, text := range s.texts {
		found := c.find(text)
		if len(found) == 0 {
			faults = append(faults, fmt.Sprintf("no document has %q, with the value of %s in %s", text, s.value, s.pkg))
		}
		for _, m := range found {
			if got, err := parseStated(m.value); err != nil || got != want {
				faults = append(faults, fmt.Sprintf("%s: %q, but %s is %v in %s", m.source, m.text, s.value, want, s.pkg))
			}
		}
	}
	return faults
}

// corpus is what readers see: documents, doc comments and texts in production code. A line is a paragraph, a row of a
// table, a comment or a string.
type corpus struct {
	text    string
	sources []string
	begins  []int // offset of the text of each source
}

// newCorpus leaves out the list of changes and the decisions, which state the values of their time.
func newCorpus(tr *tree) *corpus {
	c := &corpus{}
	var text strings.Builder
	begin := func(name string) {
		c.sources, c.begins = append(c.sources, name), append(c.begins, text.Len())
	}
	line := func(s string) { text.WriteString("\n" + strings.Join(strings.Fields(s), " ")) }
	for _, p := range tr.documents() {
		if p == "CHANGELOG.md" || strings.HasPrefix(p, "docs/decisions/") {
			continue
		}
		begin(p)
		for l := range strings.Lines(string(tr.files[p])) {
			if strings.TrimSpace(l) == "" || strings.ContainsRune("|-#<`", rune(l[0])) {
				text.WriteString("\n")
			}
			text.WriteString(strings.Join(strings.Fields(l), " ") + " ")
		}
	}
	for _, s := range tr.sources {
		if s.isTest() {
			continue
		}
		begin(s.path)
		for _, group := range s.file.Comments {
			line(group.Text())
		}
		for n := range ast.Preorder(s.file) {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, " ") {
				value, _ := strconv.Unquote(lit.Value) // cannot fail after parsing
				line(value)
			}
		}
	}
	c.text = text.String()
	return c
}

func (c *corpus) source(offset int) string {
	i, found := slices.BinarySearch(c.begins, offset)
	if !found {
		i--
	}
	return c.sources[i]
}

// units are the units of stated values; durations are in nanoseconds.
var units = map[string]float64{
	"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "second": 1e9, "seconds": 1e9, "m": 60e9, "min": 60e9, "minute": 60e9, "minutes": 60e9,
	"h": 3600e9, "hour": 3600e9, "hours": 3600e9, "days": 24 * 3600e9, "byte": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20,
}

var numbers = []string{"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"}

var valuePattern = `((?:[0-9](?:[0-9,.]*[0-9])?|an?\b|(?i:` + strings.Join(numbers, "|") + `))(?:[ -]?(?:ns|µs|ms|s|seconds?|m|min|minutes?|h|hours?|days|bytes?|KiB|MiB)\b)?)`

// occurrence is a place where a document states a value.
type occurrence struct{ source, text, value string }

// find returns where the text of a statement occurs. It searches for the begin of the text first, as that is quick.
func (c *corpus) find(text string) (found []occurrence) {
	p := strings.ReplaceAll(regexp.QuoteMeta(text), `\.\.\.`, `.*?`)
	pattern := regexp.MustCompile("^" + strings.Replace(p, "#", valuePattern, 1))
	begin, _, _ := strings.Cut(text, "#")
	begin, _, _ = strings.Cut(begin, "...")
	if begin == "" {
		return nil // each place would have to be searched
	}
	for at := 0; ; at++ {
		next := strings.Index(c.text[at:], begin)
		if next < 0 {
			return found
		}
		at += next
		line, _, _ := strings.Cut(c.text[at:], "\n")
		if m := pattern.FindStringSubmatch(line); m != nil {
			found = append(found, occurrence{c.source(at), m[0], m[1]})
		}
	}
}

// parseStated parses a value such as "20 s", "10,000", "32 KiB", "eight" or "a minute".
func parseStated(text string) (float64, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return float64(d), nil
	}
	number, unit, _ := strings.Cut(strings.NewReplacer("KiB", " KiB", "MiB", " MiB", "-", " ", "  ", " ").Replace(text), " ")
	factor := 1.0
	if unit = strings.TrimSpace(unit); unit != "" {
		factor = units[unit]
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(number, ",", ""), 64)
	if i := slices.Index(numbers, strings.ToLower(number)); i >= 0 {
		n, err = float64(i), nil
	} else if number == "a" || number == "an" {
		n, err = 1, nil
	}
	return n * factor, err
}

// evaluate returns the value of an expression in a package.
func (tr *tree) evaluate(pkg, text string) (float64, error) {
	e, err := parser.ParseExpr(text)
	if err != nil {
		return 0, err
	}
	v, err := tr.eval(pkg, e)
	if err != nil {
		return 0, err
	}
	f, _ := constant.Float64Val(constant.ToFloat(v))
	return f, nil
}

var timeUnits = map[string]time.Duration{
	"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
}

func (tr *tree) eval(pkg string, e ast.Expr) (constant.Value, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0), nil
	case *ast.ParenExpr:
		return tr.eval(pkg, e.X)
	case *ast.BinaryExpr:
		x, err := tr.eval(pkg, e.X)
		if err != nil {
			return nil, err
		}
		y, err := tr.eval(pkg, e.Y)
		if err != nil {
			return nil, err
		}
		switch {
		case e.Op == token.SHL:
			n, _ := constant.Uint64Val(y)
			return constant.Shift(x, e.Op, uint(n)), nil
		case e.Op == token.QUO && x.Kind() == constant.Int && y.Kind() == constant.Int:
			return constant.BinaryOp(x, token.QUO_ASSIGN, y), nil // of integers
		}
		return constant.BinaryOp(x, e.Op, y), nil
	case *ast.Ident:
		if _, value := tr.declared(pkg, e.Name); value != nil {
			return tr.eval(pkg, value)
		}
	case *ast.SelectorExpr:
		return tr.evalSelector(pkg, e)
	case *ast.CallExpr:
		if len(e.Args) == 1 {
			return tr.evalLen(pkg, e)
		}
	}
	return nil, fmt.Errorf("nothing known of %T in %s", e, pkg)
}

func (tr *tree) evalSelector(pkg string, e *ast.SelectorExpr) (constant.Value, error) {
	of, _ := e.X.(*ast.Ident)
	if of == nil {
		return nil, fmt.Errorf("%s is selected from no name", e.Sel.Name)
	}
	if unit, ok := timeUnits[e.Sel.Name]; ok && of.Name == "time" {
		return constant.MakeInt64(int64(unit)), nil
	}
	if _, value := tr.declared(pkg, of.Name); value != nil {
		if lit, ok := value.(*ast.CompositeLit); ok {
			for _, elt := range lit.Elts {
				if kv, ok := elt.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == e.Sel.Name {
					return tr.eval(pkg, kv.Value)
				}
			}
		}
	}
	for _, s := range tr.sources {
		if s.dir() != pkg || s.isTest() {
			continue
		}
		for _, path := range s.imports() {
			if dir, ok := tr.dirOfImport(path); ok && strings.HasSuffix("/"+dir, "/"+of.Name) {
				return tr.eval(dir, e.Sel)
			}
		}
	}
	return nil, fmt.Errorf("no %s.%s in %s", of.Name, e.Sel.Name, pkg)
}

// evalLen evaluates len(NAME) and conversions such as float64(NAME).
func (tr *tree) evalLen(pkg string, e *ast.CallExpr) (constant.Value, error) {
	of, _ := e.Args[0].(*ast.Ident)
	if fun, _ := e.Fun.(*ast.Ident); of == nil || fun == nil || fun.Name != "len" {
		return tr.eval(pkg, e.Args[0])
	}
	typ, value := tr.declared(pkg, of.Name)
	if lit, ok := value.(*ast.CompositeLit); ok {
		return constant.MakeInt64(int64(len(lit.Elts))), nil
	}
	if i, ok := typ.(*ast.InterfaceType); ok {
		return constant.MakeInt64(int64(i.Methods.NumFields())), nil
	}
	return nil, fmt.Errorf("%s in %s is neither a literal nor an interface", of.Name, pkg)
}

// declared returns the type of a declared type, or the value of a declared constant or variable.
func (tr *tree) declared(pkg, name string) (typ, value ast.Expr) {
	for _, s := range tr.sources {
		if s.dir() != pkg {
			continue
		}
		for _, decl := range s.file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range gen.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.Name == name {
						return spec.Type, nil
					}
				case *ast.ValueSpec:
					for i, n := range spec.Names {
						if n.Name == name && i < len(spec.Values) {
							return nil, spec.Values[i]
						}
					}
				}
			}
		}
	}
	return nil, nil
}
