package planning

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/scheduletext"
)

// round holds the values that one call of Decide derives from its View and collects for its Decision.
type round struct {
	*View
	expired     []string          // members, sorted: the plan of any job may have to absorb their claims
	skewReports []string          // members that report watermarks or epochs ahead of their clocks
	awaited     map[string]bool   // members that keep their shards although they drain or have expired
	returned    map[string]string // by absent incarnation: the live one of the same name
	graceEnds   time.Duration     // until the first awaited member is no longer awaited; zero: there is none

	invalidOverrides map[string]error // by segment: why the override of an operator does not apply

	followers  map[string][]string        // by segment: the segments of the jobs that follow it
	circles    *scheduletext.Circles      // of jobs that follow each other
	programs   map[string]due.Program     // by definition, as far as they were needed
	endedFires map[string]record.FireRuns // by segment: findEndedFiresWithReads, as far as it was needed

	reads      map[string]bool     // see Decision.Reads
	parts      map[string][]string // see Decision.Parts
	frozen     int                 // jobs of which this decision freezes shards
	candidates int                 // defined jobs whose claims decide whether they may rest
	follow     map[string]bool     // see Decision.Follow
}

func newRound(v *View) *round {
	r := &round{
		View: v, expired: v.ExpiredMembers(), skewReports: findSkewReports(v),
		followers: FindFollowers(v), programs: map[string]due.Program{}, endedFires: map[string]record.FireRuns{},
		reads: map[string]bool{}, parts: map[string][]string{}, follow: map[string]bool{},
	}
	r.circles = scheduletext.NewCircles(r.followedBy)
	r.awaited, r.returned, r.graceEnds = findAwaited(v)
	return r
}

// compile returns the program of an epoch.
func (r *round) compile(e *record.Epoch) (due.Program, error) { return r.compileDef(e.Def) }

// compileDef compiles each definition once.
func (r *round) compileDef(def json.RawMessage) (due.Program, error) {
	if prog, ok := r.programs[string(def)]; ok {
		return prog, nil
	}
	prog, err := r.Compile(def)
	if err == nil {
		r.programs[string(def)] = prog
	}
	return prog, err
}

// MaxRestartGrace bounds MemberOptions.RestartGrace, whatever a record holds.
const MaxRestartGrace = time.Hour

// findAwaited returns the absent members whose shards wait for an instance of the same name, the
// absent members whose instance has returned, with its live incarnation, and how long until the
// first member is no longer awaited. A draining member is awaited for its restart grace at most, as
// are expired ones: a run that does not return must not hold up idle shards.
func findAwaited(v *View) (awaited map[string]bool, returned map[string]string, ends time.Duration) {
	if len(v.Absences) == 0 {
		return nil, nil, 0
	}
	awaited, returned = map[string]bool{}, map[string]string{}
	present := map[string]string{} // incarnations, by name
	for inc, m := range v.Members {
		if v.Alive(inc) && !m.Draining {
			present[m.Name] = inc
		}
	}
	for inc, absent := range v.Absences {
		m := v.Members[inc]
		if current, ok := present[m.Name]; ok {
			returned[inc] = current
			continue
		}
		left := min(time.Duration(m.RestartGrace), MaxRestartGrace) - absent
		if left <= 0 || v.GroupExclusion.Excludes(&m.Member) {
			continue
		}
		awaited[inc] = true
		ends = min(left, cmp.Or(ends, left))
	}
	return awaited, returned, ends
}

// MayAwait reports whether a member is absent and has a restart grace.
func (v *View) MayAwait(inc string) bool {
	m := v.Members[inc]
	return m.RestartGrace > 0 && (m.Draining || !v.Alive(inc))
}

// BeginAbsences sets Absences to those that a new leader observes.
func (v *View) BeginAbsences() {
	v.Absences = map[string]time.Duration{}
	for inc := range v.Members {
		if v.MayAwait(inc) {
			v.Absences[inc] = 0
		}
	}
}

// IsAwaited reports whether the shards of a job that a member owns wait for its return.
func (v *View) IsAwaited(segment, inc string) bool {
	r := &round{View: v}
	r.awaited, _, _ = findAwaited(v)
	return r.isAwaited(segment, inc)
}

// findSkewReports returns the live members that report watermarks or epochs ahead of their clocks,
// sorted. Reports of members whose clocks are known to be skewed do not count.
func findSkewReports(v *View) []string {
	var out []string
	for inc, m := range v.Members {
		if _, skewed := v.Skewed[inc]; len(m.Ahead) > 0 && !skewed && v.Alive(inc) {
			out = append(out, inc)
		}
	}
	slices.Sort(out)
	return out
}

// isAwaited reports whether the shards of a job that an incarnation owns wait for its return. A
// member that may not own shards of the job is not awaited, since no other member may run the shards meanwhile.
func (r *round) isAwaited(segment, inc string) bool {
	return r.awaited[inc] && r.mayOwn(segment, inc)
}

// joinProblems joins two problem texts, either of which may be empty.
func joinProblems(a, b string) string {
	if a == "" {
		return b
	}
	if strings.Contains(a, b) {
		return a
	}
	return a + "; " + b
}
