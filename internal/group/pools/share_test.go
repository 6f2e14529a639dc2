package pools

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/record"
)

func TestShare(t *testing.T) {
	start := time.Unix(1000, 0)
	slots := func(g record.Grant, contended bool) *record.Slots {
		return &record.Slots{Pool: "db", Deal: 9, Contended: contended, Grants: map[string]record.Grant{"a.1": g}}
	}
	for _, c := range []struct {
		name             string
		grant            record.Grant
		contended        bool
		announced        record.PoolDemand
		running, waiting int
		after            time.Duration // since the grant was observed

		free    int
		next    record.PoolDemand
		recheck bool
	}{
		{name: "nothing due: nothing to announce"},
		{name: "due runs without a slot are announced", waiting: 3, next: record.PoolDemand{Want: 3}},
		{name: "a demand that grows is announced when it has doubled", announced: record.PoolDemand{Want: 3}, waiting: 5, next: record.PoolDemand{Want: 3}},
		{name: "... so that its commits are few", announced: record.PoolDemand{Want: 3}, waiting: 6, next: record.PoolDemand{Want: 6}},
		{name: "one that is over is announced", announced: record.PoolDemand{Want: 3}, next: record.PoolDemand{}},
		{name: "a grant is used without an announcement", grant: grant(4, 2), announced: record.PoolDemand{Want: 4}, running: 1, waiting: 3, free: 3, next: record.PoolDemand{Want: 4}},
		{name: "idle slots stay while nobody waits for them", grant: grant(4, 2), announced: record.PoolDemand{Want: 4}, free: 4, next: record.PoolDemand{Want: 4}},
		{name: "a need beyond the grant is announced, with the grant", grant: grant(4, 2), announced: record.PoolDemand{Want: 4}, running: 4, waiting: 1, next: record.PoolDemand{Want: 5, Cap: 4, Deal: 2}},
		{
			name: "the end of waiting is announced", grant: grant(4, 2), announced: record.PoolDemand{Want: 6, Cap: 4, Deal: 2}, running: 4,
			next: record.PoolDemand{Want: 4, Cap: 4, Deal: 2},
		},
		{
			name: "idle slots are returned if others wait", grant: grant(4, 2), contended: true, announced: record.PoolDemand{Want: 4}, running: 1, free: 3,
			next: record.PoolDemand{Want: 1, Cap: 1, Deal: 2},
		},
		{name: "what was returned is not used", grant: grant(4, 2), contended: true, announced: record.PoolDemand{Want: 1, Cap: 1, Deal: 2}, running: 1, waiting: 1, next: record.PoolDemand{Want: 2, Cap: 1, Deal: 2}},
		{name: "an announcement about an earlier grant does not bind", grant: grant(4, 2), announced: record.PoolDemand{Want: 4, Cap: 1, Deal: 1}, running: 1, waiting: 3, free: 3, next: record.PoolDemand{Want: 4, Cap: 1, Deal: 1}},
		{
			name: "slots that are asked for may be used for a turn", grant: keeping(4, 2, 2), announced: record.PoolDemand{Want: 9, Cap: 4, Deal: 1}, contended: true, running: 3, waiting: 6, free: 1,
			next: record.PoolDemand{Want: 9, Cap: 4, Deal: 1}, recheck: true,
		},
		{
			name: "after the turn they are returned as runs end", grant: keeping(4, 2, 2), announced: record.PoolDemand{Want: 9, Cap: 4, Deal: 1}, contended: true, running: 3, waiting: 6, after: Turn,
			next: record.PoolDemand{Want: 9, Cap: 3, Deal: 2},
		},
		{
			name: "... but none that is in use", grant: keeping(4, 0, 2), announced: record.PoolDemand{Want: 9, Cap: 4, Deal: 1}, contended: true, running: 4, waiting: 5, after: Turn,
			next: record.PoolDemand{Want: 9, Cap: 4, Deal: 1},
		},
		{
			name: "idle ones are returned before the turn is over", grant: keeping(1, 0, 2), announced: record.PoolDemand{Want: 1}, contended: true, free: 1,
			next: record.PoolDemand{Want: 0, Cap: 0, Deal: 2}, recheck: true,
		},
		{
			name: "a pool that has become smaller gets the idle ones back", grant: keeping(4, 2, 2), announced: record.PoolDemand{Want: 4}, free: 4,
			next: record.PoolDemand{Want: 0, Cap: 2, Deal: 2}, recheck: true,
		},
		{name: "a grant that is gone leaves no slot, and what runs is announced", announced: record.PoolDemand{Want: 4, Cap: 4, Deal: 2}, running: 3, waiting: 1, next: record.PoolDemand{Want: 4, Cap: 3}},
		{name: "... also if it was never named before", announced: record.PoolDemand{Want: 4}, running: 3, waiting: 1, next: record.PoolDemand{Want: 4, Cap: 3}},
		{name: "a grant that is gone since it was returned needs no announcement", announced: record.PoolDemand{Cap: 0, Deal: 2}, next: record.PoolDemand{Cap: 0, Deal: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Share{Announced: c.announced, Running: c.running, Waiting: c.waiting}
			if c.grant.Deal > 0 {
				s.Observe(slots(c.grant, c.contended), "a.1", start)
			}
			now := start.Add(c.after)
			assert.Equal(t, c.free, s.Free(now))
			next, recheck := s.Next(now)
			assert.Equal(t, c.next, next)
			assert.Equal(t, c.recheck, !recheck.IsZero())
			s.Announced = next
			again, _ := s.Next(now)
			assert.Equal(t, next, again, "an announcement is made once")
		})
	}
	t.Run("a record of other incarnations, or none, grants nothing", func(t *testing.T) {
		s := Share{}
		s.Observe(slots(grant(4, 2), false), "a.2", start)
		assert.Zero(t, s.Limit())
		s.Observe(slots(grant(4, 2), false), "a.1", start)
		assert.Equal(t, 4, s.Limit())
		s.Observe(nil, "a.1", start)
		assert.Zero(t, s.Limit())
	})
}
