package planning

import (
	"cmp"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// EndedPause is a pause whose time has come: the control record without it. It is committed on condition of
// the term and of the record's revision, in a transaction of its own. The next decision then finds a record
// as Operator.Resume leaves it, and the pause stays ended, whatever the clock of the next leader.
type EndedPause struct {
	Segment string
	Key     registry.Key
	Rev     registry.Rev // of the record that it replaces
	Control *record.Control
}

// MaxPauseCheck bounds the time until a leader checks again whether a pause with an end is over: its clock may
// be set meanwhile.
const MaxPauseCheck = time.Minute

// endPauses returns the pauses whose time has come, and the time until the next one ends, at most
// MaxPauseCheck; zero if none has an end.
func (v *View) endPauses() (ended []EndedPause, next time.Duration) {
	wait := func(until record.Instant) {
		if left := max(time.Duration(until-v.Now), time.Nanosecond); next == 0 || left < next {
			next = min(left, MaxPauseCheck)
		}
	}
	for seg, c := range v.Control {
		switch {
		case c.Until == 0 || !c.Paused:
		case c.IsOver(c.Paused, v.Now):
			ended = append(ended, EndedPause{Segment: seg, Key: v.Keys.Control(seg), Rev: c.Rev, Control: c.WithoutPause(v.Now)})
		default:
			wait(c.Until)
		}
	}
	slices.SortFunc(ended, func(a, b EndedPause) int { return cmp.Compare(a.Segment, b.Segment) })
	return ended, next
}
