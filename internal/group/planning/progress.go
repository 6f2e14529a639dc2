package planning

import (
	"slices"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// JobProgress holds the claims of a job, by its plan and its owners.
type JobProgress struct {
	Watermarks record.Watermarks
	Running    record.Runs
	HandedBack record.Runs // by owners, and not in the plan yet
	Reruns     record.Runs // the pending re-runs that are known
	OpenEpochs []int       // epochs with tracked fires that have not ended
}

// AddClaims adds the claims of an owner.
func (g *JobProgress) AddClaims(owned shardset.Set, claims record.Claims) {
	g.Watermarks = g.Watermarks.Fold(claims.Watermarks, owned)
	g.Running = g.Running.Merge(claims.Running)
	g.HandedBack = append(g.HandedBack, claims.Reruns.Within(owned)...)
}

// TriggerServed reports whether all shards of a trigger have claimed it, and no run or pending
// re-run of it is left.
func (g *JobProgress) TriggerServed(t record.Trigger, targets shardset.Set) bool {
	byTrigger := func(r record.RunGroup) bool { return r.Trigger == t.Number }
	if slices.ContainsFunc(g.Running, byTrigger) || slices.ContainsFunc(g.Reruns, byTrigger) {
		return false
	}
	return !slices.ContainsFunc(g.Watermarks.Split(targets), func(part record.WatermarkGroup) bool { return part.Trigger < t.Number })
}
