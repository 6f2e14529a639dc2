package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// After is the schedule of a job whose fires are those of other jobs.
type After struct {
	Jobs []string // whose fires the job follows, in the order of the definition
	On   string   // one of the constants
}

// The outcomes of the followed fires after which a job fires.
const (
	AfterSuccess = "after"         // all runs of the fire have succeeded
	AfterEnd     = "after-end"     // all have ended, whatever their outcomes
	AfterFailure = "after-failure" // all have ended, and one has failed
)

// MaxAfter bounds After.Jobs.
const MaxAfter = 8

// String returns the text of the schedule.
func (a After) String() string {
	names := make([]string, len(a.Jobs))
	for i, job := range a.Jobs {
		names[i] = quoteJob(job)
	}
	return strings.TrimSpace(a.On + " " + strings.Join(names, ", "))
}

// quoteJob returns a name as a word: quoted unless it has only letters, digits, dots, dashes and underscores.
func quoteJob(job string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
	}
	isModifier := slices.Contains([]string{"in", "from", "until", "spread"}, job) // of a schedule's text
	if job != "" && !isModifier && !strings.ContainsFunc(job, func(r rune) bool { return !plain(r) }) {
		return job
	}
	return strings.NewReplacer(" ", `\x20`, ",", `\x2c`).Replace(strconv.Quote(job))
}

// ParseAfter reads the text of a schedule. It returns nil if the schedule is of another kind.
func ParseAfter(text string) (*After, error) {
	kind, rest, _ := strings.Cut(text, " ")
	if !slices.Contains([]string{AfterSuccess, AfterEnd, AfterFailure}, kind) {
		return nil, nil
	}
	a := &After{On: kind}
	if n := strings.Count(rest, ",") + 1; n > MaxAfter { // a comma in a name is escaped
		return nil, fmt.Errorf("it names %d jobs, at most %d", n, MaxAfter)
	}
	for word := range strings.SplitSeq(rest, ",") {
		name := strings.TrimSpace(word)
		if strings.HasPrefix(name, `"`) {
			unquoted, err := strconv.Unquote(name)
			if err != nil {
				return nil, fmt.Errorf("the name %.100s is quoted wrongly", name)
			}
			name = unquoted
		} else if quoteJob(name) != name && name != "" {
			return nil, fmt.Errorf("the name %.100q has to be quoted", name)
		}
		if err := CheckJobName(name); err != nil {
			return nil, fmt.Errorf("the name of a job to follow %w", err)
		}
		if slices.Contains(a.Jobs, name) {
			return nil, fmt.Errorf("it names job %q twice", name)
		}
		a.Jobs = append(a.Jobs, name)
	}
	return a, nil
}

// scheduleText returns the text of a definition's schedule, "" if it has none: schedules of other executors need not be
// texts.
func scheduleText(schedule json.RawMessage) (text string) {
	if len(schedule) == 0 || schedule[0] != '"' || json.Unmarshal(schedule, &text) != nil {
		return ""
	}
	return text
}

// IsAlways reports whether a schedule is that of daemons, perhaps with bounds.
func IsAlways(schedule string) bool { return strings.HasPrefix(schedule+" ", "always ") }

// CountsEnds reports whether the fires of a schedule count from the ends of runs.
func CountsEnds(schedule string) bool {
	return IsAlways(schedule) || strings.HasPrefix(schedule, "fixed delay ")
}

// parseAfterOf returns the jobs that a job follows by the text of its schedule, nil if there are none.
func parseAfterOf(job, schedule string) (*After, error) {
	a, err := ParseAfter(schedule)
	if a != nil && slices.Contains(a.Jobs, job) {
		return nil, errors.New("a job cannot follow itself")
	}
	return a, err
}

// Circles finds the jobs that follow themselves through others. Each job that leads to no circle is visited once,
// whatever the number of searches.
type Circles struct {
	followed func(job string) []string
	clear    map[string]bool // jobs that lead to no circle
}

// NewCircles returns a Circles. Followed returns the names of the jobs that a job follows.
func NewCircles(followed func(job string) []string) *Circles {
	return &Circles{followed: followed, clear: map[string]bool{}}
}

// Through returns the names of the jobs through which a job follows itself, from the job on, nil if it does not.
func (c *Circles) Through(start string) []string {
	visited := map[string]bool{}
	var visit func(job string, path []string) []string
	visit = func(job string, path []string) []string {
		if visited[job] || c.clear[job] {
			return nil
		}
		visited[job] = true
		path = append(path, job)
		clear := true
		for _, next := range c.followed(job) {
			if next == start {
				return path
			}
			if circle := visit(next, path); circle != nil {
				return circle
			}
			clear = clear && c.clear[next]
		}
		c.clear[job] = clear
		return nil
	}
	return visit(start, nil)
}
