package skew

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/record"
)

func TestComparison(t *testing.T) {
	const limit = 5 * time.Second
	start := time.Now().Round(0)
	reading := record.InstantOf(start)
	// observe passes a member's record in, some time after the leader's reading. leader and member are
	// the offsets of the two clocks from that reading.
	observe := func(c *Comparison, after, leader, member time.Duration, answers record.Instant, seq uint64) {
		m := record.Member{Clock: record.InstantOf(start.Add(member)), Answers: answers}
		c.ObserveMember("m", m, seq, start.Add(after), start.Add(leader), limit, false, false)
	}
	begin := func() *Comparison {
		return &Comparison{Reading: reading, Published: start, PublishedBy: 10, Ahead: map[string]record.Duration{}}
	}
	const s = time.Second
	shown := func(d time.Duration) map[string]record.Duration {
		return map[string]record.Duration{"m": record.Duration(d)}
	}
	t.Run("a member whose record has an instant that the leader's clock has not reached is ahead", func(t *testing.T) {
		c := begin()
		observe(c, 3*s, 3*s, 10*s, 0, 11)
		assert.Equal(t, shown(7*s), c.Ahead)
		assert.True(t, c.HoldsAssignments(time.Now()))
		assert.False(t, c.ToPublish)
	})
	t.Run("a member that answers a reading which its clock has not reached is behind", func(t *testing.T) {
		c := begin()
		observe(c, 3*s, 3*s, -7*s, reading, 11)
		assert.Equal(t, shown(-7*s), c.Ahead)
		observe(c, 5*s, 5*s, -5*s, reading, 12)
		observe(c, 30*s, 30*s, 20*s, reading, 13)
		assert.Equal(t, shown(-7*s), c.Ahead, "later records show smaller differences")
	})
	t.Run("a late answer shows no difference, but counts as an answer", func(t *testing.T) {
		c := begin()
		observe(c, time.Hour, time.Hour, 3*s, reading, 11)
		assert.Equal(t, shown(0), c.Ahead)
		assert.False(t, c.HoldsAssignments(time.Now()))
	})
	t.Run("an answer to another reading shows nothing", func(t *testing.T) {
		c := begin()
		observe(c, 3*s, 3*s, -7*s, reading-1, 11)
		assert.Empty(t, c.Ahead)
	})
	t.Run("a member that may be behind needs a new reading if it joined after this one and has not answered", func(t *testing.T) {
		c := begin()
		observe(c, 4*s, 4*s, 2*s, 0, 11)
		assert.False(t, c.ToPublish)
		observe(c, 4*s, 4*s, s, 0, 9)
		assert.False(t, c.ToPublish, "it joined before this reading")
		observe(c, 4*s, 4*s, s, reading, 11)
		assert.False(t, c.ToPublish, "it has answered")
		observe(c, 4*s, 4*s, s, 0, 11)
		assert.True(t, c.ToPublish)
	})
	t.Run("answers are kept if the same reading is published again, and dropped for another", func(t *testing.T) {
		c := begin()
		observe(c, 3*s, 3*s, -7*s, reading, 11)
		again := c.WithReading(reading, start, 12, start)
		assert.Equal(t, shown(-7*s), again.Ahead)
		assert.EqualValues(t, 12, again.PublishedBy)
		other := c.WithReading(reading+1, start, 13, start)
		assert.Empty(t, other.Ahead)
	})
	t.Run("no member looks ahead when the leader's clock is set", func(t *testing.T) {
		c := begin()
		observe(c, 3*s, -time.Hour, 3*s, 0, 11)
		observe(c, 3*s, time.Hour, 3*s, 0, 11)
		assert.Empty(t, c.Ahead)
	})
	t.Run("no member looks ahead after a suspended machine resumes", func(t *testing.T) {
		c := begin()
		observe(c, s, time.Hour, time.Hour, 0, 11)
		assert.Empty(t, c.Ahead)
	})
	t.Run("a leader whose clock was set publishes a new reading", func(t *testing.T) {
		for clock, publishes := range map[time.Duration]bool{0: false, 3 * s: true, -3 * s: true} {
			c := begin()
			m := record.Member{Clock: record.InstantOf(start.Add(clock))}
			c.ObserveMember("m", m, 9, start, start.Add(clock), limit, true, false)
			assert.False(t, c.ToPublish, "the reading is newer")
			c.ObserveMember("m", m, 11, start, start.Add(clock), limit, true, false)
			assert.Equal(t, publishes, c.ToPublish)
			assert.Empty(t, c.Ahead)
		}
	})
	t.Run("a skewed clock that was set is compared at once", func(t *testing.T) {
		c := begin()
		c.Ahead = shown(-time.Hour)
		c.ObserveMember("m", record.Member{Clock: reading}, 11, start, start, limit, false, true)
		assert.True(t, c.ToPublish)
		assert.Empty(t, c.Ahead)
	})
	t.Run("a record without a clock shows nothing", func(t *testing.T) {
		c := begin()
		c.ObserveMember("m", record.Member{}, 11, start.Add(time.Hour), start.Add(time.Hour), limit, false, false)
		assert.Empty(t, c.Ahead)
		assert.False(t, c.ToPublish)
	})
	t.Run("a member is doubted if its clock is ahead by more than the limit, and was not known to be skewed", func(t *testing.T) {
		for ahead, doubted := range map[time.Duration]bool{limit - s: false, limit: false, limit + 1: true} {
			c := begin()
			observe(c, 3*s, 3*s, 3*s+ahead, 0, 11)
			assert.Equal(t, doubted, !c.DoubtedSince.IsZero(), "%v ahead", ahead)
		}
		c := begin()
		c.ObserveMember("m", record.Member{Clock: reading + record.Instant(time.Hour)}, 11, start, start, limit, false, true)
		assert.Zero(t, c.DoubtedSince, "known to be skewed")
	})
	t.Run("the doubt counts from the first such member, for twice the time of an answer", func(t *testing.T) {
		c := begin()
		assert.False(t, c.HoldsAssignments(start))
		observe(c, 3*s, 3*s, 60*s, 0, 11)
		observe(c, 4*s, 4*s, 60*s, 0, 12)
		assert.Equal(t, start.Add(3*s), c.DoubtedSince)
		assert.True(t, c.HoldsAssignments(start.Add(5*s-1)))
		assert.False(t, c.HoldsAssignments(start.Add(5*s)))
	})
	t.Run("an answer that shows no difference leaves one that was shown", func(t *testing.T) {
		for _, member := range []time.Duration{0, s} {
			c := begin()
			c.Ahead = shown(7 * s)
			observe(c, 3*s, 3*s, member, reading, 11)
			assert.Equal(t, shown(7*s), c.Ahead)
		}
	})
	t.Run("half the limit is not a difference, and a record of the commit itself is not newer", func(t *testing.T) {
		for _, own := range []bool{true, false} {
			for late, publishes := range map[time.Duration]bool{limit / 2: false, limit/2 + 1: true} {
				for commit, newer := range map[uint64]bool{10: false, 11: true} {
					c := begin()
					m := record.Member{Clock: record.InstantOf(start.Add(-late))}
					c.ObserveMember("m", m, commit, start, start, limit, own, false)
					assert.Equal(t, publishes && newer, c.ToPublish, "own: %v, late: %v, commit %d", own, late, commit)
				}
			}
		}
	})
	t.Run("a reading stays to be published", func(t *testing.T) {
		for _, own := range []bool{true, false} {
			c := begin()
			c.ToPublish = true
			c.ObserveMember("m", record.Member{Clock: reading}, 11, start, start, limit, own, false)
			assert.True(t, c.ToPublish)
		}
	})
}

func TestNewComparison(t *testing.T) {
	now := time.Now()
	clock := now.Add(time.Hour)
	c := NewComparison(now, clock, 7)
	assert.Equal(t, Comparison{
		Reading: record.InstantOf(clock), Published: now, PublishedBy: 7, Ahead: map[string]record.Duration{}, ToPublish: true,
	}, c)
}

func TestNotice_NamesSame(t *testing.T) {
	n := Notice{Skewed: map[string]record.Duration{"a": 1, "b": 2}}
	assert.True(t, n.NamesSame(Notice{Skewed: map[string]record.Duration{"a": 3, "b": 4}}), "the differences vary")
	assert.False(t, n.NamesSame(Notice{Skewed: map[string]record.Duration{"a": 1, "c": 2}}))
	assert.False(t, n.NamesSame(Notice{Skewed: map[string]record.Duration{"a": 1}}))
	assert.False(t, n.NamesSame(Notice{Skewed: n.Skewed, Differing: map[string]record.Duration{"c": 1}}))
}
