package conformance

import (
	"fmt"
	"strings"
	"time"
)

// Outcome is the result of a case.
type Outcome int

const (
	// NotRun means that -run excluded the case.
	NotRun Outcome = iota
	// Passed means that the backend kept the promise.
	Passed
	// Failed means that the backend broke it.
	Failed
	// Lacking means that Lacks excludes the case.
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

// Result is the outcome of one case, with its details.
type Result struct {
	Case    Case
	Outcome Outcome
	Reason  string        // why the case is lacking
	Took    time.Duration // real time
}

// Summary holds the results of a run.
type Summary struct {
	Results []Result // in the order of Cases
}

// Count returns how many cases of a group have outcome o. The group "" means all cases.
func (s Summary) Count(group string, o Outcome) int {
	n := 0
	for _, r := range s.Results {
		if r.Outcome == o && (group == "" || r.Case.Group == group) {
			n++
		}
	}
	return n
}

// String returns a table with one line per group that ran, followed by the failed and the
// lacking cases.
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
