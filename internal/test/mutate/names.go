package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// name is a line of a file that names survivors: the text of a fault and the reason why no test
// has to notice it.
type name struct{ fault, reason string }

// readNames reads a target's file in dir, if there is one: a paragraph begins with a reason, a
// line that ends in a colon, followed by the indented faults. Lines that begin with # are comments.
func readNames(dir, target string) ([]name, error) {
	if dir == "" {
		return nil, nil
	}
	file := filepath.Join(dir, target+".txt")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []name
	reason := ""
	for i, line := range strings.Split(string(text), "\n") {
		fault := strings.TrimSpace(line)
		switch {
		case fault == "":
			reason = ""
		case strings.HasPrefix(line, "#"):
		case fault == line && strings.HasSuffix(line, ":"):
			reason = strings.TrimSuffix(line, ":")
		case fault == line || reason == "":
			return nil, fmt.Errorf("%s:%d: neither a reason with a colon nor an indented fault below one", file, i+1)
		default:
			all = append(all, name{fault, reason})
		}
	}
	return all, nil
}

// keepSurvivors returns the faults that a file lists as survivors, as report prints them.
func keepSurvivors(mutants []*mutant, file string) ([]*mutant, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	survived := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		survived[strings.Join(strings.Fields(line), " ")] = true
	}
	kept := slices.DeleteFunc(slices.Clone(mutants), func(m *mutant) bool {
		return !survived["survives "+m.String()] && !survived["is not run "+m.String()]
	})
	if len(kept) == 0 {
		return nil, fmt.Errorf("%s lists no survivor of these faults", file)
	}
	return kept, nil
}

// report prints the survivors without a name, the names without a survivor and the score. It
// reports whether there are none of either.
func report(out io.Writer, target string, mutants []*mutant, names []name, took time.Duration) bool {
	noticed, named, unnamed := 0, 0, 0
	used := map[string]bool{}
	for _, m := range mutants {
		isName := func(n name) bool { return n.fault == m.String() }
		switch {
		case m.noticedBy != "":
			noticed++
		case slices.ContainsFunc(names, isName):
			named++
			used[m.String()] = true
		default:
			unnamed++
			fmt.Fprintf(out, "%-10s %v\n", m.outcome(), m)
		}
	}
	stale := 0
	for _, n := range names {
		if !used[n.fault] {
			stale++
			fmt.Fprintf(out, "%-10s %s\n", "no survivor", n.fault)
		}
	}
	fmt.Fprintf(out, "%s: %d faults, %d noticed (%.1f %%), %d survivors with a name, %d without; %v\n", target,
		len(mutants), noticed, 100*float64(noticed)/float64(len(mutants)), named, unnamed, took.Round(time.Second))
	return unnamed+stale == 0
}
