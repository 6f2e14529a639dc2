package balance

import (
	"fmt"
	"testing"
)

// BenchmarkBalance measures one plan of a group after something happened to it. The moves
// reported are those of the plan, in percent of all shards.
func BenchmarkBalance(b *testing.B) {
	events := []struct {
		name   string
		happen func(w *World)
	}{
		{"nothing", func(*World) {}},
		{"join", func(w *World) { w.Join() }},
		{"leave", func(w *World) { w.Leave() }},
		{"all new", func(w *World) {
			for j := range w.Jobs {
				w.Jobs[j].Owners = make([]string, len(w.Jobs[j].Owners))
			}
		}},
		{"all on one", func(w *World) {
			for j := range w.Jobs {
				w.Jobs[j].Owners = make([]string, len(w.Jobs[j].Owners))
				for shard := range w.Jobs[j].Owners {
					w.Jobs[j].Owners[shard] = w.Members[0].ID
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
				w := NewWeighedWorld(1, size.members, size.heavy)
				for j := range size.jobs {
					w.Add(size.shards)
					w.withdraw(j, size.withdrawn)
					if size.blocked > 0 {
						w.block(j, size.blocked)
					}
				}
				w.Adopt(Assign(w.Jobs, w.Members))
				event.happen(w)
				moves := w.Moves(Assign(w.Jobs, w.Members))
				b.ReportAllocs()
				for b.Loop() {
					Assign(w.Jobs, w.Members)
				}
				b.ReportMetric(100*float64(moves)/float64(w.shards()), "%moved")
			})
		}
	}
}

func BenchmarkPlaceOrphans(b *testing.B) {
	w := NewWorld(1, 10)
	for range 10_000 {
		w.Add(1)
	}
	w.Adopt(Assign(w.Jobs, w.Members))
	w.Leave()
	b.ReportAllocs()
	for b.Loop() {
		AssignUnowned(w.Jobs, w.Members)
	}
}
