package strategy

import (
	"slices"

	"github.com/rota-dev/rota/coordinator/internal/balance"
)

// Sticky deals evenly and moves as little as that allows: the candidates' counts differ
// from their shares by weight by less than one, their loads decide who gets one more, and a
// shard stays where it is unless the counts or the loads make it go.
//
// The leader deals all sticky jobs of a group in one balance, of which this is the case of
// one job.
func Sticky(in Input) (Assignment, error) {
	job := balance.Job{Owners: in.Owners, Candidates: make([]int, len(in.Members))}
	members := make([]balance.Member, len(in.Members))
	for i, m := range in.Members {
		job.Candidates[i] = i
		members[i] = balance.Member{ID: m.ID, Load: in.Load[m.ID], Weight: m.Weight}
	}
	return balance.Assign([]balance.Job{job}, members)[0], nil
}

// Single gives all shards to one candidate: to the one that has them, or the most of them,
// and to the one with the least load if that leaves a choice. Weights make no difference.
func Single(in Input) (Assignment, error) {
	has := make(map[string]int, len(in.Members))
	for _, id := range in.Owners {
		has[id]++
	}
	best := in.Members[0].ID
	for _, m := range in.Members[1:] {
		if more := has[m.ID] - has[best]; more > 0 || more == 0 && in.Load[m.ID] < in.Load[best] {
			best = m.ID
		}
	}
	return slices.Repeat(Assignment{best}, in.Shards), nil
}
