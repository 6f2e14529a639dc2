package schedule

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of these tests, where the system has none

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSchedule_Text(t *testing.T) {
	for _, c := range []struct {
		s    Schedule
		text string
	}{
		{Schedule{}, "on trigger"},
		{OnTrigger(), "on trigger"},
		{Every(10 * time.Second), "every 10s"},
		{Every(time.Millisecond), "every 1ms"},
		{Every(time.Hour), "every 1h"},
		{Every(90 * time.Minute), "every 1h30m"},
		{Every(time.Minute), "every 1m"},
		{Every(time.Hour + time.Second), "every 1h0m1s"},
		{Cron("0 3 * * *"), "cron 0 3 * * *"},
		{Cron("  0  3 *\t* * "), "cron 0 3 * * *"},
		{Cron("30 0 3 * * mon-fri"), "cron 30 0 3 * * mon-fri"},
		{Cron("@daily").In("UTC"), "cron @daily in UTC"},
		{Cron("0 3 * * *").In("Asia/Shanghai"), "cron 0 3 * * * in Asia/Shanghai"},
		{Cron("CRON_TZ=Asia/Shanghai 0 3 * * *"), "cron 0 3 * * * in Asia/Shanghai"},
		{Cron("TZ=Asia/Shanghai  0 3 * * *"), "cron 0 3 * * * in Asia/Shanghai"},
		{Quartz(" 0 0  3 L * ? 2026 "), "quartz 0 0 3 L * ? 2026"},
		{Quartz("0 0 3 ? * fri#2").In("Asia/Shanghai"), "quartz 0 0 3 ? * fri#2 in Asia/Shanghai"},
		{At(date("2026-07-02T03:04:05Z"), date("2026-01-02T04:04:05.5+01:00"), date("2026-07-02T04:04:05+01:00")), "at 2026-01-02T03:04:05.5Z, 2026-07-02T03:04:05Z"},
		{Every(time.Minute).Spread(90 * time.Second / 3), "every 1m spread 30s"},
		{Every(time.Minute).From(date("2026-01-01T01:00:00+01:00")), "every 1m from 2026-01-01T00:00:00Z"},
		{At(date("2026-01-02T00:00:00Z")).Until(date("2027-01-01T00:00:00Z")), "at 2026-01-02T00:00:00Z until 2027-01-01T00:00:00Z"},
		{
			Cron("0 9 * * 1-5").Spread(time.Hour).Until(date("2027-01-01T00:00:00Z")).From(date("2026-01-01T00:00:00Z")).In("Europe/Berlin"),
			"cron 0 9 * * 1-5 in Europe/Berlin from 2026-01-01T00:00:00Z until 2027-01-01T00:00:00Z spread 1h",
		},
	} {
		t.Run(c.text, func(t *testing.T) {
			assert.Equal(t, c.text, c.s.String())
			parsed, err := Parse(c.text)
			require.NoError(t, err)
			assert.True(t, c.s == parsed, "parsing its text gives the same value, got %#v", parsed)

			stored, err := json.Marshal(c.s)
			require.NoError(t, err)
			assert.Equal(t, `"`+c.text+`"`, string(stored))
			var loaded Schedule
			require.NoError(t, json.Unmarshal(stored, &loaded))
			assert.True(t, c.s == loaded)
		})
	}
}

func TestParse_TakesOtherSpellings(t *testing.T) {
	for text, same := range map[string]Schedule{
		"every 60s":                         Every(time.Minute),
		"every 1.5h":                        Every(90 * time.Minute),
		"  every   10s ":                    Every(10 * time.Second),
		" on  trigger":                      OnTrigger(),
		"cron CRON_TZ=Asia/Tokyo 0 3 * * *": Cron("0 3 * * *").In("Asia/Tokyo"),
		"every 1m  spread  60s":             Every(time.Minute).Spread(time.Minute),
		"every 1m spread 1s until 2027-01-01T01:00:00+01:00 from 2026-01-01T00:00:00.000Z": Every(time.Minute).
			From(date("2026-01-01T00:00:00Z")).Until(date("2027-01-01T00:00:00Z")).Spread(time.Second),
		"at 2026-01-03T00:00:00Z,2026-01-02T00:00:00Z ,2026-01-03T00:00:00Z": At(date("2026-01-02T00:00:00Z"), date("2026-01-03T00:00:00Z")),
	} {
		parsed, err := Parse(text)
		require.NoError(t, err)
		assert.True(t, parsed == same, "%q is %v", text, parsed)
	}
}

// Whatever is wrong is said by all who use the schedule, with its text and the rule.
func TestSchedule_Refuses(t *testing.T) {
	day := date("2026-01-02T00:00:00Z")
	for name, c := range map[string]struct {
		s    Schedule
		rule string
	}{
		"no fields":               {Cron(""), "empty"},
		"only a zone":             {Cron("CRON_TZ=Asia/Tokyo"), "empty"},
		"too few fields":          {Cron("0 3 * *"), "expected 5 to 6 fields"},
		"too few fields, and 7":   {Cron("0 3 * 7"), "expected 5 to 6 fields"},
		"too many fields":         {Cron("0 0 3 * * * 2026"), "expected 5 to 6 fields"},
		"a field out of range":    {Cron("60 3 * * *"), `minute "60" is not a number from 0 to 59`},
		"weekday 7":               {Cron("0 3 * * 7"), "weekday 7 is Sunday in crontab(5) and Saturday in Quartz"},
		"weekday 7 in a range":    {Cron("0 0 3 * * 1-7"), "weekday 7 is Sunday"},
		"weekday 7 in a list":     {Cron("0 3 * * 1,7"), "weekday 7 is Sunday"},
		"weekday 8":               {Cron("0 3 * * 8"), `day of week "8" is not a number from 0 to 6, or a name such as sun`},
		"weekday 7 as a step":     {Cron("0 3 * * 8/7"), `day of week "8/7": "8" is not a number from 0 to 6`},
		"the last day":            {Cron("0 3 L * *"), `"L": Cron does not support L, the last day of a month or week`},
		"a day before the last":   {Cron("0 3 L-3 * *"), `"L-3": Cron does not support L`},
		"the last Friday":         {Cron("0 3 ? * friL"), `"friL": Cron does not support L`},
		"the last of a weekday":   {Cron("0 3 ? * 6L"), `"6L": Cron does not support L`},
		"the nearest weekday":     {Cron("0 3 15W * ?"), `"15W": Cron does not support W, the working day nearest to a date`},
		"the last working day":    {Cron("0 3 1,LW * ?"), `"LW": Cron does not support W`},
		"the second Monday":       {Cron("0 3 ? * MON#2"), `"MON#2": Cron does not support #, the nth weekday of a month`},
		"a question in a list":    {Cron("0 3 1,5? * *"), `"5?": Cron supports ? only in place of a star`},
		"a word for a number":     {Cron("0 three * * *"), `hour "three" is not a number from 0 to 23`},
		"a sign before a number":  {Cron("+ 3 * * *"), `minute "+" is not a number from 0 to 59`},
		"a word for a minute":     {Cron("x * * * *"), `minute "x" is not a number from 0 to 59`},
		"a second":                {Cron("61 * * * * *"), `second "61" is not a number from 0 to 59`},
		"a day below the least":   {Cron("* * 0 * *"), `day of month "0" is not a number from 1 to 31`},
		"a range above the most":  {Cron("5-70 * * * *"), `minute "5-70": "70" is not a number from 0 to 59`},
		"a range without an end":  {Cron("1- * * * *"), `minute "1-": "" is not a number from 0 to 59`},
		"a range of words":        {Cron("* * * jan-foo *"), `month "jan-foo": "foo" is not a number from 1 to 12, or a name such as jan`},
		"a range that falls":      {Cron("* 1,10-5 * * *"), `hour "10-5": the range ends before it begins`},
		"a month in a list":       {Cron("* * * ,1,13 *"), `month "13" is not a number from 1 to 12`},
		"a name in another field": {Cron("feb * * * *"), `minute "feb" is not a number from 0 to 59`},
		"a large number":          {Cron("99999999999999999999 * * * *"), `minute "99999999999999999999" is not a number from 0 to 59`},
		"a step of zero":          {Cron("*/0 * * * *"), `minute "*/0": "0" is not a step, a number from 1`},
		"a step of words":         {Cron("*/x * * * *"), `minute "*/x": "x" is not a step, a number from 1`},
		"a step from nowhere":     {Cron("61/5 * * * *"), `minute "61/5": "61" is not a number from 0 to 59`},
		"an unknown descriptor":   {Cron("@reboot"), "@reboot"},
		"every as a descriptor":   {Cron("@every 10s"), `"every 10s"`},
		"a date that never comes": {Cron("0 0 30 feb *"), "never fires"},
		"an empty list":           {Cron(", 3 * * *"), "never fires"},
		"an unknown zone":         {Cron("0 3 * * *").In("Mars/Olympus"), "Mars/Olympus"},
		"an unknown prefix zone":  {Cron("TZ=Mars/Olympus 0 3 * * *"), "Mars/Olympus"},
		"an empty zone":           {Cron("0 3 * * *").In(""), "no name"},
		"an empty prefix zone":    {Cron("TZ= 0 3 * * *"), "no name"},
		"the zone of the machine": {Cron("0 3 * * *").In("Local"), "differs between instances"},
		"a path as a zone":        {Cron("0 3 * * *").In("../../etc/passwd"), "time zone"},
		"words after the zone":    {Cron("0 3 * * *").In("Asia/Tokyo or so"), "Asia/Tokyo or so"},
		"In twice":                {Cron("0 3 * * *").In("Asia/Tokyo").In("UTC"), "named twice"},
		"a prefix and In":         {Cron("CRON_TZ=Asia/Tokyo 0 3 * * *").In("UTC"), "named twice"},
		"two prefixes":            {Cron("CRON_TZ=Asia/Tokyo TZ=UTC 0 3 * * *"), "named twice"},
		"a spec beyond bounds":    {Cron(strings.Repeat("1,", 600) + "1 * * * *"), "longer than 1000 bytes"},
		"no interval":             {Every(0), "below 1ms"},
		"a negative interval":     {Every(-time.Second), "below 1ms"},
		"too short an interval":   {Every(time.Millisecond - 1), "below 1ms"},
		"an interval in a zone":   {Every(time.Second).In("UTC"), "only a cron schedule"},
		"a trigger in a zone":     {OnTrigger().In("UTC"), "only a cron schedule"},
		"instants in a zone":      {At(day).In("UTC"), "only a cron schedule"},
		"no instants":             {At(), "no instants"},
		"the zero time":           {At(day, time.Time{}), "zero time"},
		"a year of five digits":   {At(day.AddDate(8000, 0, 0)), "not an instant"},
		"too many instants": {At(slices.Collect(func(yield func(time.Time) bool) {
			for i := 0; i < 50 && yield(day.AddDate(0, 0, i)); i++ {
			}
		})...), "longer than 1000 bytes"},
		"a trigger with a start":  {OnTrigger().From(day), `on trigger has no fires to which "from" could apply`},
		"a trigger with a spread": {OnTrigger().Spread(time.Second), `"spread"`},
		"the zero time as start":  {Every(time.Second).From(time.Time{}), "zero time"},
		"the zero time as end":    {Every(time.Second).Until(time.Time{}), "zero time"},
		"From twice":              {Every(time.Second).From(day).Until(day.Add(time.Hour)).From(day), "From is given twice"},
		"Until twice":             {Every(time.Second).Until(day).From(day).Until(day), "Until is given twice"},
		"Spread twice":            {Every(time.Minute).Spread(time.Second).Spread(time.Second), "Spread is given twice"},
		"an end at the start":     {Every(time.Second).From(day).Until(day), "within its bounds"},
		"no fire between bounds":  {Cron("0 3 * * *").From(day.Add(4 * time.Hour)).Until(day.Add(5 * time.Hour)), "within its bounds"},
		"no instant in bounds":    {At(day).From(day.Add(1)), "within its bounds"},
		"no spread":               {Every(time.Minute).Spread(0), "from 1ms to 24h"},
		"too short a spread":      {Cron("0 3 * * *").Spread(time.Millisecond - 1), "from 1ms to 24h"},
		"too long a spread":       {Cron("0 3 * * *").Spread(24*time.Hour + 1), "from 1ms to 24h"},
		"more than the interval":  {Every(time.Minute).Spread(time.Minute + 1), "longer than 1m, the shortest time between two fires"},
		"more than cron's gap":    {Cron("* * * * *").Spread(30 * time.Minute), "longer than 1m, the shortest time between two fires"},
		"more than quartz's gap":  {Quartz("0 0/5 * * * ?").Spread(6 * time.Minute), "longer than 5m"},
		"more than a gap of At":   {At(day, day.Add(time.Hour), day.Add(time.Hour+time.Minute)).Spread(2 * time.Minute), "longer than 1m"},
		"more than a night's gap": {Cron("30 0,23 * * *").Spread(2 * time.Hour), "longer than 1h, the"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.s.Timetable()
			require.ErrorContains(t, err, c.rule)
			assert.ErrorContains(t, err, strings.TrimSpace(c.s.String())[:2], "names the text")
			_, err = c.s.Next(time.Now(), 1)
			assert.ErrorContains(t, err, c.rule)
			_, err = Parse(c.s.String())
			assert.Error(t, err)
		})
	}
}

func TestParse_RefusesOtherTexts(t *testing.T) {
	for _, text := range []string{
		"", "  ", "every", "every 10", "every 10s or so", "cron", "on", "on triggers", "on trigger now",
		"from", "in UTC", "at", "at noon", "at 2026-01-02", "every 1s from noon", "every 1s spread", "every 1s spread soon", "every 1s until",
	} {
		_, err := Parse(text)
		assert.Error(t, err, text)
		assert.ErrorContains(t, err, "schedule ", text)
	}
	var s Schedule
	assert.Error(t, s.UnmarshalText([]byte("every 0s")))
}

func TestParse_AKindOfALaterVersion(t *testing.T) {
	_, err := Parse("before 10s")
	require.ErrorIs(t, err, ErrUnknownKind)
	assert.ErrorContains(t, err, `"before 10s"`)

	_, err = Parse("every never")
	assert.NotErrorIs(t, err, ErrUnknownKind, "an invalid schedule of a known kind")
}

func TestSchedule_Next(t *testing.T) {
	after := date("2026-02-27T12:00:00Z")

	t.Run("in order, after the instant, in the zone of the schedule", func(t *testing.T) {
		fires, err := Cron("0 3 * * *").In("Asia/Shanghai").Next(after, 2)
		require.NoError(t, err)
		assert.Equal(t, []string{"2026-02-28T03:00:00+08:00", "2026-03-01T03:00:00+08:00"}, texts(fires))
	})
	t.Run("in UTC where no zone is named", func(t *testing.T) {
		for _, s := range []Schedule{Cron("0 3 * * *"), Every(24 * time.Hour), Every(time.Second)} {
			fires, err := s.Next(after.In(time.FixedZone("elsewhere", 3600)), 1)
			require.NoError(t, err)
			assert.Equal(t, time.UTC, fires[0].Location(), s)
		}
	})
	t.Run("a fire does not follow itself", func(t *testing.T) {
		for _, s := range []Schedule{Cron("0 3 * * *"), Every(time.Millisecond)} {
			two, err := s.Next(after, 2)
			require.NoError(t, err)
			one, err := s.Next(two[0], 1)
			require.NoError(t, err)
			assert.Equal(t, two[1:], one, s)
			one, err = s.Next(two[0].Add(-1), 1)
			require.NoError(t, err)
			assert.Equal(t, two[:1], one, s)
		}
	})
	t.Run("none if there are none, or none are wanted", func(t *testing.T) {
		fires, err := OnTrigger().Next(after, 5)
		require.NoError(t, err)
		assert.Empty(t, fires)
		fires, err = Every(time.Second).Next(after, -1)
		require.NoError(t, err)
		assert.Empty(t, fires)
	})
	t.Run("not the machine's zone", func(t *testing.T) {
		local := time.Local
		defer func() { time.Local = local }()
		time.Local = time.FixedZone("here", 5*3600)
		fires, err := Cron("0 3 * * *").Next(after.Local(), 1)
		require.NoError(t, err)
		assert.Equal(t, []string{"2026-02-28T03:00:00Z"}, texts(fires))
	})
}

// No text makes the parser panic, and what it accepts it writes in a form that it reads
// as the same.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"cron 0 3 * * * in Asia/Shanghai", "every 10s", "on trigger", "cron TZ=", "cron TZ=UTC",
		"cron @every 1s", "cron */7 1-5/2 ? jan-dec sun,mon", "every 1h0m1s in UTC", "cron 0 0 31 2 1",
		"quartz 0 0 3 L-3W * ? 2026-2040/2 in Europe/Berlin", "quartz 0/5 22-2 * ? JAN-MAR FRI#2", "quartz 0 0 0 ? * 6L",
		"at 2026-01-02T03:04:05Z, 2026-02-02T00:00:00.5+01:00", "every 1m spread 30s from 2026-01-01T00:00:00Z until 2027-01-01T00:00:00Z",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(s.String())
		require.NoError(t, err)
		require.Equal(t, s, again)
		fires, err := s.Next(date("2026-03-08T00:00:00Z"), 3)
		require.NoError(t, err)
		endless := len(strings.Fields(text)) < 7 && !strings.HasPrefix(s.String(), "at ") && !strings.Contains(s.String(), " until ")
		require.True(t, len(fires) == 3 || s == OnTrigger() || !endless, "%v of %v", fires, s)
	})
}

func date(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t.UTC()
}

func texts(times []time.Time) []string {
	all := make([]string, len(times))
	for i, t := range times {
		all[i] = t.Format(time.RFC3339Nano)
	}
	return all
}
