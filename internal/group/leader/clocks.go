package leader

import (
	"context"
	"maps"
	"time"

	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/skew"
	"github.com/rota-dev/rota/internal/record"
)

// ClockComparison is the interval at which a leader compares clocks that agreed the last time. In that
// time an unsynchronized clock drifts by some seconds.
const ClockComparison = 6 * time.Hour

// requestComparison decides at the regular check whether to compare clocks again.
func (l *Leader) requestComparison() {
	l.clocks.ToPublish = l.clocks.ToPublish || l.Self.ComparesClocks && (len(l.View.Skewed) > 0 || time.Since(l.clocks.Published) > ClockComparison)
}

// observeClock feeds the clock reading of a member record into the comparison.
func (l *Leader) observeClock(n feed.Update[record.Member]) {
	if !l.Self.ComparesClocks || n.Deleted || n.Unreadable {
		return
	}
	_, skewed := l.View.Skewed[n.Name]
	l.clocks.ObserveMember(n.Name, n.Value, n.Rev.Seq, time.Now(), l.Self.Clock(), l.Self.MaxSkew, n.Name == l.Self.ID, skewed)
}

// judgeClocks determines the skewed clocks, unless answers to the last reading are still expected.
func (l *Leader) judgeClocks() {
	if !l.Self.ComparesClocks || l.clocks.ToPublish || time.Now().Before(l.clocks.JudgeAfter) {
		return
	}
	l.clocks.JudgeAfter, l.clocks.DoubtedSince = time.Time{}, time.Time{}
	ahead := map[string]record.Duration{}
	for inc, m := range l.View.Members {
		if !l.View.Alive(inc) || m.Clock == 0 {
			continue // the instance does not compare clocks
		}
		d, known := l.clocks.Ahead[inc]
		if was, skewed := l.View.Skewed[inc]; skewed && !known && inc != l.Self.ID {
			d = was // the finding of an earlier leader holds until there is a newer reading
		}
		ahead[inc] = d
	}
	l.View.Skewed = skew.FindSkewed(ahead, l.View.Skewed, l.Self.MaxSkew)
	l.warnIfTwoDiffer(ahead)
}

// warnIfTwoDiffer logs when the clocks of a fleet of two begin to differ: neither is the median, so
// none counts as skewed.
func (l *Leader) warnIfTwoDiffer(ahead map[string]record.Duration) {
	differ := time.Duration(0)
	l.differing = nil
	if len(ahead) == 2 && len(l.View.Skewed) == 0 {
		for inc, d := range ahead {
			differ = max(differ, time.Duration(d).Abs())
			if time.Duration(d).Abs() > l.Self.MaxSkew {
				l.differing = map[string]record.Duration{inc: d}
			}
		}
	}
	if far := differ > l.Self.MaxSkew; far != l.clocks.DifferenceLogged {
		if l.clocks.DifferenceLogged = far; far {
			l.Log.Warn("the clocks of the two instances differ; both go on claiming, as either may be wrong", "by", differ, "limit", l.Self.MaxSkew)
		}
	}
}

// publishSeat publishes the successors, the skewed clocks and, for a comparison of clocks, a reading
// of this one. The reading stays in the record while answers are expected, since a member whose
// watch lags sees only the latest version.
func (l *Leader) publishSeat(ctx context.Context) error {
	l.Progress.SetTask("the naming", "successors")
	published, n := time.Now(), l.clockNotice() // before the clock is read: a delay between the two can hide a difference, and never makes one up
	switch {
	case l.clocks.ToPublish:
		n.At = record.InstantOf(l.Self.Clock())
	case published.Before(l.clocks.JudgeAfter):
		n.At = l.clocks.Reading
	}
	if err := l.Elector.PublishSeat(ctx, l.Successors(), n, l.clocks.ToPublish); err != nil {
		return err
	}
	if l.clocks.ToPublish {
		l.clocks = l.clocks.WithReading(n.At, published, l.Elector.SeatCommit(), time.Now())
		l.compareWithStoreClock(ctx, n.At.Time(), l.Self.Clock())
		n.Differing = l.clockNotice().Differing
		return l.Elector.PublishSeat(ctx, l.Successors(), n, false)
	}
	return nil
}

// clockNotice returns the findings about clocks to publish.
func (l *Leader) clockNotice() skew.Notice {
	differing := maps.Clone(l.differing)
	if l.aheadOfStore != 0 && len(l.View.Skewed) == 0 {
		if differing == nil {
			differing = map[string]record.Duration{}
		}
		differing[l.Self.ID] = l.aheadOfStore
	}
	return skew.Notice{Skewed: l.View.Skewed, Differing: differing}
}
