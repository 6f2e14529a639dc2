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
	Group   *record.GroupControl // instead of Control, if it is the pause of the group
}

// Record returns the record without the pause.
func (e *EndedPause) Record() any {
	if e.Group != nil {
		return e.Group
	}
	return e.Control
}

// MaxPauseCheck bounds the time until a leader checks again whether a pause with an end is over: its clock may
// be set meanwhile.
const MaxPauseCheck = time.Minute

// endPauses returns the pauses whose time has come, and the time until the next one ends, at most
// MaxPauseCheck; zero if none has an end.
func (v *View) endPauses() (ended []EndedPause, next time.Duration) {
	check := func(paused bool, h *record.Hold) (over bool) {
		if !paused || h.Until == 0 {
			return false
		}
		left := time.Duration(h.Until - v.Now)
		if left > 0 {
			next = min(left, cmp.Or(next, MaxPauseCheck))
		}
		return left <= 0
	}
	for seg, c := range v.Control {
		if check(c.Paused, &c.Hold) {
			ended = append(ended, EndedPause{Segment: seg, Key: v.Keys.Control(seg), Rev: c.Rev, Control: c.WithoutPause(v.Now)})
		}
	}
	if g := v.Group; g.GroupControl != nil && check(g.Paused, &g.Hold) {
		ended = append(ended, EndedPause{Segment: record.GroupSegment, Key: v.Keys.GroupControl(), Rev: g.Rev, Group: g.WithoutPause(v.Now)})
	}
	slices.SortFunc(ended, func(a, b EndedPause) int { return cmp.Compare(a.Segment, b.Segment) })
	return ended, next
}
