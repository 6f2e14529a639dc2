package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// crontab is the fires of a cron schedule: the instants at which the clock of a zone
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
	// repeated determines which times a reading counts that the clock repeats.
	repeated repeatedReadings
}

// repeatedReadings determines which times a reading counts that a clock repeats.
type repeatedReadings int

const (
	firstTime  repeatedReadings = iota // as Cron
	secondTime                         // as Quartz
	bothTimes
)

var crontabs shared[crontab]

// lastFire bounds the fires of a crontab: later ones have no RFC 3339 text.
var lastFire = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).Unix()

var cronParser = cron.NewParser(
	cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// newCrontab reads the text of a cron schedule: a spec without a prefix for the zone, "in" and a zone.
func newCrontab(text string) (*crontab, error) {
	spec, zoneName, _ := strings.Cut(text, " in ")
	fields := strings.Fields(spec)
	parsed, err := parseSpec(fields)
	if err != nil {
		return nil, err
	}
	c := &crontab{pattern: newPattern(parsed)}
	everyMinutes := len(fields) > 1 && strings.ContainsAny(fields[len(fields)-5][:1], "*?")
	return c.inZone(zoneName, everyMinutes)
}

// inZone completes a crontab that has a pattern. everyMinutes reports whether the minutes are at
// equal distances rather than times of an hour.
func (c *crontab) inZone(name string, everyMinutes bool) (_ *crontab, err error) {
	everyHour := below(c.pattern.hours, 24) == 24
	c.makesUp = !everyHour
	if everyHour || everyMinutes {
		c.repeated = bothTimes
	}
	if _, ok := c.pattern.next(0); !ok {
		return nil, errNeverFires
	}
	c.zone, err = zones.get(name, newZone)
	return c, err
}

var errNeverFires = errors.New("it never fires: no date matches the fields")

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
		if t = reading - s.offset; reading < c.endOfReadings(s) {
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
		from, to := max(t+s.offset, c.firstReading(s)), min(end+s.offset, c.endOfReadings(s))
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

// firstReading returns the first reading of s that counts. If a repeated reading counts the first
// time, the span before s has shown those before it.
func (c *crontab) firstReading(s span) int64 {
	if c.repeated == firstTime {
		return s.start + max(s.before, s.offset)
	}
	return s.start + s.offset
}

// endOfReadings returns the end of the readings of s that count. If a repeated reading counts the
// second time, the span after s shows those from there on.
func (c *crontab) endOfReadings(s span) int64 {
	if c.repeated == secondTime {
		return s.end + min(s.offset, s.after)
	}
	return s.end + s.offset
}
