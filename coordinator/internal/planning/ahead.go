package planning

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/record"
)

// silentMembers returns the live members that publish something ahead of their clocks, sorted.
// The report of a clock that is known to be off counts for nothing.
func (v *View) silentMembers() []string {
	var out []string
	for inc, m := range v.Members {
		if _, off := v.Skewed[inc]; len(m.Ahead) > 0 && !off && v.Alive(inc) {
			out = append(out, inc)
		}
	}
	slices.Sort(out)
	return out
}

// aheadProblem returns the problem of a plan whose epoch in force has shards that wait for a
// time ahead of their owner's clock, "" if none is reported. Of several reports it names the
// one that lasts longest, so the text changes only with the reports.
func (v *View) aheadProblem(plan *record.Plan) string {
	last := plan.Last()
	if last.Until != 0 {
		return "" // it is paused, or about to be followed by another epoch
	}
	var longest record.Ahead
	name := ""
	for _, inc := range v.skewReports {
		if is := v.Members[inc].Ahead[plan.Job]; is.Epoch == last.Number && is.At > longest.At {
			longest, name = is, v.Members[inc].Name
		}
	}
	if name == "" {
		return ""
	}
	return fmt.Sprintf("shards of instance %q wait until %s, which epoch %d has reached by a clock that was wrong; Operator.Reset starts the job afresh",
		name, longest.At.Time().Format(time.RFC3339), longest.Epoch)
}

// joinProblems returns the text of two problems, either of which may be "".
func joinProblems(a, b string) string {
	if a == "" || b == "" {
		return cmp.Or(a, b)
	}
	if strings.Contains(a, b) {
		return a
	}
	return a + "; " + b
}

// endAll ends all epochs at an instant that have not ended by then.
func (p *jobPlanner) endAll(at record.Instant) {
	for i := range p.next.Epochs {
		if e := &p.next.Epochs[i]; e.Until == 0 || e.Until > at {
			e.Until = at
		}
	}
}
