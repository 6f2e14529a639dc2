package backend

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInstant_UsesTheClockThatHasAdvancedMore(t *testing.T) {
	start := Now()
	later := func(at, wall time.Duration) Instant {
		return Instant{at: start.at.Add(at), wall: start.wall.Add(wall)}
	}
	for name, c := range map[string]struct {
		now          Instant
		since, slept time.Duration
	}{
		"clocks that agree":              {later(time.Second, time.Second), time.Second, 0},
		"a machine that slept":           {later(time.Second, time.Hour), time.Hour, time.Hour - time.Second},
		"a wall clock that was set back": {later(time.Second, -time.Hour), time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.since, c.now.Since(start))
			require.Equal(t, c.slept, c.now.slept(start))
		})
	}
}
