package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/history"
)

func TestFires_NoteWhyRunsWereSkipped(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	for want, f := range map[string]history.Fire{
		"-":                                {Fire: at},
		"skipped: overlap":                 {Skipped: 2, SkippedBy: history.Skips{Overlap: 2}},
		"skipped: 1 misfire, 3 overlap":    {Skipped: 4, SkippedBy: history.Skips{Overlap: 3, Misfire: 1}},
		"upstream since 07:00:00Z":         {Fire: at, Skipped: 2, SkippedBy: history.Skips{Upstream: 2}, SkippedFrom: at.Add(-3 * time.Hour)},
		"skipped since 07:00:00Z":          {Fire: at, Skipped: 2, SkippedFrom: at.Add(-3 * time.Hour)}, // of an earlier version
		"skipped: 2 expired, 1 unfinished": {Skipped: 3, Unfinished: 1, SkippedBy: history.Skips{Expired: 2}},
	} {
		assert.Equal(t, want, noteOf(&f, Times{Mode: "utc"}))
	}
}

// A program that a signal ended has no exit code; os/exec calls it -1.
func TestHistoryRuns_HaveNoExitCodeOfASignal(t *testing.T) {
	code := func(n int) *int { return &n }
	v := HistoryRunsOf("job", []history.Run{
		{Outcome: history.Failed, Error: "signal: killed", ExitCode: code(-1)},
		{Outcome: history.TimedOut, Error: "run timed out", ExitCode: code(-1)},
		{Outcome: history.Failed, Error: "no such table", ExitCode: code(3)},
	}, nil, time.Time{})
	var errs []string
	for _, row := range v.Screen(Times{})[0].Table.Rows {
		errs = append(errs, row[7])
	}
	assert.Equal(t, []string{"signal: killed", "run timed out", "exit code 3: no such table"}, errs)
}

// An operator ticks off the days of a backfill by the first column.
func TestFires_HaveTheTimeOfTheFireAndTheNumberOfTheTrigger(t *testing.T) {
	day, now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC), time.Date(2026, 3, 9, 9, 0, 0, 0, time.UTC)
	v := FiresOf("job", []history.Fire{
		{Fire: day.AddDate(0, 0, 1), Trigger: 14, Shards: 2, OK: 2, FirstStart: now, LastEnd: now},
		{Fire: day, Trigger: 13, Shards: 2, OK: 1, FirstStart: now, LastEnd: now},
		{Fire: day, Shards: 2, OK: 2, FirstStart: day, LastEnd: day},
	}, now)
	table := v.Screen(Times{Mode: "utc", Now: now})[0].Table
	var rows [][]string
	for _, row := range table.Rows {
		rows = append(rows, row[:5])
	}
	assert.Equal(t, "FIRE", table.Columns[0].Name)
	assert.Equal(t, [][]string{
		{"2026-03-02T02:00:00Z #14", "2026-03-02 02:00Z", "-", "0s", "2/2"},
		{"2026-03-01T02:00:00Z #13", "2026-03-01 02:00Z", "-", "0s", "1/2"},
		{"2026-03-01T02:00:00Z", "2026-03-01 02:00Z", "0s", "0s", "2/2"},
	}, rows)
}
