package backend

import (
	"context"
	"math/rand/v2"
	"time"
)

// Jittered returns a random duration within a fifth of d, so that processes that were started
// together do not send their requests together.
func Jittered(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5+1) }

// Sleep waits for d. It returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Signal sends to a channel with one slot. If a signal is pending there, the two merge.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

const (
	minPause = 10 * time.Millisecond
	maxPause = 250 * time.Millisecond // short, because sessions are suspended meanwhile and short ones are lost
)

// NextPause returns the pause before the attempt that follows one after pause: twice as long,
// from 10 ms up to 250 ms.
func NextPause(pause time.Duration) time.Duration { return min(max(2*pause, minPause), maxPause) }
