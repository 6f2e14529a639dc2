package leader

import (
	"slices"

	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
)

// reportEndedFires reports the fires that a plan of the view lists as ended and that this leader has not reported. It
// follows the view rather than the commits: the outcome of a commit may be unknown.
func (l *Leader) reportEndedFires(segment string) {
	plan, ok := l.View.Plans[segment]
	if !ok || plan.Fires == nil {
		delete(l.reportedFires, segment)
		return
	}
	reported, known := l.reportedFires[segment]
	fires, repeated := findUnreportedFires(plan.Fires.Ended, reported, known)
	for _, f := range fires {
		event.Report(l.Self.Events.FireEnded, event.FireEnded{Job: plan.Job, Kind: plan.Last().Job().Kind, EndedFire: f, Repeated: repeated})
		reported = f.Number
	}
	if len(plan.Fires.Ended) == 0 {
		reported = 0 // numbers begin anew with the tracking
	}
	l.reportedFires[segment] = reported
}

// findUnreportedFires returns the ended fires with numbers above the last reported one. If that is not known, it
// returns those that the last commit has added, which have one Ended in common: an earlier leader reported the others
// before that commit, and may have crashed between the commit and its report.
func findUnreportedFires(ended []record.EndedFire, reported uint64, known bool) (fires []record.EndedFire, repeated bool) {
	if len(ended) == 0 {
		return nil, false
	}
	last := ended[len(ended)-1]
	if known && reported <= last.Number {
		first := slices.IndexFunc(ended, func(f record.EndedFire) bool { return f.Number > reported })
		if first < 0 {
			return nil, false
		}
		return ended[first:], false
	}
	first := slices.IndexFunc(ended, func(f record.EndedFire) bool { return f.Ended == last.Ended })
	return ended[first:], true
}
