package member_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/leader"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/registry"
)

// comparedTime bounds the time until a leader has published a reading, and compared and judged clocks.
const comparedTime = leader.RegularCheck*6/5 + 2*time.Second

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestClocks(t *testing.T) {
	membertest.RunBubble(t, "an instance that joins with a clock too far ahead claims nothing, and logs that", func(t *testing.T, g *membertest.Group) {
		g.StartFleet(2)
		g.SetClock("c", time.Hour)
		c := g.Start("c", coordtest.Def("job", 0, 12, ""))
		membertest.SleepToMinute(5)
		assert.Empty(t, c.TakeRuns())
		assert.NotContains(t, g.ReadOwners("job"), "c")
		assert.Equal(t, 1, c.Log.Count("level=WARN"))
		assert.Equal(t, 1, c.Log.Count(`msg="this clock is skewed; claiming nothing until it is set"`))
		assert.Equal(t, 1, c.Log.Count("ahead=1h0m0s limit=5s"))
	})
	membertest.RunBubble(t, "a clock too far behind is detected when the leader has published a reading", func(t *testing.T, g *membertest.Group) {
		g.StartFleet(2)
		g.SetClock("c", -time.Hour)
		c := g.Start("c", coordtest.Def("job", 0, 12, ""))
		pass(comparedTime)
		c.TakeRuns()
		membertest.SleepToMinute(5)
		assert.Empty(t, c.TakeRuns())
		assert.Equal(t, map[string]string{"a": "0-5", "b": "6-11"}, g.ReadOwners("job"), "the others own its shards")
		assert.Equal(t, 1, c.Log.Count("ahead=-1h0m0s limit=5s"))
	})
	for name, wrong := range map[string]time.Duration{"forward": 10 * time.Minute, "back": -10 * time.Minute} {
		membertest.RunBubble(t, "a clock that is set "+name+" is detected, and the instance claims again when the clock is right", func(t *testing.T, g *membertest.Group) {
			c := g.StartFleet(3)[2]
			membertest.SleepToMinute(2)
			g.SetClock("c", wrong)
			pass(comparedTime)
			c.TakeRuns()
			membertest.SleepToMinute(5)
			assert.Empty(t, c.TakeRuns())
			assert.Equal(t, 1, c.Log.Count(`msg="this clock is skewed`))
			g.SetClock("c", 0)
			pass(comparedTime)
			assert.Equal(t, 1, c.Log.Count(`level=INFO msg="this clock is no longer skewed; claiming again"`))
			assert.Contains(t, g.ReadOwners("job"), "c")
			membertest.SleepToMinute(30)
			assert.NotEmpty(t, c.TakeRuns())
		})
		membertest.RunBubble(t, "a leader whose clock is set "+name+" hands over", func(t *testing.T, g *membertest.Group) {
			a := g.StartFleet(3)[0]
			membertest.SleepToMinute(2)
			g.SetClock("a", wrong)
			pass(comparedTime + elector.MinPatience)
			assert.Equal(t, "b", g.ReadLeaderName())
			a.TakeRuns()
			membertest.SleepToMinute(5)
			assert.Empty(t, a.TakeRuns())
			assert.NotContains(t, g.ReadOwners("job"), "a")
			assert.Len(t, g.ReadOwners("job"), 2)
			assert.Zero(t, g.Members[1].Log.Count("this clock"), "the other clocks are right")
			g.SetClock("a", 0)
			pass(comparedTime)
			assert.Contains(t, g.ReadOwners("job"), "a")
		})
	}
	membertest.RunBubble(t, "a skewed instance claims nothing for shards that cannot be moved away from it", func(t *testing.T, g *membertest.Group) {
		all := g.StartFleet(3)
		membertest.SleepToMinute(2)
		all[0].Reg.ReplaceTxn(func(txn registry.Txn) error {
			if len(txn.Then) > 0 && membertest.IsBelow(g.Keys.Plans())(txn.Then[0].Key) {
				return &registry.ConflictError{Index: 1}
			}
			return nil
		})
		g.SetClock("c", 10*time.Minute)
		pass(comparedTime)
		all[2].TakeRuns()
		pass(90 * time.Second)
		assert.Contains(t, g.ReadOwners("job"), "c")
		assert.Empty(t, all[2].TakeRuns())
	})
	membertest.RunBubble(t, "clocks within the limit have no effect", func(t *testing.T, g *membertest.Group) {
		g.SetClock("b", 4*time.Second)
		g.SetClock("c", -4*time.Second)
		all := g.StartFleet(3)
		membertest.SleepToMinute(5)
		for _, w := range all {
			assert.NotEmpty(t, w.TakeRuns())
			assert.Zero(t, w.Log.Count("clock"))
		}
	})
	membertest.RunBubble(t, "a skewed clock stays skewed when the leader changes", func(t *testing.T, g *membertest.Group) {
		g.StartFleet(3)
		g.SetClock("d", -time.Hour)
		d := g.Start("d", coordtest.Def("job", 0, 12, ""))
		pass(comparedTime)
		d.TakeRuns()
		defer g.Server.Partition("a")()
		membertest.SleepToMinute(5)
		require.NotEqual(t, "a", g.ReadLeader().Incarnation[:1])
		assert.Empty(t, d.TakeRuns())
		assert.Zero(t, d.Log.Count("no longer skewed"))
	})
	membertest.RunBubble(t, "late messages make no clock skewed", func(t *testing.T, g *membertest.Group) {
		c := g.StartFleet(3)[2]
		for _, name := range []string{"a", "c"} {
			release := g.Server.HoldWatch(name)
			pass(comparedTime)
			release()
			pass(comparedTime)
		}
		assert.Zero(t, c.Log.Count("clock is skewed"))
	})
	membertest.RunBubble(t, "of two clocks neither is skewed: the leader logs that they differ", func(t *testing.T, g *membertest.Group) {
		g.SetClock("b", time.Hour)
		all := g.StartFleet(2)
		membertest.SleepToMinute(5)
		assert.Equal(t, 1, all[0].Log.Count("the clocks of the two instances differ"))
		for _, w := range all {
			assert.Zero(t, w.Log.Count("this clock is skewed"))
			assert.NotEmpty(t, w.TakeRuns())
		}
	})
	membertest.RunBubble(t, "a skewed clock stays skewed while the others are too few to judge", func(t *testing.T, g *membertest.Group) {
		all := g.StartFleet(3)
		membertest.SleepToMinute(2)
		g.SetClock("c", time.Hour)
		pass(comparedTime)
		defer g.Server.Partition("b")()
		pass(comparedTime)
		all[2].TakeRuns()
		membertest.SleepToMinute(5)
		assert.Equal(t, map[string]string{"a": "0-11"}, g.ReadOwners("job"))
		assert.Empty(t, all[2].TakeRuns())
		assert.Equal(t, 1, all[2].Log.Count("this clock is skewed"))
		assert.Zero(t, all[2].Log.Count("no longer skewed"))
	})
	membertest.RunBubble(t, "a skewed instance owns the shards when it is the last one", func(t *testing.T, g *membertest.Group) {
		all := g.StartFleet(3)
		membertest.SleepToMinute(2)
		g.SetClock("c", time.Hour)
		pass(comparedTime)
		defer g.Server.Partition("a")()
		defer g.Server.Partition("b")()
		pass(comparedTime)
		all[2].TakeRuns()
		membertest.SleepToMinute(5)
		assert.Equal(t, all[2].Incarnation(), g.ReadLeader().Incarnation)
		assert.Equal(t, map[string]string{"c": "0-11"}, g.ReadOwners("job"))
		assert.NotEmpty(t, all[2].TakeRuns())
	})
	membertest.RunBubble(t, "a leader whose clock was set back finds no joining member ahead", func(t *testing.T, g *membertest.Group) {
		g.StartFleet(4)
		membertest.SleepToMinute(2)
		g.SetClock("a", -time.Hour)
		e := g.Start("e", coordtest.Def("job", 0, 12, ""))
		pass(comparedTime + elector.MinPatience)
		assert.Zero(t, e.Log.Count("this clock"))
		assert.Equal(t, 1, g.Members[0].Log.Count(`msg="this clock is skewed`))
	})
	membertest.RunBubble(t, "an instance that does not compare clocks is never skewed, and does not count", func(t *testing.T, g *membertest.Group) {
		g.StartFleet(2)
		g.Skew = -1
		g.SetClock("c", time.Hour)
		c := g.Start("c", coordtest.Def("job", 0, 12, ""))
		g.Skew = 0
		g.SetClock("b", -time.Hour)
		pass(comparedTime)
		for _, w := range g.Members {
			assert.Zero(t, w.Log.Count("clock is skewed"))
		}
		assert.NotEmpty(t, c.TakeRuns())
	})
	membertest.RunBubble(t, "a limit below zero disables the comparison, and no reading is published", func(t *testing.T, g *membertest.Group) {
		g.Skew = -1
		g.SetClock("c", time.Hour)
		c := g.StartFleet(3)[2]
		pass(comparedTime)
		assert.NotEmpty(t, c.TakeRuns())
		assert.Zero(t, c.Log.Count("clock"))
		assert.NotContains(t, g.GetText(g.Keys.Seat()), "clock")
		assert.NotContains(t, g.GetText(g.Keys.Member(c.Incarnation())), "clock")
	})
	membertest.RunBubble(t, "a clock that jumps claims nothing until it has been judged", func(t *testing.T, g *membertest.Group) {
		c := g.StartFleet(3)[2]
		membertest.SleepToMinute(2)
		c.TakeRuns()
		g.SetClock("c", 10*time.Minute)
		pass(claimer.ClockCheckInterval + claimer.ClockJudgingTime + time.Second)
		assert.Empty(t, c.TakeRuns())
		assert.NotContains(t, g.ReadOwners("job"), "c")
	})
	membertest.RunBubble(t, "clocks that agree and do not jump cost no writes", func(t *testing.T, g *membertest.Group) {
		g.StartFleet(5)
		pass(comparedTime)
		g.Server.Record()
		time.Sleep(5 * time.Hour)
		for _, c := range g.TakeCommits() {
			for _, op := range c.Then {
				require.NotEqual(t, g.Keys.Seat(), op.Key)
				require.NotEqual(t, g.Keys.Members(), op.Key.Dir())
			}
		}
	})
}
