package registry

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Clock is implemented by a Registry whose store records, by a clock of its own, when each
// value was written. No promise of a Registry depends on this clock: it may be wrong, it may
// be set, and it may differ between members of the store.
type Clock interface {
	// WrittenAt returns when the value at key was written, by the clock of the store. It
	// reads like a plain Get, and has its errors.
	WrittenAt(ctx context.Context, key Key) (time.Time, error)
}

// ErrNoClock means that the store does not record when values were written.
var ErrNoClock = errors.New("the store has no clock")

// WrittenAt returns when the value at key was written, by the clock of the store, or ErrNoClock
// if reg is no Clock.
func WrittenAt(ctx context.Context, reg Registry, key Key) (time.Time, error) {
	if c, ok := reg.(Clock); ok {
		return c.WrittenAt(ctx, key)
	}
	return time.Time{}, ErrNoClock
}

var _ Clock = (*prefixed)(nil)

// WrittenAt is described in Clock. It returns ErrNoClock if the registry below has none.
func (p *prefixed) WrittenAt(ctx context.Context, key Key) (time.Time, error) {
	if err := CheckKey(key); err != nil {
		return time.Time{}, fmt.Errorf("read the time of writing: %w", err)
	}
	return callThrough(ctx, p, func(ctx context.Context) (time.Time, error) { return WrittenAt(ctx, p.reg, p.addPrefix(key)) })
}
