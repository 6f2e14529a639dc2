package due_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/internal/record"
)

// hourly has a fire each hour from the first one on.
type hourly struct{ coordtest.Minutely }

func (hourly) Due(last, _, _ time.Time) due.Due {
	return due.Due{Wake: last.Truncate(time.Hour).Add(time.Hour)}
}

// never has no fires.
type never struct{ coordtest.Minutely }

func (never) Due(_, _, _ time.Time) due.Due { return due.Due{} }

func TestNextFire(t *testing.T) {
	at := coordtest.At
	now := at(2).Time().Add(time.Second)
	hour := record.InstantOf(now.Truncate(time.Hour).Add(time.Hour))
	// two changes a plan to one with a second epoch, from a minute on.
	two := func(from int) func(*record.Plan) {
		return func(p *record.Plan) {
			p.Last().Until = at(from)
			p.Epochs = append(p.Epochs, coordtest.Epoch(t, 2, at(from), 1))
		}
	}
	for name, c := range map[string]struct {
		change   func(*record.Plan)
		programs map[int]due.Program
		want     record.Instant
	}{
		"the first fire after now":                   {programs: map[int]due.Program{1: coordtest.Minutely{}}, want: at(3)},
		"a paused job":                               {change: func(p *record.Plan) { p.Paused = true }, programs: map[int]due.Program{1: coordtest.Minutely{}}},
		"a stopped schedule":                         {change: func(p *record.Plan) { p.Stopped = true }, programs: map[int]due.Program{1: coordtest.Minutely{}}},
		"a definition without a program":             {},
		"a schedule without fires":                   {programs: map[int]due.Program{1: never{}}},
		"the epoch begins later":                     {change: func(p *record.Plan) { p.Epochs[0].From = at(7) }, programs: map[int]due.Program{1: coordtest.Minutely{}}, want: at(7)},
		"the epoch ends before its next fire":        {change: func(p *record.Plan) { p.Epochs[0].Until = at(3) }, programs: map[int]due.Program{1: coordtest.Minutely{}}},
		"the second epoch has the next fire":         {change: two(3), programs: map[int]due.Program{1: coordtest.Minutely{}, 2: coordtest.Minutely{}}, want: at(3)},
		"the second epoch, the first has no program": {change: two(3), programs: map[int]due.Program{2: coordtest.Minutely{}}, want: at(3)},
		"the first epoch has the next fire":          {change: two(4), programs: map[int]due.Program{1: coordtest.Minutely{}, 2: coordtest.Minutely{}}, want: at(3)},
		"the second epoch fires earlier":             {change: two(4), programs: map[int]due.Program{1: hourly{}, 2: coordtest.Minutely{}}, want: min(at(4), hour)},
		"the second epoch has no fires":              {change: two(4), programs: map[int]due.Program{1: coordtest.Minutely{}, 2: never{}}, want: at(3)},
	} {
		t.Run(name, func(t *testing.T) {
			p := coordtest.PlanOfOwnShards(t, 1)
			if c.change != nil {
				c.change(p)
			}
			got := due.NextFire(p, func(e *record.Epoch) (due.Program, bool) {
				prog, ok := c.programs[e.Number]
				return prog, ok
			}, now)
			assert.Equal(t, c.want.Time(), got)
		})
	}
}
