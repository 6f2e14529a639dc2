package coordinator

import "github.com/rota-dev/rota/internal/shardset"

// balanceMember is an instance among which balance deals shards.
type balanceMember struct {
	id   string
	load int // how many shards it has of jobs that are not dealt here
}

// balanceJob is a job whose shards balance deals.
type balanceJob struct {
	// owners holds by shard the ID of the member that has it now. Who may not have it,
	// or is no member, counts as nobody.
	owners []string
	// candidates are the indexes of the members that may own its shards, ascending.
	candidates []int
	// blocked holds by member ID the shards which that candidate may not own.
	blocked map[string]shardset.Set
}

// balance gives owners to the shards of all jobs of a group at once. The answer has an
// Assignment for each job, in which "" stands for a shard that nobody may own. Of all
// answers it is one that, in this order,
//
//  1. gives every shard an owner that may have it;
//  2. is even within each job: the counts of its candidates differ by at most one;
//  3. is even over all jobs: the sum of the squares of the members' totals, loads
//     included, is the least. The totals differ by at most one if all jobs have the same
//     candidates and there are no loads. Otherwise no shard can pass from a member to one
//     with two less, nor a chain of shards by way of others, unless a job becomes uneven;
//  4. moves the fewest shards;
//  5. keeps neighbouring shards together, as far as a quick look tells how.
//
// A job with blocked pairs may not be able to be that even. It is then as even as they
// allow; it is settled before the others, which even out around it, and its moves are few
// but perhaps not the fewest. A candidate for which all shards of a job are blocked is
// merely none: that alone does not put a job in this class.
//
// The same jobs and members in the same order have the same answer, and what balance
// answered it answers again when asked about that.
func balance(jobs []balanceJob, members []balanceMember) []Assignment {
	b := newBalancer(jobs, members)
	for j := range b.jobs {
		if b.jobs[j].blocked != nil {
			b.settleBlocked(&b.jobs[j])
		}
	}
	b.shareOut()
	return b.assignments()
}

// placeOrphans gives owners to the shards whose owner is no member, and leaves all others
// where they are: what is to be done at once when an instance has died. It is that part of
// what balance would do, so that a balance that follows moves nothing twice.
func placeOrphans(jobs []balanceJob, members []balanceMember) []Assignment {
	lives := make(map[string]bool, len(members))
	for _, m := range members {
		lives[m.id] = true
	}
	plan := balance(jobs, members)
	for j, job := range jobs {
		for shard, id := range job.owners {
			if lives[id] {
				plan[j][shard] = id
			}
		}
	}
	return plan
}

const (
	nobody  = -1 // the index of no member
	notOpen = -1 // see sharedJob.open
)

// balancer is the work of one balance. Members go by index in it.
type balancer struct {
	members []balanceMember
	jobs    []sharedJob
	total   []int // by member: load and the shards of all jobs that it has, or is to have

	// need holds by member how many shards it lacks of the job that is being dealt, below
	// zero if it has too many. It is all zeros between two jobs.
	need   []int
	pieces []piece // scratch of release
}

// sharedJob is a job in the balancer.
type sharedJob struct {
	// owner holds by shard who has it and may keep it, and in the end who is to own it.
	owner []int
	// able are the members that may own at least one shard, ascending.
	able []int
	// blocked holds by member what it may not own. It is nil if every able member may own
	// every shard.
	blocked []shardset.Set
	// each is how many shards every able member gets, and rest how many of them get one
	// more.
	each, rest int
	// open is the job's place among those of which some members get one more, or notOpen.
	open int
}

func newBalancer(jobs []balanceJob, members []balanceMember) *balancer {
	b := &balancer{
		members: members,
		jobs:    make([]sharedJob, len(jobs)),
		total:   make([]int, len(members)),
		need:    make([]int, len(members)),
	}
	index := make(map[string]int, len(members))
	for i, m := range members {
		index[m.id] = i
		b.total[i] = m.load
	}
	shards := 0
	for _, job := range jobs {
		shards += len(job.owners)
	}
	owners := make([]int, shards) // for all jobs: there may be thousands with one shard each
	ableFor := make([]int, len(members))
	for j, job := range jobs {
		n := len(job.owners)
		s := &b.jobs[j]
		s.owner, owners = owners[:n:n], owners[n:]
		s.able, s.blocked = ableMembers(job, members)
		s.open = notOpen
		if k := len(s.able); k > 0 {
			s.each, s.rest = n/k, n%k
		}
		for _, m := range s.able {
			ableFor[m] = j + 1
		}
		lookUpOwners(s.owner, job.owners, index)
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

// ableMembers sorts what a job's blocked says into members that may own nothing of it, and
// shards that some of the others may not own.
func ableMembers(job balanceJob, members []balanceMember) (able []int, blocked []shardset.Set) {
	if len(job.blocked) == 0 {
		return job.candidates, nil
	}
	all := shardset.Range(0, len(job.owners))
	for _, m := range job.candidates {
		barred := job.blocked[members[m].id].Intersect(all)
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
// Every able member of a job gets the same number of its shards, and some get one more.
// Which those are is all that there is to decide, for the evenness of the totals and for
// the moves; extras decides it for all jobs together. Which shards are whose then follows
// job by job.
func (b *balancer) shareOut() {
	open := 0
	for j := range b.jobs {
		if job := &b.jobs[j]; job.blocked == nil && job.rest > 0 {
			job.open = open
			open++
		}
	}
	x := newExtras(b.total, open)
	for j := range b.jobs {
		job := &b.jobs[j]
		if job.blocked != nil {
			continue
		}
		b.reckon(job)
		if job.open != notOpen {
			x.open(job.open, job.able, job.rest, b.need)
		}
		for _, m := range job.able {
			b.total[m] += b.need[m]
			b.need[m] = 0
		}
	}
	x.decide()
	for j := range b.jobs {
		job := &b.jobs[j]
		if job.blocked != nil {
			continue
		}
		b.reckon(job)
		if job.open != notOpen {
			for _, m := range job.able {
				if x.got[m].has(job.open) {
					b.need[m]++
				}
			}
		}
		b.release(job)
		b.fill(job)
	}
}

// reckon sets need to what each able member lacks of what every one of them gets.
func (b *balancer) reckon(job *sharedJob) {
	for _, m := range job.able {
		b.need[m] = job.each
	}
	for _, m := range job.owner {
		if m != nobody {
			b.need[m]--
		}
	}
}

// assignments returns what has become of the jobs' owners.
func (b *balancer) assignments() []Assignment {
	shards := 0
	for j := range b.jobs {
		shards += len(b.jobs[j].owner)
	}
	ids := make([]string, shards)
	plan := make([]Assignment, len(b.jobs))
	for j := range b.jobs {
		n := len(b.jobs[j].owner)
		plan[j], ids = Assignment(ids[:n:n]), ids[n:]
		for shard, m := range b.jobs[j].owner {
			if m != nobody {
				plan[j][shard] = b.members[m].id
			}
		}
	}
	return plan
}
