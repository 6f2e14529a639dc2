package remote

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
