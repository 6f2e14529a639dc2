package balance

import (
	"slices"

	"github.com/rota-dev/rota/internal/shardset"
)

// Member is an instance among which balance deals shards.
type Member struct {
	ID     string
	Load   int // how many shards it has of jobs that are not dealt here
	Weight int // how many times the share of another it is to have; 0 is 1
}

// Job is a job whose shards balance deals.
type Job struct {
	// owners holds by shard the ID of the member that has it now. Who may not have it,
	// or is no member, counts as nobody.
	Owners []string
	// candidates are the indexes of the members that may own its shards, ascending.
	Candidates []int
	// blocked holds by member ID the shards which that candidate may not own.
	Blocked map[string]shardset.Set
	// frozen are the shards that are to move already. They go first.
	Frozen shardset.Set
}

// Assign gives owners to the shards of all jobs of a group at once. The answer has an
// Assignment for each job, in which "" stands for a shard that nobody may own. Of all
// answers it is one that, in this order,
//
//  1. gives every shard an owner that may have it;
//  2. is even within each job: a candidate has its share, as its weight is to those of all
//     candidates, rounded down or up. With equal weights their counts differ by at most one;
//  3. is even over all jobs, see below;
//  4. moves the fewest shards, and of those that a member may give away the ones first that are
//     frozen: a move that has been made in part goes on with the shards that it began with;
//  5. keeps neighbouring shards together, as far as a quick look tells how.
//
// Over all jobs it is even, if all members have the same weight, when the sum of the
// squares of their totals, loads included, is the least. The totals differ by at most one if
// all jobs have the same candidates and there are no loads. Otherwise no shard can pass from
// a member to one with two less, nor a chain of shards by way of others, unless a job becomes
// uneven.
//
// If weights differ, a member's aim is the sum of its shares of the jobs and its share of all
// loads, less its load. A total is at its aim if that, rounded down or up, is what it is; the
// sum of the squares of what totals are off is the least. Without loads and blocked pairs all
// are at their aims. That can be had, in each job and in total at once, whoever the candidates
// are: the shares as they are, in fractions, are a flow from jobs to members within bounds that
// are whole numbers, and if there is such a flow there is one in whole numbers.
//
// A job with blocked pairs may not be able to be that even. It is then as even as they
// allow; it is settled before the others, which even out around it, and its moves are few
// but perhaps not the fewest. A candidate for which all shards of a job are blocked is
// merely none: that alone does not put a job in this class.
//
// The same jobs and members in the same order have the same answer, and what balance
// answered it answers again when asked about that.
func Assign(jobs []Job, members []Member) [][]string {
	b := newBalancer(jobs, members)
	b.assignAll()
	return b.assignments()
}

// AssignUnowned assigns the shards whose owner may not keep them or that have none, and leaves
// all others where they are, however uneven that is. It is that part of what balance would do,
// so that a balance that follows moves nothing twice.
func AssignUnowned(jobs []Job, members []Member) [][]string {
	b := newBalancer(jobs, members)
	kept := make([][]int, len(b.jobs))
	for j := range b.jobs {
		kept[j] = slices.Clone(b.jobs[j].owner)
	}
	b.assignAll()
	for j := range b.jobs {
		for shard, m := range kept[j] {
			if m != nobody {
				b.jobs[j].owner[shard] = m
			}
		}
	}
	return b.assignments()
}

// run finds the owners of all shards.
func (b *balancer) assignAll() {
	for j := range b.jobs {
		if b.jobs[j].blocked != nil {
			b.assignBlockedJob(&b.jobs[j])
		}
	}
	b.assignUnblockedJobs()
}

const (
	nobody  = -1 // the index of no member
	notOpen = -1 // see sharedJob.open
)

// balancer is the work of one balance. Members go by index in it.
type balancer struct {
	members []Member
	weight  []int // by member; nil if all weigh the same
	jobs    []jobState
	total   []int // by member: load and the shards of all jobs that it has, or is to have

	// need holds by member how many shards it lacks of the job that is being dealt, below
	// zero if it has too many. It is all zeros between two jobs.
	need       []int
	pieces     []piece // scratch of release
	fractional []int   // scratch of unevenlyShared
}

// sharedJob is a job in the balancer.
type jobState struct {
	// owner holds by shard who has it and may keep it, and in the end who is to own it.
	owner []int
	// able are the members that may own at least one shard, ascending.
	able []int
	// blocked holds by member what it may not own. It is nil if every able member may own
	// every shard.
	blocked []shardset.Set
	// frozen are the shards that are to move already.
	frozen shardset.Set
	// weights is the sum of those of the able members, or 0 if all weigh the same. Then each
	// is how many shards every one of them gets; else see balancer.least.
	weights, each int
	// rest is how many of them get one more.
	extras int
	// open is the job's place among those of which some members get one more, or notOpen.
	openIndex int
}

func newBalancer(jobs []Job, members []Member) *balancer {
	b := &balancer{
		members: members,
		jobs:    make([]jobState, len(jobs)),
		weight:  weightsOf(members),
		total:   make([]int, len(members)),
		need:    make([]int, len(members)),
	}
	index := make(map[string]int, len(members))
	for i, m := range members {
		index[m.ID] = i
		b.total[i] = m.Load
	}
	shards := 0
	for _, job := range jobs {
		shards += len(job.Owners)
	}
	owners := make([]int, shards) // for all jobs: there may be thousands with one shard each
	ableFor := make([]int, len(members))
	for j, job := range jobs {
		n := len(job.Owners)
		s := &b.jobs[j]
		s.owner, owners = owners[:n:n], owners[n:]
		s.able, s.blocked = ableMembers(job, members)
		s.openIndex, s.frozen = notOpen, job.Frozen
		b.computeQuota(s)
		for _, m := range s.able {
			ableFor[m] = j + 1
		}
		lookUpOwners(s.owner, job.Owners, index)
		for shard, m := range s.owner {
			switch {
			case m == nobody:
			case ableFor[m] != j+1 || s.blocked != nil && s.blocked[m].Has(shard):
				s.owner[shard] = nobody
			default:
				b.total[m]++
			}
		}
	}
	return b
}

// weightsOf returns the members' weights, or nil if all are the same.
func weightsOf(members []Member) []int {
	if !slices.ContainsFunc(members, func(m Member) bool { return max(m.Weight, 1) != max(members[0].Weight, 1) }) {
		return nil
	}
	weight := make([]int, len(members))
	for i, m := range members {
		weight[i] = max(m.Weight, 1)
	}
	return weight
}

// divide finds out how many shards of a job every able member gets, and how many get one
// more.
func (b *balancer) computeQuota(job *jobState) {
	n, k := len(job.owner), len(job.able)
	switch {
	case k == 0:
		return
	case b.weight == nil:
		job.each, job.extras = n/k, n%k
		return
	}
	for _, m := range job.able {
		job.weights += b.weight[m]
	}
	job.extras = n
	for _, m := range job.able {
		job.extras -= b.minShards(job, m)
	}
}

// least returns how many shards of a job an able member gets at least.
func (b *balancer) minShards(job *jobState, m int) int {
	if job.weights == 0 {
		return job.each
	}
	return len(job.owner) * b.weight[m] / job.weights
}

// unevenlyShared returns the able members who may get one more: not those whose share is a
// whole number.
func (b *balancer) fractionalMembers(job *jobState) []int {
	if job.weights == 0 {
		return job.able
	}
	b.fractional = b.fractional[:0]
	for _, m := range job.able {
		if len(job.owner)*b.weight[m]%job.weights > 0 {
			b.fractional = append(b.fractional, m)
		}
	}
	return b.fractional
}

// A shard is divided into so many parts to add up shares. What is closer to a whole number
// than near is taken for it: that is more than what rounding takes from the shares of 10,000
// jobs, and so little that whole shards cannot come of it among 10,000 members.
const (
	parts = 1 << 30
	near  = parts >> 15
)

// aims takes from the totals the whole shards in their members' aims, and returns, in parts,
// what is left of the aims; nil if all weigh the same.
func (b *balancer) subtractAims() (left []int64) {
	if b.weight == nil {
		return nil
	}
	loads, weights := 0, 0
	for m := range b.members {
		loads += b.members[m].Load
		weights += b.weight[m]
	}
	aim := make([]int64, len(b.members))
	for m := range aim {
		aim[m] = shareInParts(loads, b.weight[m], weights)
	}
	for j := range b.jobs {
		job := &b.jobs[j]
		for _, m := range job.able {
			aim[m] += shareInParts(len(job.owner), b.weight[m], job.weights)
		}
	}
	for m := range aim {
		b.total[m] -= int((aim[m] + near) / parts)
		if aim[m] %= parts; aim[m] < near || aim[m] >= parts-near {
			aim[m] = 0
		}
	}
	return aim
}

// inParts returns the share of n shards that a weight has among weights, in parts.
func shareInParts(n, weight, weights int) int64 {
	whole, rest := int64(n/weights*weight), int64(n%weights*weight)
	return whole*parts + rest*parts/int64(weights)
}

// ableMembers sorts what a job's blocked says into members that may own nothing of it, and
// shards that some of the others may not own.
func ableMembers(job Job, members []Member) (able []int, blocked []shardset.Set) {
	if len(job.Blocked) == 0 {
		return job.Candidates, nil
	}
	all := shardset.Range(0, len(job.Owners))
	for _, m := range job.Candidates {
		barred := job.Blocked[members[m].ID].Intersect(all)
		if barred.Equal(all) {
			continue
		}
		able = append(able, m)
		if !barred.IsZero() {
			if blocked == nil {
				blocked = make([]shardset.Set, len(members))
			}
			blocked[m] = barred
		}
	}
	return able, blocked
}

// lookUpOwners fills owner with the indexes of ids. Neighbouring shards mostly have the
// same owner, which saves most of the looking up.
func lookUpOwners(owner []int, ids []string, index map[string]int) {
	last, lastID := nobody, ""
	for shard, id := range ids {
		if id != lastID {
			lastID, last = id, nobody
			if m, ok := index[id]; ok {
				last = m
			}
		}
		owner[shard] = last
	}
}

// shareOut deals the shards of all jobs without blocked pairs.
//
// Every able member of a job gets its share of the shards rounded down, and some get one more.
// Which those are is all that there is to decide, for the evenness of the totals and for
// the moves; extras decides it for all jobs together. Which shards are whose then follows
// job by job.
func (b *balancer) assignUnblockedJobs() {
	open := 0
	for j := range b.jobs {
		if job := &b.jobs[j]; job.blocked == nil && job.extras > 0 {
			job.openIndex = open
			open++
		}
	}
	x := newExtras(len(b.members), open)
	for j := range b.jobs {
		job := &b.jobs[j]
		if job.blocked != nil {
			continue
		}
		b.computeNeed(job)
		if job.openIndex != notOpen {
			x.addJob(job.openIndex, b.fractionalMembers(job), job.extras, b.need)
		}
		for _, m := range job.able {
			b.total[m] += b.need[m]
			b.need[m] = 0
		}
	}
	x.solve(b.total, b.subtractAims())
	for j := range b.jobs {
		job := &b.jobs[j]
		if job.blocked != nil {
			continue
		}
		b.computeNeed(job)
		if job.openIndex != notOpen {
			for _, m := range job.able {
				if x.got[m].has(job.openIndex) {
					b.need[m]++
				}
			}
		}
		b.releaseSurplus(job)
		b.assignFree(job)
	}
}

// reckon sets need to what each able member lacks of what it gets at least.
func (b *balancer) computeNeed(job *jobState) {
	if job.weights == 0 { // as ever; 10,000 jobs times all members are many
		for _, m := range job.able {
			b.need[m] = job.each
		}
	} else {
		for _, m := range job.able {
			b.need[m] = b.minShards(job, m)
		}
	}
	for _, m := range job.owner {
		if m != nobody {
			b.need[m]--
		}
	}
}

// assignments returns what has become of the jobs' owners.
func (b *balancer) assignments() [][]string {
	shards := 0
	for j := range b.jobs {
		shards += len(b.jobs[j].owner)
	}
	ids := make([]string, shards)
	plan := make([][]string, len(b.jobs))
	for j := range b.jobs {
		n := len(b.jobs[j].owner)
		plan[j], ids = ids[:n:n], ids[n:]
		for shard, m := range b.jobs[j].owner {
			if m != nobody {
				plan[j][shard] = b.members[m].ID
			}
		}
	}
	return plan
}
