package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/rota-dev/rota/registry"
)

// A fleet of one or two cannot tell whose clock is wrong. The clock of the store is evidence: a
// leader of such a fleet compares its own with it, whenever it publishes a reading, and reports
// a difference. No instance is barred by it, as the clock of the store may be the wrong one.

// compareWithStore compares this clock, which was read before and after the commit that has just
// written the record of who is in office, with the clock of the store at that commit.
func (l *leader) compareWithStore(ctx context.Context, before, after time.Time) {
	instances := 0
	for inc := range l.view.members {
		if l.view.alive(inc) {
			instances++
		}
	}
	if instances > 2 {
		return
	}
	written, err := registry.WrittenAt(ctx, l.m.reg, l.m.keys.Present())
	switch {
	case errors.Is(err, registry.ErrNoClock):
		if instances == 1 {
			l.m.reportUnchecked()
		}
	case err != nil:
		l.log.Debug("clock not compared with the store's", "error", err)
	default:
		if ahead := aheadOf(written, before, after); ahead.Abs() > l.m.skew {
			l.log.Warn("this clock differs from the store's, one of them is wrong", "ahead", ahead, "limit", l.m.skew)
		}
	}
}

// aheadOf returns how far a clock is at least ahead of another that said at while the clock went
// from before to after; negative if it is behind.
func aheadOf(at, before, after time.Time) time.Duration {
	switch {
	case before.After(at):
		return before.Sub(at)
	case after.Before(at):
		return after.Sub(at)
	}
	return 0
}

// reportUnchecked logs once that the clock of this process cannot be checked.
func (m *Member) reportUnchecked() {
	m.unchecked.Do(func() {
		m.log.Info("this clock cannot be checked: there is no other instance, and the store has no clock")
	})
}
