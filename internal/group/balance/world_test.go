package balance

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/shardset"
)

// World is a group, as input of Assign, with the changes that tests make to it.
type World struct {
	seed    uint64
	rng     *rand.Rand
	Members []Member
	Jobs    []Job
	born    int
	heavy   int // the greatest weight of joining members; 0: all are equal
}

func NewWorld(seed uint64, members int) *World {
	return NewWeighedWorld(seed, members, 0)
}

// NewWeighedWorld returns a group whose members have weights up to heavy; 0: all are equal.
func NewWeighedWorld(seed uint64, members, heavy int) *World {
	w := &World{seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), heavy: heavy}
	for range members {
		w.Join()
	}
	return w
}

// Join adds a member, at a random place in the order, as a candidate for all jobs.
func (w *World) Join() (id string) {
	id = fmt.Sprintf("m%04d-%d", w.rng.IntN(10_000), w.born)
	w.born++
	w.change(func(ids []string) []string { return append(ids, id) })
	if w.heavy > 0 {
		i := slices.IndexFunc(w.Members, func(m Member) bool { return m.ID == id })
		w.Members[i].Weight = 1 + w.rng.IntN(w.heavy)
	}
	for j := range w.Jobs {
		i := slices.IndexFunc(w.Members, func(m Member) bool { return m.ID == id })
		w.Jobs[j].Candidates = append(w.Jobs[j].Candidates, i)
		slices.Sort(w.Jobs[j].Candidates)
	}
	return id
}

// Leave removes a member at random. Its shards keep its name.
func (w *World) Leave() (id string) {
	id = w.Members[w.rng.IntN(len(w.Members))].ID
	w.change(func(ids []string) []string {
		return slices.DeleteFunc(ids, func(s string) bool { return s == id })
	})
	return id
}

// change replaces the members and updates the indexes in the jobs.
func (w *World) change(to func(ids []string) []string) {
	was := map[string]Member{}
	var ids []string
	for _, m := range w.Members {
		was[m.ID] = m
		ids = append(ids, m.ID)
	}
	before := slices.Clone(ids)
	ids = to(ids)
	slices.Sort(ids)
	w.Members = nil
	for _, id := range ids {
		w.Members = append(w.Members, Member{ID: id, Load: was[id].Load, Weight: was[id].Weight})
	}
	for j := range w.Jobs {
		var now []int
		for _, c := range w.Jobs[j].Candidates {
			if i, there := slices.BinarySearch(ids, before[c]); there {
				now = append(now, i)
			}
		}
		w.Jobs[j].Candidates = now
	}
}

// Add adds a job with all members as candidates.
func (w *World) Add(shards int) {
	job := Job{Owners: make([]string, shards)}
	for i := range w.Members {
		job.Candidates = append(job.Candidates, i)
	}
	w.Jobs = append(w.Jobs, job)
}

// resize changes the number of shards of a job.
func (w *World) resize(j, shards int) {
	owners := make([]string, shards)
	copy(owners, w.Jobs[j].Owners)
	w.Jobs[j].Owners = owners
}

// withdraw removes candidates of a job, each with probability p.
func (w *World) withdraw(j int, p float64) {
	w.Jobs[j].Candidates = slices.DeleteFunc(slices.Clone(w.Jobs[j].Candidates), func(int) bool {
		return w.rng.Float64() < p
	})
}

// block blocks pairs of a job's shards and candidates, each with probability p.
func (w *World) block(j int, p float64) {
	blocked := map[string]shardset.Set{}
	for _, m := range w.Members {
		var s shardset.Set
		for shard := range w.Jobs[j].Owners {
			if w.rng.Float64() < p {
				s.Add(shard)
			}
		}
		if !s.IsZero() {
			blocked[m.ID] = s
		}
	}
	w.Jobs[j].Blocked = blocked
}

// Adopt makes the owners of plan the current ones.
func (w *World) Adopt(plan [][]string) {
	for j := range plan {
		w.Jobs[j].Owners = plan[j]
	}
}

func (w *World) shards() int {
	n := 0
	for _, job := range w.Jobs {
		n += len(job.Owners)
	}
	return n
}

// Moves returns how many shards have another owner in plan.
func (w *World) Moves(plan [][]string) int {
	n := 0
	for j, a := range plan {
		for shard, id := range a {
			if w.Jobs[j].Owners[shard] != id {
				n++
			}
		}
	}
	return n
}

// Orphans returns how many shards have an owner that may not keep them.
func (w *World) Orphans() int {
	n := 0
	for _, job := range w.Jobs {
		for shard, id := range job.Owners {
			if !w.may(job, shard, id) {
				n++
			}
		}
	}
	return n
}

func (w *World) may(job Job, shard int, id string) bool {
	for _, c := range job.Candidates {
		if w.Members[c].ID == id {
			return !job.Blocked[id].Has(shard)
		}
	}
	return false
}

// Totals returns, by member, its load and its shards in plan.
func (w *World) Totals(plan [][]string) []int {
	totals := make([]int, len(w.Members))
	index := map[string]int{}
	for i, m := range w.Members {
		totals[i] = m.Load
		index[m.ID] = i
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

// counts returns how many shards of a job each of its candidates owns.
func (w *World) counts(job Job, a []string) []int {
	has := map[string]int{}
	for _, id := range a {
		has[id]++
	}
	counts := []int{}
	for _, c := range job.Candidates {
		counts = append(counts, has[w.Members[c].ID])
	}
	return counts
}

func (w *World) weight(m int) int { return max(w.Members[m].Weight, 1) }

// weights returns the sum of the weights of members.
func (w *World) weights(members []int) int {
	sum := 0
	for _, m := range members {
		sum += w.weight(m)
	}
	return sum
}

// Fair reports whether all candidates of a job have their shares of it, rounded down or up.
func (w *World) Fair(job Job, a []string) bool {
	of := w.weights(job.Candidates)
	for i, n := range w.counts(job, a) {
		if off := n*of - len(a)*w.weight(job.Candidates[i]); off <= -of || off >= of {
			return false
		}
	}
	return true
}

// weighed reports whether weights differ.
func (w *World) weighed() bool {
	return slices.ContainsFunc(w.Members, func(m Member) bool { return m.Weight != w.Members[0].Weight })
}

// shares returns, by member, the sum of its shares of all jobs and loads.
func (w *World) shares() []*big.Rat {
	share := make([]*big.Rat, len(w.Members))
	everyone, loads := []int{}, 0
	for m := range w.Members {
		share[m] = new(big.Rat)
		everyone = append(everyone, m)
		loads += w.Members[m].Load
	}
	deal := func(n int, candidates []int) {
		for _, m := range candidates {
			share[m].Add(share[m], big.NewRat(int64(n*w.weight(m)), int64(w.weights(candidates))))
		}
	}
	deal(loads, everyone)
	for _, job := range w.Jobs {
		deal(len(job.Owners), job.Candidates)
	}
	return share
}

// square returns the square of the distance of a total from its aim, which is the member's share rounded
// down or up. With equal weights it returns the square of the total.
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
func (w *World) unevenness(totals []int) int {
	share := make([]*big.Rat, len(w.Members))
	if w.weighed() {
		share = w.shares()
	}
	sum := 0
	for m, n := range totals {
		sum += square(n, share[m])
	}
	return sum
}

// requireOwners checks that plan has an owner that may own it for each shard for which
// there is one.
func (w *World) requireOwners(t *testing.T, plan [][]string) {
	t.Helper()
	require.Len(t, plan, len(w.Jobs))
	for j, a := range plan {
		job := w.Jobs[j]
		require.Len(t, a, len(job.Owners))
		for shard, id := range a {
			if id != "" {
				require.True(t, w.may(job, shard, id), "job %d: shard %d is assigned to %q", j, shard, id)
				continue
			}
			for _, c := range job.Candidates {
				require.False(t, w.may(job, shard, w.Members[c].ID),
					"job %d: shard %d has no owner, and %q may own it", j, shard, w.Members[c].ID)
			}
		}
	}
}
