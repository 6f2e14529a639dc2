package balance

import (
	"cmp"
	"slices"
)

// piece is neighbouring shards with the same owner, from lo up to but without hi.
type piece struct{ owner, lo, hi int }

// release takes from members of job what they have beyond their need: what is frozen first,
// then the smallest pieces, whole, so that few stay behind, and of the last one an end.
func (b *balancer) releaseSurplus(job *jobState) {
	owner := job.owner
	for shard := range job.frozen.All() {
		if shard < len(owner) && owner[shard] != nobody && b.need[owner[shard]] < 0 {
			b.need[owner[shard]]++
			owner[shard] = nobody
		}
	}
	b.pieces = b.pieces[:0]
	for lo, hi := 0, 0; lo < len(owner); lo = hi {
		m := owner[lo]
		for hi = lo + 1; hi < len(owner) && owner[hi] == m; {
			hi++
		}
		if m != nobody && b.need[m] < 0 {
			b.pieces = append(b.pieces, piece{m, lo, hi})
		}
	}
	slices.SortFunc(b.pieces, func(p, q piece) int {
		return cmp.Or(cmp.Compare(p.hi-p.lo, q.hi-q.lo), cmp.Compare(p.lo, q.lo))
	})
	// Of a piece that is cut, the end goes that can join another one.
	joins := func(shard int) bool {
		return shard >= 0 && shard < len(owner) && (owner[shard] == nobody || b.need[owner[shard]] > 0)
	}
	for _, p := range b.pieces {
		n := min(-b.need[p.owner], p.hi-p.lo)
		lo := p.hi - n
		if joins(p.lo-1) && !joins(p.hi) {
			lo = p.lo
		}
		setOwners(owner[lo:lo+n], nobody)
		b.need[p.owner] += n
	}
}

// fill gives the shards that nobody has to those in need: first to whom has the shards
// next to them, then from the first to the last, in pieces as large as they come.
func (b *balancer) assignFree(job *jobState) {
	owner := job.owner
	for lo, hi := 0, 0; lo < len(owner); lo = hi {
		hi = lo + 1
		if owner[lo] != nobody {
			continue
		}
		for hi < len(owner) && owner[hi] == nobody {
			hi++
		}
		gap := owner[lo:hi]
		if lo > 0 {
			n := b.reduceNeed(owner[lo-1], len(gap))
			setOwners(gap[:n], owner[lo-1])
			gap = gap[n:]
		}
		if hi < len(owner) {
			n := b.reduceNeed(owner[hi], len(gap))
			setOwners(gap[len(gap)-n:], owner[hi])
		}
	}
	takers := job.able
	for shard, m := range owner {
		if m != nobody {
			continue
		}
		for len(takers) > 0 && b.need[takers[0]] == 0 {
			takers = takers[1:]
		}
		if len(takers) == 0 {
			return // a job that nobody may own
		}
		owner[shard] = takers[0]
		b.need[takers[0]]--
	}
}

// setOwners makes m the owner of the shards whose owners are given.
func setOwners(owners []int, m int) {
	for i := range owners {
		owners[i] = m
	}
}

// satisfy lowers m's need by as much as n shards can, and returns how many it takes.
func (b *balancer) reduceNeed(m, n int) int {
	n = min(n, b.need[m])
	b.need[m] -= n
	return n
}
