package due

import (
	"github.com/rota-dev/rota/internal/record"
)

// RecordsEnds reports whether an owner writes the ends of runs without waiting for its next
// claim, by the plan that it knows.
//
// It does so even if the job tracks only claims, as long as a decision depends on the ends: a
// frozen shard moves once its run has ended, an earlier epoch and a trigger are cleared after
// their last run, and no next claim may follow in a paused job or an epoch that has ended. So every
// reader of a claims record may treat a run on it as running. In the worst case the reader waits
// for one more commit.
func RecordsEnds(p *record.Plan) bool {
	return p == nil || p.Paused || !p.Frozen.IsZero() || len(p.Triggers) > 0 || len(p.Epochs) > 1 ||
		p.Last().Until != 0 || TracksRuns(p.Last().Job())
}

// TracksRuns reports whether the claims record shows which runs had not ended, also after a crash.
func TracksRuns(j record.Job) bool { return j.Tracking == "" || j.Tracking == record.TrackRuns }

// WantsReruns reports whether a job repeats a run that a crash ended, or that was handed back.
func WantsReruns(j record.Job) bool { return TracksRuns(j) && j.OnCrash != record.CrashFail }
