package planning

import (
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/scheduletext"
	"github.com/rota-dev/rota/internal/shardset"
)

// Target is the assignment of a job that its plan is to reach.
type Target struct {
	Segment string
	Owners  map[string]shardset.Set // by incarnation; shards that no member may own are missing
	Problem string                  // as the plan would name it
}

// FindTargets returns the target of each job, sorted by segment. They are those of Decide for the same
// View; FindTargets plans no steps towards them.
func FindTargets(v *View) []Target {
	r, segments := newRound(v), v.segments()
	targets := newAssigner(r).assignJobs(segments)
	out := make([]Target, len(segments))
	for i, seg := range segments {
		t := r.explainTarget(seg, targets[i])
		out[i] = Target{Segment: seg, Owners: t.owners, Problem: t.problem}
	}
	return out
}

// WantsFire reports whether a job that follows others fires after their fires of one instant, by the names of
// the followed jobs that have such a fire.
func WantsFire(after *scheduletext.After, fires map[string]record.EndedFire) bool {
	wanted, _ := wantsFire(after, followedFire{fires: fires})
	return wanted
}
