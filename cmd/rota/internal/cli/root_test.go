package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
)

// execute runs a command line with nothing in its environment.
func execute(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	s := settings.New()
	s.Getenv = func(string) string { return "" }
	var o, e bytes.Buffer
	code = run(t.Context(), s, args, Streams{In: strings.NewReader(""), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

func TestRun_RefusesCommandLines(t *testing.T) {
	for line, want := range map[string]string{
		"nosuch":                 `unknown command "nosuch"`,
		"demo --nosuch":          "unknown flag: --nosuch",
		"demo extra":             `unknown command "extra"`,
		"demo -o json -n a":      `--namespace does not apply to "rota demo"`,
		"-w demo":                `--watch does not apply to "rota demo"`,
		"demo --instances seven": "invalid argument",
	} {
		code, out, errs := execute(t, strings.Fields(line)...)
		assert.Equal(t, exit.Usage, code, line)
		assert.Contains(t, errs, want, line)
		assert.Empty(t, out, line)
	}
}

func TestRun_DemoHasItsOwnFlags(t *testing.T) {
	code, out, errs := execute(t, "demo", "--registry", "memory", "--timeout", "1ns", "--dir", t.TempDir())
	assert.Equal(t, exit.Failed, code)
	assert.Contains(t, errs, "demo failed: ")
	assert.Empty(t, out)
	_, help, _ := execute(t, "demo", "--help")
	assert.NotContains(t, help, "Global Flags")
	assert.NotContains(t, help, "--watch")
}
