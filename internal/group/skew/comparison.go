package skew

import (
	"maps"
	"time"

	"github.com/rota-dev/rota/internal/record"
)

// Notice is the part of the seat record that is about clocks.
type Notice struct {
	At     record.Instant             // a reading of the leader's clock to be answered; zero: none
	Skewed map[string]record.Duration // the skewed clocks by incarnation, and how far each is ahead
	// Differing is record.Seat.Differing.
	Differing map[string]record.Duration
}

// NamesSame reports whether two notices name the same incarnations. The differences vary a little each
// time, and are not worth a commit.
func (n Notice) NamesSame(other Notice) bool {
	anyValues := func(record.Duration, record.Duration) bool { return true }
	return maps.EqualFunc(n.Skewed, other.Skewed, anyValues) && maps.EqualFunc(n.Differing, other.Differing, anyValues)
}

// answerTime is how long members have to answer a reading. Without it, the first member to answer a
// leader with a wrong clock would be judged skewed, as the only one that differs.
const answerTime = time.Second

// Comparison compares members' clocks with one reading of the leader's.
type Comparison struct {
	Reading          record.Instant
	Published        time.Time                  // when the reading was made, in monotonic time
	PublishedBy      uint64                     // the commit that published it, or the term's if none has
	Ahead            map[string]record.Duration // by incarnation: how far at least its clock is ahead of the reading
	ToPublish        bool                       // another reading should be published
	JudgeAfter       time.Time                  // until then members may still answer
	DoubtedSince     time.Time                  // when a clock too far ahead was first observed; zero: none was
	DifferenceLogged bool                       // the leader has logged that the only two clocks differ
}

// NewComparison returns a comparison for a term that begins. Its reading has not been published.
func NewComparison(now, clock time.Time, term uint64) Comparison {
	return Comparison{Reading: record.InstantOf(clock), Published: now, PublishedBy: term, Ahead: map[string]record.Duration{}, ToPublish: true}
}

// WithReading returns the comparison for a reading that was published by commit. If the reading is the
// same as before, for a clock that has not advanced, it keeps the answers, because a member answers a
// reading only once.
func (c *Comparison) WithReading(reading record.Instant, published time.Time, commit uint64, now time.Time) Comparison {
	n := Comparison{
		Reading: reading, Published: published, PublishedBy: commit, Ahead: map[string]record.Duration{},
		JudgeAfter: now.Add(answerTime), DoubtedSince: c.DoubtedSince, DifferenceLogged: c.DifferenceLogged,
	}
	if reading == c.Reading {
		n.Ahead = c.Ahead
	}
	return n
}

// ObserveMember updates the comparison from the record m of incarnation inc, written by commit. clock
// is the leader's clock at now. own: the record is the leader's, which shows only whether its own clock
// was set. skewed: the incarnation's clock is known to be skewed.
func (c *Comparison) ObserveMember(inc string, m record.Member, commit uint64, now, clock time.Time, limit time.Duration, own, skewed bool) {
	if m.Clock == 0 {
		return
	}
	// unset is the reading plus the monotonic time since: the leader's clock shows less only if it was
	// set. It shows more after a suspended machine has resumed, as monotonic time stood still.
	unset := c.Reading.Time().Add(now.Sub(c.Published))
	late := unset.Sub(m.Clock.Time())
	if own {
		c.ToPublish = c.ToPublish || commit > c.PublishedBy && late.Abs() > limit/2
		return
	}
	if clock.After(unset) {
		late = clock.Sub(m.Clock.Time())
	}
	if m.Answers == 0 {
		delete(c.Ahead, inc) // the clock was set, or agrees
		c.ToPublish = c.ToPublish || commit > c.PublishedBy && (skewed || late > limit/2)
	}
	answers := m.Answers == c.Reading
	ahead, known := c.Ahead[inc]
	switch behind := record.Duration(c.Reading - m.Clock); {
	case late < 0:
		if c.Ahead[inc] = max(ahead, record.Duration(-late)); !skewed && -late > limit && c.DoubtedSince.IsZero() {
			c.DoubtedSince = now
		}
	case answers && behind > 0:
		c.Ahead[inc] = min(ahead, -behind) // a record written later shows a smaller difference
	case answers && !known:
		c.Ahead[inc] = 0
	}
}

// HoldsAssignments reports whether the leader should not assign shards yet, since a clock that is ahead
// is still to be judged: its member would claim fires before their time. The hold ends after twice
// answerTime, because other members wait as well.
func (c *Comparison) HoldsAssignments(now time.Time) bool {
	return !c.DoubtedSince.IsZero() && now.Sub(c.DoubtedSince) < 2*answerTime
}
