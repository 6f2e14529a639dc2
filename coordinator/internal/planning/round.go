package planning

import (
	"cmp"
	"strings"
	"time"
)

// round is what one call of Decide derives from its View, and collects for its Decision.
type round struct {
	*View
	expired     []string          // members, sorted: the plan of any job may have to absorb their claims
	skewReports []string          // members that report watermarks or epochs ahead of their clocks
	awaited     map[string]bool   // members that keep their shards although they drain or have expired
	returned    map[string]string // by absent incarnation: the live one of the same name
	graceEnds   time.Duration     // until the first awaited member is no longer awaited; zero: there is none

	reads  map[string]bool // see Decision.Reads
	follow map[string]bool // see Decision.Follow
}

func newRound(v *View) *round {
	r := &round{
		View: v, expired: v.ExpiredMembers(), skewReports: findSkewReports(v),
		reads: map[string]bool{}, follow: map[string]bool{},
	}
	r.awaited, r.returned, r.graceEnds = findAwaited(v)
	return r
}

// isAwaited reports whether the shards of a job that an incarnation owns wait for its return. A
// member that may not own shards of the job is not awaited: nobody may run the shards meanwhile.
func (r *round) isAwaited(segment, inc string) bool {
	return r.awaited[inc] && r.mayOwn(segment, inc)
}

// joinProblems joins two problem texts, either of which may be empty.
func joinProblems(a, b string) string {
	if a == "" || b == "" {
		return cmp.Or(a, b)
	}
	if strings.Contains(a, b) {
		return a
	}
	return a + "; " + b
}
