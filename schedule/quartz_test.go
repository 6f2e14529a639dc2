package schedule

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/internal/test/testserver/provision"
)

var (
	quartzSeed        = flag.Uint64("quartz.seed", 1, "seed of the random expressions that are compared with Quartz's")
	quartzExpressions = flag.Int("quartz.expressions", long.Pick(2000, 20_000), "number of random expressions that are compared with Quartz's")
)

// quartzCase is an expression whose fires after an instant are compared.
type quartzCase struct {
	spec, zone string
	after      time.Time
}

// quartzChanges are zones and changes of their clocks.
var quartzChanges = []struct{ zone, around string }{
	{"UTC", "2026-03-29T01:00:00Z"},
	{"Asia/Shanghai", "2026-03-29T01:00:00Z"},
	{"Asia/Kathmandu", "2026-01-01T00:00:00Z"},
	{"Europe/Berlin", "2026-03-29T01:00:00Z"},
	{"Europe/Berlin", "2026-10-25T01:00:00Z"},
	{"America/New_York", "2026-03-08T07:00:00Z"},
	{"America/New_York", "2026-11-01T06:00:00Z"},
	{"America/Havana", "2025-03-09T05:00:00Z"}, // midnight is skipped
	{"America/Havana", "2025-11-02T05:00:00Z"}, // midnight is repeated
	{"America/Sao_Paulo", "2018-02-18T02:00:00Z"},
	{"America/Sao_Paulo", "2018-11-04T03:00:00Z"},
	{"Australia/Lord_Howe", "2026-04-04T15:00:00Z"}, // half an hour
	{"Australia/Lord_Howe", "2026-10-03T15:30:00Z"},
}

// Quartz itself, from a package of the system, computes the fires of random expressions. A crontab with
// its rules for changed clocks must compute the same, also on such days. The rules of Quartz, the
// constructor, differ from those in the two fields that the test replaces.
func TestQuartz_AgreesWithQuartz(t *testing.T) {
	const fires = 50
	r := rand.New(rand.NewPCG(*quartzSeed, 0))
	var cases []quartzCase
	for range *quartzExpressions {
		c := quartzChanges[r.IntN(len(quartzChanges))]
		after := date("2000-01-01T00:00:00Z").Add(time.Duration(r.IntN(40*365*daySeconds)) * time.Second)
		spec := randomQuartz(r)
		if r.IntN(2) == 0 {
			after = date(c.around).Add(time.Duration(r.IntN(3*daySeconds)-2*daySeconds) * time.Second)
			if r.IntN(2) == 0 {
				spec = strings.Join(strings.Fields(spec)[:3], " ") + " * * ?"
			}
		}
		cases = append(cases, quartzCase{spec, c.zone, afterRepeated(t, c.zone, after)})
	}
	compared, differ := 0, 0
	otherZones := 0 // expressions with a fire for which Java and this host have zone data of different age
	for i, line := range runQuartz(t, cases, fires) {
		c := cases[i]
		where := fmt.Sprintf("seed %d, expression %d: %q in %s after %v", *quartzSeed, i, c.spec, c.zone, c.after)
		require.NotEqual(t, "error", line, where)
		theirs, sameZone := parseFires(t, line, c.zone)
		if !sameZone {
			otherZones++
			continue
		}
		want := before2100(theirs)
		want = slices.DeleteFunc(want, func(fire time.Time) bool { return isBeforeMissingDay(c, fire) })
		ours, err := newQuartz(c.spec + " in " + c.zone)
		if errors.Is(err, errNeverFires) {
			require.Empty(t, want, where)
			continue
		}
		require.NoError(t, err, where)
		asQuartz := *ours
		asQuartz.makesUp, asQuartz.repeated = false, secondTime
		want = slices.DeleteFunc(want, asQuartz.isInCutHour)
		got := before2100(firesOf(&asQuartz, c.after, fires, asQuartz.isInCutHour))
		if len(got) > len(want) && len(strings.Fields(line)) == fires {
			got = got[:len(want)]
		}
		require.Equal(t, texts(want), texts(got), where)
		compared += len(want)
		all := func(time.Time) bool { return false }
		if !slices.Equal(firesOf(&asQuartz, c.after, fires, all), firesOf(ours, c.after, fires, all)) {
			differ++
		}
	}
	assert.Less(t, otherZones, len(cases)/10)
	t.Logf("seed %d: zone data differ for %d expressions", *quartzSeed, otherZones)
	t.Logf("seed %d: %d fires of %d expressions are Quartz's; %d expressions meet a changed clock on which the rules differ",
		*quartzSeed, compared, len(cases), differ)
	assert.NotZero(t, differ)
}

// Quartz accepts each text that is accepted here.
func TestQuartz_RefusesWhatQuartzRefuses(t *testing.T) {
	r := rand.New(rand.NewPCG(*quartzSeed, 1))
	var cases []quartzCase
	for range *quartzExpressions {
		fields := strings.Fields(randomQuartz(r))
		for range 1 + r.IntN(2) {
			i := r.IntN(len(fields))
			fields[i] = mutateQuartzField(r, fields[i])
		}
		cases = append(cases, quartzCase{strings.Join(fields, " "), "UTC", time.Unix(0, 0)})
	}
	both, ours, neither := 0, 0, 0
	for i, line := range runQuartz(t, cases, 0) {
		_, err := newQuartz(cases[i].spec + " in UTC")
		switch {
		case err == nil:
			both++
			require.NotEqual(t, "error", line, "seed %d: %q", *quartzSeed, cases[i].spec)
		case line == "error":
			neither++
		default:
			ours++
		}
	}
	t.Logf("seed %d: of %d texts, %d are valid, %d invalid and %d invalid only here", *quartzSeed, len(cases), both, neither, ours)
	assert.NotZero(t, both)
}

// Each line is a day on which a clock is changed.
func TestQuartz_WhenTheClockIsChanged(t *testing.T) {
	const berlin, lordHowe, havana = "Europe/Berlin", "Australia/Lord_Howe", "America/Havana"
	for _, c := range []struct{ name, spec, zone, from, to, fires string }{
		{
			"a daily fire in the gap is made up just after it, which Quartz does not", "0 30 2 * * ?", berlin,
			"2026-03-28T00:00:00+01:00", "2026-03-31T00:00:00+02:00", "28T02:30+01:00 29T03:00+02:00 30T02:30+02:00",
		},
		{
			"a daily fire in the overlap comes the second time, as in Quartz", "0 30 2 * * ?", berlin,
			"2026-10-24T00:00:00+02:00", "2026-10-27T00:00:00+01:00", "24T02:30+02:00 25T02:30+01:00 26T02:30+01:00",
		},
		{
			"so do listed minutes of listed hours", "0 0,30 1-3 * * ?", berlin,
			"2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00",
			"25T01:00+02:00 25T01:30+02:00 25T02:00+01:00 25T02:30+01:00 25T03:00+01:00 25T03:30+01:00",
		},
		{
			"every half hour goes on through the overlap, where Quartz pauses", "0 0/30 * * * ?", berlin,
			"2026-10-25T01:00:00+02:00", "2026-10-25T03:00:00+01:00",
			"25T01:30+02:00 25T02:00+02:00 25T02:30+02:00 25T02:00+01:00 25T02:30+01:00 25T03:00+01:00",
		},
		{
			"so it does in a window of hours", "0 0/30 2 * * ?", berlin,
			"2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00",
			"25T02:00+02:00 25T02:30+02:00 25T02:00+01:00 25T02:30+01:00",
		},
		{
			"every hour passes over the gap, as in Quartz", "0 7 * * * ?", berlin,
			"2026-03-29T00:30:00+01:00", "2026-03-29T04:30:00+02:00", "29T01:07+01:00 29T03:07+02:00 29T04:07+02:00",
		},
		{
			"every 10 minutes goes on in an hour that a gap cuts, where Quartz pauses", "0 5/10 * * * ?", lordHowe,
			"2026-10-04T01:40:00+10:30", "2026-10-04T03:10:00+11:00",
			"04T01:45+10:30 04T01:55+10:30 04T02:35+11:00 04T02:45+11:00 04T02:55+11:00 04T03:05+11:00",
		},
		{
			"the last midnight of a month comes the second time", "0 0 0 ? * 1#1", havana,
			"2025-11-01T00:00:00-04:00", "2025-11-03T00:00:00-05:00", "02T00:00-05:00",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tt := compile(t, Quartz(c.spec).In(c.zone))
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

func TestQuartz_Refuses(t *testing.T) {
	for spec, rule := range map[string]string{
		"":                           "6 or 7 fields, from seconds to years, and this has 0",
		"0 3 * * ?":                  "this has 5",
		"0 0 3 * * ? 2026 2027":      "this has 8",
		"0 0 3 * * *":                "one of the day of month and the day of week must be a question mark",
		"0 0 3 ? * ?":                "only one of",
		"60 0 3 * * ?":               `second "60": 60 is not from 0 to 59`,
		"0 0 24 * * ?":               `hour "24"`,
		"0 0 3 0 * ?":                "0 is not from 1 to 31",
		"0 0 3 ? * 8":                "8 is not from 1 to 7",
		"0 0 3 * * ? 1969":           "1969 is not from 1970 to 2099",
		"0 0 3 * * ? 2030-2020":      "ends before it begins",
		"0 0/0 3 * * ?":              "the step is not from 1 to 59",
		"0 0 0/24 * * ?":             "the step is not from 1 to 23",
		"0 0 3 ? * MON-FRI/2":        "a step after a name, which Quartz ignores",
		"0 0 3 ? * MON-6":            "two numbers or two names",
		"0 0 3 ? * MONDAY":           "nor a name of three letters",
		"0 0 3 ? JA *":               "nor a name of three letters",
		"0 0 3 ? ANF *":              "nor a name of three letters",
		"0 0 3 1,15W * ?":            "a list cannot contain L or W",
		"0 0 3 L,15 * ?":             "a list cannot contain L or W",
		"0 0 3 L-31 * ?":             "from -0 to -30",
		"0 0 3 L3 * ?":               "after L comes nothing",
		"0 0 3 32W * ?":              "32 is not from 1 to 31",
		"0 0 3 ? * FRI#6":            "from 1 to 5",
		"0 0 3 ? * MON#2,FRI":        "a list cannot contain L or #",
		"0 0 3 ? * 0L":               "0 is not from 1 to 7",
		"0 L 3 * * ?":                `"L" is not a number`,
		"0 +5 3 * * ?":               `"+5" is not a number`,
		"0 5,,6 3 * * ?":             `minute "": "" is not a number`,
		"0 0 3 31 FEB,APR,JUN ?":     "never fires",
		"0 0 3 ? FEB SUN#5 2026":     "never fires",
		"0 0 3 * * ? in Mars/Deimos": "Mars/Deimos",
	} {
		_, err := Quartz(spec).Next(time.Now(), 1)
		assert.ErrorContains(t, err, rule, spec)
		assert.ErrorContains(t, err, "schedule \"quartz", spec)
	}
}

func TestQuartz_YearsAreFoundFromAnyInstant(t *testing.T) {
	for _, s := range []Schedule{Quartz("0 0 0 1 1 ? 2099"), Quartz("0 0 0 1 1 ? 2099").Until(date("2099-01-01T00:00:00.5Z")).In("UTC")} {
		tt, fire := compile(t, s), date("2099-01-01T00:00:00Z")
		for _, after := range []time.Time{{}, date("1700-01-01T00:00:00Z"), fire.Add(-1)} {
			assert.Equal(t, fire, tt.next(after), after)
			assert.Equal(t, 1, tt.count(after, fire))
		}
		assert.Zero(t, tt.next(fire))
		assert.Zero(t, tt.count(fire, date("3000-01-01T00:00:00Z")))
	}
}

func TestQuartz_RareDays(t *testing.T) {
	for spec, want := range map[string]string{
		"0 0 0 ? 2 SUN#5":        "2032-02-29T00:00:00Z 2060-02-29T00:00:00Z 2088-02-29T00:00:00Z 2128-02-29T00:00:00Z",
		"0 0 0 29 2 ? 2024,2096": "2096-02-29T00:00:00Z",
		"0 0 0 L-30 * ? 2099":    "2099-01-01T00:00:00Z 2099-03-01T00:00:00Z 2099-05-01T00:00:00Z 2099-07-01T00:00:00Z",
	} {
		next, err := Quartz(spec).Next(date("2026-01-01T00:00:00Z"), 4)
		require.NoError(t, err)
		assert.Equal(t, strings.Fields(want), texts(next), spec)
	}
}

// runQuartz returns the lines that Quartz prints for cases.
func runQuartz(t *testing.T, cases []quartzCase, fires int) []string {
	t.Helper()
	java, err := provision.Java(t.Context(), t.Output())
	require.NoError(t, err)
	classPath, err := provision.Quartz(t.Context(), t.Output())
	require.NoError(t, err)
	var in, out, failure bytes.Buffer
	for _, c := range cases {
		fmt.Fprintf(&in, "%s\t%s\t%d\t%d\n", c.spec, c.zone, c.after.Unix(), fires)
	}
	cmd := exec.Command(java, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classPath, filepath.Join("testdata", "QuartzFires.java"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &failure
	require.NoError(t, child.Run(t.Context(), cmd), failure.String())
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	require.Len(t, lines, len(cases))
	return lines
}

// isInCutHour reports whether a fire is in the rest of an hour of which a clock skips a part. Quartz has
// no fires there: having set the clock to a minute of the gap, it goes on from the next hour.
func (c *crontab) isInCutHour(fire time.Time) bool {
	s := c.zone.findSpan(fire.Unix())
	gap, since := s.offset-s.before, fire.Unix()+s.offset
	return gap > 0 && gap < 3600 && since/3600 == (s.start+s.offset)/3600
}

// isBeforeMissingDay reports whether a fire is on a last Friday of a month that is followed by the day of
// the expression, such as 31W in April. Quartz has or lacks such a fire depending on the one before.
func isBeforeMissingDay(c quartzCase, fire time.Time) bool {
	zone, _ := time.LoadLocation(c.zone)
	tomorrow := fire.In(zone).AddDate(0, 0, 1)
	return tomorrow.Day() == 1 && tomorrow.Weekday() == time.Saturday &&
		strings.EqualFold(strings.Fields(c.spec)[quartzDate], fmt.Sprintf("%dW", fire.In(zone).Day()+1))
}

// afterRepeated returns an instant, or one after it if its reading is to be repeated: Quartz takes
// each reading for the second one, and so begins an hour late.
func afterRepeated(t *testing.T, zoneName string, after time.Time) time.Time {
	zone, err := zones.get(zoneName, newZone)
	require.NoError(t, err)
	if s := zone.findSpan(after.Unix()); after.Unix()+s.offset >= s.end+s.after {
		return time.Unix(s.end, 0)
	}
	return after
}

// parseFires reads fires, and reports whether their offsets are those of the zone here.
func parseFires(t *testing.T, line, zone string) (fires []time.Time, sameZone bool) {
	location, err := time.LoadLocation(zone)
	require.NoError(t, err)
	sameZone = true
	for text := range strings.FieldsSeq(line) {
		instant, offset, _ := strings.Cut(text, "/")
		seconds, err := strconv.ParseInt(instant, 10, 64)
		require.NoError(t, err)
		fire := time.Unix(seconds, 0).UTC()
		_, here := fire.In(location).Zone()
		sameZone = sameZone && strconv.Itoa(here) == offset
		fires = append(fires, fire)
	}
	return fires, sameZone
}

// firesOf returns the first fires after an instant, without those that skip returns true for.
func firesOf(c *crontab, after time.Time, n int, skip func(time.Time) bool) (all []time.Time) {
	for fire := c.next(after); len(all) < n && !fire.IsZero(); fire = c.next(fire) {
		if !skip(fire) {
			all = append(all, fire)
		}
	}
	return all
}

// before2100 returns the fires before 2100: the last year of Quartz depends on the year of the call.
func before2100(fires []time.Time) []time.Time {
	return slices.DeleteFunc(fires, func(fire time.Time) bool { return fire.Year() > lastYear })
}

func randomQuartz(r *rand.Rand) string {
	fields := []string{
		pick(r, "0", "0", "0", "*/20", "5/25", "59", "10,40", "50-10/15", fmt.Sprint(r.IntN(60))),
		randomQuartzField(r, 0, 59, nil),
		pick(r, "*", "0", "1", "2", "3", "0-3", "22-2", "1/2", "/3", randomQuartzField(r, 0, 23, nil)),
		randomQuartzDate(r),
		pick(r, "*", "*", "*", "2", "FEB", "mar,oct", "JUN-aug", "NOV-FEB", "1/3", "11-3/2", randomQuartzField(r, 1, 12, nil)),
		randomQuartzWeekday(r),
	}
	if r.IntN(2) == 0 {
		fields[3] = "?"
	} else {
		fields[5] = "?"
	}
	switch r.IntN(8) {
	case 0:
		fields = append(fields, "*")
	case 1:
		fields = append(fields, pick(r, "2024-2090/3", "2000/4", "2020,2030,2031", "2001-2099"))
	}
	return strings.Join(fields, " ")
}

func randomQuartzField(r *rand.Rand, low, high int, names []string) string {
	n := func() int { return low + r.IntN(high-low+1) }
	item := func() string {
		step := 1 + r.IntN(high-low)
		switch r.IntN(8) {
		case 0, 1, 2:
			return fmt.Sprint(n())
		case 3:
			return fmt.Sprintf("%d-%d", n(), n())
		case 4:
			return fmt.Sprintf("%d-%d/%d", n(), n(), step)
		case 5:
			return fmt.Sprintf("%d/%d", n(), step)
		case 6:
			return fmt.Sprintf("*/%d", step)
		}
		if names == nil {
			return fmt.Sprintf("0%d", n())
		}
		a, b := pick(r, names...), pick(r, names...)
		return pick(r, a, a+"-"+b)
	}
	if r.IntN(6) == 0 {
		return "*"
	}
	items := make([]string, 1+r.IntN(3)/2)
	for i := range items {
		items[i] = item()
	}
	return strings.Join(items, ",")
}

func randomQuartzDate(r *rand.Rand) string {
	return pick(
		r, "*", "L", "LW", fmt.Sprintf("L-%d", r.IntN(31)), fmt.Sprintf("L-%dW", r.IntN(28)), // beyond 27 Quartz can loop for ever
		fmt.Sprintf("%dW", 1+r.IntN(31)), fmt.Sprintf("%dw", 29+r.IntN(3)), "1W", randomQuartzField(r, 1, 31, nil), "29-31", "25-5",
	)
}

func randomQuartzWeekday(r *rand.Rand) string {
	names := []string{"SUN", "mon", "TUE", "Wed", "THU", "FRI", "sat"}
	name, number := pick(r, names...), 1+r.IntN(7)
	return pick(
		r, "*", "L", "l", fmt.Sprintf("%dL", number), name+"L", fmt.Sprintf("%d#%d", number, 1+r.IntN(5)), fmt.Sprintf("%s#%d", name, 1+r.IntN(5)),
		name+"-"+pick(r, names...), randomQuartzField(r, 1, 7, names),
	)
}

// mutateQuartzField changes a character of a field or replaces the field.
func mutateQuartzField(r *rand.Rand, field string) string {
	const characters = "0123456789*?/,-LW#MONFEB"
	b := []byte(field)
	i := r.IntN(len(b))
	c := characters[r.IntN(len(characters))]
	switch r.IntN(5) {
	case 0:
		b[i] = c
	case 1:
		b = append(b[:i:i], append([]byte{c}, b[i:]...)...)
	case 2:
		b = append(b[:i:i], b[i+1:]...)
	case 3:
		return pick(r, "?", "L", "*", "60", "0", "W", "99", "SUN", "2-", "5-0")
	default:
		b = append(b, pick(r, ",", "/0", "/1", "/70", "-3", "W", "L", "#2", ",L", ",15W")...)
	}
	if len(b) == 0 {
		return "*"
	}
	return string(b)
}
