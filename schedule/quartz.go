package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Quartz fires at the local times that spec describes in the dialect of Quartz 2.3, which
// Elastic-Job uses. Spec has six fields or seven: second, minute, hour, day of month, month, day
// of week with Sunday = 1, and year from 1970 to 2099. Fields contain numbers, names (JAN, MON, in
// any case), lists, steps, and ranges, which may wrap: "22-2", "FRI-MON". One of the two fields of
// days must be a question mark. The other can also be
//
//	L         the last day of the month; as a day of week, Saturday
//	L-3       the third day before the last
//	15W       the weekday (Monday to Friday) of the same month that is nearest to the 15th;
//	          none if the month does not have the day, as for 31W
//	LW, L-3W  the weekday nearest to L or L-3
//	6L, FRIL  the last Friday of the month
//	6#3       the third Friday of the month; at most #5
//
// Texts are invalid that Quartz accepts and reads in part, such as the step of "MON-FRI/2", which
// it ignores, and steps of 0.
//
// The times are in UTC, or in the zone of In. The fires are those of Quartz, with few exceptions, all
// of which docs/elastic-job.md lists. When the zone's clock changes:
//
//   - A time that the clock skips counts as the first instant after the gap, with the rules of
//     Cron. Quartz has no fire for it.
//   - A time that the clock repeats counts once, the second time, as in Quartz. It counts both
//     times if the hour field allows all hours, or the minute field begins with a star or has a
//     step. Quartz leaves the first time out, so that its fires pause for that long.
func Quartz(spec string) Schedule {
	return Schedule{text: strings.Join(append([]string{"quartz"}, strings.Fields(spec)...), " ")}
}

// quartzField is a field of a quartz spec.
type quartzField struct {
	name     string
	min, max int
	maxStep  int
	names    string // three letters each, from min on
}

var (
	monthNames   = "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"
	weekdayNames = "SUNMONTUEWEDTHUFRISAT"

	quartzFields = []quartzField{
		{"second", 0, 59, 59, ""},
		{"minute", 0, 59, 59, ""},
		{"hour", 0, 23, 23, ""},
		{"day of month", 1, 31, 31, ""},
		{"month", 1, 12, 12, monthNames},
		{"day of week", 1, 7, 7, weekdayNames},
		{"year", firstYear, lastYear, lastYear - firstYear, ""},
	}
)

// Indexes of quartzFields.
const (
	quartzSecond = iota
	quartzMinute
	quartzHour
	quartzDate
	quartzMonth
	quartzWeekday
	quartzYear
)

// rareDayYears is how many years two days of one date and weekday can be apart: 40 for 29 February
// around 2100, which is no leap year.
const rareDayYears = 40

var quartzTables shared[crontab]

// newQuartz reads the text of a quartz schedule: a spec, "in" and a zone.
func newQuartz(text string) (*crontab, error) {
	spec, zoneName, _ := strings.Cut(text, " in ")
	fields := strings.Fields(strings.ToUpper(spec))
	p, err := parseQuartz(fields)
	if err != nil {
		return nil, err
	}
	minutes := fields[quartzMinute]
	c := &crontab{pattern: p, repeated: secondTime}
	return c.inZone(zoneName, minutes[0] == '*' || strings.Contains(minutes, "/"))
}

func parseQuartz(fields []string) (p pattern, err error) {
	if len(fields) != quartzYear && len(fields) != quartzYear+1 {
		return p, fmt.Errorf("a quartz spec has 6 or 7 fields, from seconds to years, and this has %d", len(fields))
	}
	for i, set := range map[int]*uint64{quartzSecond: &p.seconds, quartzMinute: &p.minutes, quartzHour: &p.hours, quartzMonth: &p.months} {
		if *set, err = quartzFields[i].parseSet(fields[i]); err != nil {
			return p, err
		}
	}
	if p.days, err = parseQuartzDays(fields[quartzDate], fields[quartzWeekday]); err != nil {
		return p, err
	}
	p.farthest = rareDayYears
	if len(fields) > quartzYear && fields[quartzYear] != "*" {
		p.years, p.farthest = new(yearSet), lastYear-firstYear+1
		err = quartzFields[quartzYear].parse(fields[quartzYear], p.years.add)
	}
	p.countDaily()
	return p, err
}

// parseSet returns the set of numbers of a field below 64.
func (f *quartzField) parseSet(text string) (set uint64, err error) {
	return set, f.parse(text, func(n int) { set |= 1 << n })
}

// parse calls add with the numbers that the text of a field contains.
func (f *quartzField) parse(text string, add func(n int)) error {
	for item := range strings.SplitSeq(text, ",") {
		first, last, step, err := f.parseItem(item)
		if err != nil {
			return fmt.Errorf("%s %q: %w", f.name, item, err)
		}
		if last < first {
			last += f.max - f.min + 1
		}
		for n := first; n <= last; n += step {
			if n > f.max {
				add(n - (f.max - f.min + 1))
			} else {
				add(n)
			}
		}
	}
	return nil
}

// parseItem parses an item of a list. If last is below first, the range wraps.
func (f *quartzField) parseItem(item string) (first, last, step int, err error) {
	base, stepText, hasStep := strings.Cut(item, "/")
	from, to, isRange := strings.Cut(base, "-")
	step = 1
	if hasStep {
		if step, err = parseQuartzNumber(stepText); err != nil {
			return 0, 0, 0, err
		}
		if step == 0 || step > f.maxStep && !isRange {
			return 0, 0, 0, fmt.Errorf("the step is not from 1 to %d", f.maxStep)
		}
	}
	if base == "*" || base == "" && hasStep {
		return f.min, f.max, step, nil
	}
	first, named, err := f.parseValue(from)
	if err != nil {
		return 0, 0, 0, err
	}
	if hasStep && named {
		return 0, 0, 0, errors.New("a step after a name, which Quartz ignores: write numbers")
	}
	if !isRange {
		if last = first; hasStep {
			last = f.max
		}
		return first, last, step, nil
	}
	last, alsoNamed, err := f.parseValue(to)
	switch {
	case err != nil:
		return 0, 0, 0, err
	case named != alsoNamed:
		return 0, 0, 0, errors.New("a range is between two numbers or two names")
	case last < first && f.min == firstYear:
		return 0, 0, 0, errors.New("the range ends before it begins")
	}
	return first, last, step, nil
}

// parseValue parses a number or a name of the field.
func (f *quartzField) parseValue(text string) (n int, named bool, err error) {
	if i := strings.Index(f.names, text); len(text) == 3 && i >= 0 && i%3 == 0 {
		return f.min + i/3, true, nil
	}
	n, err = parseQuartzNumber(text)
	switch {
	case err != nil && f.names != "":
		return 0, false, fmt.Errorf("%q is neither a number nor a name of three letters", text)
	case err != nil:
		return 0, false, err
	case n < f.min || n > f.max:
		return 0, false, fmt.Errorf("%d is not from %d to %d", n, f.min, f.max)
	}
	return n, false, nil
}

func parseQuartzNumber(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	return int(n), nil
}

// parseQuartzDays parses the two fields of days, of which one must be a question mark.
func parseQuartzDays(date, weekday string) (monthDays, error) {
	switch {
	case date == "?" && weekday == "?":
		return monthDays{}, errors.New("only one of the day of month and the day of week can be a question mark")
	case date == "?":
		return parseQuartzWeekdays(weekday)
	case weekday == "?":
		return parseQuartzDates(date)
	}
	return monthDays{}, errors.New("one of the day of month and the day of week must be a question mark")
}

func parseQuartzDates(text string) (monthDays, error) {
	f := &quartzFields[quartzDate]
	if !strings.ContainsAny(text, "LW") {
		set, err := f.parseSet(text)
		return newMonthDays(func(day, _, _ int) bool { return has(set, day) }), err
	}
	target, nearest := strings.CutSuffix(text, "W")
	before, fromEnd := strings.CutPrefix(target, "L")
	n := 0
	switch {
	case strings.Contains(text, ","):
		return monthDays{}, fmt.Errorf("%s %q: a list cannot contain L or W", f.name, text)
	case fromEnd && before == "":
	case fromEnd:
		digits, ok := strings.CutPrefix(before, "-")
		number, err := parseQuartzNumber(digits)
		if !ok || err != nil || number > 30 {
			return monthDays{}, fmt.Errorf("%s %q: after L comes nothing, W, or a number from -0 to -30", f.name, text)
		}
		n = number
	default:
		number, _, err := f.parseValue(target)
		if err != nil {
			return monthDays{}, fmt.Errorf("%s %q: %w", f.name, text, err)
		}
		n = number
	}
	return newMonthDays(func(day, weekday, length int) bool {
		want := n
		if fromEnd {
			want = length - n
		}
		if nearest && want > 0 && want <= length {
			want = nearestWeekday(want, (weekday+want-day+35)%7, length)
		}
		return day == want
	}), nil
}

// nearestWeekday returns the day from Monday to Friday that is nearest to a day, in a month of a length.
func nearestWeekday(day, weekday, length int) int {
	switch time.Weekday(weekday) {
	case time.Saturday:
		if day == 1 {
			return 3
		}
		return day - 1
	case time.Sunday:
		if day == length {
			return day - 2
		}
		return day + 1
	}
	return day
}

func parseQuartzWeekdays(text string) (monthDays, error) {
	f := &quartzFields[quartzWeekday]
	fail := func(err error) (monthDays, error) { return monthDays{}, fmt.Errorf("%s %q: %w", f.name, text, err) }
	if strings.Contains(text, ",") && strings.ContainsAny(text, "L#") {
		return fail(errors.New("a list cannot contain L or #"))
	}
	if text == "L" {
		text = "SAT"
	}
	if name, ok := strings.CutSuffix(text, "L"); ok {
		n, _, err := f.parseValue(name)
		if err != nil {
			return fail(err)
		}
		return newMonthDays(func(day, weekday, length int) bool { return weekday == n-1 && day > length-7 }), nil
	}
	if name, nth, ok := strings.Cut(text, "#"); ok {
		n, _, err := f.parseValue(name)
		if err != nil {
			return fail(err)
		}
		if len(nth) != 1 || nth < "1" || nth > "5" {
			return fail(errors.New("after # comes a number from 1 to 5"))
		}
		week := int(nth[0] - '1')
		return newMonthDays(func(day, weekday, _ int) bool { return weekday == n-1 && (day-1)/7 == week }), nil
	}
	set, err := f.parseSet(text)
	return newMonthDays(func(_, weekday, _ int) bool { return has(set, weekday+1) }), err
}
