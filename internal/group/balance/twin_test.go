package balance

import (
	"math"
	"math/big"
	"slices"

	"github.com/rota-dev/rota/internal/shardset"
)

// optimum returns the least unevenness of the totals that jobs which are each even can have,
// and with it the least number of moves. It searches in one way only: one extra
// shard at a time from a job to a member, along the cheapest of all chains of replacements.
func (w *World) optimum() [2]int {
	const many = 1 << 20 // more than any number of moves
	type edge struct {
		to, cost, room, back int
	}
	jobs, members := len(w.Jobs), len(w.Members)
	graph := make([][]edge, jobs+members+1)
	sink := jobs + members
	link := func(from, to, cost int) {
		graph[from] = append(graph[from], edge{to, cost, 1, len(graph[to])})
		graph[to] = append(graph[to], edge{from, -cost, 0, len(graph[from]) - 1})
	}
	total := make([]int, members)
	for m := range w.Members {
		total[m] = w.Members[m].Load
	}
	moves := 0
	rest := make([]int, jobs)
	for j, job := range w.Jobs {
		if len(job.Candidates) == 0 {
			for _, id := range job.Owners {
				if id != "" {
					moves++ // to no member
				}
			}
			continue
		}
		moves += len(job.Owners)
		rest[j] = len(job.Owners)
		for i, has := range w.counts(job, job.Owners) {
			m := job.Candidates[i]
			share := len(job.Owners) * w.weight(m)
			each := share / w.weights(job.Candidates)
			total[m] += each
			rest[j] -= each
			moves -= min(has, each)
			cost := 0
			if has > each {
				cost = -1
			}
			if share%w.weights(job.Candidates) > 0 {
				link(j, jobs+m, cost)
			}
		}
	}
	share := make([]*big.Rat, members)
	if w.weighed() {
		share = w.shares()
	}
	for m := range w.Members {
		for n := total[m]; n < total[m]+jobs; n++ {
			link(jobs+m, sink, many*(square(n+1, share[m])-square(n, share[m])))
		}
	}
	sum := w.unevenness(total)*many + moves
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
	return [2]int{sum / many, sum % many}
}

// exhaustive returns what optimum does, by trying every assignment there is.
func (w *World) exhaustive() [2]int {
	type place struct{ job, shard int }
	var places []place
	plan := make([][]string, len(w.Jobs))
	for j, job := range w.Jobs {
		plan[j] = make([]string, len(job.Owners))
		for shard := range job.Owners {
			if len(job.Candidates) > 0 {
				places = append(places, place{j, shard})
			}
		}
	}
	best := [2]int{math.MaxInt, 0}
	var try func(n int)
	try = func(n int) {
		if n < len(places) {
			p := places[n]
			for _, c := range w.Jobs[p.job].Candidates {
				plan[p.job][p.shard] = w.Members[c].ID
				try(n + 1)
			}
			return
		}
		for j, a := range plan {
			if len(w.Jobs[j].Candidates) > 0 && !w.Fair(w.Jobs[j], a) {
				return
			}
		}
		this := [2]int{w.unevenness(w.Totals(plan)), w.Moves(plan)}
		if slices.Compare(this[:], best[:]) < 0 {
			best = this
		}
	}
	try(0)
	return best
}

// offness returns the sum of the squared distances between the counts of a job's candidates and their
// shares, in parts. A member that may own no shard has no share.
func (w *World) offness(job Job, a []string) int {
	job.Candidates = slices.DeleteFunc(slices.Clone(job.Candidates), func(m int) bool {
		return job.Blocked[w.Members[m].ID].Intersect(shardset.Range(0, len(a))).Len() == len(a)
	})
	sum, of := 0, w.weights(job.Candidates)
	for i, n := range w.counts(job, a) {
		off := n*of - len(a)*w.weight(job.Candidates[i])
		sum += off * off
	}
	return sum
}

// evenest returns the least offness that a job can have with all shards owned that can be,
// by trying every assignment there is.
func (w *World) evenest(job Job) int {
	best := math.MaxInt
	a := make([]string, len(job.Owners))
	var try func(shard int)
	try = func(shard int) {
		if shard == len(a) {
			best = min(best, w.offness(job, a))
			return
		}
		owned := false
		for _, c := range job.Candidates {
			if id := w.Members[c].ID; w.may(job, shard, id) {
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
