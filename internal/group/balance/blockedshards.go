package balance

import (
	"cmp"
	"slices"

	"github.com/rota-dev/rota/internal/shardset"
)

// blockedJob is the state of assigning a job with blocked shards. Such jobs are few and not blocked for
// long: a handler that does not return blocks its shard for its own process only. So a slow method, shard by
// shard, is good enough.
type blockedJob struct {
	*jobState
	weight []int          // by member; nil if all are equal
	total  []int          // by member, kept up to date
	holds  []shardset.Set // by member: its shards of the job
	count  []int          // by member: the number of these
}

// assignBlockedJob assigns the shards of a job with blocked shards. A shard stays with its owner unless the
// counts become more even when it moves, so the assignment is stable. With weights the differences
// between counts and shares are evened out, instead of the counts.
func (b *balancer) assignBlockedJob(job *jobState) {
	s := &blockedJob{
		jobState: job,
		weight:   b.weight,
		total:    b.total,
		holds:    make([]shardset.Set, len(b.members)),
		count:    make([]int, len(b.members)),
	}
	for shard, m := range job.owner {
		if m != noMember {
			s.holds[m].Add(shard)
			s.count[m]++
		}
	}
	s.assignFree()
	s.evenOut()
}

// assignFree assigns shards without an owner to the members with the fewest for their shares, in pieces if
// possible. A shard that no member may own stays without an owner.
func (s *blockedJob) assignFree() {
	var free shardset.Set
	for shard, m := range s.owner {
		if m == noMember {
			free.Add(shard)
		}
	}
	quota := s.evenQuotas(free.Len())
	for shard := range free.All() {
		i := slices.IndexFunc(s.able, func(m int) bool { return quota[m] > 0 && s.mayOwn(m, shard) })
		if i >= 0 {
			quota[s.able[i]]--
			s.assign(shard, s.able[i])
		}
	}
	// The members with a quota left may not own the remaining shards. Each goes to the member with the
	// fewest that may own it; evenOut corrects the counts.
	noMore := make([]int, len(s.count))
	for shard := range free.All() {
		if s.owner[shard] == noMember {
			if m := s.findLeastLoaded(noMore, func(m int) bool { return s.mayOwn(m, shard) }); m != noMember {
				s.assign(shard, m)
			}
		}
	}
}

// evenQuotas returns, by member, the distribution of n more shards that makes the counts the most even,
// regardless of blocked shards.
func (s *blockedJob) evenQuotas(n int) []int {
	quota := make([]int, len(s.count))
	for range n {
		quota[s.findLeastLoaded(quota, func(int) bool { return true })]++
	}
	return quota
}

// findLeastLoaded returns the eligible member with the fewest shards of the job for its share, counting
// more as well, and among equals the one with the least total for its weight; noMember if none is eligible.
func (s *blockedJob) findLeastLoaded(more []int, eligible func(m int) bool) int {
	least := noMember
	for _, m := range s.able {
		if !eligible(m) {
			continue
		}
		if least == noMember || s.compareMembers(m, least, more) < 0 {
			least = m
		}
	}
	return least
}

func (s *blockedJob) compareMembers(a, b int, more []int) int {
	return cmp.Or(
		cmp.Compare(s.excess(a, more[a]), s.excess(b, more[b])),
		cmp.Compare(int64(s.total[a]+more[a])*s.weightOf(b), int64(s.total[b]+more[b])*s.weightOf(a)))
}

// excess returns how far a member with more shards is above its share of the job. If weights differ, the
// unit is 1/weights of a shard, see shardExcess.
func (s *blockedJob) excess(m, more int) int64 {
	n := int64(s.count[m] + more)
	if s.weights == 0 {
		return n
	}
	return n*s.shardExcess() - int64(len(s.owner)*s.weight[m])
}

// shardExcess returns by how much one shard raises the excess.
func (s *blockedJob) shardExcess() int64 { return int64(max(s.weights, 1)) }

func (s *blockedJob) weightOf(m int) int64 {
	if s.weight == nil {
		return 1
	}
	return int64(s.weight[m])
}

// evenOut transfers shards to members that are lower by more than one, along paths over other members if
// necessary, until no path is left. The highest member passes on a shard first, and the first of several.
// In the end the counts are as even as possible: a member without a path will not get one later, as in
// extras.evenTotals.
func (s *blockedJob) evenOut() {
	done := make([]bool, len(s.count))
	for {
		from := noMember
		for _, m := range s.able {
			if !done[m] && (from == noMember || s.excess(m, 0) > s.excess(from, 0)) {
				from = m
			}
		}
		if from == noMember {
			return
		}
		path := s.findPath(from)
		done[from] = len(path) == 0
		// From the far end, so that no member passes on the shard that it has just received.
		for i := len(path) - 1; i > 0; i-- {
			passable := s.transferable(path[i-1], path[i])
			if frozen := passable.Intersect(s.frozen); !frozen.IsZero() {
				passable = frozen
			}
			shard, _ := passable.Max()
			s.assign(shard, path[i])
		}
	}
}

// findPath returns a path of members, each of which can pass a shard to the next, to the lowest member
// that can be reached, and of several to the nearest. It returns nil if that one is not lower by more than
// one shard.
func (s *blockedJob) findPath(from int) []int {
	noMore := make([]int, len(s.count))
	least := s.findLeastLoaded(noMore, func(int) bool { return true })
	if s.excess(from, 0)-s.excess(least, 0) <= s.shardExcess() {
		return nil
	}
	if !s.transferable(from, least).IsZero() {
		return []int{from, least} // the usual case, as few shards are blocked
	}
	prev := make([]int, len(s.count))
	for m := range prev {
		prev[m] = noMember
	}
	prev[from] = from
	least = from
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for _, to := range s.able {
			if prev[to] != noMember || s.transferable(queue[0], to).IsZero() {
				continue
			}
			prev[to] = queue[0]
			queue = append(queue, to)
			if s.compareMembers(to, least, noMore) < 0 {
				least = to
			}
		}
	}
	if s.excess(from, 0)-s.excess(least, 0) <= s.shardExcess() {
		return nil
	}
	path := []int{least}
	for m := least; m != from; m = prev[m] {
		path = append(path, prev[m])
	}
	slices.Reverse(path)
	return path
}

// transferable returns the shards of member from that member to may own.
func (s *blockedJob) transferable(from, to int) shardset.Set {
	return s.holds[from].Minus(s.blocked[to])
}

func (s *blockedJob) mayOwn(m, shard int) bool { return !s.blocked[m].Has(shard) }

func (s *blockedJob) assign(shard, m int) {
	if last := s.owner[shard]; last != noMember {
		s.holds[last].Remove(shard)
		s.count[last]--
		s.total[last]--
	}
	s.owner[shard] = m
	s.holds[m].Add(shard)
	s.count[m]++
	s.total[m]++
}
