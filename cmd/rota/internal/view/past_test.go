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
