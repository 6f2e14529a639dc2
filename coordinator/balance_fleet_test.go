package coordinator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/shardset"
)

// fleet is a group as balance is asked about it, and what tests do to it.
type fleet struct {
	rng     *rand.Rand
	members []balanceMember
	jobs    []balanceJob
	born    int
}

func newFleet(seed uint64, members int) *fleet {
	f := &fleet{rng: rand.New(rand.NewPCG(seed, 0))}
	for range members {
		f.join()
	}
	return f
}

// join adds a member, anywhere in the order, as a candidate for all jobs.
func (f *fleet) join() (id string) {
	id = fmt.Sprintf("m%04d-%d", f.rng.IntN(10_000), f.born)
	f.born++
	f.change(func(ids []string) []string { return append(ids, id) })
	for j := range f.jobs {
		i := slices.IndexFunc(f.members, func(m balanceMember) bool { return m.id == id })
		f.jobs[j].candidates = append(f.jobs[j].candidates, i)
		slices.Sort(f.jobs[j].candidates)
	}
	return id
}

// leave removes a member at random. Its shards keep its name.
func (f *fleet) leave() (id string) {
	id = f.members[f.rng.IntN(len(f.members))].id
	f.change(func(ids []string) []string {
		return slices.DeleteFunc(ids, func(s string) bool { return s == id })
	})
	return id
}

// change replaces the members and brings the indexes of the jobs up to date.
func (f *fleet) change(to func(ids []string) []string) {
	load := map[string]int{}
	var ids []string
	for _, m := range f.members {
		load[m.id] = m.load
		ids = append(ids, m.id)
	}
	before := slices.Clone(ids)
	ids = to(ids)
	slices.Sort(ids)
	f.members = nil
	for _, id := range ids {
		f.members = append(f.members, balanceMember{id: id, load: load[id]})
	}
	for j := range f.jobs {
		var now []int
		for _, c := range f.jobs[j].candidates {
			if i, there := slices.BinarySearch(ids, before[c]); there {
				now = append(now, i)
			}
		}
		f.jobs[j].candidates = now
	}
}

// add adds a job that all members are candidates for.
func (f *fleet) add(shards int) {
	job := balanceJob{owners: make([]string, shards)}
	for i := range f.members {
		job.candidates = append(job.candidates, i)
	}
	f.jobs = append(f.jobs, job)
}

// resize changes the number of shards of a job.
func (f *fleet) resize(j, shards int) {
	owners := make([]string, shards)
	copy(owners, f.jobs[j].owners)
	f.jobs[j].owners = owners
}

// withdraw makes members no candidates of a job, each with probability p.
func (f *fleet) withdraw(j int, p float64) {
	f.jobs[j].candidates = slices.DeleteFunc(slices.Clone(f.jobs[j].candidates), func(int) bool {
		return f.rng.Float64() < p
	})
}

// block bars pairs of a job's shards and candidates, each with probability p.
func (f *fleet) block(j int, p float64) {
	blocked := map[string]shardset.Set{}
	for _, m := range f.members {
		var s shardset.Set
		for shard := range f.jobs[j].owners {
			if f.rng.Float64() < p {
				s.Add(shard)
			}
		}
		if !s.IsZero() {
			blocked[m.id] = s
		}
	}
	f.jobs[j].blocked = blocked
}

// adopt makes plan what is.
func (f *fleet) adopt(plan []Assignment) {
	for j := range plan {
		f.jobs[j].owners = plan[j]
	}
}

func (f *fleet) shards() int {
	n := 0
	for _, job := range f.jobs {
		n += len(job.owners)
	}
	return n
}

// moves counts the shards to which plan gives another owner.
func (f *fleet) moves(plan []Assignment) int {
	n := 0
	for j, a := range plan {
		for shard, id := range a {
			if f.jobs[j].owners[shard] != id {
				n++
			}
		}
	}
	return n
}

// orphans counts the shards that have to move: their owners may not have them.
func (f *fleet) orphans() int {
	n := 0
	for _, job := range f.jobs {
		for shard, id := range job.owners {
			if !f.may(job, shard, id) {
				n++
			}
		}
	}
	return n
}

func (f *fleet) may(job balanceJob, shard int, id string) bool {
	for _, c := range job.candidates {
		if f.members[c].id == id {
			return !job.blocked[id].Has(shard)
		}
	}
	return false
}

// totals returns by member the load and the shards that plan gives it.
func (f *fleet) totals(plan []Assignment) []int {
	totals := make([]int, len(f.members))
	index := map[string]int{}
	for i, m := range f.members {
		totals[i] = m.load
		index[m.id] = i
	}
	for _, a := range plan {
		for _, id := range a {
			if id != "" {
				totals[index[id]]++
			}
		}
	}
	return totals
}

// counts returns how many shards of a job each of its candidates has.
func (f *fleet) counts(job balanceJob, a Assignment) []int {
	has := map[string]int{}
	for _, id := range a {
		has[id]++
	}
	counts := []int{}
	for _, c := range job.candidates {
		counts = append(counts, has[f.members[c].id])
	}
	return counts
}

func spread(ns []int) int {
	if len(ns) == 0 {
		return 0
	}
	return slices.Max(ns) - slices.Min(ns)
}

func squares(ns []int) int {
	sum := 0
	for _, n := range ns {
		sum += n * n
	}
	return sum
}

// requireOwners checks that plan has an owner that may own it for each shard for which
// there is one.
func (f *fleet) requireOwners(t *testing.T, plan []Assignment) {
	t.Helper()
	require.Len(t, plan, len(f.jobs))
	for j, a := range plan {
		job := f.jobs[j]
		require.Len(t, a, len(job.owners))
		for shard, id := range a {
			if id != "" {
				require.True(t, f.may(job, shard, id), "job %d: shard %d is given to %q", j, shard, id)
				continue
			}
			for _, c := range job.candidates {
				require.False(t, f.may(job, shard, f.members[c].id),
					"job %d: shard %d has no owner, and %q may own it", j, shard, f.members[c].id)
			}
		}
	}
}
