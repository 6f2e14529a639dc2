package jobsfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/cost"
)

// costlyFiles are files that nest, repeat or refer to much in few bytes. Most are refused.
func costlyFiles() []string {
	const n = 2000
	job := "  a#: {every: 1s, shell: x}\n"
	repeat := func(text string, n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(text, "#", strings.Repeat("b", i%7)+string(rune('a'+i%26))+strings.Repeat("c", i/26%90)))
		}
		return b.String()
	}
	return []string{
		"jobs: " + strings.Repeat("[", n),
		"jobs: " + strings.Repeat("{a: ", n),
		"jobs:\n" + strings.Repeat("- ", n),
		"jobs:\n" + repeat(job, n),
		"jobs:\n" + repeat("  a#: {evry: 1s, shel: x, shards: -1}\n", n),
		"jobs:\n  a: {every: 1s, shell: x, env: {" + repeat("v#: x, ", n) + "}}\n",
		"jobs:\n  a: {every: 1s, shell: x, env: {" + strings.Repeat("a: x, ", n) + "}}\n",
		"jobs:\n  a: {every: 1s, shell: x, shards: {" + repeat("#: x, ", n) + "}}\n",
		"jobs:\n  a: {after: [" + repeat("#, ", n) + "], shell: x}\n",
		"jobs:\n  a: {at: [" + strings.Repeat("2026-01-02T03:04:05Z, ", n) + "], shell: x}\n",
		"jobs:\n  a: {schedule: '" + strings.Repeat("1,", n) + "2 * * * *', shell: x}\n",
		"jobs:\n  a: {every: 1s, http: {url: 'http://h/" + strings.Repeat("{{.Param}}", n) + "'}}\n",
		"jobs:\n  a: {every: 1s, http: {url: 'http://h/', body: '" + strings.Repeat("{{if .Param}}", n) + "'}}\n",
		"jobs:\n  a: {every: 1s, command: [" + strings.Repeat("'{{range .Param}}x', ", n) + "]}\n",
		"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\njobs: [*c, *c]\n",
		"jobs: &a {<<: *a}\n",
		"jobs: !!binary " + strings.Repeat("A", n) + "\n",
		strings.Repeat("---\n", n),
		strings.Repeat("#\n", n) + "jobs: |\n" + strings.Repeat(" \n", n),
		"jobs: \"" + strings.Repeat(`\x20`, n) + "\"\n",
		"jobs: {a: {" + strings.Repeat("x", 300_000) + ": 1}}\n",
		"? " + strings.Repeat("[", n) + strings.Repeat("]", n) + "\n: x\n",
	}
}

// FuzzLoad_Cost loads files. None may cost more than cost.Require allows for its size: rota validate reads files of others, and a
// reload happens beside runs.
func FuzzLoad_Cost(f *testing.F) {
	for _, glob := range []string{"testdata/bad/*.yaml", "testdata/good/*.yaml"} {
		paths, err := filepath.Glob(glob)
		require.NoError(f, err)
		for _, path := range paths {
			content, err := os.ReadFile(path)
			require.NoError(f, err)
			f.Add(content)
		}
	}
	for _, text := range costlyFiles() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		const timesJSON = 4 // a job of 30 bytes becomes definitions, handlers and problems
		cost.Require(t, "file", timesJSON*len(content), func() {
			_, err := Load("f", content, Host{})
			if err != nil {
				_ = err.Error()
			}
		})
	})
}
