package coordinator

import (
	"math"
	"slices"
)

// optimum returns the least sum of the squares of the totals that jobs which are each even
// can have, and with it the least number of moves. It knows one way of searching: one extra
// shard at a time from a job to a member, along the cheapest of all chains of replacements.
func (w *balanceWorld) optimum() [2]int {
	const big = 1 << 20 // more than any number of moves
	type edge struct {
		to, cost, room, back int
	}
	jobs, members := len(w.jobs), len(w.members)
	graph := make([][]edge, jobs+members+1)
	sink := jobs + members
	link := func(from, to, cost int) {
		graph[from] = append(graph[from], edge{to, cost, 1, len(graph[to])})
		graph[to] = append(graph[to], edge{from, -cost, 0, len(graph[from]) - 1})
	}
	total := make([]int, members)
	for m := range w.members {
		total[m] = w.members[m].load
	}
	moves := 0
	rest := make([]int, jobs)
	for j, job := range w.jobs {
		if len(job.candidates) == 0 {
			for _, id := range job.owners {
				if id != "" {
					moves++ // to nobody
				}
			}
			continue
		}
		moves += len(job.owners)
		each := len(job.owners) / len(job.candidates)
		rest[j] = len(job.owners) % len(job.candidates)
		for i, has := range w.counts(job, job.owners) {
			m := job.candidates[i]
			total[m] += each
			moves -= min(has, each)
			cost := 0
			if has > each {
				cost = -1
			}
			link(j, jobs+m, cost)
		}
	}
	for m := range w.members {
		for k := range jobs {
			link(jobs+m, sink, big*(2*(total[m]+k)+1))
		}
	}
	sum := squaresOf(total)*big + moves
	for j := range jobs {
		for range rest[j] {
			dist := make([]int, len(graph))
			via := make([][2]int, len(graph))
			for n := range dist {
				dist[n] = 1 << 60
			}
			dist[j] = 0
			for changed := true; changed; {
				changed = false
				for n := range graph {
					for i, e := range graph[n] {
						if e.room > 0 && dist[n] < 1<<60 && dist[n]+e.cost < dist[e.to] {
							dist[e.to], via[e.to], changed = dist[n]+e.cost, [2]int{n, i}, true
						}
					}
				}
			}
			sum += dist[sink]
			for n := sink; n != j; n = via[n][0] {
				e := &graph[via[n][0]][via[n][1]]
				e.room--
				graph[n][e.back].room++
			}
		}
	}
	return [2]int{sum / big, sum % big}
}

// exhaustive returns what optimum does, by trying every assignment there is.
func (w *balanceWorld) exhaustive() [2]int {
	type place struct{ job, shard int }
	var places []place
	plan := make([]Assignment, len(w.jobs))
	for j, job := range w.jobs {
		plan[j] = make(Assignment, len(job.owners))
		for shard := range job.owners {
			if len(job.candidates) > 0 {
				places = append(places, place{j, shard})
			}
		}
	}
	best := [2]int{math.MaxInt, 0}
	var try func(n int)
	try = func(n int) {
		if n < len(places) {
			p := places[n]
			for _, c := range w.jobs[p.job].candidates {
				plan[p.job][p.shard] = w.members[c].id
				try(n + 1)
			}
			return
		}
		for j, a := range plan {
			if spreadOf(w.counts(w.jobs[j], a)) > 1 {
				return
			}
		}
		this := [2]int{squaresOf(w.totals(plan)), w.moves(plan)}
		if slices.Compare(this[:], best[:]) < 0 {
			best = this
		}
	}
	try(0)
	return best
}

// evenest returns the least sum of squares of the counts that a job's candidates can have
// with all shards owned that can be, by trying every assignment there is.
func (w *balanceWorld) evenest(job balanceJob) int {
	best := math.MaxInt
	a := make(Assignment, len(job.owners))
	var try func(shard int)
	try = func(shard int) {
		if shard == len(a) {
			best = min(best, squaresOf(w.counts(job, a)))
			return
		}
		owned := false
		for _, c := range job.candidates {
			if id := w.members[c].id; w.may(job, shard, id) {
				owned = true
				a[shard] = id
				try(shard + 1)
			}
		}
		if !owned {
			a[shard] = ""
			try(shard + 1)
		}
	}
	try(0)
	return best
}
