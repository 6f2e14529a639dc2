package schedule

import (
	"math/bits"
	"time"

	"github.com/robfig/cron/v3"
)

// pattern is the set of clock readings that a cron spec describes. A reading is a date
// and time of day without a zone, as the seconds from 1970-01-01 00:00:00 on that clock.
type pattern struct {
	seconds, minutes, hours uint64 // bit n for n
	months                  uint64 // bit n for time.Month(n)
	days                    monthDays
	years                   *yearSet // nil: all
	daily                   int      // readings on each day that has any
	farthest                int      // how many years two readings can be apart
}

// monthDays has the days of a month by the weekday of its first, Sunday = 0, and by its length,
// from shortestMonth on: bit n for day n.
type monthDays [7][4]uint64

// yearSet is a set of years from firstYear to lastYear.
type yearSet [(lastYear-firstYear)/64 + 1]uint64

const (
	daySeconds = 24 * 60 * 60
	// leapDayYears is how many years two leap days can be apart: there is none in 2100.
	leapDayYears  = 8
	shortestMonth = 28
	firstYear     = 1970
	lastYear      = 2099
	// starBit marks a field of cron.SpecSchedule that was given as a star.
	starBit = 1 << 63
)

func newPattern(spec *cron.SpecSchedule) pattern {
	dates := spec.Dom &^ starBit
	either := spec.Dom&starBit == 0 && spec.Dow&starBit == 0 // else a day must match both fields
	days := newMonthDays(func(day, weekday, _ int) bool {
		if either {
			return has(dates, day) || has(spec.Dow, weekday)
		}
		return has(dates, day) && has(spec.Dow, weekday)
	})
	p := pattern{
		seconds: spec.Second &^ starBit, minutes: spec.Minute &^ starBit, hours: spec.Hour &^ starBit,
		months: spec.Month &^ starBit, days: days, farthest: leapDayYears,
	}
	p.countDaily()
	return p
}

// newMonthDays returns the days for which matches returns true, given the day of the month, its
// weekday and the length of the month.
func newMonthDays(matches func(day, weekday, length int) bool) (d monthDays) {
	for first := range d {
		for i := range d[first] {
			length := shortestMonth + i
			for day := 1; day <= length; day++ {
				if matches(day, weekdayOf(day, first), length) {
					d[first][i] |= 1 << day
				}
			}
		}
	}
	return d
}

// weekdayOf returns the weekday of a day of a month whose first is the given weekday. The day may be
// beyond the end of the month.
func weekdayOf(day, first int) int { return (first + day - 1) % 7 }

func (p *pattern) countDaily() {
	p.daily = bits.OnesCount64(p.hours) * bits.OnesCount64(p.minutes) * bits.OnesCount64(p.seconds)
}

// next returns the first reading at or after from, or false if there is none.
func (p *pattern) next(from int64) (int64, bool) {
	if p.daily == 0 {
		return 0, false
	}
	if p.years != nil {
		from = max(from, 0) // the beginning of firstYear
	}
	m, day, second := split(from)
	if has(p.daysOf(m), day) {
		if s, ok := p.nextInDay(second); ok {
			return m.reading(day, s), true
		}
	}
	earliest, _ := p.nextInDay(0)
	for range 12*p.farthest + 1 {
		if day, ok := atLeast(p.daysOf(m), day+1); ok {
			return m.reading(day, earliest), true
		}
		m, day = m.following(), 0
	}
	return 0, false
}

// shortestGap returns the shortest time between two readings, or 24 hours if that is shorter.
func (p *pattern) shortestGap() time.Duration {
	gap := daySeconds
	first, _ := p.nextInDay(0)
	last := first
	for gap > 1 {
		second, ok := p.nextInDay(last + 1)
		if !ok {
			break
		}
		gap, last = min(gap, second-last), second
	}
	if p.hasConsecutiveDays() {
		gap = min(gap, first+daySeconds-last)
	}
	return time.Duration(gap) * time.Second
}

// hasConsecutiveDays reports whether two days in a row have readings, in any year.
func (p *pattern) hasConsecutiveDays() bool {
	m, before := newMonth(firstYear, time.January), false
	for range 12 * (lastYear - firstYear + 1) {
		days := p.daysOf(m)
		if days&(days>>1) != 0 || before && has(days, 1) {
			return true
		}
		before = has(days, m.days())
		m = m.following()
	}
	return false
}

// count returns the number of readings at or after from and before to.
func (p *pattern) count(from, to int64) int {
	if from >= to {
		return 0
	}
	m, day, second := split(from)
	n := -p.countInMonth(m, day, second)
	last, day, second := split(to)
	for ; m.first < last.first; m = m.following() {
		n += bits.OnesCount64(p.daysOf(m)) * p.daily
	}
	return n + p.countInMonth(last, day, second)
}

// countInMonth returns the number of readings in m before a second of a day.
func (p *pattern) countInMonth(m month, day, second int) int {
	days := p.daysOf(m)
	n := below(days, day) * p.daily
	if has(days, day) {
		n += p.countInDay(second)
	}
	return n
}

// daysOf returns the days of m that have readings, bit n for day n.
func (p *pattern) daysOf(m month) uint64 {
	if !has(p.months, int(m.month)) || p.years != nil && !p.years.has(m.year) {
		return 0
	}
	return p.days[m.weekday()][m.days()-shortestMonth]
}

func (y *yearSet) has(year int) bool {
	n := year - firstYear
	return n >= 0 && year <= lastYear && has(y[n/64], n%64)
}

func (y *yearSet) add(year int) {
	n := year - firstYear
	y[n/64] |= 1 << (n % 64)
}

// nextInDay returns the first second of a day, from the given one, at which there is a
// reading on the days that have any.
func (p *pattern) nextInDay(second int) (int, bool) {
	h, m, s := second/3600, second/60%60, second%60
	if has(p.hours, h) {
		if has(p.minutes, m) {
			if s, ok := atLeast(p.seconds, s); ok {
				return h*3600 + m*60 + s, true
			}
		}
		if m, ok := atLeast(p.minutes, m+1); ok {
			return h*3600 + m*60 + lowest(p.seconds), true
		}
	}
	if h, ok := atLeast(p.hours, h+1); ok {
		return h*3600 + lowest(p.minutes)*60 + lowest(p.seconds), true
	}
	return 0, false
}

// countInDay returns the number of readings before a second of a day that has any.
func (p *pattern) countInDay(second int) int {
	h, m, s := second/3600, second/60%60, second%60
	n := below(p.hours, h) * bits.OnesCount64(p.minutes) * bits.OnesCount64(p.seconds)
	if has(p.hours, h) {
		n += below(p.minutes, m) * bits.OnesCount64(p.seconds)
		if has(p.minutes, m) {
			n += below(p.seconds, s)
		}
	}
	return n
}

// month is a month of the calendar.
type month struct {
	year        int
	month       time.Month
	first, next int64 // its first day and that of the following month, counted from 1970-01-01
}

func newMonth(year int, m time.Month) month {
	first := time.Date(year, m, 1, 0, 0, 0, 0, time.UTC)
	next := time.Date(year, m+1, 1, 0, 0, 0, 0, time.UTC)
	return month{year: year, month: m, first: first.Unix() / daySeconds, next: next.Unix() / daySeconds}
}

func (m month) following() month {
	if m.month == time.December {
		return newMonth(m.year+1, time.January)
	}
	return newMonth(m.year, m.month+1)
}

func (m month) days() int { return int(m.next - m.first) }

// weekday returns the weekday of the first of m, Sunday = 0.
func (m month) weekday() int {
	days := int(m.first-floorDiv(m.first, 7)*7) + int(time.Thursday) // 1970-01-01 was one
	return days % 7
}

// reading returns the reading at a second of a day of m.
func (m month) reading(day, second int) int64 {
	return (m.first+int64(day)-1)*daySeconds + int64(second)
}

// split returns the month, the day of the month and the second of the day of a reading.
func split(reading int64) (m month, day, second int) {
	year, mon, day := time.Unix(reading, 0).UTC().Date()
	m = newMonth(year, mon)
	return m, day, int(reading - m.reading(day, 0))
}

// has reports whether bit n is in set.
func has(set uint64, n int) bool { return set>>n&1 == 1 }

// atLeast returns the lowest bit of set that is n or higher.
func atLeast(set uint64, n int) (int, bool) {
	rest := set >> n
	return n + bits.TrailingZeros64(rest), rest != 0
}

// lowest returns the lowest bit of set, which must not be empty.
func lowest(set uint64) int { return bits.TrailingZeros64(set) }

// below returns how many bits of set are lower than n.
func below(set uint64, n int) int { return bits.OnesCount64(set &^ (^uint64(0) << n)) }
