package member_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/member"
	"github.com/rota-dev/rota/coordinator/internal/membertest"
	"github.com/rota-dev/rota/registry"
)

// toldTime is how long it takes at most until clocks have been told, compared and judged.
const toldTime = member.SelfDiagnosis*6/5 + 2*time.Second

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestClocks(t *testing.T) {
	membertest.Bubble(t, "an instance that joins with a clock too far ahead claims nothing, and says so", func(t *testing.T, g *membertest.Group) {
		g.Fleet(2)
		g.Sets("c", time.Hour)
		c := g.Start("c", coordtest.Def("job", 0, 12, ""))
		membertest.Until(5)
		assert.Empty(t, c.Began())
		assert.NotContains(t, g.Owners("job"), "c")
		assert.Equal(t, 1, c.Log.Count("level=WARN"))
		assert.Equal(t, 1, c.Log.Count(`msg="this clock is off, claiming nothing"`))
		assert.Equal(t, 1, c.Log.Count("ahead=1h0m0s limit=5s"))
	})
	membertest.Bubble(t, "one whose clock is too far behind is found out when a leader has told the time", func(t *testing.T, g *membertest.Group) {
		g.Fleet(2)
		g.Sets("c", -time.Hour)
		c := g.Start("c", coordtest.Def("job", 0, 12, ""))
		pass(toldTime)
		c.Began()
		membertest.Until(5)
		assert.Empty(t, c.Began())
		assert.Equal(t, map[string]string{"a": "0-5", "b": "6-11"}, g.Owners("job"), "others have its shards")
		assert.Equal(t, 1, c.Log.Count("ahead=-1h0m0s limit=5s"))
	})
	for name, wrong := range map[string]time.Duration{"forward": 10 * time.Minute, "back": -10 * time.Minute} {
		membertest.Bubble(t, "one whose clock is put "+name+" is found out, and takes part again when it is right", func(t *testing.T, g *membertest.Group) {
			c := g.Fleet(3)[2]
			membertest.Until(2)
			g.Sets("c", wrong)
			pass(toldTime)
			c.Began()
			membertest.Until(5)
			assert.Empty(t, c.Began())
			assert.Equal(t, 1, c.Log.Count(`msg="this clock is off`))
			g.Sets("c", 0)
			pass(toldTime)
			assert.Equal(t, 1, c.Log.Count(`level=INFO msg="this clock is right again"`))
			assert.Contains(t, g.Owners("job"), "c")
			membertest.Until(30)
			assert.NotEmpty(t, c.Began())
		})
		membertest.Bubble(t, "a leader whose clock is put "+name+" hands the office on", func(t *testing.T, g *membertest.Group) {
			a := g.Fleet(3)[0]
			membertest.Until(2)
			g.Sets("a", wrong)
			pass(toldTime + member.LeastPatience)
			assert.Equal(t, "b", g.InOffice())
			a.Began()
			membertest.Until(5)
			assert.Empty(t, a.Began())
			assert.NotContains(t, g.Owners("job"), "a")
			assert.Len(t, g.Owners("job"), 2)
			assert.Zero(t, g.Members[1].Log.Count("this clock"), "the others are right")
			g.Sets("a", 0)
			pass(toldTime)
			assert.Contains(t, g.Owners("job"), "a")
		})
	}
	membertest.Bubble(t, "one whose clock is off claims nothing of shards either that cannot be taken from it", func(t *testing.T, g *membertest.Group) {
		all := g.Fleet(3)
		membertest.Until(2)
		all[0].Reg.Instead(func(txn registry.Txn) error {
			if len(txn.Then) > 0 && membertest.Below(g.Keys.Plans())(txn.Then[0].Key) {
				return &registry.ConflictError{Index: 1}
			}
			return nil
		})
		g.Sets("c", 10*time.Minute)
		pass(toldTime)
		all[2].Began()
		pass(90 * time.Second)
		assert.Contains(t, g.Owners("job"), "c")
		assert.Empty(t, all[2].Began())
	})
	membertest.Bubble(t, "clocks within the limit are let be", func(t *testing.T, g *membertest.Group) {
		g.Sets("b", 4*time.Second)
		g.Sets("c", -4*time.Second)
		all := g.Fleet(3)
		membertest.Until(5)
		for _, w := range all {
			assert.NotEmpty(t, w.Began())
			assert.Zero(t, w.Log.Count("clock"))
		}
	})
	membertest.Bubble(t, "a clock that is off stays so when the leader changes", func(t *testing.T, g *membertest.Group) {
		g.Fleet(3)
		g.Sets("d", -time.Hour)
		d := g.Start("d", coordtest.Def("job", 0, 12, ""))
		pass(toldTime)
		d.Began()
		defer g.Server.Partition("a")()
		membertest.Until(5)
		require.NotEqual(t, "a", g.Leader().Incarnation[:1])
		assert.Empty(t, d.Began())
		assert.Zero(t, d.Log.Count("right again"))
	})
	membertest.Bubble(t, "messages that are late show no clock to be off", func(t *testing.T, g *membertest.Group) {
		c := g.Fleet(3)[2]
		for _, name := range []string{"a", "c"} {
			release := g.Server.HoldWatch(name)
			pass(toldTime)
			release()
			pass(toldTime)
		}
		assert.Zero(t, c.Log.Count("clock is off"))
	})
	membertest.Bubble(t, "of two instances nobody can tell which is wrong: the leader says that they differ", func(t *testing.T, g *membertest.Group) {
		g.Sets("b", time.Hour)
		all := g.Fleet(2)
		membertest.Until(5)
		assert.Equal(t, 1, all[0].Log.Count("the clocks of two instances differ"))
		for _, w := range all {
			assert.Zero(t, w.Log.Count("this clock is off"))
			assert.NotEmpty(t, w.Began())
		}
	})
	membertest.Bubble(t, "one that was found to be off stays so while others are too few to judge", func(t *testing.T, g *membertest.Group) {
		all := g.Fleet(3)
		membertest.Until(2)
		g.Sets("c", time.Hour)
		pass(toldTime)
		defer g.Server.Partition("b")()
		pass(toldTime)
		all[2].Began()
		membertest.Until(5)
		assert.Equal(t, map[string]string{"a": "0-11"}, g.Owners("job"))
		assert.Empty(t, all[2].Began())
		assert.Equal(t, 1, all[2].Log.Count("this clock is off"))
		assert.Zero(t, all[2].Log.Count("right again"))
	})
	membertest.Bubble(t, "one whose clock is off takes part where nobody else is left", func(t *testing.T, g *membertest.Group) {
		all := g.Fleet(3)
		membertest.Until(2)
		g.Sets("c", time.Hour)
		pass(toldTime)
		defer g.Server.Partition("a")()
		defer g.Server.Partition("b")()
		pass(toldTime)
		all[2].Began()
		membertest.Until(5)
		assert.Equal(t, all[2].Incarnation(), g.Leader().Incarnation)
		assert.Equal(t, map[string]string{"c": "0-11"}, g.Owners("job"))
		assert.NotEmpty(t, all[2].Began())
	})
	membertest.Bubble(t, "a leader whose clock is put back takes nobody for ahead who joins then", func(t *testing.T, g *membertest.Group) {
		g.Fleet(4)
		membertest.Until(2)
		g.Sets("a", -time.Hour)
		e := g.Start("e", coordtest.Def("job", 0, 12, ""))
		pass(toldTime + member.LeastPatience)
		assert.Zero(t, e.Log.Count("this clock"))
		assert.Equal(t, 1, g.Members[0].Log.Count(`msg="this clock is off`))
	})
	membertest.Bubble(t, "an instance that does not look at clocks is never off, and does not count", func(t *testing.T, g *membertest.Group) {
		g.Fleet(2)
		g.Skew = -1
		g.Sets("c", time.Hour)
		c := g.Start("c", coordtest.Def("job", 0, 12, ""))
		g.Skew = 0
		g.Sets("b", -time.Hour)
		pass(toldTime)
		for _, w := range g.Members {
			assert.Zero(t, w.Log.Count("clock is off"))
		}
		assert.NotEmpty(t, c.Began())
	})
	membertest.Bubble(t, "a limit below zero is none, and nothing is told", func(t *testing.T, g *membertest.Group) {
		g.Skew = -1
		g.Sets("c", time.Hour)
		c := g.Fleet(3)[2]
		pass(toldTime)
		assert.NotEmpty(t, c.Began())
		assert.Zero(t, c.Log.Count("clock"))
		assert.NotContains(t, g.Text(g.Keys.Seat()), "clock")
		assert.NotContains(t, g.Text(g.Keys.Member(c.Incarnation())), "clock")
	})
	membertest.Bubble(t, "a clock that jumps claims nothing on account of that", func(t *testing.T, g *membertest.Group) {
		c := g.Fleet(3)[2]
		membertest.Until(2)
		c.Began()
		g.Sets("c", 10*time.Minute)
		pass(member.ClockCheckInterval + member.ClockJudgingTime + time.Second)
		assert.Empty(t, c.Began())
		assert.NotContains(t, g.Owners("job"), "c")
	})
	membertest.Bubble(t, "clocks that agree and do not jump cost nothing", func(t *testing.T, g *membertest.Group) {
		g.Fleet(5)
		pass(toldTime)
		g.Server.Record()
		time.Sleep(5 * time.Hour)
		for _, c := range g.Commits() {
			for _, op := range c.Then {
				require.NotEqual(t, g.Keys.Seat(), op.Key)
				require.NotEqual(t, g.Keys.Members(), op.Key.Dir())
			}
		}
	})
}
