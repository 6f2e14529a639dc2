package skew

import (
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
)

// There is no clock that all members can read. But nothing is heard before it was said: who
// hears of a reading that its own clock has not come to is behind the one that was read, at
// least by the difference. So the leader tells a reading of its clock in the record that all
// members watch, and a member whose own differs answers with one of its clock, in the record
// that the leader watches. Of two clocks that differ, one side can always show it. A message
// that is late hides a difference, and never makes one up.

// Notice is what a leader says of clocks.
type Notice struct {
	At     record.Instant             // the reading that it tells; zero: none
	Skewed map[string]record.Duration // whose are off, by incarnation, and how far ahead
}

// NamesSame reports whether a notice names the same as off does. By how much they are off
// differs a little each time, and is not worth a commit.
func (n Notice) NamesSame(off map[string]record.Duration) bool {
	return maps.EqualFunc(n.Skewed, off, func(record.Duration, record.Duration) bool { return true })
}

// Comparison is a leader's comparison of clocks with a reading of its own: that it told last,
// or took when the term began.
type Comparison struct {
	Reading          record.Instant
	Published        time.Time                  // when that was, by time that nobody sets
	PublishedBy      uint64                     // the commit that told it
	Ahead            map[string]record.Duration // of those who have shown something since: how far at least they are ahead of it
	ToPublish        bool                       // a reading is to be told
	JudgeAfter       time.Time                  // when all have had the time to answer; zero: they have
	DoubtedSince     time.Time                  // since when one that is not judged yet is known to be too far ahead; zero: none is
	DifferenceLogged bool                       // of two clocks, which is said once
}

// NewComparison begins a comparison that nobody has been told of.
func NewComparison(now, clock time.Time, term uint64) Comparison {
	return Comparison{Reading: record.InstantOf(clock), Published: now, PublishedBy: term, Ahead: map[string]record.Duration{}, ToPublish: true}
}

// WithReading returns the comparison with a reading that commit since has published at an instant. It
// keeps the answers if the reading is the same, from a clock that has not advanced: a member
// answers a reading once.
func (c *Comparison) WithReading(reading record.Instant, published time.Time, since uint64, now time.Time) Comparison {
	n := Comparison{
		Reading: reading, Published: published, PublishedBy: since, Ahead: map[string]record.Duration{},
		JudgeAfter: now.Add(AnswerTime), DoubtedSince: c.DoubtedSince, DifferenceLogged: c.DifferenceLogged,
	}
	if reading == c.Reading {
		n.Ahead = c.Ahead
	}
	return n
}

// ObserveMember takes in what the record of member inc, written by commit seq, says of its clock, at a
// time when the leader's says clock. mine: it is the leader's own, which may only have been
// set; off: the member's is known to be off.
func (c *Comparison) ObserveMember(inc string, m record.Member, seq uint64, now, clock time.Time, limit time.Duration, mine, off bool) {
	if m.Clock == 0 {
		return
	}
	// What the clock would say by now if nobody had set it; after a machine has slept it says more.
	unset := c.Reading.Time().Add(now.Sub(c.Published))
	late := unset.Sub(m.Clock.Time())
	if mine {
		c.ToPublish = c.ToPublish || seq > c.PublishedBy && late.Abs() > limit/2
		return
	}
	if clock.After(unset) {
		late = clock.Sub(m.Clock.Time())
	}
	if m.Answers == 0 {
		delete(c.Ahead, inc) // it has been set, or has nothing to say
		c.ToPublish = c.ToPublish || seq > c.PublishedBy && (off || late > limit/2)
	}
	answer := m.Answers == c.Reading
	ahead, shown := c.Ahead[inc]
	switch behind := record.Duration(c.Reading - m.Clock); {
	case late < 0:
		if c.Ahead[inc] = max(ahead, record.Duration(-late)); !off && -late > limit && c.DoubtedSince.IsZero() {
			c.DoubtedSince = now
		}
	case answer && behind > 0:
		c.Ahead[inc] = min(ahead, -behind) // it goes on: what a later record shows is less
	case answer && !shown:
		c.Ahead[inc] = 0
	}
}

// AnswerTime is how long members are given to answer a reading: the first to answer a leader
// whose clock is wrong must not be taken for the only one that differs.
const AnswerTime = time.Second

// HoldsAssignments reports that shards should not be dealt before clocks are judged: who was dealt
// some with a clock that is ahead would claim fires before their time. That lasts for so long
// only, as others wait as well.
func (c *Comparison) HoldsAssignments(now time.Time) bool {
	return !c.DoubtedSince.IsZero() && now.Sub(c.DoubtedSince) < 2*AnswerTime
}

// FindSkewed returns whose clocks are further than limit from the median of all, and how far
// ahead of it they are. The median is a clock of the fleet, so there is always one that is
// right; of two in the middle it is the one behind, as late does less harm than early. Of
// two clocks nobody can tell which is wrong, unless one of them has been found to be off.
func FindSkewed(ahead, before map[string]record.Duration, limit time.Duration) map[string]record.Duration {
	known := map[string]record.Duration{}
	for inc, d := range ahead {
		if _, off := before[inc]; !off {
			known[inc] = d
		}
	}
	if len(ahead) > 2 {
		known = ahead
	} else if len(ahead) == len(known) || len(known) == 0 {
		return nil
	}
	sorted := slices.Sorted(maps.Values(known))
	median := sorted[(len(sorted)-1)/2]
	off := map[string]record.Duration{}
	for inc, d := range ahead {
		if d -= median; time.Duration(d).Abs() > limit {
			off[inc] = d
		}
	}
	return off
}

// JumpDetector finds out that a clock was set, by how it goes against time that nobody sets.
type JumpDetector struct {
	Limit         time.Duration // 0: it does not look
	before, after time.Time     // between which the clock was read last
	clock         time.Time     // what it said
}

// Jumped reports whether the clock, which was read between two instants, has been set by more
// than the limit. A process that was stopped while it read the clock has set nothing.
func (j *JumpDetector) Jumped(before, clock, after time.Time) bool {
	if j.Limit == 0 {
		return false
	}
	clock = clock.Round(0)
	first, went := j.clock.IsZero(), clock.Sub(j.clock)
	jumped := !first && (went > after.Sub(j.before)+j.Limit || went < before.Sub(j.after)-j.Limit)
	if jumped || first {
		j.before, j.clock, j.after = before, clock, after
	}
	return jumped
}
