package conformance

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Run runs the suite against b as subtests of t. It logs and returns a summary; see
// ReportVariable for a report over several runs.
func Run(t *testing.T, b Backend) Summary {
	t.Helper()
	report := beginReport(t, b)
	cases := slices.DeleteFunc(Cases(), func(c Case) bool { return b.Which != nil && !b.Which(c) })
	results := make([]Result, len(cases))
	t.Run("Declarations", func(t *testing.T) { checkDeclarations(t, b) })
	for start := 0; start < len(cases); {
		end := start + 1
		for end < len(cases) && cases[end].Group == cases[start].Group {
			end++
		}
		t.Run(cases[start].Group, func(t *testing.T) {
			for i := start; i < end; i++ {
				results[i] = runCase(t, b, cases[i])
			}
		})
		start = end
	}
	for i, c := range cases {
		results[i].Case = c // also for groups excluded by -run
	}
	s := Summary{Results: results}
	t.Log(s.String())
	report(s)
	return s
}

// runCase runs c as a subtest of t. A case excluded by -run stays NotRun.
func runCase(t *testing.T, b Backend, c Case) Result {
	r := Result{Case: c}
	t.Run(c.Title(), func(t *testing.T) {
		if r.Reason = c.lackReason(b); r.Reason != "" {
			r.Outcome = Lacking
			t.Skip(r.Reason)
		}
		start := time.Now()
		defer func() { r.Took = time.Since(start) }()
		r.Outcome = Failed // a failing bubble ends the goroutine
		b.inBubble(t, func(t *testing.T) { c.runIn(t, b) })
		if !t.Failed() {
			r.Outcome = Passed
		}
	})
	return r
}

// Try runs one case against b and returns its failures instead of failing t. Tests use it
// to show that a case detects the defect it is meant for.
func Try(t *testing.T, b Backend, code string) (complaints []string) {
	t.Helper()
	c, ok := findCase(code)
	if !ok {
		t.Fatalf("try case %s: no such case", code)
	}
	defer func() { // a bubble panics if a goroutine outlives it
		if p := recover(); p != nil {
			complaints = append(complaints, fmt.Sprint(p))
		}
	}()
	b.inBubble(t, func(t *testing.T) {
		complaints = runRecorded(t, func(tb testing.TB) { c.runIn(tb, b) })
	})
	return complaints
}

// runIn runs the case in a store of its own.
func (c Case) runIn(tb testing.TB, b Backend) {
	t := newTest(tb, b)
	has := t.store.faultControls()
	for _, control := range c.Needs {
		if !has[control] {
			t.Fatalf("the case needs the fault control %s, which the Store does not have", control)
		}
	}
	defer func() { // a case that does not expect an answer must not end the other cases
		if p := recover(); p != nil {
			t.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	c.run(t)
}

func (b Backend) inBubble(t *testing.T, f func(*testing.T)) {
	if b.Bubble {
		synctest.Test(t, f)
		return
	}
	f(t)
}

// checkDeclarations compares Lacks with the fault controls of the Store, so that a
// forgotten field does not silently skip a case.
func checkDeclarations(t *testing.T, b Backend) {
	var has map[string]bool
	var members int
	b.inBubble(t, func(t *testing.T) {
		s := b.Open(t)
		if s.Connect == nil {
			t.Fatal("Store.Connect is nil")
		}
		has, members = s.faultControls(), s.memberCount()
	})
	if len(b.Packages) == 0 {
		t.Error("Backend.Packages is empty")
	}
	for _, problem := range declarationProblems(has, members, b.Lacks) {
		t.Error(problem)
	}
}

// declarationProblems returns the errors in lacks for a store with these fault controls
// and this many members. A safety case may be lacking only if it needs a member control
// and the store has too few members for it.
func declarationProblems(has map[string]bool, members int, lacks Lacks) []string {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, control := range slices.Sorted(maps.Keys(has)) {
		_, declared := lacks[control]
		switch {
		case has[control] && declared:
			add("Lacks declares %s, but the Store provides it", control)
		case !has[control] && !declared:
			add("the Store does not provide %s, and Lacks does not declare it", control)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lacks)) {
		if lacks[name] == "" {
			add("Lacks gives no reason for %s", name)
		}
		_, isLever := has[name]
		if _, isCase := findCase(name); !isLever && !isCase {
			add("Lacks names %s, which is neither a fault control nor a case", name)
		}
	}
	for _, c := range Cases() {
		for _, name := range c.lacking(lacks) {
			excused := members < quorum && slices.Contains(memberControls, name)
			if c.Safety && !excused {
				add("%s is a safety case and must not be declared lacking (%s: %s)", c.Title(), name, lacks[name])
			}
		}
	}
	return problems
}
