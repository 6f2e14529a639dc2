package remote

import (
	"context"
	"math/rand/v2"
	"time"
)

// Jittered returns d, give or take a fifth: processes that were started together shall not
// ask together.
func Jittered(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5+1) }

// Sleep waits for d, and reports false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
