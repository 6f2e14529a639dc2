package diagnosis

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Records are the records of a group, as listed from the store, each directory as of its own read.
type Records struct {
	Now       record.Instant
	Keys      record.Keys
	Meta      *registry.Entry // nil: there is none
	Election  []registry.Entry
	Instances []registry.Entry
	Members   []registry.Entry
	Jobs      []registry.Entry
	Controls  []registry.Entry
	Plans     []registry.Entry
	Claims    map[string][]registry.Entry // by incarnation
	Ends      []registry.Entry            // copies of claims records
	Foreign   []registry.Key              // whose values another program wrote; lists leave them out
	Compile   due.Compiler                // nil: definitions are not compiled
}

// Incarnations returns the incarnations that the records name, sorted: those of members, of live
// instances, and owners of shards. Only these can have claims that are found: the store cannot list the
// incarnations that have some.
func (r *Records) Incarnations() []string {
	all := map[string]bool{}
	for _, e := range r.Members {
		all[e.Key.Name()] = true
	}
	for _, e := range r.Plans {
		if p, err := record.DecodePlanEntry(e); err == nil {
			for inc := range p.Owners {
				all[inc] = true
			}
		}
	}
	for _, inc := range r.incomplete() {
		all[inc] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// incomplete returns the incarnations that the leader reports to have a missing or damaged record.
func (r *Records) incomplete() []string {
	seat, found := r.electionRecord(r.Keys.Seat())
	if !found {
		return nil
	}
	s, _ := record.Decode[record.Seat](seat.Value)
	return s.Incomplete
}

func (r *Records) electionRecord(key registry.Key) (registry.Entry, bool) {
	for _, e := range r.Election {
		if e.Key == key {
			return e, true
		}
	}
	return registry.Entry{}, false
}

// MissingCounterparts returns keys of records that belong to listed ones and are not listed themselves:
// they do not exist, or another program wrote their values.
func (r *Records) MissingCounterparts() []registry.Key {
	listed := map[registry.Key]bool{}
	for _, entries := range [][]registry.Entry{r.Election, r.Instances, r.Members, r.Jobs, r.Controls, r.Plans} {
		for _, e := range entries {
			listed[e.Key] = true
		}
	}
	wanted := map[registry.Key]bool{r.Keys.Seat(): true, r.Keys.Leader(): true, r.Keys.GroupControl(): true}
	for _, e := range r.Plans {
		wanted[r.Keys.Job(e.Key.Name())] = true
	}
	for _, e := range r.Jobs {
		wanted[r.Keys.Plan(e.Key.Name())] = true
	}
	for _, e := range r.Controls {
		if e.Key != r.Keys.GroupControl() {
			wanted[r.Keys.Job(e.Key.Name())] = true
		}
	}
	for _, inc := range r.Incarnations() {
		wanted[r.Keys.Member(inc)] = true
	}
	for _, e := range r.Members { // a job with neither a definition nor a plan in the lists is named here only
		m, err := record.DecodeMemberEntry(e)
		if err != nil {
			continue
		}
		wanted[r.Keys.Instance(m.Name)] = true
		for _, job := range m.Jobs {
			wanted[r.Keys.Job(record.Segment(job))], wanted[r.Keys.Plan(record.Segment(job))] = true, true
		}
	}
	maps.DeleteFunc(wanted, func(k registry.Key, _ bool) bool { return listed[k] })
	keys := slices.Sorted(maps.Keys(wanted))
	return keys[:min(len(keys), maxCounterparts)]
}

// maxCounterparts bounds the reads for keys that lists leave out.
const maxCounterparts = 1000
