package balance

import (
	"cmp"
	"slices"
)

// piece is a range of neighbouring shards with the same owner, from lo to hi-1.
type piece struct{ owner, lo, hi int }

// releaseSurplus removes shards from members that have more than they need: frozen ones first, then the
// smallest pieces, so that few pieces remain, and one end of the last piece.
func (b *balancer) releaseSurplus(job *jobState) {
	owner := job.owner
	for shard := range job.frozen.All() {
		if shard < len(owner) && owner[shard] != noMember && b.need[owner[shard]] < 0 {
			b.need[owner[shard]]++
			owner[shard] = noMember
		}
	}
	b.pieces = b.pieces[:0]
	for lo, hi := 0, 0; lo < len(owner); lo = hi {
		m := owner[lo]
		for hi < len(owner) && owner[hi] == m {
			hi++
		}
		if m != noMember && b.need[m] < 0 {
			b.pieces = append(b.pieces, piece{m, lo, hi})
		}
	}
	slices.SortFunc(b.pieces, func(p, q piece) int {
		return cmp.Or(cmp.Compare(p.hi-p.lo, q.hi-q.lo), cmp.Compare(p.lo, q.lo))
	})
	// Of a piece that is cut, the end is released that can join the neighbouring piece, and the upper one if
	// both can or neither.
	joins := func(shard int) bool {
		return shard >= 0 && shard < len(owner) && (owner[shard] == noMember || b.need[owner[shard]] > 0)
	}
	for _, p := range b.pieces {
		n := min(-b.need[p.owner], p.hi-p.lo)
		lo := p.hi - n
		if joins(p.lo-1) && !joins(p.hi) {
			lo = p.lo
		}
		setOwners(owner[lo:lo+n], noMember)
		b.need[p.owner] += n
	}
}

// assignFree assigns shards without an owner to members that need shards: first to owners of neighbouring
// shards, then in the order of members, in pieces as large as possible.
func (b *balancer) assignFree(job *jobState) {
	owner := job.owner
	for lo, hi := 0, 0; lo < len(owner); lo = hi {
		hi = lo + 1
		if owner[lo] != noMember {
			continue
		}
		for hi < len(owner) && owner[hi] == noMember {
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
	receivers := job.able
	for shard, m := range owner {
		if m != noMember {
			continue
		}
		for len(receivers) > 0 && b.need[receivers[0]] == 0 {
			receivers = receivers[1:]
		}
		if len(receivers) == 0 {
			return // no member may own shards of this job
		}
		owner[shard] = receivers[0]
		b.need[receivers[0]]--
	}
}

// setOwners makes m the owner of the shards whose owners are given.
func setOwners(owners []int, m int) {
	for i := range owners {
		owners[i] = m
	}
}

// reduceNeed lowers m's need by up to n, and returns by how much.
func (b *balancer) reduceNeed(m, n int) int {
	n = min(n, b.need[m])
	b.need[m] -= n
	return n
}
