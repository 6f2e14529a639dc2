package past

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// MaxFires is how many fires a strip or a grid shows.
const MaxFires = 60

// Strip is the last fires of a job.
type Strip struct {
	Job   string
	Fires []Fire // the oldest first, at most MaxFires
	// After is what is missing after the last of Fires, nil for nothing.
	After *Missing
}

// Fire is a fire as a whole.
type Fire struct {
	Fire    time.Time
	Trigger uint64 // zero for a scheduled fire
	State   State
	Text    string // the counts behind the state: "2 of 3 ok, 1 failed"
	// Retried reports that the shards that failed have succeeded in a retry by an operator, which has a record of its own.
	Retried bool
	// Missing is what is missing before the fire, nil for nothing.
	Missing *Missing
	// Recorded is the record in the history. It is zero if there is none.
	Recorded history.Fire
}

func (f *Fire) isOf(fire time.Time, trigger uint64) bool {
	return f.Trigger == trigger && isSame(f.Fire, fire)
}

// ReadStrips returns the strip of each job, with one query of the history. r is nil if there is no history.
func ReadStrips(ctx context.Context, r history.Reader, jobs []operator.JobSummary) (map[string]Strip, error) {
	var latest map[string][]history.Fire
	if r != nil && len(jobs) > 0 {
		var names []string
		for i := range jobs {
			names = append(names, jobs[i].Job)
		}
		var err error
		if latest, err = r.LatestFires(ctx, names, MaxFires); err != nil {
			return nil, err
		}
	}
	strips := make(map[string]Strip, len(jobs))
	for i := range jobs {
		live := LiveOfSummary(&jobs[i])
		s := StripOf(jobs[i].Job, latest[jobs[i].Job], live)
		if latest[jobs[i].Job] != nil {
			s.After = live.findMissing(s.Fires, time.Now())
		}
		strips[jobs[i].Job] = s
	}
	return strips, nil
}

// StripOf returns the strip of a job by its recorded fires, in any order.
func StripOf(job string, recorded []history.Fire, live Live) Strip {
	return Strip{Job: job, Fires: firesOf(recorded, live)}
}

// firesOf returns the last recorded fires, and those that only the fleet's records know.
func firesOf(recorded []history.Fire, live Live) []Fire {
	fires := make([]Fire, 0, len(recorded)+1)
	for i := range recorded {
		f := Fire{Fire: recorded[i].Fire, Trigger: recorded[i].Trigger, Recorded: recorded[i]}
		f.State, f.Text = conclude(&recorded[i], live.ownFires)
		fires = append(fires, f)
	}
	sortFires(fires)
	markRetried(fires, live.ownFires)
	find := func(at time.Time, trigger uint64) *Fire {
		for i := range fires {
			if fires[i].isOf(at, trigger) {
				return &fires[i]
			}
		}
		if len(fires) >= MaxFires && at.Before(fires[0].Fire) || at.IsZero() {
			return nil
		}
		fires = append(fires, Fire{Fire: at, Trigger: trigger})
		return &fires[len(fires)-1]
	}
	for i := range live.failures { // the later failure of a fire goes last
		failure := &live.failures[i]
		if f := find(failure.Fire, failure.Trigger); f != nil && f.Recorded.Job == "" {
			f.State, f.Text = Failed, view.ShardsText(failure.Shards)+" failed"
			if failure.Again {
				f.State, f.Text = Unknown, f.Text+", and ran again or will"
			}
		}
	}
	live.markRunning(find)
	sortFires(fires)
	return fires[max(0, len(fires)-MaxFires):]
}

// markRetried marks the fires that a retry made good. A later trigger at the instant of a fire is a retry of it.
func markRetried(fires []Fire, ownFires bool) {
	for i := 0; i < len(fires); i++ {
		f := &fires[i]
		if f.State < Unfinished {
			continue
		}
		failed := int64(f.Recorded.FailedShards)
		switch {
		case ownFires:
			failed = min(1, int64(f.Recorded.Shards))
		case f.Recorded.Ended.IsZero():
			failed = int64(f.Recorded.Shards) - f.Recorded.OK
		}
		for _, retry := range fires[i+1:] {
			if !isSame(retry.Fire, f.Fire) {
				break
			}
			if r := &retry.Recorded; failed > 0 && r.OK >= failed {
				f.State, f.Retried = Repeated, true
				f.Text += fmt.Sprintf("; the retry by trigger #%d: %s", retry.Trigger, retry.Text)
			}
		}
	}
}

// markRunning marks the fires that run.
func (v *Live) markRunning(find func(time.Time, uint64) *Fire) {
	mark := func(at time.Time, trigger uint64, state State, text string) {
		if f := find(at, trigger); f != nil {
			f.mark(state, text)
		}
	}
	for _, r := range v.runs {
		mark(r.Fire, r.Trigger, Running, fmt.Sprintf("%d running", len(r.Shards)))
	}
	for _, r := range v.again {
		mark(r.Fire, r.Trigger, Pending, fmt.Sprintf("%d to run again", len(r.Shards)))
	}
	last := find(v.LastFire, 0)
	switch {
	case last == nil || len(v.runs)+len(v.again) > 0:
	case last.Text == "" && v.running > 0:
		last.State, last.Text = Running, "running"
	case last.Text == "":
		last.State, last.Text = Unknown, "claimed or skipped; how it ended is not on record"
	case v.running > 0 && last.State > Repeated && last.Recorded.Ended.IsZero():
		last.mark(Running, "running")
	}
}

// mark marks a fire of which shards run or are to run again. A graver state remains, and so does a success of all: the claims of some
// jobs record ends late.
func (f *Fire) mark(state State, text string) {
	switch f.State {
	case Absent, Skipped, Unknown:
		f.State = state
	case Running:
		f.State = max(f.State, state)
	}
	f.Text = strings.TrimPrefix(f.Text+", "+text, ", ")
}

func sortFires(fires []Fire) {
	slices.SortStableFunc(fires, func(a, b Fire) int { return cmp.Or(a.Fire.Compare(b.Fire), cmp.Compare(a.Trigger, b.Trigger)) })
}

// conclude returns the state of a fire by the counts of its record. ownFires is as in Live.
func conclude(f *history.Fire, ownFires bool) (State, string) {
	shards := int64(f.Shards)
	if ownFires {
		shards = min(shards, 1)
	}
	var parts []string
	add := func(n int64, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	if shards > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d ok", f.OK, shards))
	}
	add(f.Failed, "failed")
	add(f.Crashed, "crashed")
	add(f.Unfinished, "unfinished")
	add(f.Repeated, "repeated")
	add(f.Skipped, "skipped")
	var reasons []string
	for reason := range f.SkippedBy.All() {
		reasons = append(reasons, reason.String())
	}
	text := strings.Join(parts, ", ")
	if len(reasons) > 0 {
		text += " (" + strings.Join(reasons, ", ") + ")"
	}
	again := f.Repeated+f.Failed+f.Crashed+f.Unfinished > 0
	switch {
	case f.FailedShards > 0:
		return Failed, text
	case shards > 0 && (f.OK >= shards || !f.Ended.IsZero() && f.SkippedShards == 0):
		if again {
			return Repeated, text
		}
		return OK, text
	case !f.Ended.IsZero() && f.SkippedShards > 0:
		return Skipped, text
	case f.Failed > 0:
		return Failed, text
	case f.Crashed > 0:
		return Crashed, text
	case f.Unfinished > 0:
		return Unfinished, text
	case f.Skipped > 0:
		return Skipped, text
	}
	return Unknown, text // some shards have ended, or the records of others were dropped
}
