package member

import (
	"context"
	"errors"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/skew"
	"github.com/rota-dev/rota/registry"
)

// A fleet of one or two cannot tell whose clock is wrong. The clock of the store is evidence: a
// leader of such a fleet compares its own with it, whenever it publishes a reading, and reports
// a difference. No instance is barred by it, as the clock of the store may be the wrong one.

// compareWithStoreClock compares this clock, which was read before and after the commit that has just
// written the record of who is in office, with the clock of the store at that commit.
func (l *Leader) compareWithStoreClock(ctx context.Context, before, after time.Time) {
	instances := 0
	for inc := range l.View.Members {
		if l.View.Alive(inc) {
			instances++
		}
	}
	if instances > 2 {
		return
	}
	written, err := registry.WrittenAt(ctx, l.M.Reg, l.M.Keys.Seat())
	switch {
	case errors.Is(err, registry.ErrNoClock):
		if instances == 1 {
			l.M.reportUncheckedClock()
		}
	case err != nil:
		l.Log.Debug("clock not compared with the store's", "error", err)
	default:
		if ahead := skew.AheadOf(written, before, after); ahead.Abs() > l.M.maxSkew {
			l.Log.Warn("this clock differs from the store's, one of them is wrong", "ahead", ahead, "limit", l.M.maxSkew)
		}
	}
}
