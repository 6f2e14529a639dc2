package member

import (
	"context"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/internal/skew"
	"github.com/rota-dev/rota/internal/record"
)

// ClockComparison is how long clocks that have been found to agree, and have not been set, may go
// their ways until they are compared again. In that time one that nobody sets loses some
// seconds.
const ClockComparison = 6 * time.Hour

// requestComparison is for the slow tick.
func (l *Leader) requestComparison() {
	l.ToPublish = l.ToPublish || l.M.comparesClocks && (len(l.View.Skewed) > 0 || time.Since(l.Published) > ClockComparison)
}

// observeClock takes in what is new of a member's clock.
func (l *Leader) observeClock(n feed.Update[record.Member]) {
	if !l.M.comparesClocks || n.Deleted || n.Unreadable {
		return
	}
	_, off := l.View.Skewed[n.Name]
	l.Comparison.Observe(n.Name, n.Value, n.Rev.Seq, time.Now(), l.M.Clock(), l.M.maxSkew, n.Name == l.Me, off)
}

// judgeClocks finds out whose clocks are off, unless answers may be on their way.
func (l *Leader) judgeClocks() {
	if !l.M.comparesClocks || l.ToPublish || time.Now().Before(l.JudgeAfter) {
		return
	}
	l.JudgeAfter, l.DoubtedSince = time.Time{}, time.Time{}
	ahead := map[string]record.Duration{}
	for inc, m := range l.View.Members {
		if !l.View.Alive(inc) || m.Clock == 0 {
			continue // it tells nothing of its clock: an instance that does not look, say
		}
		d, shown := l.Ahead[inc]
		if was, off := l.View.Skewed[inc]; off && !shown && inc != l.Me {
			d = was // until it has shown something else
		}
		ahead[inc] = d
	}
	l.View.Skewed = skew.FindSkewed(ahead, l.View.Skewed, l.M.maxSkew)
	l.warnIfTwoDiffer(ahead)
}

func (l *Leader) warnIfTwoDiffer(ahead map[string]record.Duration) {
	differ := time.Duration(0)
	if len(ahead) == 2 && len(l.View.Skewed) == 0 {
		for _, d := range ahead {
			differ = max(differ, time.Duration(d).Abs())
		}
	}
	if far := differ > l.M.maxSkew; far != l.Differ {
		if l.Differ = far; far {
			l.Log.Warn("the clocks of two instances differ, and nobody can tell which is wrong", "by", differ, "limit", l.M.maxSkew)
		}
	}
}

// publishSeat tells who should act when the office falls vacant, whose clocks are off, and if
// clocks are to be compared a reading of this one. That is said again while answers may be on
// their way, as who hears late hears only what was said last.
func (l *Leader) publishSeat(ctx context.Context) error {
	l.setTask("the naming", "successors")
	told, n := time.Now(), skew.Notice{Skewed: l.View.Skewed} // before the clock is read: what lies between hides
	switch {
	case l.ToPublish:
		n.At = record.InstantOf(l.M.Clock())
	case told.Before(l.JudgeAfter):
		n.At = l.Reading
	}
	if err := l.Elector.PublishSeat(ctx, l.Successors(), n, l.ToPublish); err != nil {
		return err
	}
	if l.ToPublish {
		l.Comparison = l.Comparison.Restart(n.At, told, l.Elector.seatCommit(), time.Now())
		l.compareWithStoreClock(ctx, n.At.Time(), l.M.Clock())
	}
	return nil
}

// seatCommit returns the commit that said last who is in office.
func (o *Elector) seatCommit() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.State.SeatRev.Seq
}

// clockNotice returns what a leader has last said of clocks.
func (o *Elector) clockNotice() skew.Notice {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.State.Clocks
}

// isSkewed reports whether a leader has found this clock to be off.
func (o *Elector) isSkewed() bool {
	_, off := o.clockNotice().Skewed[o.In.ID]
	return off
}

// applyClockNotice takes in what a leader has said of clocks by commit seq. o.mu is held.
func (o *Elector) applyClockNotice(seq uint64) {
	n := o.State.Clocks
	d, off := n.Skewed[o.In.ID]
	if off != o.loggedSkewed {
		o.loggedSkewed = off
		o.In.Claimer.setSkewed(off)
		if off {
			o.Log.Warn("this clock is off, claiming nothing", "ahead", time.Duration(d), "limit", o.M.maxSkew)
		} else {
			o.Log.Info("this clock is right again")
		}
	}
	if n.At == 0 || !o.M.comparesClocks || seq < o.In.joinCommit {
		return // a leader compares who joins after it has told a reading
	}
	if off || o.M.Clock().Sub(n.At.Time()).Abs() > o.M.maxSkew/2 {
		o.M.answerReading(o.In, n.At)
	}
}
