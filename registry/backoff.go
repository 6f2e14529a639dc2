package registry

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	backoffMin = 5 * time.Millisecond
	backoffMax = 500 * time.Millisecond
)

// backoff spaces the retries of one loop: each pause is up to twice as long as the one
// before. The zero backoff is ready for use.
type backoff struct {
	last time.Duration
}

// wait pauses, and returns the cause of ctx if that ends first. The pause is drawn from
// the upper half of its range, so that clients that failed together do not retry together.
func (b *backoff) wait(ctx context.Context) error {
	b.last = min(max(2*b.last, backoffMin), backoffMax)
	timer := time.NewTimer(b.last/2 + rand.N(b.last/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reset makes the next pause a short one. Call it after a success.
func (b *backoff) reset() { b.last = 0 }
