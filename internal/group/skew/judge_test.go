package skew

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/record"
)

func TestAheadOf(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	assert.Zero(t, AheadOf(at(5), at(5), at(5)))
	assert.Zero(t, AheadOf(at(5), at(1), at(9)), "the commit took long")
	assert.Equal(t, 3*time.Second, AheadOf(at(2), at(5), at(9)))
	assert.Equal(t, -3*time.Second, AheadOf(at(12), at(5), at(9)))
}

func TestJumpDetector(t *testing.T) {
	now := time.Now()
	j := JumpDetector{Limit: time.Second}
	at := func(since, clock time.Duration) bool {
		return j.Jumped(now.Add(since), now.Add(clock), now.Add(since))
	}
	assert.False(t, at(0, time.Hour), "the first reading has nothing to be compared with")
	assert.False(t, at(time.Minute, time.Hour+time.Minute))
	assert.False(t, at(time.Minute, time.Hour+61*time.Second), "the limit itself")
	assert.False(t, at(time.Minute, time.Hour+59*time.Second), "the limit itself, back")
	assert.False(t, j.Jumped(now.Add(time.Minute), now.Add(time.Hour+time.Minute), now.Add(time.Hour)), "suspended after the reading")
	assert.False(t, j.Jumped(now.Add(time.Minute), now.Add(2*time.Hour), now.Add(time.Hour)), "suspended before the reading")
	assert.True(t, at(time.Minute, 2*time.Hour))
	assert.False(t, at(2*time.Minute, 2*time.Hour+time.Minute), "reported once")
	assert.True(t, at(2*time.Minute, 0), "set back")
	j = JumpDetector{}
	at(0, 0)
	assert.False(t, at(0, time.Hour), "without a limit")
}

func TestFindSkewed(t *testing.T) {
	type clocks = map[string]record.Duration
	s := record.Duration(time.Second)
	for name, c := range map[string]struct{ ahead, before, skewed clocks }{
		"names clocks further from the median than the limit":        {ahead: clocks{"a": 0, "b": 2 * s, "c": 9 * s, "d": s, "e": -6 * s}, skewed: clocks{"c": 8 * s, "e": -7 * s}},
		"does not name a clock at the limit":                         {ahead: clocks{"a": 0, "b": 5 * s, "c": -5 * s}, skewed: clocks{}},
		"names a leader from which all others differ":                {ahead: clocks{"leader": 0, "b": 60 * s, "c": 61 * s}, skewed: clocks{"leader": -60 * s}},
		"uses the clock behind if two are in the middle":             {ahead: clocks{"a": 0, "b": 0, "c": 60 * s, "d": 60 * s}, skewed: clocks{"c": 60 * s, "d": 60 * s}},
		"judges three clocks regardless of which were skewed before": {ahead: clocks{"a": 0, "b": 0, "c": 60 * s}, before: clocks{"a": s, "b": s}, skewed: clocks{"c": 60 * s}},
		"names neither of two":                                       {ahead: clocks{"a": 0, "b": 60 * s}},
		"still names the one of two that was skewed":                 {ahead: clocks{"a": 0, "b": 60 * s}, before: clocks{"b": 60 * s, "c": 9 * s}, skewed: clocks{"b": 60 * s}},
		"still names a leader that was skewed":                       {ahead: clocks{"leader": 0, "b": 60 * s}, before: clocks{"leader": -60 * s}, skewed: clocks{"leader": -60 * s}},
		"names neither of two that agree again":                      {ahead: clocks{"a": 0, "b": s}, before: clocks{"b": 60 * s}, skewed: clocks{}},
		"names neither of two that were both skewed":                 {ahead: clocks{"a": 0, "b": 60 * s}, before: clocks{"a": s, "b": s}},
		"names no single clock":                                      {ahead: clocks{"a": 0}, before: clocks{"a": s}},
		"names nothing without clocks":                               {},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.skewed, FindSkewed(c.ahead, c.before, 5*time.Second)) })
	}
}
