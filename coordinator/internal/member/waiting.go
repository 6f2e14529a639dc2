package member

import (
	"maps"
	"reflect"

	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/internal/planning"
	"github.com/rota-dev/rota/internal/record"
)

// applyWaiting handles a member's record in which nothing is new but the runs that wait for a
// worker, and the reading of the clock that each record carries. It reports whether the record
// is one. Planning does not depend on those, so a leader that has nothing to do needs no round.
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
	content := l.idle
	applyUpdate(l, l.View.Members, n, planning.MemberRecord{Rev: n.Rev, Member: n.Value})
	l.idle = content
	return true
}
