package instant

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	now := time.Date(2026, 11, 23, 6, 30, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                          {},
		"2026-11-22T23:00:00+08:00": time.Date(2026, 11, 22, 15, 0, 0, 0, time.UTC),
		"2026-11-22 23:00":          time.Date(2026, 11, 22, 23, 0, 0, 0, time.UTC),
		"2026-11-22 23:00:07":       time.Date(2026, 11, 22, 23, 0, 7, 0, time.UTC),
		"2026-11-22T23:00":          time.Date(2026, 11, 22, 23, 0, 0, 0, time.UTC),
		"2026-11-22T23:00:07.5":     time.Date(2026, 11, 22, 23, 0, 7, 5e8, time.UTC),
		"2026-11-22":                time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC),
		"06:30":                     now,
		"06:30:01":                  now.Add(time.Second).AddDate(0, 0, -1),
		"23:00":                     time.Date(2026, 11, 22, 23, 0, 0, 0, time.UTC),
	} {
		at, err := Parse(text, now, time.UTC, Past)
		require.NoError(t, err, text)
		assert.True(t, want.Equal(at), "%q is %v", text, at)
	}
	for _, text := range []string{"noon", "25:00", "2026-11-31", "2026-13-01T00:00:00Z"} {
		_, err := Parse(text, now, time.UTC, Past)
		assert.ErrorContains(t, err, text)
	}
}

func TestParse_Future(t *testing.T) {
	now := time.Date(2026, 11, 23, 6, 30, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{"06:30": now.AddDate(0, 0, 1), "06:31": now.Add(time.Minute)} {
		at, err := Parse(text, now, time.UTC, Future)
		require.NoError(t, err, text)
		assert.True(t, want.Equal(at), "%q is %v", text, at)
	}
}
