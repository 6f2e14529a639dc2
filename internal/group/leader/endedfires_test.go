package leader

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
)

func TestLeader_ReportsEndedFires(t *testing.T) {
	var reported []event.FireEnded
	newTerm := func() *Leader {
		reported = nil
		hooks := event.Hooks{FireEnded: func(e event.FireEnded) { reported = append(reported, e) }}
		return &Leader{
			Self: elector.Self{Events: hooks}, reportedFires: map[string]uint64{},
			View: planning.View{Plans: map[string]planning.PlanRecord{}},
		}
	}
	// observe has the leader observe a plan with fires, and returns the numbers of those that it reports.
	observe := func(l *Leader, fires *record.Fires) (numbers []uint64, repeated bool) {
		reported = nil
		l.View.Plans["settle"] = planning.PlanRecord{Plan: &record.Plan{Job: "settle", Epochs: []record.Epoch{{}}, Fires: fires}}
		l.reportEndedFires("settle")
		for _, e := range reported {
			assert.Equal(t, "settle", e.Job)
			numbers, repeated = append(numbers, e.Number), e.Repeated
		}
		return numbers, repeated
	}
	// ended returns fires with numbers from first on, of which each ended at an instant.
	ended := func(first uint64, instants ...record.Instant) *record.Fires {
		f := &record.Fires{From: 1}
		for i, at := range instants {
			f.Ended = append(f.Ended, record.EndedFire{Number: first + uint64(i), Ended: at})
		}
		return f
	}
	expect := func(l *Leader, what string, fires *record.Fires, wantRepeated bool, want ...uint64) {
		t.Helper()
		numbers, repeated := observe(l, fires)
		assert.Equal(t, want, numbers, what)
		assert.Equal(t, wantRepeated, repeated, what)
	}

	l := newTerm()
	expect(l, "no fire has ended", ended(1), false)
	expect(l, "the first ones", ended(1, 10, 10), false, 1, 2)
	expect(l, "the same plan", ended(1, 10, 10), false)
	expect(l, "a plan that lists the first one no more", ended(2, 10, 20, 20, 30), false, 3, 4, 5)
	expect(l, "no tracking", nil, false)
	expect(l, "tracking from anew", ended(1), false)
	expect(l, "the first fire from anew", ended(1, 40), false, 1)
	expect(l, "tracking from anew, in one change", ended(1), false)
	expect(l, "numbers from anew", ended(1, 50), false, 1)

	l = newTerm()
	expect(l, "the last commit of an earlier term", ended(3, 10, 20, 20), true, 4, 5)
	expect(l, "a later one", ended(3, 10, 20, 20, 20), false, 6)
	expect(l, "numbers that are behind", ended(1, 60), true, 1)

	l = newTerm()
	delete(l.View.Plans, "settle")
	l.reportEndedFires("settle")
	assert.Empty(t, reported)
}
