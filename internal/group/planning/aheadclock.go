package planning

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/record"
)

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
	return fmt.Sprintf("a wrong clock claimed fires ahead of their time: shards of instance %q wait until %s (epoch %d); a reset starts the job afresh",
		name, latest.At.Time().Format(time.RFC3339), latest.Epoch)
}
