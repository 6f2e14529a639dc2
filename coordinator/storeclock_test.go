package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClocks_OfTheStore(t *testing.T) {
	const differs = "this clock differs from the store's"
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		bubble(t, "are compared by an instance that is alone, which reports that its own is "+name+", and works", func(t *testing.T, g *group) {
			g.skew = 5 * time.Second
			g.sets("a", ahead)
			a := g.start("a", def("job", 0, 1, ""))
			assert.Equal(t, 1, a.log.count(differs))
			assert.Contains(t, a.log.String(), "level=WARN msg=\"this clock differs")
			assert.Contains(t, a.log.String(), "ahead="+ahead.String())
			until(2)
			assert.NotEmpty(t, a.began())
			assert.Equal(t, 1, a.log.count(differs))
			time.Sleep(2 * clocksDrift)
			assert.GreaterOrEqual(t, a.log.count(differs), 2, "it does so again while that lasts")
			assert.Zero(t, a.log.count("cannot be checked"))
		})
	}
	bubble(t, "are compared by the leader of two", func(t *testing.T, g *group) {
		g.skew = 5 * time.Second
		b := g.start("b", def("job", 0, 1, ""))
		assert.Zero(t, b.log.count(differs))
		g.sets("a", time.Hour)
		a := g.start("a", def("job", 0, 1, ""))
		time.Sleep(time.Minute)
		assert.Zero(t, b.log.count(differs), "its own is right")
		require.NoError(t, b.Drain(t.Context()))
		time.Sleep(time.Minute)
		assert.Positive(t, a.log.count(differs))
	})
	bubble(t, "show a clock that is set while its instance is alone", func(t *testing.T, g *group) {
		g.skew = 5 * time.Second
		a := g.start("a", def("job", 0, 1, ""))
		assert.Zero(t, a.log.count(differs))
		g.sets("a", -time.Hour)
		time.Sleep(time.Minute)
		assert.Equal(t, 1, a.log.count(differs))
	})
	bubble(t, "are not asked where three can judge, nor where the difference is within the limit", func(t *testing.T, g *group) {
		g.skew = 5 * time.Second
		g.sets("a", 4*time.Second)
		a := g.start("a", def("job", 0, 1, ""))
		for _, name := range []string{"b", "c"} {
			g.start(name, def("job", 0, 1, ""))
		}
		g.sets("a", time.Hour)
		time.Sleep(time.Minute)
		assert.Zero(t, a.log.count(differs))
	})
	bubble(t, "are missing: an instance that is alone reports once that its clock cannot be checked", func(t *testing.T, g *group) {
		g.skew = 5 * time.Second
		a := g.worker("a", nil, def("job", 0, 1, ""))
		a.reg.noClock = true
		g.joined(a)
		time.Sleep(3 * clocksDrift)
		assert.Equal(t, 1, a.log.count("this clock cannot be checked"))
		assert.Contains(t, a.log.String(), "level=INFO msg=\"this clock cannot be checked")
	})
}

func TestAheadOf(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	assert.Zero(t, aheadOf(at(5), at(5), at(5)))
	assert.Zero(t, aheadOf(at(5), at(1), at(9)), "the commit took its time")
	assert.Equal(t, 3*time.Second, aheadOf(at(2), at(5), at(9)))
	assert.Equal(t, -3*time.Second, aheadOf(at(12), at(5), at(9)))
}
