// Package scheduletext parses the parts of a schedule's text that a leader needs, which does not know the fires.
package scheduletext

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/internal/jobname"
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

// maxAfter bounds After.Jobs.
const maxAfter = 8

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
	if n := strings.Count(rest, ",") + 1; n > maxAfter { // a comma in a name is escaped
		return nil, fmt.Errorf("it names %d jobs, at most %d", n, maxAfter)
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
		if err := jobname.Check(name); err != nil {
			return nil, fmt.Errorf("the name of a job to follow %w", err)
		}
		if slices.Contains(a.Jobs, name) {
			return nil, fmt.Errorf("it names job %q twice", name)
		}
		a.Jobs = append(a.Jobs, name)
	}
	return a, nil
}

// IsAlways reports whether a schedule is that of daemons, perhaps with bounds.
func IsAlways(schedule string) bool { return strings.HasPrefix(schedule+" ", "always ") }

// CountsEnds reports whether the fires of a schedule count from the ends of runs.
func CountsEnds(schedule string) bool {
	return IsAlways(schedule) || strings.HasPrefix(schedule, "fixed delay ")
}
