package strategy

import (
	"slices"

	"github.com/rota-dev/rota/internal/group/balance"
)

// Sticky assigns shards evenly with the fewest moves. Each candidate gets its share of the job by
// weight, rounded down or up, and candidates with the least Input.Load are rounded up first. A shard
// stays with its owner unless it has to move for the job, or the loads, to be even.
//
// A leader does not call Sticky for each job: it balances all sticky jobs of a group together, so
// that their totals are even as well. For a group with one job both have the same result.
func Sticky(in Input) (Assignment, error) {
	job := balance.Job{Owners: in.Owners, Candidates: make([]int, len(in.Members))}
	members := make([]balance.Member, len(in.Members))
	for i, m := range in.Members {
		job.Candidates[i] = i
		members[i] = balance.Member{ID: m.ID, Load: in.Load[m.ID], Weight: m.Weight}
	}
	return balance.Assign([]balance.Job{job}, members)[0], nil
}

// Single assigns all shards to one candidate: the one that owns most of them, and among equals the
// one with the least Input.Load. It ignores weights.
func Single(in Input) (Assignment, error) {
	owned := make(map[string]int, len(in.Members))
	for _, id := range in.Owners {
		owned[id]++
	}
	best := in.Members[0].ID
	for _, m := range in.Members[1:] {
		if more := owned[m.ID] - owned[best]; more > 0 || more == 0 && in.Load[m.ID] < in.Load[best] {
			best = m.ID
		}
	}
	return slices.Repeat(Assignment{best}, in.Shards), nil
}
