package importing

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// timeField is one of the five fields of an entry, with the values that it matches.
type timeField struct {
	text   string
	values uint64 // bit n for n
	// star reports whether the field begins with a star. Cron combines the fields of days by this,
	// and not by whether they match all days.
	star bool
}

// times are the five fields of an entry.
type times struct{ minute, hour, dayOfMonth, month, dayOfWeek timeField }

var (
	monthNames = []string{1: "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	dayNames   = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

// parseTimes reads five fields as cron does.
func parseTimes(fields []string) (t times, err error) {
	for i, f := range []struct {
		name     string
		min, max int
		names    []string
		field    *timeField
	}{
		{"minute", 0, 59, nil, &t.minute},
		{"hour", 0, 23, nil, &t.hour},
		{"day of month", 1, 31, nil, &t.dayOfMonth},
		{"month", 1, 12, monthNames, &t.month},
		{"day of week", 0, 7, dayNames, &t.dayOfWeek},
	} {
		if *f.field, err = parseTimeField(fields[i], f.min, f.max, f.names); err != nil {
			return t, fmt.Errorf("%s %q: %w", f.name, fields[i], err)
		}
	}
	if has(t.dayOfWeek.values, 7) { // Sunday, too
		t.dayOfWeek.values = t.dayOfWeek.values&^(1<<7) | 1
	}
	return t, nil
}

func parseTimeField(text string, lowest, highest int, names []string) (f timeField, err error) {
	f = timeField{text: text, star: strings.HasPrefix(text, "*")}
	for part := range strings.SplitSeq(text, ",") {
		values, err := parseTimeRange(part, lowest, highest, names)
		if err != nil {
			return f, err
		}
		f.values |= values
	}
	return f, nil
}

// parseTimeRange reads a value, a star, or a range, the latter two perhaps with a step.
func parseTimeRange(text string, lowest, highest int, names []string) (values uint64, err error) {
	span, stepText, stepped := strings.Cut(text, "/")
	step := 1
	if stepped {
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
			return 0, fmt.Errorf("the step %q is not a number above 0", stepText)
		}
		step = min(step, highest+1) // an int could overflow below
	}
	firstText, lastText, ranged := strings.Cut(span, "-")
	first, last := lowest, highest
	switch {
	case span == "*":
	case strings.Contains(span, "~"):
		return 0, fmt.Errorf("cron chooses a random value of %q when it starts; write one of them", span)
	default:
		if first, err = parseTimeValue(firstText, lowest, highest, names); err != nil {
			return 0, err
		}
		last = first
		if ranged {
			if last, err = parseTimeValue(lastText, lowest, highest, names); err != nil {
				return 0, err
			}
		}
		switch {
		case stepped && !ranged:
			return 0, fmt.Errorf("a step follows a star or a range, such as %d-%d/%d", first, highest, step)
		case last < first:
			return 0, fmt.Errorf("the range %q ends before it begins", span)
		}
	}
	for v := first; v <= last; v += step {
		values |= 1 << v
	}
	return values, nil
}

func parseTimeValue(text string, lowest, highest int, names []string) (int, error) {
	for v, name := range names {
		if name != "" && strings.EqualFold(name, text) {
			return v, nil
		}
	}
	v, err := strconv.Atoi(text)
	if err != nil || text[0] == '+' {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	if v < lowest || v > highest {
		return 0, fmt.Errorf("%d is not within %d to %d", v, lowest, highest)
	}
	return v, nil
}

// Sets of all days.
const (
	allDaysOfMonth = 1<<32 - 2
	allDaysOfWeek  = 1<<7 - 1
)

// text returns the fields in the dialect of schedule.Cron, or false if it has no equal. Cron requires
// a day to match both fields of days if one begins with a star, and otherwise either.
// Executor.Cron requires both if one matches all days by a star.
func (t times) text() (string, bool) {
	anyDayOfMonth, anyDayOfWeek := t.dayOfMonth.values == allDaysOfMonth, t.dayOfWeek.values == allDaysOfWeek
	dayOfMonth, dayOfWeek := t.dayOfMonth.text, t.dayOfWeek.text
	if strings.Contains(dayOfWeek, "7") {
		dayOfWeek = listText(t.dayOfWeek.values)
	}
	if t.dayOfMonth.star || t.dayOfWeek.star {
		switch {
		case anyDayOfMonth:
			dayOfMonth = "*"
		case anyDayOfWeek:
			dayOfWeek = "*"
		default:
			return "", false
		}
		if anyDayOfWeek {
			dayOfWeek = "*"
		}
	} else if anyDayOfMonth || anyDayOfWeek {
		dayOfMonth, dayOfWeek = "*", "*"
	}
	return strings.Join([]string{t.minute.text, t.hour.text, dayOfMonth, t.month.text, dayOfWeek}, " "), true
}

// listText returns a set as a list of values and ranges.
func listText(values uint64) string {
	var parts []string
	for values != 0 {
		first := bits.TrailingZeros64(values)
		last := first
		for has(values, last+1) {
			last++
		}
		part := strconv.Itoa(first)
		if last > first {
			part += "-" + strconv.Itoa(last)
		}
		parts = append(parts, part)
		values &^= 1<<(last+1) - 1
	}
	return strings.Join(parts, ",")
}

func has(set uint64, n int) bool { return set>>n&1 == 1 }
