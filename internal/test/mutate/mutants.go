package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// mutant is one fault.
type mutant struct {
	number   int
	file     string
	function string
	fault    string // in words, with the code that it changes

	reached   bool   // tests run its code
	noticedBy string // a test
}

func (m *mutant) String() string { return fmt.Sprintf("%s %s: %s", m.file, m.function, m.fault) }

func (m *mutant) outcome() string {
	switch {
	case m.noticedBy != "":
		return m.noticedBy
	case m.reached:
		return "survives"
	}
	return "is not run"
}

// mutatedFile is a source file with all its faults.
type mutatedFile struct {
	pkg     string
	source  []byte
	mutants []*mutant
}

// edit replaces the source between two offsets by text.
type edit struct {
	from, to int
	text     string
	order    int // among the edits at one offset
}

// mutator collects the edits of a file. An edit never evaluates an expression twice and never
// leaves a variable unused, so the faults compile and the code without a selected fault behaves
// as the original.
type mutator struct {
	fset     *token.FileSet
	name     string
	source   []byte
	consts   map[string]bool // the constants of the package
	next     int
	mutants  []*mutant
	edits    []edit
	function string
	results  []*ast.FieldList // of the enclosing functions
	seen     map[string]int
}

// constNames adds the names of the constants in a file to names.
func constNames(source []byte, names map[string]bool) error {
	f, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, s := range d.Specs {
				for _, name := range s.(*ast.ValueSpec).Names {
					names[name.Name] = true
				}
			}
		}
		return true
	})
	return nil
}

// mutateFile returns the source of a file, in a package with these constants, with its faults. They
// are numbered from first.
func mutateFile(name string, source []byte, consts map[string]bool, first int) (mutatedFile, error) {
	m := &mutator{fset: token.NewFileSet(), name: name, source: source, consts: consts, next: first, seen: map[string]int{}}
	f, err := parser.ParseFile(m.fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		return mutatedFile{}, err
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				m.function = m.functionName(d)
				m.mutateFunc(d.Type, d.Body)
			}
		case *ast.GenDecl:
			m.mutateVars(d)
		}
	}
	return mutatedFile{pkg: f.Name.Name, source: m.apply(), mutants: m.mutants}, nil
}

// functionName returns the name with the type of the receiver, as in watcher.Next.
func (m *mutator) functionName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	typ, _, _ := strings.Cut(strings.TrimPrefix(m.text(d.Recv.List[0].Type), "*"), "[")
	return typ + "." + d.Name.Name
}

// mutateVars mutates the functions in the values of package variables.
func (m *mutator) mutateVars(d *ast.GenDecl) {
	for _, s := range d.Specs {
		v, ok := s.(*ast.ValueSpec)
		if !ok || d.Tok != token.VAR {
			continue
		}
		m.function = v.Names[0].Name
		for _, value := range v.Values {
			ast.Inspect(value, func(n ast.Node) bool {
				f, ok := n.(*ast.FuncLit)
				if ok {
					m.mutateFunc(f.Type, f.Body)
				}
				return !ok
			})
		}
	}
}

// apply returns the source with the edits. Of several at one offset, those that begin an
// enclosing piece come first, and those that end one come last.
func (m *mutator) apply() []byte {
	slices.SortStableFunc(m.edits, func(x, y edit) int {
		if x.from != y.from {
			return x.from - y.from
		}
		return x.order - y.order
	})
	var out bytes.Buffer
	at := 0
	for _, e := range m.edits {
		out.Write(m.source[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	out.Write(m.source[at:])
	return out.Bytes()
}

// wrap surrounds the source of n with text. An outer piece has to be wrapped before the pieces
// in it.
func (m *mutator) wrap(n ast.Node, before, after string) {
	m.insert(n.Pos(), before)
	end := m.offset(n.End())
	m.edits = append(m.edits, edit{end, end, after, -len(m.edits)})
}

func (m *mutator) insert(at token.Pos, text string) {
	m.edits = append(m.edits, edit{m.offset(at), m.offset(at), text, len(m.edits)})
}

func (m *mutator) offset(p token.Pos) int { return m.fset.Position(p).Offset }

// text returns the source of n on one line.
func (m *mutator) text(n ast.Node) string {
	return strings.Join(strings.Fields(string(m.source[m.offset(n.Pos()):m.offset(n.End())])), " ")
}

// add adds a fault and returns its number.
func (m *mutator) add(fault string, n ast.Node) int {
	const longest = 100
	if n != nil {
		text := m.text(n)
		if len(text) > longest {
			text = text[:longest] + "..."
		}
		fault += " " + text
	}
	key := m.function + " " + fault
	if m.seen[key]++; m.seen[key] > 1 {
		fault += fmt.Sprintf(" (%d)", m.seen[key])
	}
	number := m.next
	m.next++
	m.mutants = append(m.mutants, &mutant{number: number, file: m.name, function: m.function, fault: fault})
	return number
}

func (m *mutator) mutateFunc(typ *ast.FuncType, body *ast.BlockStmt) {
	m.results = append(m.results, typ.Results)
	if typ.Results == nil && len(body.List) > 0 {
		m.insert(body.Lbrace+1, fmt.Sprintf(" if mutantOn(%d) { return };", m.add("return at once", nil)))
	}
	m.mutateStmts(body.List)
	m.results = m.results[:len(m.results)-1]
}

func (m *mutator) mutateStmts(list []ast.Stmt) {
	for _, s := range list {
		m.mutateStmt(s)
	}
}

// mutateStmt adds the faults of a statement and of those in it.
func (m *mutator) mutateStmt(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok && m.text(call.Fun) == "panic" {
			return
		}
		m.omit(s)
		m.mutateExprs(s)
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			m.defineZero(s)
		} else {
			m.omit(s)
		}
		m.mutateExprs(s)
	case *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
		m.omit(s)
		m.mutateExprs(s)
	case *ast.BranchStmt:
		if s.Tok == token.CONTINUE || s.Tok == token.BREAK {
			m.omit(s)
		}
	case *ast.ReturnStmt:
		m.mutateReturn(s)
	case *ast.IfStmt:
		m.mutateInit(s.Init)
		m.mutateCond(s.Cond)
		m.mutateStmts(s.Body.List)
		if s.Else != nil {
			m.mutateStmt(s.Else)
		}
	case *ast.ForStmt:
		m.mutateInit(s.Init)
		if s.Cond != nil {
			m.mutateCond(s.Cond)
		}
		m.mutateStmts(s.Body.List)
	case *ast.RangeStmt:
		m.mutateExprs(s.X)
		m.insert(s.Body.Lbrace+1, fmt.Sprintf(" if mutantOn(%d) { break };", m.add("no iteration over", s.X)))
		m.mutateStmts(s.Body.List)
	case *ast.SwitchStmt:
		m.mutateInit(s.Init)
		m.mutateCases(s)
	case *ast.TypeSwitchStmt:
		m.mutateStmts(s.Body.List)
	case *ast.SelectStmt:
		m.mutateStmts(s.Body.List)
	case *ast.CaseClause:
		m.mutateStmts(s.Body)
	case *ast.CommClause:
		m.mutateStmts(s.Body)
	case *ast.BlockStmt:
		m.mutateStmts(s.List)
	case *ast.LabeledStmt:
		m.mutateStmt(s.Stmt)
	}
}

// mutateInit adds the faults in the expressions of an initialization.
func (m *mutator) mutateInit(s ast.Stmt) {
	if s != nil {
		m.mutateExprs(s)
	}
}

func (m *mutator) mutateCases(s *ast.SwitchStmt) {
	for _, clause := range s.Body.List {
		c := clause.(*ast.CaseClause)
		if s.Tag == nil {
			for _, cond := range c.List {
				m.mutateCond(cond)
			}
		}
		m.mutateStmts(c.Body)
	}
}

// omit adds the fault that a statement is left out.
func (m *mutator) omit(s ast.Stmt) {
	m.wrap(s, fmt.Sprintf("if !mutantOn(%d) { ", m.add("omit", s)), " }")
}

// defineZero adds the fault that new variables have zero values, unless they have them anyway.
func (m *mutator) defineZero(s *ast.AssignStmt) {
	if !slices.ContainsFunc(s.Rhs, func(e ast.Expr) bool { return !m.isZero(e) }) {
		return
	}
	var clear []string
	for _, v := range s.Lhs {
		if name := m.text(v); name != "_" {
			clear = append(clear, fmt.Sprintf("mutantZero(&%s)", name))
		}
	}
	m.wrap(s, "", fmt.Sprintf("; if mutantOn(%d) { %s }", m.add("zero values after", s), strings.Join(clear, "; ")))
}

// mutateReturn adds the faults that a boolean result is reversed and that zero values are
// returned.
func (m *mutator) mutateReturn(s *ast.ReturnStmt) {
	types := m.resultTypes()
	if len(s.Results) == 0 {
		return
	}
	zero := len(types) != len(s.Results) // the results of one call
	var bools []ast.Expr
	for i, e := range s.Results {
		switch {
		case !zero && types[i] == "bool":
			bools = append(bools, e)
		case !m.isZero(e):
			zero = true
		}
	}
	if zero {
		m.returnZero(s, types)
	}
	for _, e := range bools {
		m.wrap(e, fmt.Sprintf("mutantReversed(%d, ", m.add("return the reverse of", e)), ")")
	}
	m.mutateExprs(s)
}

func (m *mutator) returnZero(s *ast.ReturnStmt, types []string) {
	var vars, names []string
	for i, typ := range types {
		names = append(names, fmt.Sprintf("zero%d", i))
		vars = append(vars, fmt.Sprintf("var zero%d %s;", i, typ))
	}
	m.insert(s.Pos(), fmt.Sprintf("if mutantOn(%d) { %s return %s };",
		m.add("return zero values instead of", s), strings.Join(vars, " "), strings.Join(names, ", ")))
}

// resultTypes returns the types of the innermost function's results.
func (m *mutator) resultTypes() []string {
	var types []string
	if results := m.results[len(m.results)-1]; results != nil {
		for _, field := range results.List {
			for range max(len(field.Names), 1) {
				types = append(types, m.text(field.Type))
			}
		}
	}
	return types
}

func (m *mutator) isZero(e ast.Expr) bool {
	switch m.text(e) {
	case "nil", "false", "0", `""`:
		return true
	}
	c, ok := e.(*ast.CompositeLit)
	return ok && len(c.Elts) == 0
}

// mutateCond adds the fault that a condition is reversed, and those in its parts.
func (m *mutator) mutateCond(e ast.Expr) {
	m.wrap(e, fmt.Sprintf("mutantReversed(%d, ", m.add("reverse", e)), ")")
	m.mutateExprs(e)
}

// mutateExprs adds the faults of the operators in n, and those of functions in it.
func (m *mutator) mutateExprs(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			m.mutateFunc(n.Type, n.Body)
			return false
		case *ast.BinaryExpr:
			m.mutateOperator(n)
		}
		return true
	})
}

// operators are the functions of switchSource that replace an operator, with the fault of each.
var operators = map[token.Token]struct{ function, fault string }{
	token.LSS: {"mutantLess", "<= instead of <"},
	token.LEQ: {"mutantLessOrEqual", "< instead of <="},
	token.GTR: {"mutantGreater", ">= instead of >"},
	token.GEQ: {"mutantGreaterOrEqual", "> instead of >="},
	token.ADD: {"mutantPlus", "the first operand only of +"},
	token.SUB: {"mutantMinus", "+ instead of -"},
	token.MUL: {"mutantTimes", "the first operand only of *"},
	token.QUO: {"mutantDivide", "* instead of /"},
	token.REM: {"mutantRemainder", "the first operand only of %"},
}

func (m *mutator) mutateOperator(e *ast.BinaryExpr) {
	if e.Op == token.LAND || e.Op == token.LOR {
		before := "(mutantOn(%d) || ("
		if e.Op == token.LOR {
			before = "(!mutantOn(%d) && ("
		}
		for _, part := range []ast.Expr{e.X, e.Y} {
			m.wrap(part, fmt.Sprintf(before, m.add("leave out of a condition", part)), "))")
		}
		return
	}
	op, ok := operators[e.Op]
	if !ok || m.isConstant(e) {
		return
	}
	m.wrap(e, fmt.Sprintf("%s(%d, ", op.function, m.add(op.fault+" in", e)), ")")
	at := m.offset(e.OpPos)
	m.edits = append(m.edits, edit{at, at + len(e.Op.String()), ",", 0})
}

// isConstant reports whether an expression consists of literals and constants, as 2 * time.Second
// does. It has no switch, because its type may depend on where it stands.
func (m *mutator) isConstant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.Ident:
		return m.consts[e.Name]
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		return ok && x.Name == "time" && e.Sel.IsExported()
	case *ast.ParenExpr:
		return m.isConstant(e.X)
	case *ast.BinaryExpr:
		return m.isConstant(e.X) && m.isConstant(e.Y)
	}
	return false
}
