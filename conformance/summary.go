package conformance

import (
	"fmt"
	"strings"
	"time"
)

// Outcome is what came of a case.
type Outcome int

const (
	// NotRun: -run left the case out.
	NotRun Outcome = iota
	// Passed: the backend kept the promise.
	Passed
	// Failed: it did not.
	Failed
	// Lacking: the backend declared that it cannot be put to this test.
	Lacking
)

func (o Outcome) String() string {
	switch o {
	case NotRun:
		return "not run"
	case Passed:
		return "passed"
	case Failed:
		return "failed"
	case Lacking:
		return "lacking"
	}
	return "unknown outcome"
}

// Result is the outcome of one case.
type Result struct {
	Case    Case
	Outcome Outcome
	Reason  string        // of a lack
	Took    time.Duration // real time
}

// Summary is what came of a run.
type Summary struct {
	Results []Result // in the order of Cases
}

// Count returns how many cases of a group ended in o. The group "" is all of them.
func (s Summary) Count(group string, o Outcome) int {
	n := 0
	for _, r := range s.Results {
		if r.Outcome == o && (group == "" || r.Case.Group == group) {
			n++
		}
	}
	return n
}

// String returns a table with a line for each group that was run, followed by the
// failures and the lacks.
func (s Summary) String() string {
	var b strings.Builder
	row := func(name, group string) {
		fmt.Fprintf(&b, "%-14s %7d %7d %7d\n", name,
			s.Count(group, Passed), s.Count(group, Failed), s.Count(group, Lacking))
	}
	fmt.Fprintf(&b, "\n%-14s %7s %7s %7s\n", "group", Passed, Failed, Lacking)
	last := ""
	for _, r := range s.Results {
		if r.Outcome != NotRun && r.Case.Group != last {
			last = r.Case.Group
			row(last, last)
		}
	}
	row("all", "")
	for _, r := range s.Results {
		switch r.Outcome {
		case Failed:
			fmt.Fprintf(&b, "failed   %s\n", r.Case.Title())
		case Lacking:
			fmt.Fprintf(&b, "lacking  %s: %s\n", r.Case.Title(), r.Reason)
		}
	}
	return b.String()
}
