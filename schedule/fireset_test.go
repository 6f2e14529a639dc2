package schedule

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEvery_FiresAtMultiplesSinceTheEpoch(t *testing.T) {
	for _, c := range []struct {
		every       time.Duration
		after, next string
	}{
		{10 * time.Second, "2026-01-01T00:00:03Z", "2026-01-01T00:00:10Z"},
		{10 * time.Second, "2026-01-01T00:00:07Z", "2026-01-01T00:00:10Z"},
		{10 * time.Second, "2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z"},
		{24 * time.Hour, "2026-01-01T12:00:00+14:00", "2026-01-01T00:00:00Z"},
		{7 * 24 * time.Hour, "2026-01-03T00:00:00Z", "2026-01-08T00:00:00Z"}, // a Thursday, as 1970-01-01
		{1500 * time.Microsecond, "2026-01-01T00:00:00.001Z", "2026-01-01T00:00:00.0015Z"},
		{time.Hour, "1969-12-31T23:30:00Z", "1970-01-01T00:00:00Z"},
		{time.Hour, "1969-12-31T22:30:00Z", "1969-12-31T23:00:00Z"},
	} {
		assert.Equal(t, date(c.next), compile(t, Every(c.every)).next(date(c.after)), "%v after %s", c.every, c.after)
	}
}

// Nanoseconds since the epoch fit into 64 bits from 1677 to 2262; outside there is nothing,
// and nothing overflows.
func TestEvery_AtTheEndsOfItsRange(t *testing.T) {
	for _, d := range []time.Duration{time.Millisecond, 7 * time.Second, 1000 * time.Hour, math.MaxInt64} {
		tt := compile(t, Every(d))
		first := tt.next(time.Time{})
		assert.Less(t, first.Sub(time.Unix(0, math.MinInt64)), d, d)
		assert.Equal(t, 1, tt.count(time.Time{}, first), d)
		end := time.Unix(0, math.MaxInt64)
		assert.Zero(t, tt.next(end), d)
		last := tt.next(end.Add(-d))
		assert.False(t, last.IsZero() || last.After(end), "%v: %v", d, last)
		assert.Zero(t, tt.next(last), d)
		assert.Zero(t, tt.next(date("2400-01-01T00:00:00Z")), d)
		assert.Zero(t, tt.count(last, date("2400-01-01T00:00:00Z")), d)
	}
}

func TestEvery_CountAgreesWithWalking(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		tt := compile(t, Every(time.Millisecond+time.Duration(r.Int64N(int64(time.Minute)))))
		after := time.Unix(r.Int64N(4e9)-2e9, r.Int64N(1e9))
		through := after.Add(time.Duration(r.Int64N(int64(time.Minute))))
		require.Equal(t, len(fires(tt, after, through)), tt.count(after, through))
		require.Equal(t, 0, tt.count(through, after))
	}
}

func TestOnTrigger_NeverFires(t *testing.T) {
	tt := compile(t, OnTrigger())
	assert.Zero(t, tt.next(time.Time{}))
	assert.Zero(t, tt.count(time.Time{}, time.Now()))
}

func TestAt(t *testing.T) {
	first, second := date("2026-01-02T03:04:05Z"), date("2026-07-01T00:00:00.5Z")
	tt := compile(t, At(second, first, second.In(time.FixedZone("elsewhere", 3600))))
	assert.Equal(t, []time.Time{first, second}, fires(tt, time.Time{}, second))
	assert.Zero(t, tt.next(second))
	assert.Equal(t, 2, tt.count(time.Time{}, second))
	assert.Equal(t, 1, tt.count(first, second))
	assert.Equal(t, 1, tt.count(time.Time{}, second.Add(-1)))
	assert.Equal(t, 0, tt.count(second, first))
}

func TestBounds_FromIsIncludedAndUntilIsNot(t *testing.T) {
	for _, s := range []Schedule{Every(time.Minute), Cron("* * * * *"), Quartz("0 * * * * ?"), Cron("* * * * *").In("Europe/Berlin")} {
		from, until := date("2026-05-05T12:00:00Z"), date("2026-05-05T12:03:00Z")
		tt := compile(t, s.From(from).Until(until))
		assert.Equal(t, []string{"2026-05-05T12:00:00Z", "2026-05-05T12:01:00Z", "2026-05-05T12:02:00Z"}, texts(fires(tt, time.Time{}, until.AddDate(1, 0, 0))), s)
		assert.Equal(t, 3, tt.count(time.Time{}, until.AddDate(1, 0, 0)), s)
		assert.Equal(t, 1, tt.count(time.Time{}, from), s)
		assert.Equal(t, 0, tt.count(until.Add(-time.Minute), until.AddDate(1, 0, 0)), s)
		assert.Equal(t, from.Add(time.Minute), compile(t, s.From(from.Add(1))).next(time.Time{}), s)
		assert.Equal(t, 4, compile(t, s.Until(until.Add(1))).count(from.Add(-1), until), s)
	}
}

// The fires before an instant and those from it on are all fires, each once.
func TestBounds_DivideASchedule(t *testing.T) {
	const seed = 6
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		s := randomSchedule(r)
		after := date("2026-10-20T00:00:00Z").Add(time.Duration(r.Int64N(int64(10 * 24 * time.Hour))))
		tt := compile(t, s)
		middle, through := after, after
		for i := range 100 {
			if through = tt.next(through); i < 50 {
				middle = through.Add(-time.Duration(r.IntN(2)))
			}
		}
		before, later := compile(t, s.Until(middle)), compile(t, s.From(middle))
		all := fires(tt, after, through)
		require.Equal(t, all, append(fires(before, after, through), fires(later, after, through)...), "%v at %v", s, middle)
		require.Equal(t, len(all), before.count(after, through)+later.count(after, through))
		require.Equal(t, all[0], tt.next(after))
	}
}

func randomSchedule(r *rand.Rand) Schedule {
	zone := pick(r, "UTC", "America/New_York", "Australia/Lord_Howe")
	switch r.IntN(4) {
	case 0:
		return Quartz(strings.Join(strings.Fields(randomQuartz(r))[:3], " ") + " * * ?").In(zone)
	case 1, 2:
		return Every(time.Millisecond + time.Duration(r.Int64N(int64(time.Hour))))
	}
	return Cron(randomSpec(r)).In(zone)
}
