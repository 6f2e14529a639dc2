package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseCheck(t *testing.T) {
	t.Run("without -check there is none", func(t *testing.T) {
		c, err := parseCheck([]string{"-simulate.seeds=10"})
		require.NoError(t, err)
		assert.Nil(t, c)
	})
	t.Run("seeds are those of the simulation's flags, and other arguments are passed on", func(t *testing.T) {
		c, err := parseCheck([]string{"-simulate.part=0.3", "--check", "-simulate.seeds=50", "-simulate.first=7"})
		require.NoError(t, err)
		assert.Equal(t, &replayCheck{first: 7, seeds: 50, args: []string{"-simulate.part=0.3"}}, c)
	})
	t.Run("a number that is none, or a flag that the check sets, is refused", func(t *testing.T) {
		for _, arg := range []string{"-simulate.seeds=x", "-simulate.seeds=0", "-simulate.seeds", "-simulate.seed=3", "-simulate.transcript=t"} {
			_, err := parseCheck([]string{"-check", arg})
			assert.Error(t, err, arg)
		}
	})
}

func TestSimulatorDir_IsOneInAWorkspaceToo(t *testing.T) {
	dir, err := simulatorDir(t.Context())
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(dir, "simulate_test.go"))
}

func TestCompareTranscripts(t *testing.T) {
	lines := func(n int, last string) []byte { return []byte(strings.Repeat("commit\n", n-1) + last + "\n") }
	whole := lines(minLines, "end")
	assert.NoError(t, compareTranscripts(lines(minLines, "other"), whole, whole))
	assert.ErrorContains(t, compareTranscripts(nil, whole, lines(minLines, "END")), "two ways from line 1000 on:\nend\nEND")
	assert.ErrorContains(t, compareTranscripts(nil, whole, append(whole[:len(whole):len(whole)], "more\n"...)), "two ways from line 1001 on")
	assert.ErrorContains(t, compareTranscripts(whole, whole, whole), "that of the seed before")
	assert.ErrorContains(t, compareTranscripts(nil, lines(9, "end"), lines(9, "end")), "9 lines")
}

// fakeRuntime writes the files that are edited, with a text for each edit.
func fakeRuntime(t *testing.T, textOf func(edit) string) (goroot string) {
	t.Helper()
	goroot = t.TempDir()
	texts := map[string]string{}
	for _, e := range edits {
		texts[e.file] += textOf(e) + "\n"
	}
	require.NoError(t, os.MkdirAll(filepath.Join(goroot, "src", "runtime"), 0o700))
	for file, text := range texts {
		require.NoError(t, os.WriteFile(filepath.Join(goroot, "src", "runtime", file), []byte(text), 0o600))
	}
	return goroot
}

func TestWriteOverlay_MakesEachEdit(t *testing.T) {
	goroot, dir := fakeRuntime(t, func(e edit) string { return e.old }), t.TempDir()
	file, err := writeOverlay(goroot, "go1.99", dir)
	require.NoError(t, err)
	overlay, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, e := range edits {
		text, err := os.ReadFile(filepath.Join(dir, e.file))
		require.NoError(t, err)
		assert.Contains(t, string(text), e.new)
		assert.Contains(t, string(overlay), filepath.Join(goroot, "src", "runtime", e.file))
	}
}

func TestWriteOverlay_RefusesAnUnknownGo(t *testing.T) {
	goroot, dir := fakeRuntime(t, func(edit) string { return "package runtime" }), t.TempDir()
	_, err := writeOverlay(goroot, "go1.99", dir)
	require.ErrorContains(t, err, "replay has no edits for go1.99")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
