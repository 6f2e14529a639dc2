package member_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/leader"
	"github.com/rota-dev/rota/internal/group/membertest"
)

func TestStoreClock(t *testing.T) {
	const differs = "this clock differs from the store's"
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		membertest.RunBubble(t, "a lone instance whose clock is "+name+" reports the difference, and goes on claiming", func(t *testing.T, g *membertest.Group) {
			g.Skew = 5 * time.Second
			g.SetClock("a", ahead)
			a := g.Start("a", coordtest.Def("job", 0, 1, ""))
			assert.Equal(t, 1, a.Log.Count(differs))
			assert.Contains(t, a.Log.String(), "level=WARN msg=\"this clock differs")
			assert.Contains(t, a.Log.String(), "ahead="+ahead.String())
			membertest.SleepToMinute(2)
			assert.NotEmpty(t, a.TakeRuns())
			assert.Equal(t, 1, a.Log.Count(differs))
			time.Sleep(2 * leader.ClockComparison)
			assert.GreaterOrEqual(t, a.Log.Count(differs), 2, "the report is repeated while the difference lasts")
			assert.Zero(t, a.Log.Count("cannot be checked"))
		})
	}
	membertest.RunBubble(t, "the leader of two instances compares its clock", func(t *testing.T, g *membertest.Group) {
		g.Skew = 5 * time.Second
		b := g.Start("b", coordtest.Def("job", 0, 1, ""))
		assert.Zero(t, b.Log.Count(differs))
		g.SetClock("a", time.Hour)
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		time.Sleep(time.Minute)
		assert.Zero(t, b.Log.Count(differs), "its clock is right")
		require.NoError(t, b.Drain(t.Context()))
		time.Sleep(time.Minute)
		assert.Positive(t, a.Log.Count(differs))
	})
	membertest.RunBubble(t, "a lone instance reports that its clock was set", func(t *testing.T, g *membertest.Group) {
		g.Skew = 5 * time.Second
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		assert.Zero(t, a.Log.Count(differs))
		g.SetClock("a", -time.Hour)
		time.Sleep(time.Minute)
		assert.Equal(t, 1, a.Log.Count(differs))
	})
	membertest.RunBubble(t, "three instances do not compare with the store, and a difference within the limit is not reported", func(t *testing.T, g *membertest.Group) {
		g.Skew = 5 * time.Second
		g.SetClock("a", 4*time.Second)
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		for _, name := range []string{"b", "c"} {
			g.Start(name, coordtest.Def("job", 0, 1, ""))
		}
		g.SetClock("a", time.Hour)
		time.Sleep(time.Minute)
		assert.Zero(t, a.Log.Count(differs))
	})
	membertest.RunBubble(t, "without a store clock, a lone instance reports once that its clock cannot be checked", func(t *testing.T, g *membertest.Group) {
		g.Skew = 5 * time.Second
		a := g.NewWorker("a", nil, coordtest.Def("job", 0, 1, ""))
		a.Reg.NoClock = true
		g.JoinWorker(a)
		time.Sleep(3 * leader.ClockComparison)
		assert.Equal(t, 1, a.Log.Count("this clock cannot be checked"))
		assert.Contains(t, a.Log.String(), "level=INFO msg=\"this clock cannot be checked")
	})
}
