package member

import (
	"maps"
	"reflect"

	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/internal/record"
)

// applyWaiting applies an update of a member record that changes only the waiting runs, and the clock
// reading that each version carries. It reports whether the update is one. Planning does not depend
// on these fields, so an idle leader stays idle.
func (l *Leader) applyWaiting(n feed.Update[record.Member]) bool {
	known, ok := l.View.Members[n.Name]
	if !ok || n.Deleted || n.Unreadable || maps.EqualFunc(known.Waiting, n.Value.Waiting, record.Waiting.Equal) {
		return false
	}
	before := known.Member
	before.Waiting, before.Clock = n.Value.Waiting, n.Value.Clock
	if !reflect.DeepEqual(before, n.Value) {
		return false
	}
	idle := l.idle
	applyUpdate(l, l.View.Members, n, planning.MemberRecord{Rev: n.Rev, Member: n.Value})
	l.idle = idle
	return true
}
