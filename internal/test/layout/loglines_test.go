package layout

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// logPages list the log lines at INFO and above, in tables of message and level.
var logPages = []string{"docs/operating/messages.md", "docs/guide/history.md", "docs/jobs-file/log-lines.md"}

// notOnPages are directories whose log lines are for developers.
var notOnPages = []string{"examples/...", "internal/test/...", "bench/...", "conformance/...", "cmd/rota/internal/demo", "cmd/rota/internal/dev"}

var (
	logRow = regexp.MustCompile("(?m)^\\| `?([^|`]+?)`? \\| (DEBUG|INFO|WARN|ERROR) \\|")
	// logQuotes match quotations of log lines; the groups are the level, which may be empty, the message and the level.
	logQuotes = []*regexp.Regexp{
		regexp.MustCompile("()`([^`\n]+)` (?:\\(|at )(DEBUG|INFO|WARN|ERROR)\\b"),
		regexp.MustCompile("\\b(DEBUG|INFO|WARN|ERROR) `([^`\n]+)`()"),
		regexp.MustCompile("\\blog(?:s| line| names it \\() ?()`([^`\n]+)`()"),
		regexp.MustCompile(`level=([A-Z]+) msg="?((?:\b[^" ]+$|[^"\n]+))"()`),
	}
)

// logLinesAreDocumented compares the messages that the code logs with the pages that list them, and with the
// quotations in all documents. A message that is made of a state is none of these: it is no constant.
func logLinesAreDocumented(tr *tree) (faults []string) {
	logged := tr.logLines()
	if len(logged) == 0 {
		return nil
	}
	listed := map[[2]string]bool{}
	for _, p := range logPages {
		for _, m := range logRow.FindAllSubmatch(tr.files[p], -1) {
			line := [2]string{string(m[2]), string(m[1])}
			listed[line] = true
			if !logged[line] && !strings.HasPrefix(line[1], stateMessage) {
				faults = append(faults, fmt.Sprintf("%s: nothing logs %s %q", p, line[0], line[1]))
			}
		}
	}
	for _, line := range slices.SortedFunc(maps.Keys(logged), func(a, b [2]string) int { return strings.Compare(a[1], b[1]) }) {
		if line[0] != "DEBUG" && !listed[line] {
			faults = append(faults, fmt.Sprintf("no page lists %s %q", line[0], line[1]))
		}
	}
	c := newCorpus(tr)
	for _, quote := range logQuotes {
		for _, m := range quote.FindAllStringSubmatchIndex(c.text, -1) {
			level, message := c.text[m[2]:m[3]]+c.text[m[6]:m[7]], c.text[m[4]:m[5]]
			if p := c.source(m[0]); strings.HasSuffix(p, ".md") && !quotesLine(logged, level, message) {
				faults = append(faults, fmt.Sprintf("%s: quotes %s %q, which nothing logs", p, level, message))
			}
		}
	}
	return faults
}

// stateMessage begins the messages that are made of the state of a session.
const stateMessage = "session is "

// quotesLine reports whether a message is logged at a level, at any one if it is empty. A quotation that ends in "..." is
// the begin of a message.
func quotesLine(logged map[[2]string]bool, level, message string) bool {
	begin, cut := strings.CutSuffix(message, "...")
	for line := range logged {
		if (level == "" || level == line[0]) && (line[1] == message || cut && strings.HasPrefix(line[1], strings.TrimSpace(begin))) {
			return true
		}
	}
	return false
}

// logLines returns level and message of each line that the code logs. A level that is a variable counts as ERROR.
func (tr *tree) logLines() map[[2]string]bool {
	lines := map[[2]string]bool{}
	for _, s := range tr.sources {
		if s.isTest() || matchesAny(s.dir(), notOnPages...) {
			continue
		}
		for n := range ast.Preorder(s.file) {
			switch n := n.(type) {
			case *ast.CallExpr:
				method, ok := n.Fun.(*ast.SelectorExpr)
				if !ok {
					continue
				}
				level, args := strings.ToUpper(method.Sel.Name), n.Args
				if slices.Contains([]string{"Log", "LogAttrs", "NewRecord"}, method.Sel.Name) && len(args) > 2 {
					level, args = levelOf(args[1]), args[2:]
				}
				if slices.Contains([]string{"DEBUG", "INFO", "WARN", "ERROR"}, level) && len(args) > 0 {
					addLine(lines, level, args[0])
				}
			case *ast.CompositeLit: // a table of levels and messages
				if len(n.Elts) > 1 && isLevel(n.Elts[0]) {
					for _, message := range n.Elts[1:] {
						addLine(lines, levelOf(n.Elts[0]), message)
					}
				}
			}
		}
	}
	return lines
}

func addLine(lines map[[2]string]bool, level string, message ast.Expr) {
	if lit, ok := message.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		if text, _ := strconv.Unquote(lit.Value); text != "" { // cannot fail after parsing
			lines[[2]string{level, text}] = true
		}
	}
}

func isLevel(e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	return ok && strings.HasPrefix(sel.Sel.Name, "Level")
}

func levelOf(e ast.Expr) string {
	if !isLevel(e) {
		return "ERROR"
	}
	return strings.ToUpper(strings.TrimPrefix(e.(*ast.SelectorExpr).Sel.Name, "Level"))
}
