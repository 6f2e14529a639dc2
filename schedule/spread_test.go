package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/scheduletext"
)

// Instances of different versions must compute the same offsets: these values never change.
func TestSpread_OffsetsArePinned(t *testing.T) {
	for _, c := range []struct {
		job    string
		shard  int
		spread time.Duration
		want   time.Duration
	}{
		{"job", 0, time.Minute, 41_160_017_958},
		{"job", 1, time.Minute, 35_832_889_255},
		{"job", 9999, time.Minute, 17_803_034_204},
		{"settle/结算", 0, time.Millisecond, 909_522},
		{"settle/结算", 7, 24 * time.Hour, 2_356_430_306_752},
		{"", 0, time.Second, 369_897_212},
	} {
		assert.Equal(t, c.want, Cron("0 0 * * *").Spread(c.spread).Offset(c.job, c.shard), "%q %d %v", c.job, c.shard, c.spread)
	}
	assert.Zero(t, Every(time.Minute).Offset("job", 1))
	assert.Zero(t, Every(time.Minute).Spread(25*time.Hour).Offset("job", 1), "invalid")
}

// A shard whose run waits is busy: with a spread that is longer than the time to the next fire, it would miss fires.
func TestSpread_IsAtMostTheShortestTimeBetweenFires(t *testing.T) {
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		s   Schedule
		gap time.Duration
	}{
		{Cron("* * * * *"), time.Minute},
		{Cron("* * * * * *"), time.Second},
		{Cron("0,50 * * * *"), 10 * time.Minute},
		{Cron("0 3 * * *"), 24 * time.Hour},
		{Cron("0 1,23 * * *"), 2 * time.Hour},
		{Cron("0 1,23 * * 1"), 22 * time.Hour},
		{Cron("0 1,23 1,31 * *"), 2 * time.Hour},
		{Cron("0 1,23 29 2 *"), 22 * time.Hour},
		{Cron("0 1,23 28,29 2 *"), 2 * time.Hour},
		{Quartz("0 0 1,23 1 1 ? 2027"), 22 * time.Hour},
		{Quartz("0 0 1,23 31 12 ? 2026"), 22 * time.Hour},
		{Every(90 * time.Second), 90 * time.Second},
		{At(day), 24 * time.Hour},
		{At(day, day.Add(time.Hour)), time.Hour},
	} {
		assert.NoError(t, check(c.s.Spread(c.gap)), "%v", c.s)
		if c.gap < maxSpread {
			assert.ErrorContains(t, check(c.s.Spread(c.gap+1)), "longer than "+scheduletext.Duration(c.gap)+", the shortest time between two fires", "%v", c.s)
		}
	}
}

// Shards of one job, and first shards of many jobs, are spread evenly.
func TestSpread_OffsetsAreEven(t *testing.T) {
	const n, parts = 10_000, 20
	for name, offset := range map[string]func(i int) time.Duration{
		"shards":        func(i int) time.Duration { return spreadOffset("job", i, parts*time.Second) },
		"jobs":          func(i int) time.Duration { return spreadOffset(fmt.Sprint("tenant-", i), 0, parts*time.Second) },
		"milliseconds":  func(i int) time.Duration { return spreadOffset(fmt.Sprint(i), i, time.Millisecond) * parts * 1000 },
		"shards of day": func(i int) time.Duration { return spreadOffset("job", i, 24*time.Hour) / (24 * 3600 / parts) },
	} {
		var counts [parts]int
		for i := range n {
			counts[offset(i)/time.Second]++ // panics beyond the spread
		}
		assert.Greater(t, slices.Min(counts[:]), n/parts*8/10, "%s: %v", name, counts)
		assert.Less(t, slices.Max(counts[:]), n/parts*12/10, "%s: %v", name, counts)
	}
}

func check(s Schedule) error {
	_, err := s.Timetable()
	return err
}
