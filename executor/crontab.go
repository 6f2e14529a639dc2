package executor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// crontab is the timetable of a cron schedule: the instants at which the clock of a zone
// shows a reading of the pattern, with the rules that Cron states for the days on which
// that clock is changed. Whether an instant is a fire depends on the instant alone.
//
// The parser is cron's; the walk is not. Cron's own loses a daily fire in a gap and
// doubles it in an overlap.
type crontab struct {
	pattern pattern
	zone    *zone
	// makesUp reports whether a reading that the clock skips counts as the first instant after
	// the gap.
	makesUp bool
	// repeats reports whether a reading that the clock repeats counts both times.
	repeats bool
}

var crontabs shared[crontab]

// lastFire bounds the fires of a crontab: later ones have no RFC 3339 text.
var lastFire = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).Unix()

var cronParser = cron.NewParser(
	cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// newCrontab reads a spec, without a prefix for the zone, and perhaps "in" and a zone.
func newCrontab(text string) (*crontab, error) {
	fields, zoneName, err := splitZone(strings.Fields(text))
	if err != nil {
		return nil, err
	}
	spec, err := parseSpec(fields)
	if err != nil {
		return nil, err
	}
	c := &crontab{pattern: newPattern(spec)}
	everyHour := below(c.pattern.hours, 24) == 24
	everyMinutes := len(fields) > 1 && strings.ContainsAny(fields[len(fields)-5][:1], "*?")
	c.makesUp = !everyHour
	c.repeats = everyHour || everyMinutes
	if _, ok := c.pattern.next(0); !ok {
		return nil, errors.New("it never fires: no date matches the fields")
	}
	if c.zone, err = zones.get(zoneName, newZone); err != nil {
		return nil, err
	}
	return c, nil
}

func splitZone(words []string) (fields []string, zone string, err error) {
	i := slices.Index(words, "in")
	if i < 0 {
		return words, "UTC", nil
	}
	zone = strings.Join(words[i+1:], " ")
	if slices.Contains(words[i+1:], "in") {
		return nil, "", errors.New("the time zone is named twice")
	}
	return words[:i], zone, nil
}

func parseSpec(fields []string) (*cron.SpecSchedule, error) {
	if len(fields) == 0 {
		return nil, errors.New("the cron spec is empty")
	}
	if fields[0] == "@every" {
		return nil, fmt.Errorf("the instants of @every depend on when a process started; write %q",
			"every "+strings.Join(fields[1:], " "))
	}
	parsed, err := cronParser.Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, explainCronError(fields, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("unexpected %T for a cron spec", parsed)
	}
	return spec, nil
}

func (c *crontab) next(after time.Time) time.Time {
	t := after.Unix() + 1 // fires are whole seconds
	for t <= lastFire {
		s := c.zone.findSpan(t)
		if t == s.start && c.firesAfterGap(s) {
			return time.Unix(t, 0).UTC()
		}
		reading, ok := c.pattern.next(max(t+s.offset, c.firstReading(s)))
		if !ok {
			break
		}
		if t = reading - s.offset; t < s.end {
			if t > lastFire {
				break
			}
			return time.Unix(t, 0).UTC()
		}
		t = s.end
	}
	return time.Time{}
}

func (c *crontab) count(after, through time.Time) int {
	t, end := after.Unix()+1, min(through.Unix(), lastFire)+1
	n := 0
	for t < end {
		s := c.zone.findSpan(t)
		from, to := max(t+s.offset, c.firstReading(s)), min(end, s.end)+s.offset
		n += c.pattern.count(from, to)
		if t == s.start && c.firesAfterGap(s) && c.pattern.count(from, from+1) == 0 {
			n++
		}
		t = s.end
	}
	return n
}

// firesAfterGap reports whether the start of s is a fire for readings skipped there.
func (c *crontab) firesAfterGap(s span) bool {
	return c.makesUp && s.before < s.offset &&
		c.pattern.count(s.start+s.before, s.start+s.offset) > 0
}

// firstReading returns the first reading of s that counts: those before it were shown by
// the span before.
func (c *crontab) firstReading(s span) int64 {
	if c.repeats {
		return s.start + s.offset
	}
	return s.start + max(s.before, s.offset)
}
