package skew

import (
	"time"
)

// AheadOf returns how far a clock is at least ahead of another that said at while the clock went
// from before to after; negative if it is behind.
func AheadOf(at, before, after time.Time) time.Duration {
	switch {
	case before.After(at):
		return before.Sub(at)
	case after.Before(at):
		return after.Sub(at)
	}
	return 0
}
