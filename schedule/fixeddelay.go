package schedule

import (
	"fmt"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/scheduletext"
)

const (
	delayWords = "fixed delay"
	alwaysText = "always"

	// alwaysDelay is the time from the end of a run of Always to the next one.
	alwaysDelay = time.Second
)

// FixedDelay runs each shard again when d has passed since the end of its last run, retries
// included. The first run is d after the job, or a new definition of it, comes into force. A run
// that crashed counts from its claim, unless it is made again. D must be at least a millisecond.
//
// The shards of such a job do not run together, and FireTime is the instant at which the delay had
// passed. The job must have TrackRuns and at most 1000 shards; OnMisfire, OnOverlap and
// CatchupWindow do not apply to it.
func FixedDelay(d time.Duration) Schedule {
	return Schedule{text: delayWords + " " + scheduletext.Duration(d)}
}

// Always keeps a run of each shard going for as long as an instance owns the shard: a daemon. If the
// handler returns nil, it is called again a second later, as another fire. If it fails, Job.Retry
// applies; its zero value means retries without bound, after delays from a second to a minute that
// start anew when a run has lasted for a minute.
//
// When the shard is to move or is disabled, the job is paused, a new definition is in force, or this
// process shuts down, the context of the run ends with ErrYield. The handler should then return
// soon: the run is handed back, and the next owner makes it again at once, as the next attempt of
// the same fire. After a pause or by a new definition, also one of which only the Revision is new, it begins
// again as another fire, a second later. The same holds after a crash, however often: Job.MaxAttempts does not apply, and only a job with
// CountAsFailed counts crashes as lost. FireTime is when the daemon was started first. The bounds of FixedDelay apply.
func Always() Schedule { return Schedule{text: alwaysText} }

// CountsEnds reports whether the fires of s count from the ends of runs: those of FixedDelay and Always.
func (s Schedule) CountsEnds() bool { return scheduletext.CountsEnds(s.text) }

// IsAlways reports whether s is Always, perhaps with bounds.
func (s Schedule) IsAlways() bool { return scheduletext.IsAlways(s.text) }

// delay is the fires of FixedDelay and Always. The instant after which it has a fire is the end
// of a run: claims records raise the watermark of a shard to it.
type delay time.Duration

func newDelay(text string) (fireSet, error) {
	d, err := time.ParseDuration(strings.TrimPrefix(text, "delay "))
	switch {
	case err != nil:
		return nil, err
	case d < minInterval:
		return nil, fmt.Errorf("the delay is below %v", minInterval)
	}
	return delay(d), nil
}

func (d delay) next(after time.Time) time.Time { return after.Add(time.Duration(d)).UTC() }

func (d delay) count(after, through time.Time) int {
	if d.next(after).After(through) {
		return 0
	}
	return 1
}
