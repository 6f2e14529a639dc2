package balance

import (
	"slices"

	"github.com/rota-dev/rota/internal/shardset"
)

// Member is a member to which shards can be assigned.
type Member struct {
	ID     string
	Load   int // number of its shards of jobs that are not assigned here
	Weight int // its share relative to that of a member with weight 1; 0 means 1
}

// Job is a job whose shards are to be assigned.
type Job struct {
	// Owners holds the ID of each shard's owner. An owner that is not a member, or may not own the
	// shard, counts as none.
	Owners []string
	// Candidates are the indexes of the members that may own its shards, ascending.
	Candidates []int
	// Blocked holds, by member ID, the shards that a candidate may not own.
	Blocked map[string]shardset.Set
	// Frozen are the shards that began to move. They are the first to move.
	Frozen shardset.Set
}

// Assign assigns the shards of all jobs of a group. It returns the owners of each job's shards, with ""
// for a shard that no member may own. Of all assignments it returns one that, in this order of
// importance,
//
//  1. assigns each shard to a member that may own it;
//  2. is even within each job: each candidate has its share by weight, rounded down or up. With equal
//     weights the counts of candidates differ by at most one;
//  3. is even over all jobs, see below;
//  4. moves the fewest shards, frozen ones first: a move that was made in part continues with the same
//     shards;
//  5. keeps neighbouring shards together, by a heuristic.
//
// With equal weights, an assignment is even over all jobs if the sum of the squares of the members'
// totals, loads included, is the least. If all jobs have the same candidates and there are no loads, the
// totals then differ by at most one. Otherwise no shard, nor a chain of shards over other members, can
// pass to a member with a total lower by two or more, unless a job becomes uneven.
//
// If weights differ, the aim of a member is the sum of its shares of all jobs and of all loads, less its
// own load. A total is at its aim if it is the aim rounded down or up. The sum of the squares of the
// distances from the aims is the least. Without loads and blocked shards, all totals are at their aims.
// This is possible for any candidates: the exact shares are a flow from jobs to members within integer
// bounds, and if such a flow exists, an integer one does.
//
// A job with blocked shards is as even as they allow. It is assigned before all others, which balance
// around it, and its moves are few but may not be the fewest. A candidate that may own no shard of a job
// is simply not counted as a candidate.
//
// Assign is deterministic, and stable: given its own result it moves nothing.
func Assign(jobs []Job, members []Member) [][]string {
	b := newBalancer(jobs, members)
	b.assignAll()
	return b.assignments()
}

// AssignUnowned assigns only the shards without an owner that may keep them, however uneven the result is.
// It assigns them as Assign does, so a later Assign does not move them again.
func AssignUnowned(jobs []Job, members []Member) [][]string {
	b := newBalancer(jobs, members)
	kept := make([][]int, len(b.jobs))
	for j := range b.jobs {
		kept[j] = slices.Clone(b.jobs[j].owner)
	}
	b.assignAll()
	for j := range b.jobs {
		for shard, m := range kept[j] {
			if m != noMember {
				b.jobs[j].owner[shard] = m
			}
		}
	}
	return b.assignments()
}

// assignAll assigns the shards of all jobs, those with blocked shards first.
func (b *balancer) assignAll() {
	open := 0
	for j := range b.jobs {
		switch job := &b.jobs[j]; {
		case job.blocked != nil:
			b.assignBlockedJob(job)
		case job.extras > 0:
			job.openIndex = open
			open++
		}
	}
	b.assignUnblockedJobs(open)
}

const (
	noMember = -1 // in place of the index of a member
	noExtras = -1 // see jobState.openIndex
)

// balancer is the state of one call of Assign. It refers to members by index.
type balancer struct {
	members []Member
	weight  []int // by member; nil if all are equal
	jobs    []jobState
	total   []int // by member: its load and its shards of all jobs, as assigned so far

	// need holds, by able member, how many shards of the current job it lacks; negative if it has too many.
	need       []int
	pieces     []piece // buffer of releaseSurplus
	fractional []int   // buffer of fractionalMembers
}

// jobState is the state of a job in a balancer.
type jobState struct {
	// owner holds, by shard, the owner that may keep it, and at the end the new owner.
	owner []int
	// able are the candidates that may own at least one shard, ascending.
	able []int
	// blocked holds, by member, the shards that it may not own. It is nil if each able member may own
	// each shard.
	blocked []shardset.Set
	// frozen are the shards that began to move.
	frozen shardset.Set
	// weights is the sum of the able members' weights, or 0 if all are equal. In that case each is
	// the minimum number of shards of every able member; else see balancer.weightedMin.
	weights, each int
	// extras is how many able members get one shard more than their minimum.
	extras int
	// openIndex numbers the jobs with extras; noExtras for all others.
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
	owners := make([]int, shards) // one allocation: there may be thousands of jobs with one shard
	ableFor := make([]int, len(members))
	for j, job := range jobs {
		n := len(job.Owners)
		s := &b.jobs[j]
		s.owner, owners = owners[:n:n], owners[n:]
		s.able, s.blocked = ableMembers(job, members)
		s.openIndex, s.frozen = noExtras, job.Frozen
		b.computeQuota(s)
		for _, m := range s.able {
			ableFor[m] = j + 1
		}
		lookUpOwners(s.owner, job.Owners, index)
		for shard, m := range s.owner {
			switch {
			case m == noMember:
			case ableFor[m] != j+1 || s.blocked != nil && s.blocked[m].Has(shard):
				s.owner[shard] = noMember
			default:
				b.total[m]++
			}
		}
	}
	return b
}

// weightsOf returns the members' weights, or nil if all are equal.
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

// computeQuota computes how many shards of a job each able member gets at least, and how many of them get
// one more.
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
		job.extras -= b.weightedMin(job, m)
	}
}

// weightedMin returns an able member's share of a job, rounded down, if weights differ.
func (b *balancer) weightedMin(job *jobState, m int) int {
	return len(job.owner) * b.weight[m] / job.weights
}

// fractionalMembers returns the able members that may get one shard more: those whose share is not a whole
// number.
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

// Shares are added up in parts of a shard, each rounded down. A sum that lacks at most near of a whole number
// is rounded up to it. That exceeds the rounding errors of 10,000 jobs, and is too small to add up to a
// shard over 10,000 members.
const (
	parts = 1 << 30
	near  = parts >> 15
)

// subtractAims subtracts from each total the whole shards of the member's aim. It returns the fractions
// of the aims, in parts; nil if all weights are equal.
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
		whole := (aim[m] + near) / parts
		b.total[m] -= int(whole)
		aim[m] = max(aim[m]-whole*parts, 0)
	}
	return aim
}

// shareInParts returns the share of n shards of a weight, where weights is the sum of all, in parts.
func shareInParts(n, weight, weights int) int64 {
	whole, rest := int64(n/weights*weight), int64(n%weights*weight)
	return whole*parts + rest*parts/int64(weights)
}

// ableMembers returns the candidates that may own at least one shard of a job and, by member, the shards
// that they may not own; nil if there are none.
func ableMembers(job Job, members []Member) (able []int, blocked []shardset.Set) {
	if len(job.Blocked) == 0 {
		return job.Candidates, nil
	}
	all := shardset.Range(0, len(job.Owners))
	for _, m := range job.Candidates {
		blockedHere := job.Blocked[members[m].ID].Intersect(all)
		if blockedHere.Equal(all) {
			continue
		}
		able = append(able, m)
		if !blockedHere.IsZero() {
			if blocked == nil {
				blocked = make([]shardset.Set, len(members))
			}
			blocked[m] = blockedHere
		}
	}
	return able, blocked
}

// lookUpOwners fills owner with the indexes of ids. Neighbouring shards mostly have the same owner, which
// saves most map lookups.
func lookUpOwners(owner []int, ids []string, index map[string]int) {
	last, lastID := noMember, ""
	for shard, id := range ids {
		if id != lastID {
			lastID, last = id, noMember
			if m, ok := index[id]; ok {
				last = m
			}
		}
		owner[shard] = last
	}
}

// assignUnblockedJobs assigns the shards of all jobs without blocked shards, of which open have extras. It
// decides for all jobs together which members get an extra, and then for each job which shards move.
func (b *balancer) assignUnblockedJobs(open int) {
	x := newExtras(len(b.members), open)
	for j := range b.jobs {
		job := &b.jobs[j]
		if job.blocked != nil {
			continue
		}
		b.computeNeed(job)
		if job.openIndex != noExtras {
			x.addJob(job.openIndex, b.fractionalMembers(job), job.extras, b.need)
		}
		for _, m := range job.able {
			b.total[m] += b.need[m]
		}
	}
	x.solve(b.total, b.subtractAims())
	for j := range b.jobs {
		job := &b.jobs[j]
		if job.blocked != nil {
			continue
		}
		b.computeNeed(job)
		if job.openIndex != noExtras {
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

// computeNeed sets need to the number of shards that each able member lacks of its minimum.
func (b *balancer) computeNeed(job *jobState) {
	if job.weights == 0 { // the usual case, fast: 10,000 jobs times all members are many
		for _, m := range job.able {
			b.need[m] = job.each
		}
	} else {
		for _, m := range job.able {
			b.need[m] = b.weightedMin(job, m)
		}
	}
	for _, m := range job.owner {
		if m != noMember {
			b.need[m]--
		}
	}
}

// assignments returns the owners of all jobs by ID.
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
			if m != noMember {
				plan[j][shard] = b.members[m].ID
			}
		}
	}
	return plan
}
