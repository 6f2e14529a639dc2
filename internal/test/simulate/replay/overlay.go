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

// edits take chance and the real clock from those decisions of the runtime that a program
// on one processor can notice. Each is as small as can be; the file is the installed Go's.
var edits = []edit{
	// One sequence of random numbers for maps, select and timers of one instant, whatever
	// thread they are drawn on, which begins anew with a bubble.
	{"rand.go", "c := &mp.chacha8\n", "c := &replayed\n"},
	{"rand.go", "// randn is like", "var replayed chacha8rand.State\n\n// randn is like"},
	{"synctest.go", "gp.bubble = bubble\n", "gp.bubble = bubble\n\treplayed.Init64([4]uint64{1})\n"},
	{"select.go", "j := cheaprandn(uint32(norder + 1))", "j := randn(uint32(norder + 1))"},
	{"time.go", "t.rand = cheaprand()", "t.rand = rand32()"},
	{"sema.go", "s.ticket = cheaprand() | 1", "s.ticket = rand32() | 1"},
	// What draws at other times, such as for a thread that is new, draws from elsewhere.
	{"rand.go", "mp.cheaprand = rand()", "mp.cheaprand = bootstrapRand()"},
	// Hashes are the same in every process.
	{"rand.go", "globalRand.state.Init(*seed)", "globalRand.state.Init([32]byte{1})"},
	// Nobody is taken off the processor because it has had it for long by the real clock.
	{"proc.go", "func retake(now int64) uint32 {\n", "func retake(now int64) uint32 {\n\tif now != 0 {\n\t\treturn 0\n\t}\n"},
	// A mutex does not change its ways when somebody has waited for it for long.
	{"sema.go", "func internal_sync_nanotime() int64 {\n\treturn nanotime()", "func internal_sync_nanotime() int64 {\n\treturn 0"},
	// Package initialization needs no thread of its own. With one, how many threads there
	// are depends on timing, and with them where objects are, and with that the order of
	// maps that have pointers for keys, as contexts do.
	{"proc.go", "\tlockOSThread()\n\n\tif mp != &m0 {", "\tif mp != &m0 {"},
	{"proc.go", "needUnlock := true\n", "needUnlock := false\n"},
	{"proc.go", "needUnlock = false\n\tunlockOSThread()\n", "needUnlock = false\n"},
}

// overlay writes the edited files to dir, and the file for the go command's -overlay,
// whose name it returns.
func overlay(goroot, version, dir string) (string, error) {
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
			return "", fmt.Errorf("%s has %q %d times, instead of once: %s is not a Go that replay knows how to edit", src, e.old, n, version)
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
