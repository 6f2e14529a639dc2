// Package backoff spaces the retries of a loop.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	shortest = 5 * time.Millisecond
	longest  = 500 * time.Millisecond
)

// Backoff spaces the retries of one loop: each pause is up to twice as long as the one
// before. The zero Backoff is ready for use.
type Backoff struct {
	last time.Duration
}

// Wait pauses, and returns the cause of ctx if that ends first. The pause is drawn from
// the upper half of its range, so that clients that failed together do not retry together.
func (b *Backoff) Wait(ctx context.Context) error {
	b.last = min(max(2*b.last, shortest), longest)
	timer := time.NewTimer(b.last/2 + rand.N(b.last/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Reset makes the next pause a short one. Call it after a success.
func (b *Backoff) Reset() { b.last = 0 }
