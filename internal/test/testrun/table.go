package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// suiteRun is one run of the conformance suite.
type suiteRun struct {
	backend, test string
	cases         []outcome
	ended         bool
}

type outcome struct{ outcome, title, reason string }

// printTable prints the reports in dir.
func printTable(out io.Writer, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	var runs []suiteRun
	for _, file := range files {
		r, err := readRun(file)
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if len(r.cases) > 0 || !r.ended { // otherwise -run excluded every case
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		return nil
	}
	slices.SortFunc(runs, func(a, b suiteRun) int {
		return cmp.Or(cmp.Compare(a.backend, b.backend), cmp.Compare(a.test, b.test))
	})
	return writeTable(out, runs)
}

func readRun(file string) (r suiteRun, err error) {
	f, err := os.Open(file)
	if err != nil {
		return r, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		switch {
		case fields[0] == "run" && len(fields) == 3:
			r.backend, r.test = fields[1], fields[2]
		case fields[0] == "case" && len(fields) == 4:
			r.cases = append(r.cases, outcome{fields[1], fields[2], fields[3]})
		case fields[0] == "end":
			r.ended = true
		default:
			return r, fmt.Errorf("invalid line in report: %q", lines.Text())
		}
	}
	return r, lines.Err()
}

// writeTable prints one line per run, followed by failed and lacking cases. It returns an
// error if a run failed or did not finish.
func writeTable(out io.Writer, runs []suiteRun) error {
	width := 0
	for _, r := range runs {
		width = max(width, len(r.name()))
	}
	var b strings.Builder
	sound := true
	fmt.Fprintf(&b, "%-*s %8s %8s %8s\n", width, "conformance", "passed", "failed", "lacking")
	for _, r := range runs {
		if !r.ended {
			sound = false
			fmt.Fprintf(&b, "%-*s did not end\n", width, r.name())
			continue
		}
		sound = sound && r.countOutcome("failed") == 0
		fmt.Fprintf(&b, "%-*s %8d %8d %8d\n", width, r.name(), r.countOutcome("passed"), r.countOutcome("failed"), r.countOutcome("lacking"))
	}
	for _, r := range runs {
		r.writeDetails(&b)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	if !sound {
		return errors.New("a backend does not pass the suite")
	}
	return nil
}

func (r suiteRun) name() string { return r.backend + " " + r.test }

func (r suiteRun) countOutcome(what string) (n int) {
	for _, c := range r.cases {
		if c.outcome == what {
			n++
		}
	}
	return n
}

// writeDetails prints failed cases, and lacking ones grouped by reason.
func (r suiteRun) writeDetails(b *strings.Builder) {
	var reasons []string
	lacking := map[string][]string{} // codes, by reason
	for _, c := range r.cases {
		switch c.outcome {
		case "failed":
			fmt.Fprintf(b, "%s: failed %s\n", r.name(), c.title)
		case "lacking":
			code, _, _ := strings.Cut(c.title, " ")
			if lacking[c.reason] == nil {
				reasons = append(reasons, c.reason)
			}
			lacking[c.reason] = append(lacking[c.reason], code)
		}
	}
	for _, reason := range reasons {
		fmt.Fprintf(b, "%s: lacking %s: %s\n", r.name(), strings.Join(lacking[reason], " "), reason)
	}
}
