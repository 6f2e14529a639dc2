package balance

import (
	"cmp"
	"math/bits"
	"slices"
)

// extras decides which members get one shard more than their minimum, for each open job: one whose shards
// do not divide evenly. The package comment explains the method.
//
// A transfer takes the extra of some job from one member and gives it to another. Its price is the change
// in the number of moves: a member that has an extra shard now keeps it for free, and any other receiver
// costs a move. A table has the price of the cheapest transfer between each two members. Sets of jobs are
// bits in words, so a price is found by a few instructions for 64 jobs at a time.
//
// With equal weights totals count from zero, else from the whole shards of a member's aim. If the aim has
// a fraction, totals of 0 and 1 are both at the aim.
type extras struct {
	total []int   // by member, with the extras given so far
	left  []int64 // by member: the fraction of its aim; nil if all weights are equal
	jobs  []openJob

	// By member, sets of open jobs: it may own shards of able, it owns more than its minimum of had now,
	// and it is given an extra of got.
	able, had, got []jobBits

	// price holds the price of the cheapest transfer, at index from*len(total)+to.
	price []int8

	// Buffers of searches, by member: distance, previous member on the path, whether it is queued.
	dist, prev []int
	queued     []bool
	queue      []int
}

type openJob struct {
	rest int // how many members get an extra
	kept int // how many members have one now
}

const (
	noTransfer = 2       // the price if no job allows a transfer; others are -1, 0 and 1
	unreached  = 1 << 30 // more than any distance
)

// newExtras returns extras for n members and a number of open jobs.
func newExtras(n, jobs int) *extras {
	words := (jobs + 63) / 64
	all := make(jobBits, 3*n*words)
	sets := func() []jobBits {
		s := make([]jobBits, n)
		for m := range s {
			s[m], all = all[:words:words], all[words:]
		}
		return s
	}
	return &extras{
		jobs: make([]openJob, jobs),
		able: sets(),
		had:  sets(),
		got:  sets(),
	}
}

// addJob adds open job j: rest of the members in able get an extra. A member with a negative need has an
// extra now.
func (x *extras) addJob(j int, able []int, rest int, need []int) {
	kept := 0
	for _, m := range able {
		x.able[m].set(j)
		if need[m] < 0 {
			x.had[m].set(j)
			kept++
		}
	}
	x.jobs[j] = openJob{rest, kept}
}

// solve fills got. total holds the totals without extras, and is kept up to date.
func (x *extras) solve(total []int, left []int64) {
	if len(x.jobs) == 0 {
		return
	}
	x.total, x.left = total, left
	x.assignCheapest()
	if x.totalsAreEven() {
		return // it cannot be more even, and assignCheapest is optimal in moves
	}
	if x.evenTotals() {
		x.cancelCycles()
	}
}

// totalsAreEven reports whether no transfer could make the totals more even.
func (x *extras) totalsAreEven() bool {
	most, least := x.gainOfOneLess(0), x.costOfOneMore(0)
	for m := range x.total {
		most, least = max(most, x.gainOfOneLess(m)), min(least, x.costOfOneMore(m))
	}
	return most <= least
}

// costOfOneMore returns by how much the sum of squares grows with one more shard for a member. The squares
// are those of totals, or of their distances from the aims.
func (x *extras) costOfOneMore(m int) int { return x.gainFrom(m, x.total[m]+1) }

// gainOfOneLess returns by how much the sum of squares shrinks with one shard less for a member.
func (x *extras) gainOfOneLess(m int) int { return x.gainFrom(m, x.total[m]) }

func (x *extras) gainFrom(m, total int) int {
	g := 2*total - 1
	if x.left != nil && x.left[m] > 0 {
		g -= min(max(total, 0), 2) // 0 and 1 are both at the aim
	}
	return g
}

// assignCheapest gives out all extras with the fewest moves, regardless of the totals. Among equally cheap
// members those with the least total get them, and among equal totals those with the largest fraction.
func (x *extras) assignCheapest() {
	keeps := make(jobBits, len(x.got[0])) // the jobs of which all extras can stay
	for j, job := range x.jobs {
		if job.kept <= job.rest {
			keeps.set(j)
		}
	}
	for m, got := range x.got {
		for w := range got {
			got[w] = x.had[m][w] & keeps[w]
			x.total[m] += bits.OnesCount64(got[w])
		}
	}
	order := newRanking(x.total, x.left)
	for j, job := range x.jobs {
		if job.kept > job.rest {
			order.raise(job.rest,
				func(m int) bool { return x.had[m].has(j) },
				func(m int) { x.got[m].set(j) })
		}
	}
	// Extras that move anyway come last: they can fill gaps in the totals.
	for j, job := range x.jobs {
		if job.kept < job.rest {
			order.raise(job.rest-job.kept,
				func(m int) bool { return x.able[m].has(j) && !x.had[m].has(j) },
				func(m int) { x.got[m].set(j) })
		}
	}
}

// evenTotals transfers extras along cheapest paths while that lowers the sum of squares: with equal weights
// to members with a total lower by two or more. It reports whether it has transferred any.
//
// After assignCheapest no cycle of transfers has a negative price, since no other choice has fewer moves.
// Transfers along cheapest paths keep that true, so findPaths always ends.
func (x *extras) evenTotals() (changed bool) {
	n := len(x.total)
	x.price = make([]int8, n*n)
	x.dist, x.prev, x.queued = make([]int, n), make([]int, n), make([]bool, n)
	for from := range n {
		for to := range n {
			x.price[from*n+to] = x.cheapestPrice(from, to)
		}
	}
	// All members that an unsuccessful search has reached are done. One more shard costs each of them
	// at least as much as the highest member gains by one less, so no member will give to them, and transfers
	// among the others never open a path from them.
	done := make([]bool, n)
	for {
		from := x.findHighest(done)
		if from == noMember {
			return changed
		}
		to := x.findPaths(from)
		if x.gainOfOneLess(from) <= x.costOfOneMore(to) {
			for m := range n {
				done[m] = done[m] || x.dist[m] < unreached
			}
			continue
		}
		x.transferAlong(x.pathTo(from, to), x.transferSize(from, to))
		changed = true
	}
}

// findHighest returns the member, of those not done, that gains most by one shard less, and the first of
// several.
func (x *extras) findHighest(done []bool) int {
	most := noMember
	for m := range x.total {
		if !done[m] && (most == noMember || x.gainOfOneLess(m) > x.gainOfOneLess(most)) {
			most = m
		}
	}
	return most
}

// transferSize returns how many extras to transfer at once. One is always correct. If one member is far
// above the average and the other far below, a larger number is faster, such as after many joins. As
// neither of them crosses the average, extras rarely have to be transferred back.
func (x *extras) transferSize(from, to int) int {
	sum := 0
	for _, t := range x.total {
		sum += t
	}
	low := sum / len(x.total)
	high := (sum + len(x.total) - 1) / len(x.total)
	if x.left != nil && x.left[from] > 0 {
		high++
	}
	return max(1, min(x.total[from]-high, low-x.total[to]))
}

// findPaths finds the cheapest paths from a member to all others. It returns the reached member for which
// one more shard costs least, and of several the nearest.
func (x *extras) findPaths(from int) (least int) {
	n := len(x.total)
	for m := range n {
		x.dist[m] = unreached
	}
	x.dist[from], x.prev[from] = 0, from
	x.queue = append(x.queue[:0], from)
	for head := 0; head < len(x.queue); head++ {
		m := x.queue[head]
		x.queued[m] = false
		for to, p := range x.price[m*n : (m+1)*n] {
			if p == noTransfer || x.dist[m]+int(p) >= x.dist[to] {
				continue
			}
			x.dist[to], x.prev[to] = x.dist[m]+int(p), m
			if !x.queued[to] {
				x.queued[to] = true
				x.queue = append(x.queue, to)
			}
		}
	}
	least = from
	for m := range n {
		if d := x.costOfOneMore(m) - x.costOfOneMore(least); x.dist[m] < unreached && (d < 0 || d == 0 && x.dist[m] < x.dist[least]) {
			least = m
		}
	}
	return least
}

// pathTo returns the members on the path that findPaths has found, with both ends.
func (x *extras) pathTo(from, to int) []int {
	path := []int{to}
	for m := to; m != from; {
		m = x.prev[m]
		path = append(path, m)
	}
	slices.Reverse(path)
	return path
}

// transferAlong transfers up to want extras along a path, as many as each pair of members allows.
func (x *extras) transferAlong(path []int, want int) {
	for i, to := range path[1:] {
		want = x.countAvailable(path[i], to, want)
	}
	for i, to := range path[1:] {
		x.transfer(path[i], to, want)
	}
	x.updatePrices(path)
}

// cancelCycles lowers the number of moves without making the totals less even: it transfers extras along
// cycles with a negative price until there are none. Then no cheaper solution exists.
func (x *extras) cancelCycles() {
	for {
		cycle := x.findCycle()
		if cycle == nil {
			return
		}
		var transfers [][2]int // all chosen before the first is made, since each changes totals
		for i, from := range cycle {
			to := cycle[(i+1)%len(cycle)]
			if _, trade := x.cyclePrice(from, to); !trade {
				transfers = append(transfers, [2]int{from, to})
			}
		}
		for _, s := range transfers {
			x.transfer(s[0], s[1], 1)
		}
		x.updatePrices(cycle)
	}
}

// cyclePrice returns the price of the transfer between two neighbours of a cycle. A transfer that is not
// free can be omitted if one more shard costs the first as much as the second gains by one less: the first keeps
// the extra that it receives, and the second passes on one of its own. The two exchange totals, so all
// totals together are as even as before; this trade costs nothing.
func (x *extras) cyclePrice(from, to int) (price int, trade bool) {
	price = int(x.price[from*len(x.total)+to])
	if price > 0 && x.costOfOneMore(from) == x.gainOfOneLess(to) {
		return 0, true
	}
	return price, false
}

// findCycle returns a cycle of members, each of which passes an extra to the next and the last to the
// first, with a negative sum of prices. It returns nil if there is none.
func (x *extras) findCycle() []int {
	n := len(x.total)
	for m := range n {
		x.dist[m], x.prev[m] = 0, noMember
	}
	for nearer := true; nearer; {
		nearer = false
		for from := range n {
			for to := range n {
				p, _ := x.cyclePrice(from, to)
				if p == noTransfer || x.dist[from]+p >= x.dist[to] {
					continue
				}
				x.dist[to], x.prev[to] = x.dist[from]+p, from
				nearer = true
			}
		}
		// If such a cycle exists, the distances along it shrink forever, and only then do the previous
		// members form a cycle.
		if c := x.traceCycle(); c != nil {
			return c
		}
	}
	return nil
}

// traceCycle returns a cycle of members, each reached from the one before it, or nil.
func (x *extras) traceCycle() []int {
	n := len(x.total)
	visit := make([]int, n) // by member: the number of the walk that visited it, 0 for none
	for start := range n {
		m := start
		for m != noMember && visit[m] == 0 {
			visit[m] = start + 1
			m = x.prev[m]
		}
		if m == noMember || visit[m] != start+1 {
			continue
		}
		cycle := []int{m}
		for p := x.prev[m]; p != m; p = x.prev[p] {
			cycle = append(cycle, p)
		}
		slices.Reverse(cycle)
		return cycle
	}
	return nil
}

// jobsAtPrice returns the jobs in word w that allow a transfer at this price: from has been given an extra of
// the job, and to has not but may own its shards.
func (x *extras) jobsAtPrice(w, from, to int, price int8) uint64 {
	jobs := x.got[from][w] & x.able[to][w] &^ x.got[to][w]
	switch hadFrom, hadTo := x.had[from][w], x.had[to][w]; price {
	case -1:
		return jobs & hadTo &^ hadFrom
	case 0:
		return jobs &^ (hadFrom ^ hadTo)
	default:
		return jobs & hadFrom &^ hadTo
	}
}

// cheapestPrice returns the price of the cheapest transfer.
func (x *extras) cheapestPrice(from, to int) int8 {
	got := x.got[from]
	n := len(got)
	may, has, hadFrom, hadTo := x.able[to][:n], x.got[to][:n], x.had[from][:n], x.had[to][:n]
	var all, free, gain uint64 // only whether they are zero matters
	for w := range got {
		jobs := got[w] & may[w] &^ has[w]
		all |= jobs
		free |= jobs &^ (hadFrom[w] ^ hadTo[w])
		gain |= jobs & hadTo[w] &^ hadFrom[w]
	}
	switch {
	case gain != 0:
		return -1
	case free != 0:
		return 0
	case all != 0:
		return 1
	}
	return noTransfer
}

// countAvailable returns how many jobs allow the cheapest transfer, at most want.
func (x *extras) countAvailable(from, to, want int) int {
	price := x.price[from*len(x.total)+to]
	n := 0
	for w := range x.got[from] {
		n += bits.OnesCount64(x.jobsAtPrice(w, from, to, price))
	}
	return min(n, want)
}

// transfer makes the cheapest transfer, with the first n jobs that allow it.
func (x *extras) transfer(from, to, n int) {
	price := x.price[from*len(x.total)+to]
	x.total[from] -= n
	x.total[to] += n
	for w := 0; n > 0; w++ {
		for jobs := x.jobsAtPrice(w, from, to, price); jobs != 0 && n > 0; n-- {
			job := jobs & -jobs
			jobs &^= job
			x.got[from][w] &^= job
			x.got[to][w] |= job
		}
	}
}

// updatePrices updates the prices after the extras of members have changed.
func (x *extras) updatePrices(members []int) {
	n := len(x.total)
	for _, m := range members {
		for other := range n {
			x.price[m*n+other] = x.cheapestPrice(m, other)
			x.price[other*n+m] = x.cheapestPrice(other, m)
		}
	}
}

// ranking keeps members ordered by total, the least first. Of equal totals the one with the largest
// fraction is first, and among equals the one that reached the total first.
type ranking struct {
	total          []int
	left           []int64 // fractions of aims; nil if all weights are equal
	order          []int
	chosen, others []int // buffers
}

func newRanking(total []int, left []int64) *ranking {
	r := &ranking{total: total, left: left, order: make([]int, len(total))}
	for m := range total {
		r.order[m] = m
	}
	slices.SortStableFunc(r.order, func(a, b int) int {
		if c := cmp.Compare(total[a], total[b]); c != 0 || left == nil {
			return c
		}
		return cmp.Compare(left[b], left[a])
	})
	return r
}

// precedes reports whether a, which reached its total earlier, stays before b.
func (r *ranking) precedes(a, b int) bool {
	return r.total[a] < r.total[b] || r.total[a] == r.total[b] && (r.left == nil || r.left[a] >= r.left[b])
}

// raise adds one to the totals of the first n eligible members, and calls report for each.
func (r *ranking) raise(n int, eligible func(m int) bool, report func(m int)) {
	r.chosen, r.others = r.chosen[:0], r.others[:0]
	for _, m := range r.order {
		if len(r.chosen) < n && eligible(m) {
			report(m)
			r.total[m]++
			r.chosen = append(r.chosen, m)
		} else {
			r.others = append(r.others, m)
		}
	}
	merged, others := r.order[:0], r.others
	for _, m := range r.chosen {
		for len(others) > 0 && r.precedes(others[0], m) {
			merged, others = append(merged, others[0]), others[1:]
		}
		merged = append(merged, m)
	}
	r.order = append(merged, others...)
}

// jobBits is a set of open jobs.
type jobBits []uint64

func (b jobBits) has(j int) bool { return b[j/64]>>(j%64)&1 != 0 }

func (b jobBits) set(j int) { b[j/64] |= 1 << (j % 64) }
