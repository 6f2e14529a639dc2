package coordinator

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/shardset"
)

// balanceWorld is a group as balance is asked about it, and what tests do to it.
type balanceWorld struct {
	seed    uint64
	rng     *rand.Rand
	members []balanceMember
	jobs    []balanceJob
	born    int
	heavy   int // the greatest weight of those who join; 0: all weigh the same
}

func newBalanceWorld(seed uint64, members int) *balanceWorld {
	return newWeighedWorld(seed, members, 0)
}

// newWeighedWorld returns one whose members have weights up to heavy, 0 for all the same.
func newWeighedWorld(seed uint64, members, heavy int) *balanceWorld {
	w := &balanceWorld{seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), heavy: heavy}
	for range members {
		w.join()
	}
	return w
}

// join adds a member, anywhere in the order, as a candidate for all jobs.
func (w *balanceWorld) join() (id string) {
	id = fmt.Sprintf("m%04d-%d", w.rng.IntN(10_000), w.born)
	w.born++
	w.change(func(ids []string) []string { return append(ids, id) })
	if w.heavy > 0 {
		i := slices.IndexFunc(w.members, func(m balanceMember) bool { return m.id == id })
		w.members[i].weight = 1 + w.rng.IntN(w.heavy)
	}
	for j := range w.jobs {
		i := slices.IndexFunc(w.members, func(m balanceMember) bool { return m.id == id })
		w.jobs[j].candidates = append(w.jobs[j].candidates, i)
		slices.Sort(w.jobs[j].candidates)
	}
	return id
}

// leave removes a member at random. Its shards keep its name.
func (w *balanceWorld) leave() (id string) {
	id = w.members[w.rng.IntN(len(w.members))].id
	w.change(func(ids []string) []string {
		return slices.DeleteFunc(ids, func(s string) bool { return s == id })
	})
	return id
}

// change replaces the members and brings the indexes of the jobs up to date.
func (w *balanceWorld) change(to func(ids []string) []string) {
	was := map[string]balanceMember{}
	var ids []string
	for _, m := range w.members {
		was[m.id] = m
		ids = append(ids, m.id)
	}
	before := slices.Clone(ids)
	ids = to(ids)
	slices.Sort(ids)
	w.members = nil
	for _, id := range ids {
		w.members = append(w.members, balanceMember{id: id, load: was[id].load, weight: was[id].weight})
	}
	for j := range w.jobs {
		var now []int
		for _, c := range w.jobs[j].candidates {
			if i, there := slices.BinarySearch(ids, before[c]); there {
				now = append(now, i)
			}
		}
		w.jobs[j].candidates = now
	}
}

// add adds a job that all members are candidates for.
func (w *balanceWorld) add(shards int) {
	job := balanceJob{owners: make([]string, shards)}
	for i := range w.members {
		job.candidates = append(job.candidates, i)
	}
	w.jobs = append(w.jobs, job)
}

// resize changes the number of shards of a job.
func (w *balanceWorld) resize(j, shards int) {
	owners := make([]string, shards)
	copy(owners, w.jobs[j].owners)
	w.jobs[j].owners = owners
}

// withdraw makes members no candidates of a job, each with probability p.
func (w *balanceWorld) withdraw(j int, p float64) {
	w.jobs[j].candidates = slices.DeleteFunc(slices.Clone(w.jobs[j].candidates), func(int) bool {
		return w.rng.Float64() < p
	})
}

// block bars pairs of a job's shards and candidates, each with probability p.
func (w *balanceWorld) block(j int, p float64) {
	blocked := map[string]shardset.Set{}
	for _, m := range w.members {
		var s shardset.Set
		for shard := range w.jobs[j].owners {
			if w.rng.Float64() < p {
				s.Add(shard)
			}
		}
		if !s.IsZero() {
			blocked[m.id] = s
		}
	}
	w.jobs[j].blocked = blocked
}

// adopt makes plan what is.
func (w *balanceWorld) adopt(plan [][]string) {
	for j := range plan {
		w.jobs[j].owners = plan[j]
	}
}

func (w *balanceWorld) shards() int {
	n := 0
	for _, job := range w.jobs {
		n += len(job.owners)
	}
	return n
}

// moves counts the shards to which plan gives another owner.
func (w *balanceWorld) moves(plan [][]string) int {
	n := 0
	for j, a := range plan {
		for shard, id := range a {
			if w.jobs[j].owners[shard] != id {
				n++
			}
		}
	}
	return n
}

// orphans counts the shards that have to move: their owners may not have them.
func (w *balanceWorld) orphans() int {
	n := 0
	for _, job := range w.jobs {
		for shard, id := range job.owners {
			if !w.may(job, shard, id) {
				n++
			}
		}
	}
	return n
}

func (w *balanceWorld) may(job balanceJob, shard int, id string) bool {
	for _, c := range job.candidates {
		if w.members[c].id == id {
			return !job.blocked[id].Has(shard)
		}
	}
	return false
}

// totals returns by member the load and the shards that plan gives it.
func (w *balanceWorld) totals(plan [][]string) []int {
	totals := make([]int, len(w.members))
	index := map[string]int{}
	for i, m := range w.members {
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
func (w *balanceWorld) counts(job balanceJob, a []string) []int {
	has := map[string]int{}
	for _, id := range a {
		has[id]++
	}
	counts := []int{}
	for _, c := range job.candidates {
		counts = append(counts, has[w.members[c].id])
	}
	return counts
}

func (w *balanceWorld) weight(m int) int { return max(w.members[m].weight, 1) }

// weights returns the sum of those of members.
func (w *balanceWorld) weights(members []int) int {
	sum := 0
	for _, m := range members {
		sum += w.weight(m)
	}
	return sum
}

// fair reports whether all candidates of a job have their shares of it, rounded down or up.
func (w *balanceWorld) fair(job balanceJob, a []string) bool {
	of := w.weights(job.candidates)
	for i, n := range w.counts(job, a) {
		if off := n*of - len(a)*w.weight(job.candidates[i]); off <= -of || off >= of {
			return false
		}
	}
	return true
}

// weighed reports whether weights differ.
func (w *balanceWorld) weighed() bool {
	return slices.ContainsFunc(w.members, func(m balanceMember) bool { return m.weight != w.members[0].weight })
}

// shares returns by member the sum of its shares of all jobs and loads.
func (w *balanceWorld) shares() []*big.Rat {
	share := make([]*big.Rat, len(w.members))
	everyone, loads := []int{}, 0
	for m := range w.members {
		share[m] = new(big.Rat)
		everyone = append(everyone, m)
		loads += w.members[m].load
	}
	deal := func(n int, candidates []int) {
		for _, m := range candidates {
			share[m].Add(share[m], big.NewRat(int64(n*w.weight(m)), int64(w.weights(candidates))))
		}
	}
	deal(loads, everyone)
	for _, job := range w.jobs {
		deal(len(job.owners), job.candidates)
	}
	return share
}

// square returns the square of what a total is off its aim: off the member's share, rounded
// down or up. With equal weights it is that of the total.
func square(total int, share *big.Rat) int {
	if share != nil {
		low := int(new(big.Int).Div(share.Num(), share.Denom()).Int64())
		if total -= low; total > 0 && !share.IsInt() {
			total--
		}
	}
	return total * total
}

// unevenness is the sum of the squares of totals.
func (w *balanceWorld) unevenness(totals []int) int {
	share := make([]*big.Rat, len(w.members))
	if w.weighed() {
		share = w.shares()
	}
	sum := 0
	for m, n := range totals {
		sum += square(n, share[m])
	}
	return sum
}

func spreadOf(ns []int) int {
	if len(ns) == 0 {
		return 0
	}
	return slices.Max(ns) - slices.Min(ns)
}

// requireOwners checks that plan has an owner that may own it for each shard for which
// there is one.
func (w *balanceWorld) requireOwners(t *testing.T, plan [][]string) {
	t.Helper()
	require.Len(t, plan, len(w.jobs))
	for j, a := range plan {
		job := w.jobs[j]
		require.Len(t, a, len(job.owners))
		for shard, id := range a {
			if id != "" {
				require.True(t, w.may(job, shard, id), "job %d: shard %d is given to %q", j, shard, id)
				continue
			}
			for _, c := range job.candidates {
				require.False(t, w.may(job, shard, w.members[c].id),
					"job %d: shard %d has no owner, and %q may own it", j, shard, w.members[c].id)
			}
		}
	}
}
