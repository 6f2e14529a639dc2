package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each line is a day on which the clock is changed, and the fires of that day and of the
// night that follows.
func TestCron_WhenTheClockIsChanged(t *testing.T) {
	const (
		newYork  = "America/New_York"
		berlin   = "Europe/Berlin"
		lordHowe = "Australia/Lord_Howe"
		havana   = "America/Havana"
	)
	for _, c := range []struct {
		name, spec, zone, from, to string
		fires                      string
	}{
		{
			"a daily fire in the gap comes just after it", "30 2 * * *", newYork,
			"2026-03-07T00:00:00-05:00", "2026-03-10T00:00:00-04:00",
			"07T02:30-05:00 08T03:00-04:00 09T02:30-04:00",
		},
		{
			"a daily fire in the overlap comes the first time", "30 1 * * *", newYork,
			"2026-10-31T00:00:00-04:00", "2026-11-03T00:00:00-05:00",
			"31T01:30-04:00 01T01:30-04:00 02T01:30-05:00",
		},
		{
			"the end of the overlap is not in it", "0 2 * * *", newYork,
			"2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00",
			"01T02:00-05:00",
		},
		{
			"all that falls into a gap is one fire", "0,20,40 2 * * *", newYork,
			"2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00",
			"08T03:00-04:00",
		},
		{
			"and one with what is due at its end", "0,20 2,3 * * *", newYork,
			"2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00",
			"08T03:00-04:00 08T03:20-04:00",
		},
		{
			"seconds do not multiply it", "*/20 30 2 * * *", newYork,
			"2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00",
			"08T03:00-04:00",
		},
		{
			"the days of the spec are those of the reading", "30 2 * * mon", newYork,
			"2026-03-07T00:00:00-05:00", "2026-03-10T00:00:00-04:00",
			"09T02:30-04:00",
		},
		{
			"every 15 minutes goes on through the gap", "*/15 * * * *", newYork,
			"2026-03-08T01:15:00-05:00", "2026-03-08T03:30:00-04:00",
			"08T01:30-05:00 08T01:45-05:00 08T03:00-04:00 08T03:15-04:00 08T03:30-04:00",
		},
		{
			"every 15 minutes goes on through the repeated hour", "*/15 * * * *", newYork,
			"2026-11-01T01:15:00-04:00", "2026-11-01T02:00:00-05:00",
			"01T01:30-04:00 01T01:45-04:00 01T01:00-05:00 01T01:15-05:00 01T01:30-05:00 01T01:45-05:00 01T02:00-05:00",
		},
		{
			"so it does in a window of hours", "*/30 1-3 * * *", newYork,
			"2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00",
			"01T01:00-04:00 01T01:30-04:00 01T01:00-05:00 01T01:30-05:00 01T02:00-05:00 01T02:30-05:00 01T03:00-05:00 01T03:30-05:00",
		},
		{
			"and in a window that the gap swallows it fires once", "*/15 2 * * *", newYork,
			"2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00",
			"08T03:00-04:00",
		},
		{
			"every hour, at a minute, passes over the gap", "7 * * * *", newYork,
			"2026-03-08T00:30:00-05:00", "2026-03-08T04:30:00-04:00",
			"08T01:07-05:00 08T03:07-04:00 08T04:07-04:00",
		},
		{
			"every hour is every hour however it is written", "7 0-23 * * *", newYork,
			"2026-11-01T00:30:00-04:00", "2026-11-01T02:30:00-05:00",
			"01T01:07-04:00 01T01:07-05:00 01T02:07-05:00",
		},
		{
			"listed minutes of listed hours are times of day", "0,30 0-2 * * *", newYork,
			"2026-11-01T00:00:00-04:00", "2026-11-01T12:00:00-05:00",
			"01T00:30-04:00 01T01:00-04:00 01T01:30-04:00 01T02:00-05:00 01T02:30-05:00",
		},
		{
			"every second hour is hours of the day", "0 */2 * * *", berlin,
			"2026-10-25T00:00:00+02:00", "2026-10-25T07:00:00+01:00",
			"25T02:00+02:00 25T04:00+01:00 25T06:00+01:00",
		},
		{
			"Berlin, gap", "15 2 * * *", berlin,
			"2026-03-28T00:00:00+01:00", "2026-03-31T00:00:00+02:00",
			"28T02:15+01:00 29T03:00+02:00 30T02:15+02:00",
		},
		{
			"Berlin, overlap", "15 2 * * *", berlin,
			"2026-10-24T00:00:00+02:00", "2026-10-27T00:00:00+01:00",
			"24T02:15+02:00 25T02:15+02:00 26T02:15+01:00",
		},
		{
			"Berlin, every 20 minutes in the overlap", "*/20 * * * *", berlin,
			"2026-10-25T02:20:00+02:00", "2026-10-25T03:00:00+01:00",
			"25T02:40+02:00 25T02:00+01:00 25T02:20+01:00 25T02:40+01:00 25T03:00+01:00",
		},
		{
			"half an hour, gap", "15 2 * * *", lordHowe,
			"2026-10-03T00:00:00+10:30", "2026-10-06T00:00:00+11:00",
			"03T02:15+10:30 04T02:30+11:00 05T02:15+11:00",
		},
		{
			"half an hour, after the gap", "45 2 * * *", lordHowe,
			"2026-10-04T00:00:00+10:30", "2026-10-05T00:00:00+11:00",
			"04T02:45+11:00",
		},
		{
			"half an hour, overlap", "45 1 * * *", lordHowe,
			"2026-04-04T00:00:00+11:00", "2026-04-07T00:00:00+10:30",
			"04T01:45+11:00 05T01:45+11:00 06T01:45+10:30",
		},
		{
			"half an hour, before the overlap", "15 1 * * *", lordHowe,
			"2026-04-05T00:00:00+11:00", "2026-04-06T00:00:00+10:30",
			"05T01:15+11:00",
		},
		{
			"half an hour, every 15 minutes through the gap", "*/15 * * * *", lordHowe,
			"2026-10-04T01:15:00+10:30", "2026-10-04T03:00:00+11:00",
			"04T01:30+10:30 04T01:45+10:30 04T02:30+11:00 04T02:45+11:00 04T03:00+11:00",
		},
		{
			"half an hour, every 15 minutes through the overlap", "*/15 * * * *", lordHowe,
			"2026-04-05T01:15:00+11:00", "2026-04-05T02:00:00+10:30",
			"05T01:30+11:00 05T01:45+11:00 05T01:30+10:30 05T01:45+10:30 05T02:00+10:30",
		},
		{
			"a midnight that does not exist", "@daily", havana,
			"2026-03-07T12:00:00-05:00", "2026-03-09T12:00:00-04:00",
			"08T01:00-04:00 09T00:00-04:00",
		},
		{
			"a midnight that comes twice", "@daily", havana,
			"2026-10-31T12:00:00-04:00", "2026-11-02T12:00:00-05:00",
			"01T00:00-04:00 02T00:00-05:00",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tt := compile(t, Cron(c.spec).In(c.zone))
			zone, err := time.LoadLocation(c.zone)
			require.NoError(t, err)
			var got []string
			for _, f := range fires(tt, date(c.from), date(c.to)) {
				got = append(got, f.In(zone).Format("02T15:04Z07:00"))
			}
			assert.Equal(t, strings.Fields(c.fires), got)
			assert.Equal(t, len(got), tt.count(date(c.from), date(c.to)))
		})
	}
}

// A twin that looks at a clock once a minute and knows nothing of zones, spans or days
// says the same about specs and instants at random, around changes of all kinds.
func TestCron_AgreesWithAClockOnTheWall(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, w := range []struct{ zone, around string }{
		{"America/New_York", "2026-03-08T07:00:00Z"},
		{"America/New_York", "2026-11-01T06:00:00Z"},
		{"America/New_York", "2040-03-11T07:00:00Z"}, // beyond the tables, by the rule
		{"America/New_York", "2040-12-31T12:00:00Z"}, // where the bounds of time.Time are wrong
		{"Australia/Lord_Howe", "2040-12-31T12:00:00Z"},
		{"Europe/Berlin", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "2026-10-25T01:00:00Z"},
		{"Europe/Berlin", "2027-01-01T00:00:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T15:00:00Z"},
		{"Australia/Lord_Howe", "2026-10-03T15:30:00Z"},
		{"America/Havana", "2026-03-08T05:00:00Z"}, // midnight is missing
		{"America/Havana", "2026-11-01T05:00:00Z"},
		{"America/Sao_Paulo", "2018-11-04T03:00:00Z"},
		{"America/St_Johns", "1988-04-03T03:31:00Z"}, // two hours, at 00:01
		{"America/St_Johns", "1988-10-30T02:31:00Z"},
		{"Antarctica/Troll", "2026-03-29T01:00:00Z"},
		{"Africa/Casablanca", "2026-02-15T02:00:00Z"},
		{"Pacific/Apia", "2011-12-30T10:00:00Z"}, // a day is missing
		{"America/Caracas", "2016-05-01T07:00:00Z"},
		{"Asia/Kathmandu", "2026-03-08T07:00:00Z"}, // never changed
	} {
		t.Run(w.zone+" "+w.around[:10], func(t *testing.T) {
			zone, err := time.LoadLocation(w.zone)
			require.NoError(t, err)
			from, to := date(w.around).Add(-60*time.Hour), date(w.around).Add(60*time.Hour)
			readings := wallReadings(zone, from, to)
			for range 12 {
				spec := randomSpec(r)
				tt := compile(t, Cron(spec).In(w.zone))
				from, to := from.Add(30*time.Hour), to // the twin must have seen what came before
				want := wallFires(t, spec, readings, from, to)
				require.Equal(t, texts(want), texts(fires(tt, from, to)), spec)
				for range 20 {
					after := from.Add(time.Duration(r.Int64N(int64(to.Sub(from)))))
					through := after.Add(time.Duration(r.Int64N(int64(to.Sub(after)))))
					require.Equal(t, firstAfter(want, after), within(tt.next(after), to), "%s after %v", spec, after)
					require.Equal(t, countIn(want, after, through), tt.count(after, through), "%s from %v to %v", spec, after, through)
				}
			}
		})
	}
}

// In UTC, where no clock is changed, the fires are those of the parser's own walk.
func TestCron_AgreesWithRobfigInUTC(t *testing.T) {
	const seed = 2
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	from := date("1890-01-01T00:00:00Z").Unix()
	for range 1000 {
		spec := randomSpecOfDays(r)
		reference, err := cronParser.Parse(spec)
		require.NoError(t, err)
		tt := compile(t, Cron(spec))
		after := time.Unix(from+r.Int64N(250*365*daySeconds), r.Int64N(1e9)).UTC()
		for range 10 {
			want := reference.Next(after)
			require.Equal(t, want, tt.next(after), "%s after %v", spec, after)
			require.Equal(t, 1, tt.count(after, want))
			require.Equal(t, 0, tt.count(after, want.Add(-1)))
			after = want
		}
	}
}

func TestCron_CountsWithoutWalking(t *testing.T) {
	for spec, want := range map[string]int{
		"* * * * * *":      20 * 365.25 * daySeconds,
		"* * * * *":        20 * 365.25 * 24 * 60,
		"0 0 1 * *":        20 * 12,
		"0 0 29 2 *":       5,
		"0 0 1 jan,jul *":  20 * 2,
		"30 2 * * *":       20 * 365.25,
		"15,45 2 1-10 * *": 20*12*10*2 - 5, // of ten gaps, about half on the first ten days
	} {
		c := Cron(spec)
		if spec == "30 2 * * *" || strings.HasPrefix(spec, "15") {
			c = c.In("America/New_York")
		}
		tt := compile(t, c)
		from := date("2026-01-01T12:00:00Z")
		to := from.AddDate(20, 0, 0)
		if want < 20000 {
			walked := len(fires(tt, from, to))
			assert.Equal(t, walked, tt.count(from, to), spec)
			assert.InDelta(t, want, walked, 10, spec)
			continue
		}
		assert.InDelta(t, want, tt.count(from, to), 100, spec)
	}
}

func TestCron_LeapDays(t *testing.T) {
	fires, err := Cron("0 0 29 2 *").In("Europe/Berlin").Next(date("2094-01-01T00:00:00Z"), 3)
	require.NoError(t, err)
	assert.Equal(t, []string{"2096-02-29T00:00:00+01:00", "2104-02-29T00:00:00+01:00", "2108-02-29T00:00:00+01:00"}, texts(fires))
}

func TestCron_EndsWithTheCalendarOfRFC3339(t *testing.T) {
	tt := compile(t, Cron("0 0 1 1 *"))
	assert.Equal(t, date("9999-01-01T00:00:00Z"), tt.next(date("9998-01-02T00:00:00Z")))
	assert.Zero(t, tt.next(date("9999-01-01T00:00:00Z")))
	assert.Zero(t, tt.count(date("9999-01-01T00:00:00Z"), time.Unix(eternity, 0)))
	assert.Equal(t, date("0001-01-01T00:00:00Z").AddDate(1, 0, 0), tt.next(time.Time{}))
}

func TestCron_EqualSchedulesShareOneTimetable(t *testing.T) {
	first := compile(t, Cron("11 3 * * *").In("Asia/Tokyo"))
	assert.Same(t, first, compile(t, Cron("CRON_TZ=Asia/Tokyo  11 3 * * *")))
	other := compile(t, Cron("12 3 * * *").In("Asia/Tokyo"))
	assert.NotSame(t, first, other)
	assert.Same(t, first.(*crontab).zone, other.(*crontab).zone, "the tables of a zone are the larger part")
}

func TestCron_NextAllocatesNothing(t *testing.T) {
	for _, s := range []Schedule{
		Every(time.Second), Cron("* * * * * *"), Cron("30 2 * * *").In("America/New_York"), Cron("*/5 * * * *").In("Europe/Berlin"),
	} {
		tt := compile(t, s)
		after := date("2026-06-01T00:00:00Z")
		assert.Zero(t, testing.AllocsPerRun(1000, func() { after = tt.next(after) }), "%v, in one span of its zone", s)
	}
}

func BenchmarkTimetable_Next(b *testing.B) {
	for _, s := range []Schedule{
		Every(time.Second), Cron("* * * * * *"), Cron("0 3 * * *"), Cron("0 3 * * *").In("America/New_York"), Cron("0 0 29 2 *").In("America/New_York"),
	} {
		b.Run(s.String(), func(b *testing.B) {
			tt := compile(b, s)
			start := date("2026-06-01T00:00:00Z")
			for b.Loop() {
				tt.next(start)
			}
		})
	}
}

func compile(t testing.TB, s Schedule) fireSet {
	t.Helper()
	tt, err := s.Timetable()
	require.NoError(t, err)
	return tt.fires
}

// fires walks tt from one instant, not included, to another, included.
func fires(tt fireSet, after, through time.Time) []time.Time {
	var all []time.Time
	for f := tt.next(after); !f.IsZero() && !f.After(through); f = tt.next(f) {
		if n := len(all); n > 0 && !f.After(all[n-1]) {
			panic(fmt.Sprintf("%v follows %v", f, all[n-1]))
		}
		all = append(all, f)
	}
	return all
}

// wallReading is what a clock showed at an instant, without its zone.
type wallReading struct{ at, shows time.Time }

func wallReadings(zone *time.Location, from, to time.Time) []wallReading {
	var all []wallReading
	for at := from; !at.After(to); at = at.Add(time.Minute) {
		local := at.In(zone)
		all = append(all, wallReading{at, time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)})
	}
	return all
}

// wallFires applies the rules in the comment of Cron, word by word, to readings.
func wallFires(t *testing.T, spec string, readings []wallReading, after, through time.Time) []time.Time {
	parsed, err := cronParser.Parse(spec)
	require.NoError(t, err)
	fields := parsed.(*cron.SpecSchedule)
	allHours := fields.Hour&(1<<24-1) == 1<<24-1
	star := spec[0] == '*' || spec[0] == '?'
	seen := make(map[time.Time]bool)
	var all []time.Time
	for i, r := range readings {
		fire := matches(fields, r.shows) && (!seen[r.shows] || allHours || star)
		if i > 0 && !allHours {
			for skipped := readings[i-1].shows.Add(time.Minute); skipped.Before(r.shows); skipped = skipped.Add(time.Minute) {
				fire = fire || matches(fields, skipped)
			}
		}
		seen[r.shows] = true
		if fire && r.at.After(after) && !r.at.After(through) {
			all = append(all, r.at)
		}
	}
	return all
}

func matches(s *cron.SpecSchedule, t time.Time) bool {
	if s.Minute>>t.Minute()&1 == 0 || s.Hour>>t.Hour()&1 == 0 || s.Month>>t.Month()&1 == 0 {
		return false
	}
	dom, dow := s.Dom>>t.Day()&1 == 1, s.Dow>>t.Weekday()&1 == 1
	if s.Dom>>63 == 1 || s.Dow>>63 == 1 {
		return dom && dow
	}
	return dom || dow
}

func firstAfter(fires []time.Time, t time.Time) time.Time {
	for _, f := range fires {
		if f.After(t) {
			return f
		}
	}
	return time.Time{}
}

func within(t, through time.Time) time.Time {
	if t.After(through) {
		return time.Time{}
	}
	return t
}

func countIn(fires []time.Time, after, through time.Time) int {
	n := 0
	for _, f := range fires {
		if f.After(after) && !f.After(through) {
			n++
		}
	}
	return n
}

func randomSpec(r *rand.Rand) string {
	minute := pick(r, "*", "*/15", "*/20", "*/7", "0", "30", "59", "0,30", "1,31", "10-50/10", "?", fmt.Sprint(r.IntN(60)))
	hour := pick(r, "*", "*/2", "0-23", "0", "1", "2", "3", "0-3", "1,2,3", "22-23", "5", fmt.Sprint(r.IntN(24)))
	dow := pick(r, "*", "*", "*", "sun", "sat,sun,mon")
	return strings.Join([]string{minute, hour, "*", "*", dow}, " ")
}

func randomSpecOfDays(r *rand.Rand) string {
	fields := []string{
		pick(r, "0", "*", "*/7", "30-45", "59"),
		pick(r, "0", "*", "*/7", "30-45", "59", fmt.Sprint(r.IntN(60))),
		pick(r, "0", "*", "*/5", "9-17", "23", fmt.Sprint(r.IntN(24))),
		pick(r, "*", "*", "1", "*/10", "15,31", "29-31", fmt.Sprint(1+r.IntN(28))),
		pick(r, "*", "*", "feb", "1-11/2", "12", fmt.Sprint(1+r.IntN(12))),
		pick(r, "*", "*", "sun", "1-5", "6", "*/3"),
	}
	if slices.Equal(fields[3:5], []string{"29-31", "feb"}) || fields[3] == "15,31" {
		fields[3] = "*" // robfig gives up on 29 February of 1900 and 2100 after five years
	}
	return strings.Join(fields[r.IntN(2):], " ")
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }
