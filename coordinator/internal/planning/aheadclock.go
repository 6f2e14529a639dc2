package planning

import (
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
)

// findSkewReports returns the live members that report watermarks or epochs ahead of their clocks,
// sorted. Reports of members whose clocks are known to be skewed do not count.
func findSkewReports(v *View) []string {
	var out []string
	for inc, m := range v.Members {
		if _, skewed := v.Skewed[inc]; len(m.Ahead) > 0 && !skewed && v.Alive(inc) {
			out = append(out, inc)
		}
	}
	slices.Sort(out)
	return out
}

// aheadProblem returns the problem of a plan whose epoch in force has shards that wait for a
// time ahead of their owner's clock, "" if no member reports one. Of several reports it names the
// latest time, so the text changes only with the reports.
func (r *round) aheadProblem(plan *record.Plan) string {
	last := plan.Last()
	if last.Until != 0 {
		return "" // the job is paused, or another epoch is about to begin
	}
	var latest record.Ahead
	name := ""
	for _, inc := range r.skewReports {
		if ahead := r.Members[inc].Ahead[plan.Job]; ahead.Epoch == last.Number && ahead.At > latest.At {
			latest, name = ahead, r.Members[inc].Name
		}
	}
	if name == "" {
		return ""
	}
	return fmt.Sprintf("shards of instance %q wait until %s, the time that a wrong clock recorded in epoch %d; Operator.Reset starts the job afresh",
		name, latest.At.Time().Format(time.RFC3339), latest.Epoch)
}
