package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// edit is a change of one place in a file of Go's runtime.
type edit struct{ file, old, new string }

// edits remove random numbers and the real clock from those decisions of the runtime that a program on one
// processor can observe. The edited files are those of the installed Go.
var edits = []edit{
	// Maps, select and timers of one instant draw from one sequence of random numbers, on whatever thread.
	// It starts afresh with each bubble.
	{"rand.go", "c := &mp.chacha8\n", "c := &replayed\n"},
	{"rand.go", "// randn is like", "var replayed chacha8rand.State\n\n// randn is like"},
	{"synctest.go", "gp.bubble = bubble\n", "gp.bubble = bubble\n\treplayed.Init64([4]uint64{1})\n"},
	{"select.go", "j := cheaprandn(uint32(norder + 1))", "j := randn(uint32(norder + 1))"},
	{"time.go", "t.rand = cheaprand()", "t.rand = rand32()"},
	{"sema.go", "s.ticket = cheaprand() | 1", "s.ticket = rand32() | 1"},
	// Draws at unpredictable times, such as those of a new thread, use another sequence.
	{"rand.go", "mp.cheaprand = rand()", "mp.cheaprand = bootstrapRand()"},
	// Hashes are the same in every process.
	{"rand.go", "globalRand.state.Init(*seed)", "globalRand.state.Init([32]byte{1})"},
	// No goroutine is preempted because it has run for long by the real clock.
	{"proc.go", "func retake(now int64) uint32 {\n", "func retake(now int64) uint32 {\n\tif now != 0 {\n\t\treturn 0\n\t}\n"},
	// A mutex does not enter starvation mode after a long wait by the real clock.
	{"sema.go", "func internal_sync_nanotime() int64 {\n\treturn nanotime()", "func internal_sync_nanotime() int64 {\n\treturn 0"},
	// Package initialization has no thread of its own. With one, the number of threads would depend on
	// timing, with it the addresses of objects, and with them the order of maps with pointers as keys,
	// such as those of contexts.
	{"proc.go", "\tlockOSThread()\n\n\tif mp != &m0 {", "\tif mp != &m0 {"},
	{"proc.go", "needUnlock := true\n", "needUnlock := false\n"},
	{"proc.go", "needUnlock = false\n\tunlockOSThread()\n", "needUnlock = false\n"},
}

// writeOverlay writes the edited files to dir, and the file for the go command's -overlay, whose name it
// returns.
func writeOverlay(goroot, version, dir string) (string, error) {
	edited := map[string]string{}
	for _, e := range edits {
		src := filepath.Join(goroot, "src", "runtime", e.file)
		text, ok := edited[src]
		if !ok {
			b, err := os.ReadFile(src)
			if err != nil {
				return "", err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%s contains %q %d times, not once: replay has no edits for %s", src, e.old, n, version)
		}
		edited[src] = strings.Replace(text, e.old, e.new, 1)
	}
	replace := map[string]string{}
	for src, text := range edited {
		replace[src] = filepath.Join(dir, filepath.Base(src))
		if err := os.WriteFile(replace[src], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	at := filepath.Join(dir, "overlay.json")
	return at, os.WriteFile(at, b, 0o600)
}
