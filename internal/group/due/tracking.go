package due

import (
	"time"

	"github.com/rota-dev/rota/internal/record"
)

// CrashedRunError is the recorded error of a run whose session expired.
const CrashedRunError = "the session expired during the run"

// CancelledRunError is the recorded error of a run that an operator cancelled before it was made again.
const CancelledRunError = "cancelled by an operator"

// UnofferedRetryError is the recorded error of a run whose retry was dropped, since no instance offered the job for too long.
const UnofferedRetryError = "no instance offered the job, so it is not retried"

// DropsNext reports whether a failure with this error is that of the last attempt which was made, though the watermark may
// cover another: the next one was pending, and was dropped.
func DropsNext(failure string) bool {
	return failure == CrashedRunError || failure == CancelledRunError || failure == UnofferedRetryError
}

// IsLastFailure reports whether attempt failed is the last one that was made of a run, by its failure and the attempt
// that the watermark has.
func IsLastFailure(failed int, failure string, watermark int) bool {
	return failed == watermark || failed == watermark-1 && DropsNext(failure)
}

// MaxRetryDelay bounds the time between a failed run and its retry.
const MaxRetryDelay = 24 * time.Hour

// RecordsEnds reports whether an owner that knows plan p commits the end of each run at once
// instead of with its next claim.
//
// Also for a job that tracks only claims, the owner commits ends at once while a decision of the
// leader depends on them: a frozen shard moves after its run has ended, an old epoch and a trigger
// are cleared after their last run, and a paused job or an ended epoch may have no next claim. So
// every reader of a claims record may treat a recorded run as running; in the worst case the
// reader waits for one more commit.
func RecordsEnds(p *record.Plan) bool {
	return p == nil || p.Paused || !p.Frozen.IsZero() || len(p.Triggers) > 0 || len(p.Epochs) > 1 ||
		p.Last().Until != 0 || p.Fires != nil || TracksRuns(p.Last().Job())
}

// TracksRuns reports whether claims records show which runs have not ended, also after a crash.
func TracksRuns(j record.Job) bool { return j.Tracking == "" || j.Tracking == record.TrackRuns }

// WantsReruns reports whether a run that crashed or was handed back runs again.
func WantsReruns(j record.Job) bool { return TracksRuns(j) && j.OnCrash != record.CrashFail }
