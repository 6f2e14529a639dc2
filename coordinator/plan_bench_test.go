package coordinator

import (
	"fmt"
	"testing"
)

// What a round of planning costs a leader when there is nothing to do, and when one
// member has joined.
func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct {
		name                  string
		jobs, shards, members int
	}{
		{"one job of 10,000 shards, 200 members", 1, 10_000, 200},
		{"10,000 jobs of one shard, 50 members", 10_000, 1, 50},
	} {
		w := newWorld(b)
		names := make([]string, c.jobs)
		for i := range names {
			names[i] = fmt.Sprintf("job-%05d", i)
			w.define(names[i], c.shards, 0, "")
		}
		for i := range c.members {
			w.member(fmt.Sprintf("m%03d", i), names...)
		}
		w.settle()
		b.Run(c.name+", at rest", func(b *testing.B) {
			for b.Loop() {
				if d := decide(w.v); len(d.changes) > 0 {
					b.Fatal("there is something to do")
				}
			}
		})
		w.member("new", names...)
		b.Run(c.name+", one joined", func(b *testing.B) {
			for b.Loop() {
				if d := decide(w.v); len(d.changes) == 0 {
					b.Fatal("there is nothing to do")
				}
			}
		})
	}
}
