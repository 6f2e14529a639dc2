package executor

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/firelist"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/schedule"
)

// program is a compiled definition.
type program struct {
	definition
	fires *schedule.Timetable // of the schedule
	times timetable           // fires, or the releases of followed fires

	always, countsEnds, follows bool // as of Schedule
}

// Compile is the due.Compiler of the jobs of this package, for Operator.WithCompiler.
func Compile(def json.RawMessage) (due.Program, error) {
	d, err := decodeDefinition(def)
	if err != nil {
		return nil, err
	}
	fires, err := d.Schedule.Timetable()
	if err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	return newProgram(d, fires), nil
}

// newProgram returns the program of a definition. It reads the text of the schedule, so that runs need not.
func newProgram(d definition, fires *schedule.Timetable) *program {
	return &program{d, fires, fires, d.Schedule.IsAlways(), d.Schedule.CountsEnds(), d.Schedule.After() != nil}
}

// Due is described in due.Program.
func (p *program) Due(last, until, now time.Time) due.Due {
	expired, last := p.findExpired(last, until, now)
	o := decideDue(p.times, p.OnMisfire, last, until, now)
	if expired > 0 && o.through.IsZero() {
		o.through = last
	}
	return due.Due{Fire: o.fire, Missed: o.missed, Skipped: o.skipped + expired, Expired: expired, Through: o.through, Wake: o.next}
}

// SkipDue is described in due.Program.
func (p *program) SkipDue(last, until, now time.Time) due.Due {
	o := decideDue(p.times, RunOnce, last, until, now) // a policy that settles all due fires at once
	if !o.fire.IsZero() {
		o.skipped++
		if p.countsEnds {
			o.through = latestBefore(now, until)
			o.next = firelist.Before(p.times.Next(o.through), until)
		}
	}
	return due.Due{Skipped: o.skipped, Through: o.through, Wake: o.next}
}

// findExpired returns the number of fires after last that have been owed for longer than the catch-up window, and
// the last of them; if there are none, it returns last.
func (p *program) findExpired(last, until, now time.Time) (int, time.Time) {
	if p.CatchupWindow == 0 {
		return 0, last
	}
	through := latestBefore(now.Add(-max(time.Duration(p.CatchupWindow), misfireGrace)-1), until)
	if !through.After(last) {
		return 0, last
	}
	expired := p.times.Count(last, through)
	if expired == 0 {
		return 0, last
	}
	return expired, firstOfLast(p.times, last, through, 1)
}

// CountsEnds is described in due.EndCounter.
func (p *program) CountsEnds() bool { return p.countsEnds }

// handsBack reports whether a run that did not end is made again.
func (p *program) handsBack() bool { return p.OnCrash == RerunElsewhere && p.Tracking == TrackRuns }
