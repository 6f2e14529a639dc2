package past

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/view"
)

// Missing is fires that the schedule has between two fires on record, or after the last one, and that are not on record themselves.
type Missing struct {
	From, To time.Time // the first and the last of them
	Text     string
	Skipped  bool // the record of the fire after them counts them as skipped
}

// mostMissing bounds the missing fires that are counted between two others.
const mostMissing = 1000

// findMissing sets Missing of each fire and returns what is missing after the last one, up to now. If most fires lack some before them, the
// job has had another schedule, and nothing is missing.
func (v *Live) findMissing(fires []Fire, now time.Time) *Missing {
	if v.schedule == nil || len(fires) == 0 {
		return nil
	}
	lacking, before := 0, fires[0].Fire
	for i := range fires {
		f := &fires[i]
		if isSame(f.Fire, before) {
			continue
		}
		if f.Missing = v.missingBetween(before, f.Fire, f.Recorded.SkippedFrom); f.Missing != nil {
			lacking++
		}
		before = f.Fire
	}
	if lacking > max(3, len(fires)/2) {
		for i := range fires {
			fires[i].Missing = nil
		}
		return nil
	}
	if now.IsZero() || v.running > 0 {
		return nil
	}
	return v.missingBetween(before, now.Add(-view.LateAfter), time.Time{})
}

// missingBetween returns the fires of the schedule between two instants, nil if there are none. Those from skippedFrom on were skipped, if it
// is not zero.
func (v *Live) missingBetween(before, after, skippedFrom time.Time) *Missing {
	fires, err := v.schedule.Next(before, 1)
	if err != nil || len(fires) == 0 || !isBefore(fires[0], after) {
		return nil
	}
	if fires, err = v.schedule.Next(before, mostMissing); err != nil {
		return nil
	}
	n := 0
	for n < len(fires) && isBefore(fires[n], after) {
		n++
	}
	m := &Missing{From: fires[0], To: fires[n-1], Skipped: !skippedFrom.IsZero() && !skippedFrom.After(fires[n-1])}
	number := fmt.Sprintf("%d fires", n)
	switch {
	case n == mostMissing:
		number = fmt.Sprintf("%d fires or more", n)
	case n == 1:
		number = "1 fire"
	}
	if m.Text = number + " of the schedule not on record: the fleet was away, the job was paused, or had another schedule"; m.Skipped {
		m.Text = number + " skipped"
	}
	return m
}

// isSame reports whether two instants are one, as histories have them. The records have nanoseconds.
func isSame(a, b time.Time) bool { return a.UnixMicro() == b.UnixMicro() }

// isBefore compares instants as histories have them, in microseconds.
func isBefore(a, b time.Time) bool { return a.UnixMicro() < b.UnixMicro() }
