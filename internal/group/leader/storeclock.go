package leader

import (
	"context"
	"errors"
	"time"

	"github.com/rota-dev/rota/internal/group/skew"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// A fleet of one or two has no median that shows whose clock is wrong. The leader of such a fleet
// compares its clock with the store's each time it publishes a reading, and reports a difference.
// The difference stops no claims, since the store's clock may be the wrong one.

// compareWithStoreClock compares this clock with the store's. before and after are readings of this
// clock around the commit that has just written the seat record.
func (l *Leader) compareWithStoreClock(ctx context.Context, before, after time.Time) {
	instances := 0
	for inc := range l.View.Members {
		if l.View.Alive(inc) {
			instances++
		}
	}
	if instances > 2 {
		l.aheadOfStore = 0
		return
	}
	written, err := registry.WrittenAt(ctx, l.Self.Reg, l.Self.Keys.Seat())
	switch {
	case errors.Is(err, registry.ErrNoClock):
		if instances == 1 {
			l.Self.ReportUncheckedClock()
		}
	case err != nil:
		l.Log.Debug("clock not compared with the store's", "error", err)
	default:
		l.aheadOfStore = 0
		if ahead := skew.AheadOf(written, before, after); ahead.Abs() > l.Self.MaxSkew {
			l.aheadOfStore = record.Duration(ahead)
			l.Log.Warn("this clock differs from the store's; claiming goes on, as either may be wrong", "ahead", ahead, "limit", l.Self.MaxSkew)
		}
	}
}
