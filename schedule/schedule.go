package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/scheduletext"
)

// Schedule determines the fires of a job. It is comparable with ==. The zero value is
// OnTrigger. Parse parses its text form, which records contain:
//
//	cron 0 3 * * * in Asia/Shanghai
//	quartz 0 0 3 L * ? in Asia/Shanghai
//	every 10s from 2026-01-01T00:00:00Z until 2027-01-01T00:00:00Z
//	every 1m spread 30s
//	at 2026-01-02T03:04:05Z, 2026-07-02T03:04:05Z
//	after settle, invoice
//	on trigger
//
// The constructors and methods do not validate. Next, Timetable, Parse and Executor.Register report
// an invalid schedule. The text has at most 1000 bytes. Each of In, From, Until and Spread can be
// applied once, in any order: the order does not change the value.
type Schedule struct {
	text string // words separated by single spaces; empty for OnTrigger
}

const (
	triggerText = "on trigger"
	minInterval = time.Millisecond
	minSpread   = time.Millisecond
	maxSpread   = 24 * time.Hour
	maxBytes    = 1000
)

// Cron fires at the local times that spec describes. Spec has five fields (minute, hour, day
// of month, month, day of week with Sunday = 0), six (seconds first), or is a descriptor such
// as @daily. Fields contain numbers, names (jan, mon), ranges, lists and steps. If both the day
// of month and the day of week are restricted, a day matches if either does. A prefix
// CRON_TZ=zone or TZ=zone is equivalent to In.
//
// Invalid are weekday 7, which is Sunday in crontab(5) and Saturday in Quartz; L, W and # (use
// Quartz); and "@every", whose instants would depend on the start of the process: use Every.
//
// The times are in UTC, or in the zone of In. When the zone's clock changes:
//
//   - A time that the clock skips counts as the first instant after the gap: "30 2" fires at
//     03:00 on a day without 02:30. All times in one gap, and one at its end, are one fire.
//     A schedule that fires every hour does not fire for skipped times.
//   - A time that the clock repeats counts once, the first time. It counts both times if the
//     hour field allows all hours, or the minute field begins with a star.
//
// So a schedule with a fixed time of day fires once on each of its days, and one for every 15
// minutes fires every 15 minutes.
func Cron(spec string) Schedule {
	words := strings.Fields(spec)
	var zones []string
	for len(words) > 0 {
		prefix, zone, ok := strings.Cut(words[0], "=")
		if !ok || prefix != "CRON_TZ" && prefix != "TZ" {
			break
		}
		zones = append(zones, zone)
		words = words[1:]
	}
	s := Schedule{text: strings.Join(append([]string{"cron"}, words...), " ")}
	for _, zone := range zones {
		s = s.In(zone)
	}
	return s
}

// Every fires at the whole multiples of d since the Unix epoch. D must be at least a
// millisecond. Every(24*time.Hour) fires at midnight UTC.
func Every(d time.Duration) Schedule {
	return Schedule{text: "every " + scheduletext.Duration(d)}
}

// At fires at the given instants, in any order and with duplicates ignored. There must be at
// least one. Their text form is in UTC; some 45 instants of whole seconds fit into it.
func At(instants ...time.Time) Schedule {
	sorted := slices.SortedFunc(slices.Values(instants), time.Time.Compare)
	var texts []string
	for _, t := range slices.CompactFunc(sorted, time.Time.Equal) {
		texts = append(texts, instantText(t))
	}
	return Schedule{text: strings.TrimSpace("at " + strings.Join(texts, ", "))}
}

// OnTrigger has no fires: the job runs when it is triggered only. It is the zero Schedule.
func OnTrigger() Schedule { return Schedule{} }

// In returns the cron or quartz schedule s with its times in zone, a name of the IANA time zone
// database such as Europe/Berlin.
func (s Schedule) In(zone string) Schedule { return s.with("in", strings.TrimSpace(zone)) }

// From returns s without its fires before t. A fire at t remains. The instants of Every are
// still multiples since the Unix epoch. The zero Time is invalid.
func (s Schedule) From(t time.Time) Schedule { return s.with("from", instantText(t)) }

// Until returns s without its fires at t and later. So s.Until(t) and s.From(t) together have each
// fire of s once. The zero Time is invalid.
func (s Schedule) Until(t time.Time) Schedule { return s.with("until", instantText(t)) }

// String returns the text form of s.
func (s Schedule) String() string {
	if s.text == "" {
		return triggerText
	}
	return s.text
}

// Next returns the first n fires after the given instant, which is not included, in ascending
// order and in the zone of the schedule. It returns fewer if the schedule has no more.
func (s Schedule) Next(after time.Time, n int) ([]time.Time, error) {
	t, err := s.Timetable()
	if err != nil {
		return nil, err
	}
	zone := time.UTC
	if c, ok := unbounded(t.fires).(*crontab); ok {
		zone = c.zone.location
	}
	var fires []time.Time
	for len(fires) < n {
		after = t.Next(after)
		if after.IsZero() {
			break
		}
		fires = append(fires, after.In(zone))
	}
	return fires, nil
}

// Parse reads the text form of a schedule and checks it.
func Parse(text string) (Schedule, error) {
	s, err := parse(strings.Fields(text))
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule %.200q: %w", text, err)
	}
	if _, err := s.Timetable(); err != nil {
		return Schedule{}, err
	}
	return s, nil
}

func parse(words []string) (Schedule, error) {
	if len(words) == 0 {
		return Schedule{}, errors.New("empty")
	}
	words, all := splitModifiers(words)
	s, err := parseKind(words)
	if err != nil {
		return Schedule{}, err
	}
	for _, m := range all {
		if s, err = s.parseModifier(m); err != nil {
			return Schedule{}, err
		}
	}
	return s, nil
}

func parseKind(words []string) (Schedule, error) {
	if strings.Join(words, " ") == triggerText {
		return OnTrigger(), nil
	}
	if s, is, err := parseAfter(words); is {
		return s, err
	}
	if len(words) > 0 {
		rest := strings.Join(words[1:], " ")
		switch words[0] {
		case "cron":
			return Cron(rest), nil
		case "quartz":
			return Quartz(rest), nil
		case "every":
			d, err := time.ParseDuration(rest)
			return Every(d), err
		case "fixed":
			d, err := time.ParseDuration(strings.TrimPrefix(rest, "delay "))
			return FixedDelay(d), err
		case alwaysText:
			if rest == "" {
				return Always(), nil
			}
		case "at":
			instants, err := parseInstants(rest)
			return At(instants...), err
		}
	}
	return Schedule{}, &unknownKindError{`begins with none of "cron", "quartz", "every", "fixed delay", "always", "at", "after" and "` + triggerText + `"`}
}

func (s Schedule) parseModifier(m modifier) (Schedule, error) {
	switch m.word {
	case "in":
		return s.In(m.argument), nil
	case "spread":
		d, err := time.ParseDuration(m.argument)
		return s.Spread(d), err
	}
	t, err := parseInstant(m.argument)
	return s.with(m.word, instantText(t)), err
}

// MarshalText returns the text form of s, which is not checked.
func (s Schedule) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is Parse.
func (s *Schedule) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// newFireSet returns all fires of a kind of schedule, without the bounds of From and Until.
func newFireSet(words []string, all modifiers) (fireSet, error) {
	rest := strings.Join(words[1:], " ")
	switch words[0] {
	case "cron":
		return sharedCrontab(&crontabs, rest, all, newCrontab)
	case "quartz":
		return sharedCrontab(&quartzTables, rest, all, newQuartz)
	case "every":
		return newInterval(rest)
	case "fixed":
		return newDelay(rest)
	case alwaysText:
		return delay(alwaysDelay), nil
	case "at":
		return newInstants(rest)
	}
	return nil, fmt.Errorf("unknown kind %q", words[0]) // cannot happen: there is no constructor
}

// sharedCrontab returns the crontab of a spec in its zone. Equal ones are shared.
func sharedCrontab(of *shared[crontab], spec string, all modifiers, parse func(string) (*crontab, error)) (fireSet, error) {
	zone, ok := all.find("in")
	if !ok {
		zone = "UTC"
	}
	c, err := of.get(spec+" in "+zone, parse)
	if err != nil {
		return nil, err // c would be a nil *crontab in a non-nil fireSet
	}
	return c, nil
}
