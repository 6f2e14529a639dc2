package elector

import (
	"time"

	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/group/skew"
)

// SeatCommit returns the commit that last wrote the seat record.
func (e *Elector) SeatCommit() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.State.SeatRev.Seq
}

// ClockNotice returns the latest published findings about clocks.
func (e *Elector) ClockNotice() skew.Notice {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.State.Clocks
}

// isSkewed reports whether a leader has found this clock skewed.
func (e *Elector) isSkewed() bool {
	_, skewed := e.ClockNotice().Skewed[e.Self.ID]
	return skewed
}

// applyClockNotice applies the findings about clocks that a leader published by commit seq.
func (e *Elector) applyClockNotice(n skew.Notice, seq uint64) {
	d, skewed := n.Skewed[e.Self.ID]
	if skewed != e.loggedSkewed {
		e.loggedSkewed = skewed
		e.Self.SetSkewed(skewed)
		event.Report(e.Self.Events.Clock, event.Clock{Skewed: skewed, Ahead: time.Duration(d)})
		if skewed {
			e.Log.Warn("this clock is skewed; claiming nothing until it is set", "ahead", time.Duration(d), "limit", e.Self.MaxSkew)
		} else {
			e.Log.Info("this clock is no longer skewed; claiming again")
		}
	}
	if n.At == 0 || !e.Self.ComparesClocks || seq < e.Self.JoinCommit {
		return // the leader compares the clock that the member record had at the join
	}
	if skewed || e.Self.Clock().Sub(n.At.Time()).Abs() > e.Self.MaxSkew/2 {
		e.Self.AnswerReading(n.At)
	}
}
