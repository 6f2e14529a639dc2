package executor

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/schedule"
)

func compile(t testing.TB, s schedule.Schedule) *schedule.Timetable {
	t.Helper()
	tt, err := s.Timetable()
	require.NoError(t, err)
	return tt
}

// randomSchedule returns a schedule with fires on each day.
func randomSchedule(r *rand.Rand) schedule.Schedule {
	zone := pick(r, "UTC", "America/New_York", "Australia/Lord_Howe")
	minutes := pick(r, "*", "*/15", "*/7", "0", "59", "0,30", "10-50/10", fmt.Sprint(r.IntN(60)))
	hours := pick(r, "*", "*/2", "0", "2", "1-3", "22,23", fmt.Sprint(r.IntN(24)))
	switch r.IntN(4) {
	case 0:
		return schedule.Quartz(pick(r, "0", "*/20", "59") + " " + minutes + " " + hours + " * * ?").In(zone)
	case 1, 2:
		return schedule.Every(time.Millisecond + time.Duration(r.Int64N(int64(time.Hour))))
	}
	return schedule.Cron(minutes + " " + hours + " * * *").In(zone)
}

func pick(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

func date(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t
}
