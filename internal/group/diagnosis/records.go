package diagnosis

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Records are the records of a group.
type Records struct {
	*snapshot.Snapshot
	Now     record.Instant
	Compile due.Compiler // nil: definitions are not compiled
}

// Incarnations returns the incarnations that the records name, sorted: those of the snapshot, and those that the leader
// reports to have a missing or damaged record. Only these can have claims that are found.
func (r *Records) Incarnations() []string {
	all := r.Snapshot.Incarnations()
	if r.Seat != nil {
		all = append(all, r.Seat.Incomplete...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// MissingCounterparts returns keys of records that belong to those of the snapshot and are not in it: they do not exist, or
// another program wrote their values, which lists leave out.
func (r *Records) MissingCounterparts() []registry.Key {
	wanted := map[registry.Key]bool{r.Keys.Seat(): true, r.Keys.Leader(): true, r.Keys.GroupControl(): true}
	for segment := range r.Segments() {
		ofPlan, ofJob := r.Keys.Plan(segment), r.Keys.Job(segment)
		if r.Has(ofPlan) || r.Has(r.Keys.Control(segment)) {
			wanted[ofJob] = true
		}
		if r.Has(ofJob) {
			wanted[ofPlan] = true
		}
	}
	for _, inc := range r.Incarnations() {
		wanted[r.Keys.Member(inc)] = true
	}
	for _, m := range r.Members { // a job with neither a definition nor a plan in the lists is named here only
		wanted[r.Keys.Instance(m.Name)] = true
		for _, job := range m.Jobs {
			wanted[r.Keys.Job(record.Segment(job))], wanted[r.Keys.Plan(record.Segment(job))] = true, true
		}
	}
	maps.DeleteFunc(wanted, func(k registry.Key, _ bool) bool { return r.Has(k) })
	keys := slices.Sorted(maps.Keys(wanted))
	return keys[:min(len(keys), maxCounterparts)]
}

// maxCounterparts bounds the reads for keys that lists leave out.
const maxCounterparts = 1000
