package planning

import (
	"fmt"
	"testing"

	"github.com/rota-dev/rota/internal/group/coordtest"
)

// BenchmarkPlan measures one decision of a leader, from its view and reads to the changes that it
// commits, after an event in a group in which every shard has been claimed. It reports the number
// of changed plans.
func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct {
		name                  string
		jobs, shards, members int
		strategy              string
	}{
		{"one job of 10,000 shards, 200 members", 1, 10_000, 200, "sticky"},
		{"10,000 jobs of one shard, 50 members", 10_000, 1, 50, "sticky"},
		{"10,000 jobs of one shard assigned by rotate, 50 members", 10_000, 1, 50, "rotate"},
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
			{"one joined", func(w *world) { w.Settle(); w.claimAll(); w.Join("new", names...) }},
			{"one died", func(w *world) { w.Settle(); w.claimAll(); w.expire("m007.m007") }},
			{"first start", func(*world) {}},
		} {
			b.Run(size.name+", "+event.name, func(b *testing.B) {
				w := NewWorld(b)
				for _, name := range names {
					w.Define(name, size.shards, 0, fmt.Sprintf(`,"strategy":%q`, size.strategy))
				}
				for i := range size.members {
					w.Join(fmt.Sprintf("m%03d", i), names...)
				}
				event.happen(w)
				changes := len(w.decide().Changes) // reads the claims of expired members, too
				b.ReportAllocs()
				for b.Loop() {
					if d := Decide(w.View); len(d.Changes) != changes {
						b.Fatalf("%d changes, and then %d", changes, len(d.Changes))
					}
				}
				b.ReportMetric(float64(changes), "plans")
			})
		}
	}
}

// claimAll has every owner claim its shards.
func (w *world) claimAll() {
	for job, p := range w.View.Plans {
		for inc, shards := range p.Owners {
			w.startRuns(inc, job, shards, coordtest.Fire(1, 1))
		}
	}
}
