package jobsfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is a rule that a place of the file breaks.
type Problem struct {
	Line, Column int    // from 1
	Key          string // such as jobs.settle.retry.max; empty for the whole file
	Rule         string
}

// Problems are all problems of a file, in the order of their places.
type Problems struct {
	File string // its name, as in the command line
	All  []Problem
}

// Error returns a line for each problem, in the form FILE:LINE:COLUMN: KEY: RULE.
func (p *Problems) Error() string {
	lines := make([]string, len(p.All))
	for i, problem := range p.All {
		lines[i] = fmt.Sprintf("%s:%d:%d: ", p.File, problem.Line, problem.Column)
		if problem.Key != "" {
			lines[i] += problem.Key + ": "
		}
		lines[i] += problem.Rule
	}
	return strings.Join(lines, "\n")
}

// Sort sorts the problems by place.
func (p *Problems) Sort() { p.All = sortProblems(p.All) }

// sortProblems sorts problems by place and removes duplicates, which a key of defaults causes that
// several jobs use.
func sortProblems(all []Problem) []Problem {
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	seen := map[Problem]bool{}
	return slices.DeleteFunc(all, func(p Problem) bool {
		again := seen[p]
		seen[p] = true
		return again
	})
}
