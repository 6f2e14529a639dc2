package executor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/firelist"
)

// MisfirePolicy determines which fires run that came due while their shard could not run:
// because the previous run took too long, or because the shard had no live owner. Other fires
// are skipped: they are counted and never run.
//
// Under each policy, all fires are skipped that fall due while no live instance offers the job, if
// that lasts for an hour (coordinator.MaxUnoffered).
type MisfirePolicy int // the limit of RunAll, one of the constants, or an invalid limit below them

const (
	// RunOnce runs the latest of the fires that are due, as a misfire unless it is the
	// only one and on time, and skips the others. It is the zero value.
	RunOnce MisfirePolicy = 0
	// SkipMissed runs the latest of the fires that are due if it is on time, and skips
	// the others.
	SkipMissed MisfirePolicy = -1
)

// RunAll runs the fires that are due one after another, oldest first, as misfires unless
// there is only one and it is on time. If more than limit are due, it runs the latest limit
// fires and skips the others. Limit must be at least 1; Register reports a smaller one.
func RunAll(limit int) MisfirePolicy {
	if limit > 0 {
		return MisfirePolicy(limit)
	}
	return SkipMissed - 1 + MisfirePolicy(max(limit, -1<<30)) // kept, for check to name it
}

// misfireGrace is how late a fire may be and still count as on time, as timers, queues and
// commits take time in a busy fleet.
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
		return fmt.Errorf("the limit of %q, which is MisfirePolicy(%d), is below 1", p.String(), int(p))
	}
	return nil
}

// timetable is the fires of a job, a set of instants: a *schedule.Timetable, or the releases of followed fires.
type timetable interface {
	// Next returns the first fire after an instant, or the zero Time if there is none.
	Next(after time.Time) time.Time
	// Count returns the number of fires after one instant and not after another. Its cost does not depend on that number.
	Count(after, through time.Time) int
}

// dueFires is the decision about the due fires of a shard.
type dueFires struct {
	// fire is the fire to run now, zero if there is none.
	fire time.Time
	// missed reports whether fire is a misfire.
	missed bool
	// skipped is the exact number of fires up to through that the policy skips.
	skipped int
	// through is the last fire that is run or skipped now, which becomes the watermark. It is
	// zero if nothing is due.
	through time.Time
	// next is the first fire after through, which may be due already. It is zero if there is
	// none.
	next time.Time
}

// decideDue decides which due fires of a shard to run and to skip at now. It considers the fires of
// t after last and before until. Last is the fire of the watermark or the instant just before
// the epoch. Until is the end of the epoch, zero if there is none.
//
// The cost does not depend on the number of due fires, as they may be many after an outage.
func decideDue(t timetable, p MisfirePolicy, last, until, now time.Time) dueFires {
	first := firelist.Before(t.Next(last), until)
	if first.IsZero() || first.After(now) {
		return dueFires{next: first}
	}
	end := latestBefore(now, until)
	due := t.Count(last, end)
	kept := 1 // the number of latest due fires that are not skipped; the first of them runs now
	if p > 0 {
		kept = min(due, int(p))
	}
	fire := first
	if kept < due {
		fire = firstOfLast(t, last, end, kept)
	}
	o := dueFires{fire: fire, skipped: due - kept, through: fire, next: firelist.Before(t.Next(fire), until)}
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

// firstOfLast returns the first of the last n fires of t that are after one instant and not after
// another. There must be n such fires.
func firstOfLast(t timetable, after, through time.Time, n int) time.Time {
	low, high := after, through // n fires or more follow low, fewer follow high
	for {
		middle := low.Add(high.Sub(low) / 2)
		fire := t.Next(middle)
		switch follow := t.Count(middle, through); {
		case follow == n:
			return fire
		case follow > n:
			low = fire
		default:
			high = middle
		}
	}
}

// latestBefore returns t, or the last instant before until if t is not before until and until is not zero.
func latestBefore(t, until time.Time) time.Time {
	if until.IsZero() || t.Before(until) {
		return t
	}
	return until.Add(-1)
}
