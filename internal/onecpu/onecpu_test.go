package onecpu

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestHold_LastsUntilEveryHolderHasReleased(t *testing.T) {
	want := runtime.GOMAXPROCS(0)
	held := want
	if raceEnabled {
		held = 1
	}
	first, second := Hold(), Hold()
	assert.Equal(t, held, runtime.GOMAXPROCS(0))
	first()
	assert.Equal(t, held, runtime.GOMAXPROCS(0))
	second()
	assert.Equal(t, want, runtime.GOMAXPROCS(0))
}

// TestHold_AllowsTimersOfABubbleToFireTogether sometimes ends the process without Hold, under
// the race detector.
func TestHold_AllowsTimersOfABubbleToFireTogether(t *testing.T) {
	defer Hold()()
	synctest.Test(t, func(*testing.T) {
		for range 20 {
			for range 2000 {
				go func() { <-time.After(0) }() // the receiver runs the timer
			}
			time.Sleep(time.Second)
		}
	})
}
