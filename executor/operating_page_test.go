package executor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOperatingPage_HasEveryLogLineAtItsLevel(t *testing.T) {
	page, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	documented := map[string]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains("DEBUG INFO WARN ERROR", strings.TrimSpace(cells[2])) {
			continue
		}
		documented[strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[2])
	}
	logged := map[string]string{}
	dirs, err := filepath.Glob("../coordinator/internal/*")
	require.NoError(t, err)
	for _, dir := range append(dirs, ".", "../coordinator", "../registry/etcd", "../registry/zookeeper") {
		maps.Copy(logged, logLines(t, dir))
	}
	for _, o := range outcomes {
		logged[o.message] = o.level.String()
		if o.more != "" {
			logged[o.more] = o.level.String()
		}
	}
	for _, message := range slices.Sorted(maps.Keys(logged)) {
		assert.Equal(t, logged[message], documented[message], "%q", message)
	}
	for _, message := range slices.Sorted(maps.Keys(documented)) {
		if logged[message] == "" && !strings.HasPrefix(message, "session is ") { // these are made of a state
			assert.Fail(t, "no line has this message", "%q", message)
		}
	}
	assert.Greater(t, len(logged), 50)
}

// logLines returns the messages that the sources in a directory log at INFO and above, with
// their levels.
func logLines(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	out := map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if message, level := logCall(call); level != "" {
					out[message] = level
				}
			}
			return true
		})
	}
	return out
}

// logCall returns the message and the level of a call that logs at INFO or above, and nothing
// for other calls. A level that is a variable counts as ERROR.
func logCall(call *ast.CallExpr) (message, level string) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	at := 0
	switch method.Sel.Name {
	case "Info", "Warn", "Error":
		level = strings.ToUpper(method.Sel.Name)
	case "Log", "LogAttrs":
		at, level = 2, "ERROR"
	}
	if level == "" || len(call.Args) <= at {
		return "", ""
	}
	if at > 0 {
		if l, ok := call.Args[1].(*ast.SelectorExpr); ok {
			level = strings.ToUpper(strings.TrimPrefix(l.Sel.Name, "Level"))
		}
	}
	text, ok := call.Args[at].(*ast.BasicLit)
	if !ok {
		return "", ""
	}
	message, err := strconv.Unquote(text.Value)
	if err != nil || level == "DEBUG" {
		return "", ""
	}
	return message, level
}
