package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// toldTime is how long it takes at most until clocks have been told, compared and judged.
const toldTime = selfDiagnosis*6/5 + 2*time.Second

// fleet starts members a, b, ... one after the other, so that a leads.
func (g *group) fleet(n int) []*worker {
	var out []*worker
	for i := range n {
		out = append(out, g.start(string(rune('a'+i)), def("job", 0, 12, "")))
	}
	return out
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestClocks(t *testing.T) {
	bubble(t, "an instance that joins with a clock too far ahead claims nothing, and says so", func(t *testing.T, g *group) {
		g.fleet(2)
		g.sets("c", time.Hour)
		c := g.start("c", def("job", 0, 12, ""))
		until(5)
		assert.Empty(t, c.began())
		assert.NotContains(t, g.owners("job"), "c")
		assert.Equal(t, 1, c.log.count("level=WARN"))
		assert.Equal(t, 1, c.log.count(`msg="this clock is off, claiming nothing"`))
		assert.Equal(t, 1, c.log.count("ahead=1h0m0s limit=5s"))
	})
	bubble(t, "one whose clock is too far behind is found out when a leader has told the time", func(t *testing.T, g *group) {
		g.fleet(2)
		g.sets("c", -time.Hour)
		c := g.start("c", def("job", 0, 12, ""))
		pass(toldTime)
		c.began()
		until(5)
		assert.Empty(t, c.began())
		assert.Equal(t, map[string]string{"a": "0-5", "b": "6-11"}, g.owners("job"), "others have its shards")
		assert.Equal(t, 1, c.log.count("ahead=-1h0m0s limit=5s"))
	})
	for name, wrong := range map[string]time.Duration{"forward": 10 * time.Minute, "back": -10 * time.Minute} {
		bubble(t, "one whose clock is put "+name+" is found out, and takes part again when it is right", func(t *testing.T, g *group) {
			c := g.fleet(3)[2]
			until(2)
			g.sets("c", wrong)
			pass(toldTime)
			c.began()
			until(5)
			assert.Empty(t, c.began())
			assert.Equal(t, 1, c.log.count(`msg="this clock is off`))
			g.sets("c", 0)
			pass(toldTime)
			assert.Equal(t, 1, c.log.count(`level=INFO msg="this clock is right again"`))
			assert.Contains(t, g.owners("job"), "c")
			until(30)
			assert.NotEmpty(t, c.began())
		})
		bubble(t, "a leader whose clock is put "+name+" hands the office on", func(t *testing.T, g *group) {
			a := g.fleet(3)[0]
			until(2)
			g.sets("a", wrong)
			pass(toldTime + leastPatience)
			assert.Equal(t, "b", g.inOffice())
			a.began()
			until(5)
			assert.Empty(t, a.began())
			assert.NotContains(t, g.owners("job"), "a")
			assert.Len(t, g.owners("job"), 2)
			assert.Zero(t, g.members[1].log.count("this clock"), "the others are right")
			g.sets("a", 0)
			pass(toldTime)
			assert.Contains(t, g.owners("job"), "a")
		})
	}
	bubble(t, "one whose clock is off claims nothing of shards either that cannot be taken from it", func(t *testing.T, g *group) {
		all := g.fleet(3)
		until(2)
		all[0].reg.instead(func(txn registry.Txn) error {
			if len(txn.Then) > 0 && below(g.keys.Plans())(txn.Then[0].Key) {
				return &registry.ConflictError{Index: 1}
			}
			return nil
		})
		g.sets("c", 10*time.Minute)
		pass(toldTime)
		all[2].began()
		pass(90 * time.Second)
		assert.Contains(t, g.owners("job"), "c")
		assert.Empty(t, all[2].began())
	})
	bubble(t, "clocks within the limit are let be", func(t *testing.T, g *group) {
		g.sets("b", 4*time.Second)
		g.sets("c", -4*time.Second)
		all := g.fleet(3)
		until(5)
		for _, w := range all {
			assert.NotEmpty(t, w.began())
			assert.Zero(t, w.log.count("clock"))
		}
	})
	bubble(t, "a clock that is off stays so when the leader changes", func(t *testing.T, g *group) {
		g.fleet(3)
		g.sets("d", -time.Hour)
		d := g.start("d", def("job", 0, 12, ""))
		pass(toldTime)
		d.began()
		defer g.server.Partition("a")()
		until(5)
		require.NotEqual(t, "a", g.leader().Incarnation[:1])
		assert.Empty(t, d.began())
		assert.Zero(t, d.log.count("right again"))
	})
	bubble(t, "messages that are late show no clock to be off", func(t *testing.T, g *group) {
		c := g.fleet(3)[2]
		for _, name := range []string{"a", "c"} {
			release := g.server.HoldWatch(name)
			pass(toldTime)
			release()
			pass(toldTime)
		}
		assert.Zero(t, c.log.count("clock is off"))
	})
	bubble(t, "of two instances nobody can tell which is wrong: the leader says that they differ", func(t *testing.T, g *group) {
		g.sets("b", time.Hour)
		all := g.fleet(2)
		until(5)
		assert.Equal(t, 1, all[0].log.count("the clocks of two instances differ"))
		for _, w := range all {
			assert.Zero(t, w.log.count("this clock is off"))
			assert.NotEmpty(t, w.began())
		}
	})
	bubble(t, "one that was found to be off stays so while others are too few to judge", func(t *testing.T, g *group) {
		all := g.fleet(3)
		until(2)
		g.sets("c", time.Hour)
		pass(toldTime)
		defer g.server.Partition("b")()
		pass(toldTime)
		all[2].began()
		until(5)
		assert.Equal(t, map[string]string{"a": "0-11"}, g.owners("job"))
		assert.Empty(t, all[2].began())
		assert.Equal(t, 1, all[2].log.count("this clock is off"))
		assert.Zero(t, all[2].log.count("right again"))
	})
	bubble(t, "one whose clock is off takes part where nobody else is left", func(t *testing.T, g *group) {
		all := g.fleet(3)
		until(2)
		g.sets("c", time.Hour)
		pass(toldTime)
		defer g.server.Partition("a")()
		defer g.server.Partition("b")()
		pass(toldTime)
		all[2].began()
		until(5)
		assert.Equal(t, all[2].incarnation(), g.leader().Incarnation)
		assert.Equal(t, map[string]string{"c": "0-11"}, g.owners("job"))
		assert.NotEmpty(t, all[2].began())
	})
	bubble(t, "a leader whose clock is put back takes nobody for ahead who joins then", func(t *testing.T, g *group) {
		g.fleet(4)
		until(2)
		g.sets("a", -time.Hour)
		e := g.start("e", def("job", 0, 12, ""))
		pass(toldTime + leastPatience)
		assert.Zero(t, e.log.count("this clock"))
		assert.Equal(t, 1, g.members[0].log.count(`msg="this clock is off`))
	})
	bubble(t, "an instance that does not look at clocks is never off, and does not count", func(t *testing.T, g *group) {
		g.fleet(2)
		g.skew = -1
		g.sets("c", time.Hour)
		c := g.start("c", def("job", 0, 12, ""))
		g.skew = 0
		g.sets("b", -time.Hour)
		pass(toldTime)
		for _, w := range g.members {
			assert.Zero(t, w.log.count("clock is off"))
		}
		assert.NotEmpty(t, c.began())
	})
	bubble(t, "a limit below zero is none, and nothing is told", func(t *testing.T, g *group) {
		g.skew = -1
		g.sets("c", time.Hour)
		c := g.fleet(3)[2]
		pass(toldTime)
		assert.NotEmpty(t, c.began())
		assert.Zero(t, c.log.count("clock"))
		assert.NotContains(t, g.text(g.keys.Present()), "clock")
		assert.NotContains(t, g.text(g.keys.Member(c.incarnation())), "clock")
	})
	bubble(t, "a clock that jumps claims nothing on account of that", func(t *testing.T, g *group) {
		c := g.fleet(3)[2]
		until(2)
		c.began()
		g.sets("c", 10*time.Minute)
		pass(clockCheck + jumpJudged + time.Second)
		assert.Empty(t, c.began())
		assert.NotContains(t, g.owners("job"), "c")
	})
	bubble(t, "clocks that agree and do not jump cost nothing", func(t *testing.T, g *group) {
		g.fleet(5)
		pass(toldTime)
		g.server.Record()
		time.Sleep(5 * time.Hour)
		for _, c := range g.commits() {
			for _, op := range c.Then {
				require.NotEqual(t, g.keys.Present(), op.Key)
				require.NotEqual(t, g.keys.Members(), op.Key.Dir())
			}
		}
	})
}

func TestJumps(t *testing.T) {
	now := time.Now()
	j := jumps{limit: time.Second}
	at := func(since, clock time.Duration) bool {
		return j.since(now.Add(since), now.Add(clock), now.Add(since))
	}
	assert.False(t, at(0, time.Hour), "what it says first is not judged here")
	assert.False(t, at(time.Minute, time.Hour+time.Minute))
	assert.False(t, at(time.Minute, time.Hour+61*time.Second), "the limit itself")
	assert.False(t, j.since(now.Add(time.Minute), now.Add(time.Hour+time.Minute), now.Add(time.Hour)), "stopped behind the reading")
	assert.False(t, j.since(now.Add(time.Minute), now.Add(2*time.Hour), now.Add(time.Hour)), "stopped before it")
	assert.True(t, at(time.Minute, 2*time.Hour))
	assert.False(t, at(2*time.Minute, 2*time.Hour+time.Minute), "told once")
	assert.True(t, at(2*time.Minute, 0), "back as well")
	j = jumps{}
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
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.off, tooFar(c.ahead, c.before, 5*time.Second)) })
	}
}

func TestComparing(t *testing.T) {
	const limit = 5 * time.Second
	start := time.Now().Round(0)
	said := record.InstantOf(start)
	// hears has a member's record come a while after the leader's reading, with clocks that
	// are as far from the leader's first reading as told.
	hears := func(c *comparing, after, leader, member time.Duration, answers record.Instant, seq uint64) {
		m := record.Member{Clock: record.InstantOf(start.Add(member)), Answers: answers}
		c.hear("m", m, seq, start.Add(after), start.Add(leader), limit, false, false)
	}
	begin := func() *comparing {
		return &comparing{reading: said, told: start, since: 10, ahead: map[string]record.Duration{}}
	}
	const s = time.Second
	shown := func(d time.Duration) map[string]record.Duration {
		return map[string]record.Duration{"m": record.Duration(d)}
	}
	t.Run("who says what the leader's clock has not come to is ahead", func(t *testing.T) {
		c := begin()
		hears(c, 3*s, 3*s, 10*s, 0, 11)
		assert.Equal(t, shown(7*s), c.ahead)
		assert.True(t, c.doubtful(time.Now()))
		assert.False(t, c.telling)
	})
	t.Run("who has heard a reading that its own clock has not come to is behind", func(t *testing.T) {
		c := begin()
		hears(c, 3*s, 3*s, -7*s, said, 11)
		assert.Equal(t, shown(-7*s), c.ahead)
		hears(c, 5*s, 5*s, -5*s, said, 12)
		hears(c, 30*s, 30*s, 20*s, said, 13)
		assert.Equal(t, shown(-7*s), c.ahead, "what it writes later shows less")
	})
	t.Run("who answers late shows nothing, but has answered", func(t *testing.T) {
		c := begin()
		hears(c, time.Hour, time.Hour, 3*s, said, 11)
		assert.Equal(t, shown(0), c.ahead)
		assert.False(t, c.doubtful(time.Now()))
	})
	t.Run("an answer to another reading shows nobody to be behind", func(t *testing.T) {
		c := begin()
		hears(c, 3*s, 3*s, -7*s, said-1, 11)
		assert.Empty(t, c.ahead)
	})
	t.Run("one that has not answered and may be behind is to hear a new reading, if it did not hear this one", func(t *testing.T) {
		c := begin()
		hears(c, 4*s, 4*s, 2*s, 0, 11)
		assert.False(t, c.telling)
		hears(c, 4*s, 4*s, s, 0, 9)
		assert.False(t, c.telling, "it hears this one")
		hears(c, 4*s, 4*s, s, said, 11)
		assert.False(t, c.telling, "it has heard it")
		hears(c, 4*s, 4*s, s, 0, 11)
		assert.True(t, c.telling)
	})
	t.Run("a leader's clock that is set makes nobody look ahead", func(t *testing.T) {
		c := begin()
		hears(c, 3*s, -time.Hour, 3*s, 0, 11)
		hears(c, 3*s, time.Hour, 3*s, 0, 11)
		assert.Empty(t, c.ahead)
	})
	t.Run("a machine that has slept makes nobody look ahead", func(t *testing.T) {
		c := begin()
		hears(c, s, time.Hour, time.Hour, 0, 11)
		assert.Empty(t, c.ahead)
	})
	t.Run("a leader whose clock was set tells it", func(t *testing.T) {
		for clock, tells := range map[time.Duration]bool{0: false, 3 * s: true, -3 * s: true} {
			c := begin()
			m := record.Member{Clock: record.InstantOf(start.Add(clock))}
			c.hear("m", m, 9, start, start.Add(clock), limit, true, false)
			assert.False(t, c.telling, "it told later")
			c.hear("m", m, 11, start, start.Add(clock), limit, true, false)
			assert.Equal(t, tells, c.telling)
			assert.Empty(t, c.ahead)
		}
	})
	t.Run("one that is off and was set is compared at once", func(t *testing.T) {
		c := begin()
		c.ahead = shown(-time.Hour)
		c.hear("m", record.Member{Clock: said}, 11, start, start, limit, false, true)
		assert.True(t, c.telling)
		assert.Empty(t, c.ahead)
	})
	t.Run("a record without a clock shows nothing", func(t *testing.T) {
		c := begin()
		c.hear("m", record.Member{}, 11, start.Add(time.Hour), start.Add(time.Hour), limit, false, false)
		assert.Empty(t, c.ahead)
		assert.False(t, c.telling)
	})
}
