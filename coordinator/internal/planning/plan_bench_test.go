package planning

import (
	"fmt"
	"testing"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
)

// BenchmarkPlan measures a whole decision of a leader, from its view and what it looked at
// to the changes that it commits, after something happened to a group in which every shard
// has been claimed. The plans reported are those that are changed.
func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct {
		name                  string
		jobs, shards, members int
		strategy              string
	}{
		{"one job of 10,000 shards, 200 members", 1, 10_000, 200, "sticky"},
		{"10,000 jobs of one shard, 50 members", 10_000, 1, 50, "sticky"},
		{"10,000 jobs of one shard dealt by rotate, 50 members", 10_000, 1, 50, "rotate"},
	} {
		names := make([]string, size.jobs)
		for i := range names {
			names[i] = fmt.Sprintf("job-%05d", i)
		}
		for _, event := range []struct {
			name   string
			happen func(w *world)
		}{
			{"nothing changed", func(w *world) { w.Settle(); w.claimAll() }},
			{"one joined", func(w *world) { w.Settle(); w.claimAll(); w.Member("new", names...) }},
			{"one died", func(w *world) { w.Settle(); w.claimAll(); w.kill("m007.m007") }},
			{"first start", func(*world) {}},
		} {
			b.Run(size.name+", "+event.name, func(b *testing.B) {
				w := NewWorld(b)
				for _, name := range names {
					w.Define(name, size.shards, 0, fmt.Sprintf(`,"strategy":%q`, size.strategy))
				}
				for i := range size.members {
					w.Member(fmt.Sprintf("m%03d", i), names...)
				}
				event.happen(w)
				changes := len(w.decide().Changes) // looks at the dead, too
				b.ReportAllocs()
				for b.Loop() {
					if d := Decide(w.V); len(d.Changes) != changes {
						b.Fatalf("%d changes, and then %d", changes, len(d.Changes))
					}
				}
				b.ReportMetric(float64(changes), "plans")
			})
		}
	}
}

// claimAll has every shard run by its owner.
func (w *world) claimAll() {
	for job, p := range w.V.Plans {
		for inc, shards := range p.Owners {
			w.running(inc, job, shards, coordtest.Fire(1, 1))
		}
	}
}
