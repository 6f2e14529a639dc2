package executor

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MisfirePolicy says what becomes of fires that came due while their shard could not
// run: because the run before took too long, nobody was there, or the job was paused.
// Fires that the policy does not run are skipped: they are counted, and never run later. So are
// all fires of a job that no live instance has offered for an hour (coordinator.MaxUnoffered)
// until one offers it again.
type MisfirePolicy int // RunAll's limit, or one of the constants, or below them a limit that was refused

const (
	// RunOnce runs the latest of the fires that are due, as a misfire unless it is the
	// only one and on time, and skips the others. It is the zero value.
	RunOnce MisfirePolicy = 0
	// SkipMissed runs the latest of the fires that are due if it is on time, and skips
	// the others.
	SkipMissed MisfirePolicy = -1
)

// RunAll runs the fires that are due one after another, oldest first, as misfires unless
// there is only one and it is on time. Of more than limit it takes the latest and skips
// the others. limit is at least 1.
func RunAll(limit int) MisfirePolicy {
	if limit > 0 {
		return MisfirePolicy(limit)
	}
	return SkipMissed - 1 + MisfirePolicy(max(limit, -1<<30)) // kept, for check to name it
}

// misfireGrace is how late a fire may be and still count as on time: timers, queues and
// commits take their time, and a fleet that is merely busy has missed nothing.
const misfireGrace = time.Second

const runAllText = "run all "

// String returns the text form of p: "run once", "skip missed" or "run all 100".
func (p MisfirePolicy) String() string {
	switch {
	case p == RunOnce:
		return "run once"
	case p == SkipMissed:
		return "skip missed"
	case p > 0:
		return runAllText + strconv.Itoa(int(p))
	}
	return runAllText + strconv.Itoa(int(p-SkipMissed+1))
}

// MarshalText returns the text form of p, which is not checked.
func (p MisfirePolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the text form of a policy.
func (p *MisfirePolicy) UnmarshalText(text []byte) error {
	parsed, err := parseMisfirePolicy(string(text))
	if err != nil {
		return fmt.Errorf("misfire policy %.100q: %w", text, err)
	}
	*p = parsed
	return nil
}

func parseMisfirePolicy(text string) (MisfirePolicy, error) {
	for _, p := range []MisfirePolicy{RunOnce, SkipMissed} {
		if text == p.String() {
			return p, nil
		}
	}
	number, ok := strings.CutPrefix(text, runAllText)
	if !ok {
		return 0, &unknownError{`none of "run once", "skip missed" and "run all" with a limit`}
	}
	limit, err := strconv.Atoi(number)
	if err != nil {
		return 0, err
	}
	p := RunAll(limit)
	return p, p.check()
}

func (p MisfirePolicy) check() error {
	if p < SkipMissed {
		return fmt.Errorf("the limit of %q is below 1", p.String())
	}
	return nil
}

// owed is what a shard owes at an instant, and what to do next about it.
type owed struct {
	// fire is to be run now; zero if nothing is.
	fire time.Time
	// missed tells that fire did not come to its time: it is a misfire.
	missed bool
	// skipped counts the fires, none after through, that the policy passes over. It is
	// exact.
	skipped int
	// through is the last fire that this settles, by running or skipping it: the next
	// watermark. It is fire if there is one, and zero if nothing is due.
	through time.Time
	// next is the first fire not settled, which may already be due; zero if none comes.
	next time.Time
}

// owes decides what a shard owes at now. Of the fires of t, those after last and before
// until count: last is the watermark's fire, or the instant from which fires count, itself
// not included; until is the instant from which a later definition counts its own fires,
// zero if there is none. A fire after now is never due.
//
// It takes the same time after a long outage as after a short one.
func owes(t timetable, p MisfirePolicy, last, until, now time.Time) owed {
	first := before(t.next(last), until)
	if first.IsZero() || first.After(now) {
		return owed{next: first}
	}
	end := now
	if !until.IsZero() && !now.Before(until) {
		end = until.Add(-1)
	}
	due := t.count(last, end)
	kept := 1 // the latest of those that are due, of which the first is the one to run
	if p > 0 {
		kept = min(due, int(p))
	}
	fire := first
	if kept < due {
		fire = latest(t, last, end, kept)
	}
	o := owed{fire: fire, skipped: due - kept, through: fire, next: before(t.next(fire), until)}
	late := now.Sub(fire) > misfireGrace
	switch {
	case p != SkipMissed:
		o.missed = late || due > 1
	case late:
		o.fire = time.Time{}
		o.skipped++
	}
	return o
}

// before returns fire if it is before until, which is zero for no bound, and else zero.
func before(fire, until time.Time) time.Time {
	if until.IsZero() || fire.Before(until) {
		return fire
	}
	return time.Time{}
}
