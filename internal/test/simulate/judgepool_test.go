package simulate

import (
	"testing"
	"time"
)

// TestJudge_FindsEachFalsificationOfPools does the same with the history of a fleet in which jobs have a pool.
func TestJudge_FindsEachFalsificationOfPools(t *testing.T) {
	whole, slack := recordFleet(t, Config{
		Seed: 2, Instances: 4, Jobs: 3, Shards: 4, Every: time.Minute, Takes: 20 * time.Second, Pool: 3,
		For: time.Hour, Faults: 5 * time.Minute, Kinds: []Fault{Crash, Leave}, TTL: 10 * time.Second, Drain: 30 * time.Second,
	})
	findEach(t, whole, slack, []falsification{
		{text: "runs go on longer", breaks: 16, apply: func(h *history) bool {
			for i := range h.calls {
				if c := &h.calls[i]; c.canceled.IsZero() {
					c.end = c.end.Add(20 * time.Second)
				}
			}
			return true
		}},
		{text: "runs leave slots free that others wait for", breaks: 16, finds: "but a slot was free from", apply: func(h *history) bool {
			for i := range h.calls {
				h.calls[i].end = h.calls[i].Start.Add(time.Millisecond)
			}
			return true
		}},
	})
}
