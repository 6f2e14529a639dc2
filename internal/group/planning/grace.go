package planning

import (
	"github.com/rota-dev/rota/internal/group/balance"
	"github.com/rota-dev/rota/internal/shardset"
)

// currentOwners returns the owner of each shard now, "" for none. The shards of an incarnation
// whose instance has returned count as those of the live incarnation.
func (r *round) currentOwners(segment string, shards int) []string {
	owners := make([]string, shards)
	p, ok := r.Plans[segment]
	if !ok {
		return owners
	}
	for inc, set := range p.Owners {
		if current, ok := r.returned[inc]; ok {
			inc = current
		}
		for s := range set.All() {
			owners[s] = inc
		}
	}
	return owners
}

// withoutAwaited returns a job to be balanced without the shards that wait for a return. Shards
// get new numbers by that: numbers holds the old ones by the new. If no shard waits, it is nil, and
// the numbers are the old ones.
func (r *round) withoutAwaited(segment string, job balance.Job) (rest balance.Job, numbers []int) {
	if len(r.awaited) == 0 {
		return job, nil
	}
	var owners []string
	for s, inc := range job.Owners {
		if !r.isAwaited(segment, inc) {
			numbers = append(numbers, s)
			owners = append(owners, inc)
		}
	}
	if len(owners) == len(job.Owners) {
		return job, nil
	}
	renumber := func(set shardset.Set) (out shardset.Set) {
		for place, s := range numbers {
			if set.Has(s) {
				out.Add(place)
			}
		}
		return out
	}
	rest = balance.Job{Owners: owners, Candidates: job.Candidates}
	if job.Blocked != nil {
		rest.Blocked = make(map[string]shardset.Set, len(job.Blocked))
	}
	for inc, set := range job.Blocked {
		rest.Blocked[inc] = renumber(set)
	}
	if !job.Frozen.IsZero() {
		rest.Frozen = renumber(job.Frozen)
	}
	return rest, numbers
}

// keepAwaited adds to owners the shards that wait for the return of their owner.
func (r *round) keepAwaited(segment string, owners map[string]shardset.Set) {
	p, ok := r.Plans[segment]
	if !ok {
		return
	}
	for inc := range r.awaited {
		if set := p.Owners[inc]; !set.IsZero() && r.mayOwn(segment, inc) {
			owners[inc] = set
		}
	}
}
