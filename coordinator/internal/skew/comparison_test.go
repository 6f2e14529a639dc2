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
}
