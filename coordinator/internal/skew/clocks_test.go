package skew

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/record"
)

func TestJumps(t *testing.T) {
	now := time.Now()
	j := JumpDetector{Limit: time.Second}
	at := func(since, clock time.Duration) bool {
		return j.Jumped(now.Add(since), now.Add(clock), now.Add(since))
	}
	assert.False(t, at(0, time.Hour), "what it says first is not judged here")
	assert.False(t, at(time.Minute, time.Hour+time.Minute))
	assert.False(t, at(time.Minute, time.Hour+61*time.Second), "the limit itself")
	assert.False(t, j.Jumped(now.Add(time.Minute), now.Add(time.Hour+time.Minute), now.Add(time.Hour)), "stopped behind the reading")
	assert.False(t, j.Jumped(now.Add(time.Minute), now.Add(2*time.Hour), now.Add(time.Hour)), "stopped before it")
	assert.True(t, at(time.Minute, 2*time.Hour))
	assert.False(t, at(2*time.Minute, 2*time.Hour+time.Minute), "told once")
	assert.True(t, at(2*time.Minute, 0), "back as well")
	j = JumpDetector{}
	at(0, 0)
	assert.False(t, at(0, time.Hour), "without a limit")
}

func TestTooFar(t *testing.T) {
	type clocks = map[string]record.Duration
	s := record.Duration(time.Second)
	for name, c := range map[string]struct{ ahead, before, off clocks }{
		"names who is further from the median than the limit": {ahead: clocks{"a": 0, "b": 2 * s, "c": 9 * s, "d": s, "e": -6 * s}, off: clocks{"c": 8 * s, "e": -7 * s}},
		"lets the limit itself be":                            {ahead: clocks{"a": 0, "b": 5 * s, "c": -5 * s}, off: clocks{}},
		"names a leader that all others differ from":          {ahead: clocks{"leader": 0, "b": 60 * s, "c": 61 * s}, off: clocks{"leader": -60 * s}},
		"takes of two in the middle the one behind":           {ahead: clocks{"a": 0, "b": 0, "c": 60 * s, "d": 60 * s}, off: clocks{"c": 60 * s, "d": 60 * s}},
		"judges anew who was off, if there are three":         {ahead: clocks{"a": 0, "b": 0, "c": 60 * s}, before: clocks{"a": s, "b": s}, off: clocks{"c": 60 * s}},
		"names nobody of two":                                 {ahead: clocks{"a": 0, "b": 60 * s}},
		"keeps naming of two the one that was off":            {ahead: clocks{"a": 0, "b": 60 * s}, before: clocks{"b": 60 * s, "c": 9 * s}, off: clocks{"b": 60 * s}},
		"keeps naming a leader that was off":                  {ahead: clocks{"leader": 0, "b": 60 * s}, before: clocks{"leader": -60 * s}, off: clocks{"leader": -60 * s}},
		"names none of two that differ no more":               {ahead: clocks{"a": 0, "b": s}, before: clocks{"b": 60 * s}, off: clocks{}},
		"names none of two that both were off":                {ahead: clocks{"a": 0, "b": 60 * s}, before: clocks{"a": s, "b": s}},
		"names nobody who is alone":                           {ahead: clocks{"a": 0}, before: clocks{"a": s}},
		"names nobody of none":                                {},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.off, FindSkewed(c.ahead, c.before, 5*time.Second)) })
	}
}

func TestComparing(t *testing.T) {
	const limit = 5 * time.Second
	start := time.Now().Round(0)
	said := record.InstantOf(start)
	// hears has a member's record come a while after the leader's reading, with clocks that
	// are as far from the leader's first reading as told.
	hears := func(c *Comparison, after, leader, member time.Duration, answers record.Instant, seq uint64) {
		m := record.Member{Clock: record.InstantOf(start.Add(member)), Answers: answers}
		c.ObserveMember("m", m, seq, start.Add(after), start.Add(leader), limit, false, false)
	}
	begin := func() *Comparison {
		return &Comparison{Reading: said, Published: start, PublishedBy: 10, Ahead: map[string]record.Duration{}}
	}
	const s = time.Second
	shown := func(d time.Duration) map[string]record.Duration {
		return map[string]record.Duration{"m": record.Duration(d)}
	}
	t.Run("who says what the leader's clock has not come to is ahead", func(t *testing.T) {
		c := begin()
		hears(c, 3*s, 3*s, 10*s, 0, 11)
		assert.Equal(t, shown(7*s), c.Ahead)
		assert.True(t, c.HoldsAssignments(time.Now()))
		assert.False(t, c.ToPublish)
	})
	t.Run("who has heard a reading that its own clock has not come to is behind", func(t *testing.T) {
		c := begin()
		hears(c, 3*s, 3*s, -7*s, said, 11)
		assert.Equal(t, shown(-7*s), c.Ahead)
		hears(c, 5*s, 5*s, -5*s, said, 12)
		hears(c, 30*s, 30*s, 20*s, said, 13)
		assert.Equal(t, shown(-7*s), c.Ahead, "what it writes later shows less")
	})
	t.Run("who answers late shows nothing, but has answered", func(t *testing.T) {
		c := begin()
		hears(c, time.Hour, time.Hour, 3*s, said, 11)
		assert.Equal(t, shown(0), c.Ahead)
		assert.False(t, c.HoldsAssignments(time.Now()))
	})
	t.Run("an answer to another reading shows nobody to be behind", func(t *testing.T) {
		c := begin()
		hears(c, 3*s, 3*s, -7*s, said-1, 11)
		assert.Empty(t, c.Ahead)
	})
	t.Run("one that has not answered and may be behind is to hear a new reading, if it did not hear this one", func(t *testing.T) {
		c := begin()
		hears(c, 4*s, 4*s, 2*s, 0, 11)
		assert.False(t, c.ToPublish)
		hears(c, 4*s, 4*s, s, 0, 9)
		assert.False(t, c.ToPublish, "it hears this one")
		hears(c, 4*s, 4*s, s, said, 11)
		assert.False(t, c.ToPublish, "it has heard it")
		hears(c, 4*s, 4*s, s, 0, 11)
		assert.True(t, c.ToPublish)
	})
	t.Run("answers stay while the same reading is announced again, and go with another", func(t *testing.T) {
		c := begin()
		hears(c, 3*s, 3*s, -7*s, said, 11)
		again := c.WithReading(said, start, 12, start)
		assert.Equal(t, shown(-7*s), again.Ahead)
		assert.EqualValues(t, 12, again.PublishedBy)
		other := c.WithReading(said+1, start, 13, start)
		assert.Empty(t, other.Ahead)
	})
	t.Run("a leader's clock that is set makes nobody look ahead", func(t *testing.T) {
		c := begin()
		hears(c, 3*s, -time.Hour, 3*s, 0, 11)
		hears(c, 3*s, time.Hour, 3*s, 0, 11)
		assert.Empty(t, c.Ahead)
	})
	t.Run("a machine that has slept makes nobody look ahead", func(t *testing.T) {
		c := begin()
		hears(c, s, time.Hour, time.Hour, 0, 11)
		assert.Empty(t, c.Ahead)
	})
	t.Run("a leader whose clock was set tells it", func(t *testing.T) {
		for clock, tells := range map[time.Duration]bool{0: false, 3 * s: true, -3 * s: true} {
			c := begin()
			m := record.Member{Clock: record.InstantOf(start.Add(clock))}
			c.ObserveMember("m", m, 9, start, start.Add(clock), limit, true, false)
			assert.False(t, c.ToPublish, "it told later")
			c.ObserveMember("m", m, 11, start, start.Add(clock), limit, true, false)
			assert.Equal(t, tells, c.ToPublish)
			assert.Empty(t, c.Ahead)
		}
	})
	t.Run("one that is off and was set is compared at once", func(t *testing.T) {
		c := begin()
		c.Ahead = shown(-time.Hour)
		c.ObserveMember("m", record.Member{Clock: said}, 11, start, start, limit, false, true)
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
