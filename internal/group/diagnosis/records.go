package diagnosis

import (
	"iter"
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

	Receivers map[string]Receiver // by name
	Defined   DefinedJobs
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
	want := func(segments iter.Seq[string], key func(segment string) registry.Key) {
		for segment := range segments {
			wanted[key(segment)] = true
		}
	}
	want(maps.Keys(r.Jobs), r.Keys.Plan)
	want(maps.Keys(r.Plans), r.Keys.Job)
	want(maps.Keys(r.Control), r.Keys.Job)
	for key := range r.Unreadable {
		switch segment, ofJob := r.JobOf(key); {
		case ofJob && key.Dir() == r.Keys.Jobs():
			wanted[r.Keys.Plan(segment)] = true
		case ofJob && (key.Dir() == r.Keys.Plans() || key.Dir() == r.Keys.Controls()):
			wanted[r.Keys.Job(segment)] = true
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
