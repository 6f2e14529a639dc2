package coordinator

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// desired is who should own the shards of a job. Shards that nobody may own stand under
// no owner.
type desired struct {
	owners  map[string]shardset.Set // by incarnation
	problem string                  // why the job's own strategy was not followed
}

// assigning is the making of all jobs' assignments.
type assigning struct {
	*view
	members []balanceMember
	offers  []offer
	load    map[string]int // shards dealt by strategies of their own
}

// offer is members that offer the same jobs, as nearly all of a fleet do.
type offer struct {
	jobs    []string // sorted
	members []int    // indexes of assigning.members, ascending
}

// able returns the indexes of the members that offer a job, ascending. They are shared.
func (a *assigning) able(job string) []int {
	var able []int
	for _, o := range a.offers {
		if _, ok := slices.BinarySearch(o.jobs, job); !ok {
			continue
		}
		if able == nil {
			able = o.members
			continue
		}
		able = slices.Concat(able, o.members)
		slices.Sort(able)
	}
	return able
}

// assignments returns who should own what of each of the segments. Jobs with the sticky
// strategy are dealt together, around those with another.
func (v *view) assignments(segments []string) []desired {
	a := v.newAssigning()
	out := make([]desired, len(segments))
	shared := make([]int, 0, len(segments))
	jobs := make([]balanceJob, 0, len(segments))
	for i, seg := range segments {
		job := v.jobNow(seg)
		problem := ""
		if job.Strategy != "" && job.Strategy != stickyName {
			d, err := a.byStrategy(seg, job)
			if err == nil {
				out[i] = d
				continue
			}
			problem = err.Error()
		}
		out[i].problem = problem
		shared = append(shared, i)
		jobs = append(jobs, a.balanceJob(seg, job))
	}
	for i := range a.members {
		a.members[i].load = a.load[a.members[i].id]
	}
	for i, dealt := range balance(jobs, a.members) {
		out[shared[i]].owners = ownersOf(dealt)
	}
	return out
}

// stickyName is the strategy of jobs that name none.
const stickyName = "sticky"

func (v *view) newAssigning() *assigning {
	a := &assigning{view: v, load: map[string]int{}}
	for _, inc := range slices.Sorted(maps.Keys(v.members)) {
		m := v.members[inc]
		if m.Draining || !v.alive(inc) {
			continue
		}
		i := len(a.members)
		a.members = append(a.members, balanceMember{id: inc})
		same := slices.IndexFunc(a.offers, func(o offer) bool { return slices.Equal(o.jobs, m.Jobs) })
		if same < 0 {
			same = len(a.offers)
			a.offers = append(a.offers, offer{jobs: m.Jobs})
		}
		a.offers[same].members = append(a.offers[same].members, i)
	}
	return a
}

// jobNow returns the newest definition that counts for planning: the plan's, or before
// there is a plan, the stored one.
func (v *view) jobNow(segment string) record.Job {
	if p, ok := v.plans[segment]; ok {
		return p.Last().Job()
	}
	return v.jobs[segment].Job
}

// owners returns who owns each shard now, "" for nobody.
func (v *view) owners(segment string, shards int) []string {
	owners := make([]string, shards)
	p, ok := v.plans[segment]
	if !ok {
		return owners
	}
	for inc, set := range p.Owners {
		for s := range set.All() {
			if s < shards {
				owners[s] = inc
			}
		}
	}
	return owners
}

// shardsOf returns how many shards of a job need an owner.
func (v *view) shardsOf(segment string, job record.Job) int {
	if p, ok := v.plans[segment]; ok {
		return p.Shards()
	}
	return job.Shards
}

func (a *assigning) balanceJob(segment string, job record.Job) balanceJob {
	b := balanceJob{owners: a.owners(segment, a.shardsOf(segment, job)), candidates: a.able(job.Name)}
	for _, i := range b.candidates {
		if set := a.view.members[a.members[i].id].Blocked[job.Name]; !set.IsZero() {
			if b.blocked == nil {
				b.blocked = map[string]shardset.Set{}
			}
			b.blocked[a.members[i].id] = set
		}
	}
	return b
}

// byStrategy deals a job by the strategy that it names.
func (a *assigning) byStrategy(segment string, job record.Job) (desired, error) {
	able := a.able(job.Name)
	if len(able) == 0 {
		return desired{}, nil
	}
	s, ok := LookupStrategy(job.Strategy)
	if !ok {
		return desired{}, fmt.Errorf("strategy %q is not registered on the leader", job.Strategy)
	}
	in := Input{
		Job: job.Name, Shards: a.shardsOf(segment, job), Members: make([]Candidate, 0, len(able)),
		Owners: a.owners(segment, a.shardsOf(segment, job)), Load: maps.Clone(a.load),
	}
	for _, i := range able {
		m := a.view.members[a.members[i].id]
		in.Members = append(in.Members, Candidate{ID: a.members[i].id, Name: m.Name, Labels: maps.Clone(m.Labels)})
	}
	for i, inc := range in.Owners {
		if !in.hasCandidate(inc) {
			in.Owners[i] = ""
		}
	}
	dealt, err := runStrategy(s, in)
	if err != nil {
		return desired{}, fmt.Errorf("strategy %q: %w", job.Strategy, err)
	}
	for _, inc := range dealt {
		a.load[inc]++
	}
	return desired{owners: ownersOf(a.unblock(job.Name, dealt))}, nil
}

// unblock takes from an assignment what its owners may not run now, because a function of
// an earlier incarnation has not returned. Those shards wait, owned by nobody.
func (a *assigning) unblock(job string, dealt Assignment) Assignment {
	for s, inc := range dealt {
		if a.view.members[inc].Blocked[job].Has(s) {
			dealt[s] = ""
		}
	}
	return dealt
}

func ownersOf(dealt Assignment) map[string]shardset.Set {
	numbers := map[string][]int{}
	for s, inc := range dealt {
		if inc != "" {
			numbers[inc] = append(numbers[inc], s)
		}
	}
	owners := make(map[string]shardset.Set, len(numbers))
	for inc, ns := range numbers {
		owners[inc] = shardset.Of(ns...)
	}
	return owners
}
