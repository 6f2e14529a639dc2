package balance

import (
	"cmp"
	"math/bits"
	"slices"
)

// extras decides for each open job, one whose shards do not divide evenly, which members
// get one shard more than their share rounded down.
//
// Totals count from zero if all weigh the same, and else from the whole shards in a member's
// aim. If something is left of that, a total of one is at the aim as well.
//
// First the totals are to be as even as possible, then as few shards as possible are to
// move. A member that has an extra shard of a job now keeps it for free; giving it to
// anyone else costs a move. That is a flow of minimum cost from jobs to members. There may
// be thousands of jobs but there are few members, so it is solved on the members alone: a
// step takes the extra of some job from one member and gives it to another, its price is
// the change in moves, and a table has the cheapest step between any two members. Routes
// and circles of steps are looked for in this table. Sets of jobs are bits in words, so
// that a price is found by a few instructions for 64 jobs at a time.
type extras struct {
	total []int   // by member, the extras given included
	left  []int64 // by member: of its aim, but for whole shards; nil if there are no aims
	jobs  []openJob

	// By member, over the open jobs: those of which it may own shards, those of which it has
	// more than its even share now, and those of which it is given an extra one.
	able, had, got []jobBits

	// price is by the member taken from, then by the member given to.
	price []int8

	// For searches: by member its distance, from whom it is reached, and if it is queued.
	dist, prev []int
	queued     []bool
	queue      []int
}

type openJob struct {
	rest int // how many members are given an extra shard
	kept int // how many have one now
}

const (
	noTransfer = 2       // the price of a step that no job allows; others are -1, 0 and 1
	unreached  = 1 << 30 // farther than any member can be
)

// newExtras returns an extras for so many members and open jobs.
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

// open describes open job j: who may get an extra shard and how many of those are given
// one. Who has one now is who has more than it gets at least: whose need is below zero.
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

// decide fills got, given the totals without extras, which it keeps up to date.
func (x *extras) solve(total []int, left []int64) {
	if len(x.jobs) == 0 {
		return
	}
	x.total, x.left = total, left
	x.assignCheapest()
	if x.isEven() {
		return // it cannot be more even, and start is the cheapest there is
	}
	if x.evenTotals() {
		x.cancelCycles()
	}
}

// isEven reports that nobody is so high, and nobody so low, that a shard could pass.
func (x *extras) isEven() bool {
	most, least := x.gainOfOneLess(0), x.costOfOneMore(0)
	for m := range x.total {
		most, least = max(most, x.gainOfOneLess(m)), min(least, x.costOfOneMore(m))
	}
	return most <= least
}

// cost returns by how much the sum of squares grows with one more shard for a member: the
// squares of totals, or of what they are off the aims.
func (x *extras) costOfOneMore(m int) int { return x.gainAt(m, x.total[m]+1) }

// gain returns by how much it shrinks with one less.
func (x *extras) gainOfOneLess(m int) int { return x.gainAt(m, x.total[m]) }

func (x *extras) gainAt(m, total int) int {
	g := 2*total - 1
	if x.left != nil && x.left[m] > 0 {
		g -= min(max(total, 0), 2) // 0 and 1 are both at the aim
	}
	return g
}

// start gives out all extras with the fewest moves, whatever becomes of the totals. Where
// that leaves a choice, those with the least total get them, and of these those of whose aims
// the most is left.
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
	// New shards come last: they can go wherever the totals have gaps.
	for j, job := range x.jobs {
		if job.kept < job.rest {
			order.raise(job.rest-job.kept,
				func(m int) bool { return x.able[m].has(j) && !x.had[m].has(j) },
				func(m int) { x.got[m].set(j) })
		}
	}
}

// even moves extras from members to others where that lowers the sum of squares, which is to
// those with a total less by two or more if there are no aims, each time along the cheapest
// route, until there are no more such routes. It reports whether there was one.
//
// After start no circle of steps has a price below zero, because no other way to give out
// extras takes fewer moves. Moving along cheapest routes keeps it so, which is why search
// comes to an end.
func (x *extras) evenTotals() (changed bool) {
	n := len(x.total)
	x.price = make([]int8, n*n)
	x.dist, x.prev, x.queued = make([]int, n), make([]int, n), make([]bool, n)
	for from := range n {
		for to := range n {
			x.price[from*n+to] = x.cheapestPrice(from, to)
		}
	}
	// All that a search in vain has reached can be left out from then on. One more costs
	// these members as much as the highest gains by one less, so nobody will give to them; and
	// steps among the others never open a way out for them.
	done := make([]bool, n)
	for {
		from := x.findHighest(done)
		if from == nobody {
			return changed
		}
		to := x.findPaths(from, done)
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

// most returns the member of those not done that gains most by one less.
func (x *extras) findHighest(done []bool) int {
	most := nobody
	for m := range x.total {
		if !done[m] && (most == nobody || x.gainOfOneLess(m) > x.gainOfOneLess(most)) {
			most = m
		}
	}
	return most
}

// amount returns how many extras to move at once. One is always right. More, where one
// member is far above the average and the other far below, is faster when many join; as
// neither crosses the average, extras hardly ever have to come back.
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

// search finds the cheapest routes from a member to all others that are not left out. It
// returns the one to which one more costs least among those reached, of several the nearest.
func (x *extras) findPaths(from int, leftOut []bool) (least int) {
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
			if p == noTransfer || leftOut[to] || x.dist[m]+int(p) >= x.dist[to] {
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

// route returns the members on the way that search found, both ends included.
func (x *extras) pathTo(from, to int) []int {
	way := []int{to}
	for m := to; m != from; {
		m = x.prev[m]
		way = append(way, m)
	}
	slices.Reverse(way)
	return way
}

// move passes extras along way: want of them, or as many as each of its steps allows.
func (x *extras) transferAlong(way []int, want int) {
	for i, to := range way[1:] {
		want = x.countAvailable(way[i], to, want)
	}
	for i, to := range way[1:] {
		x.transfer(way[i], to, want)
	}
	x.updatePrices(way)
}

// cheapen lowers the number of moves without making the totals less even: it passes
// extras round circles with a price below zero until there are none, which is when no
// cheaper solution exists.
func (x *extras) cancelCycles() {
	for {
		circle := x.findCycle()
		if circle == nil {
			return
		}
		var steps [][2]int // chosen before the first is made: they change totals
		for i, from := range circle {
			to := circle[(i+1)%len(circle)]
			if _, trade := x.cyclePrice(from, to); !trade {
				steps = append(steps, [2]int{from, to})
			}
		}
		for _, s := range steps {
			x.transfer(s[0], s[1], 1)
		}
		x.updatePrices(circle)
	}
}

// passOn returns the price of passing an extra on from one member to another in a circle:
// that of a step or, if that is not free and one more costs the first what the other gains by
// one less, nothing. For then the first may keep what is passed to it, and the other pass on
// one of its own: they trade totals, and the totals as a whole are as even as before.
func (x *extras) cyclePrice(from, to int) (price int, trade bool) {
	price = int(x.price[from*len(x.total)+to])
	if price > 0 && x.costOfOneMore(from) == x.gainOfOneLess(to) {
		return 0, true
	}
	return price, false
}

// circle returns members, each to pass an extra on to the next and the last to the first,
// whose prices have a sum below zero. It returns nil if there is no such circle.
func (x *extras) findCycle() []int {
	n := len(x.total)
	for m := range n {
		x.dist[m], x.prev[m] = 0, nobody
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
		// As long as there is such a circle, distances round it shrink for ever; and only
		// round such a circle can the members reach each other.
		if c := x.traceCycle(); c != nil {
			return c
		}
	}
	return nil
}

// closedWay returns a circle of members each reached from the one before it, or nil.
func (x *extras) traceCycle() []int {
	n := len(x.total)
	visit := make([]int, n) // by member: which walk came by, 0 for none
	for start := range n {
		m := start
		for m != nobody && visit[m] == 0 {
			visit[m] = start + 1
			m = x.prev[m]
		}
		if m == nobody || visit[m] != start+1 {
			continue
		}
		circle := []int{m}
		for p := x.prev[m]; p != m; p = x.prev[p] {
			circle = append(circle, p)
		}
		slices.Reverse(circle)
		return circle
	}
	return nil
}

// stepsAt returns the jobs in word w by which the step can be made at the price: from has
// been given an extra of the job, to has not but may own its shards.
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

// priceOf returns the price of the cheapest step.
func (x *extras) cheapestPrice(from, to int) int8 {
	got := x.got[from]
	n := len(got)
	may, has, hadFrom, hadTo := x.able[to][:n], x.got[to][:n], x.had[from][:n], x.had[to][:n]
	var all, free, gain uint64 // not which jobs, only if there are any
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

// available returns by how many jobs the cheapest step can be made, at most want.
func (x *extras) countAvailable(from, to, want int) int {
	price := x.price[from*len(x.total)+to]
	n := 0
	for w := 0; w < len(x.got[from]) && n < want; w++ {
		n += bits.OnesCount64(x.jobsAtPrice(w, from, to, price))
	}
	return min(n, want)
}

// step makes the cheapest step, by the first n jobs that allow it.
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

// reprice brings the prices up to date after a change in the extras of members.
func (x *extras) updatePrices(members []int) {
	n := len(x.total)
	for _, m := range members {
		for other := range n {
			x.price[m*n+other] = x.cheapestPrice(m, other)
			x.price[other*n+m] = x.cheapestPrice(other, m)
		}
	}
}

// ranking keeps members in the order of their totals, the least first; of those with the same
// the one of whose aim the most is left is first, and among equals the one that has been there
// longest.
type ranking struct {
	total          []int
	left           []int64 // nil for none
	order          []int
	chosen, others []int // scratch
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

// precedes reports whether a stays before b, having been there for longer.
func (r *ranking) precedes(a, b int) bool {
	return r.total[a] < r.total[b] || r.total[a] == r.total[b] && (r.left == nil || r.left[a] >= r.left[b])
}

// raise adds one to the totals of the first n eligible members, and reports them.
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
