package coordinator

import (
	"fmt"
	"testing"
)

// BenchmarkBalance measures one plan of a group after something happened to it. The moves
// reported are those of the plan, in percent of all shards.
func BenchmarkBalance(b *testing.B) {
	events := []struct {
		name   string
		happen func(w *balanceWorld)
	}{
		{"nothing", func(*balanceWorld) {}},
		{"join", func(w *balanceWorld) { w.join() }},
		{"leave", func(w *balanceWorld) { w.leave() }},
		{"all new", func(w *balanceWorld) {
			for j := range w.jobs {
				w.jobs[j].owners = make([]string, len(w.jobs[j].owners))
			}
		}},
		{"all on one", func(w *balanceWorld) {
			for j := range w.jobs {
				w.jobs[j].owners = make([]string, len(w.jobs[j].owners))
				for shard := range w.jobs[j].owners {
					w.jobs[j].owners[shard] = w.members[0].id
				}
			}
		}},
	}
	for _, size := range []struct {
		jobs, shards, members int
		withdrawn, blocked    float64
		heavy                 int // the greatest weight; 0: all weigh the same
	}{
		{1, 10_000, 200, 0, 0, 0},
		{1, 10_000, 200, 0, 0, 8},
		{1, 10_000, 200, 0, 0.001, 0},
		{10_000, 1, 50, 0, 0, 0},
		{10_000, 1, 50, 0, 0, 8},
		{10_000, 1, 50, 0.5, 0, 0},
		{10_000, 1, 50, 0.5, 0, 8},
		{10_000, 1, 200, 0, 0, 0},
		{10_000, 1, 200, 0, 0, 8},
		{2500, 4, 50, 0, 0, 0},
		{10_000, 7, 10, 0, 0, 0},
		{10_000, 7, 10, 0, 0, 8},
	} {
		for _, event := range events {
			name := fmt.Sprintf("jobs=%d/shards=%d/members=%d/withdrawn=%v/blocked=%v/weights=%d/%s",
				size.jobs, size.shards, size.members, size.withdrawn, size.blocked, size.heavy, event.name)
			b.Run(name, func(b *testing.B) {
				w := newWeighedWorld(1, size.members, size.heavy)
				for j := range size.jobs {
					w.add(size.shards)
					w.withdraw(j, size.withdrawn)
					if size.blocked > 0 {
						w.block(j, size.blocked)
					}
				}
				w.adopt(balance(w.jobs, w.members))
				event.happen(w)
				moves := w.moves(balance(w.jobs, w.members))
				b.ReportAllocs()
				for b.Loop() {
					balance(w.jobs, w.members)
				}
				b.ReportMetric(100*float64(moves)/float64(w.shards()), "%moved")
			})
		}
	}
}

func BenchmarkPlaceOrphans(b *testing.B) {
	w := newBalanceWorld(1, 10)
	for range 10_000 {
		w.add(1)
	}
	w.adopt(balance(w.jobs, w.members))
	w.leave()
	b.ReportAllocs()
	for b.Loop() {
		placeOrphans(w.jobs, w.members)
	}
}

func BenchmarkSticky(b *testing.B) {
	in := Input{Job: "settle", Shards: 10_000, Owners: make([]string, 10_000)}
	for i := range 200 {
		in.Members = append(in.Members, Candidate{ID: fmt.Sprintf("host-%03d~5f3a9c", i), Name: fmt.Sprintf("host-%03d", i)})
	}
	b.ReportAllocs()
	for b.Loop() {
		a, err := runStrategy(sticky, in)
		if err != nil {
			b.Fatal(err)
		}
		in.Owners = a
	}
}
