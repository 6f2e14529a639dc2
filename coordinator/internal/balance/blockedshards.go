package balance

import (
	"cmp"
	"slices"

	"github.com/rota-dev/rota/internal/shardset"
)

// settling is the work on a job some of whose shards some of its members may not own.
// Such jobs are few and do not stay so for long: a function that does not return blocks
// its shard for the process it runs in. So this goes shard by shard.
type blockedJob struct {
	*jobState
	weight []int          // by member; nil if all weigh the same
	total  []int          // by member, kept up to date
	holds  []shardset.Set // by member: what it has of the job
	count  []int          // by member: how many those are
}

// settleBlocked deals the shards of a job with blocked pairs. Who has a shard keeps it,
// unless the counts become more even by its moving on: so what is settled stays. With weights
// it is not the counts that are to be even but what they are above the members' shares.
func (b *balancer) assignBlockedJob(job *jobState) {
	s := &blockedJob{
		jobState: job,
		weight:   b.weight,
		total:    b.total,
		holds:    make([]shardset.Set, len(b.members)),
		count:    make([]int, len(b.members)),
	}
	for shard, m := range job.owner {
		if m != nobody {
			s.holds[m].Add(shard)
			s.count[m]++
		}
	}
	s.assignFree()
	s.evenOut()
}

// fill gives the shards that nobody has to the members with the fewest for their shares, in
// pieces if it can. One that no member may own stays without an owner.
func (s *blockedJob) assignFree() {
	var free shardset.Set
	for shard, m := range s.owner {
		if m == nobody {
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
	// Those whose quotas are open may not own what is left now. It goes to who may, with
	// the fewest; level makes up for it.
	none := make([]int, len(s.count))
	for shard := range free.All() {
		if s.owner[shard] == nobody {
			if m := s.findLeastLoaded(none, func(m int) bool { return s.mayOwn(m, shard) }); m != nobody {
				s.assign(shard, m)
			}
		}
	}
}

// quotas returns by member how many of n more shards would make the counts the most even,
// if everyone might have any.
func (s *blockedJob) evenQuotas(n int) []int {
	quota := make([]int, len(s.count))
	for range n {
		quota[s.findLeastLoaded(quota, func(int) bool { return true })]++
	}
	return quota
}

// fewest returns the eligible member with the fewest shards of the job for its share, with
// more of them counted in, and the least total for its weight among such; nobody if none is
// eligible.
func (s *blockedJob) findLeastLoaded(more []int, eligible func(m int) bool) int {
	least := nobody
	for _, m := range s.able {
		if !eligible(m) {
			continue
		}
		if least == nobody || s.compareMembers(m, least, more) < 0 {
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

// excess returns how far a member with more shards is above its share of the job. If weights
// differ it is in parts of a shard, of which there are as many as weights, see one.
func (s *blockedJob) excess(m, more int) int64 {
	n := int64(s.count[m] + more)
	if s.weights == 0 {
		return n
	}
	return n*s.shardExcess() - int64(len(s.owner)*s.weight[m])
}

// one returns by how much a shard raises the excess.
func (s *blockedJob) shardExcess() int64 { return int64(max(s.weights, 1)) }

func (s *blockedJob) weightOf(m int) int64 {
	if s.weight == nil {
		return 1
	}
	return int64(s.weight[m])
}

// level passes shards on, from a member to another that is lower by more than one and if
// need be by way of others, until none can be. The counts are as even as they can be then:
// who has once found no way will not find one later, as in extras.even.
func (s *blockedJob) evenOut() {
	done := make([]bool, len(s.count))
	for {
		from := nobody
		for _, m := range s.able {
			if !done[m] && (from == nobody || s.excess(m, 0) > s.excess(from, 0)) {
				from = m
			}
		}
		if from == nobody {
			return
		}
		way := s.findPath(from)
		if len(way) == 0 {
			done[from] = true
			continue
		}
		// From the far end, so that nobody passes on what it has just got.
		for i := len(way) - 1; i > 0; i-- {
			passable := s.transferable(way[i-1], way[i])
			if frozen := passable.Intersect(s.frozen); !frozen.IsZero() {
				passable = frozen
			}
			shard, _ := passable.Max()
			s.assign(shard, way[i])
		}
	}
}

// way returns members, each of which can pass a shard on to the next, from the one given
// to one that is lower by more than one: the lowest that can be reached. It is nil if there
// is none.
func (s *blockedJob) findPath(from int) []int {
	none := make([]int, len(s.count))
	least := s.findLeastLoaded(none, func(int) bool { return true })
	if s.excess(from, 0)-s.excess(least, 0) <= s.shardExcess() {
		return nil
	}
	if !s.transferable(from, least).IsZero() {
		return []int{from, least} // nearly always: blocked pairs are few
	}
	prev := make([]int, len(s.count))
	for m := range prev {
		prev[m] = nobody
	}
	prev[from] = from
	least = from
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for _, to := range s.able {
			if prev[to] != nobody || s.transferable(queue[0], to).IsZero() {
				continue
			}
			prev[to] = queue[0]
			queue = append(queue, to)
			if s.compareMembers(to, least, none) < 0 {
				least = to
			}
		}
	}
	if s.excess(from, 0)-s.excess(least, 0) <= s.shardExcess() {
		return nil
	}
	way := []int{least}
	for m := least; m != from; m = prev[m] {
		way = append(way, prev[m])
	}
	slices.Reverse(way)
	return way
}

// passable returns the shards of one member that another may own.
func (s *blockedJob) transferable(from, to int) shardset.Set {
	return s.holds[from].Minus(s.blocked[to])
}

func (s *blockedJob) mayOwn(m, shard int) bool { return !s.blocked[m].Has(shard) }

func (s *blockedJob) assign(shard, m int) {
	if last := s.owner[shard]; last != nobody {
		s.holds[last].Remove(shard)
		s.count[last]--
		s.total[last]--
	}
	s.owner[shard] = m
	s.holds[m].Add(shard)
	s.count[m]++
	s.total[m]++
}
