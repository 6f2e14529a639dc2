package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// hangs makes the strategy "hangs" of the group one which deals as "single" does, but does not return
// from its first n calls until the function is called that hangs returns.
func (g *group) hangs(n int64) (release func()) {
	released := make(chan struct{})
	var calls atomic.Int64
	s := Strategy(func(in Input) (Assignment, error) {
		if calls.Add(1) <= n {
			<-released
		}
		return single(in)
	})
	g.strategy.Store(&s)
	return func() { close(released) }
}

// led waits for as long as it takes to find that a leader is stuck, and returns who is in
// office then, by name.
func (g *group) led() string {
	g.t.Helper()
	time.Sleep(2 * leastPatience)
	synctest.Wait()
	return g.inOffice()
}

// inOffice returns the name of the instance in office, "" if that is vacant.
func (g *group) inOffice() string {
	g.t.Helper()
	e, ok := g.get(g.keys.Present())
	if !ok {
		return ""
	}
	for _, w := range g.members {
		if w.session() == e.Owner {
			return w.Instance()
		}
	}
	return "a stranger"
}

var hanging = def("stuck", 0, 2, `,"strategy":"hangs"`)

func TestWatchdog(t *testing.T) {
	bubble(t, "a leader whose strategy does not return resigns, and says what it was busy with", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		b := g.start("b", def("job", 0, 4, ""))
		require.Equal(t, "a", g.inOffice())
		defer g.hangs(1)()
		a.Offer(offering(hanging))
		require.Equal(t, "b", g.led())
		assert.Equal(t, 1, a.log.count("level=ERROR"))
		assert.Equal(t, 1, a.log.count("busy with strategy hangs of job stuck"))
		assert.NotEmpty(t, g.owners("stuck"), "the next leader deals what the last one could not")
		before := a.incarnation()
		a.began()
		until(2)
		assert.NotEmpty(t, a.began(), "it goes on running what it owns")
		assert.Equal(t, before, a.incarnation(), "its session lives")
		assert.Zero(t, b.log.count("level=ERROR"))
	})
	bubble(t, "one that is stuck does not stand again until its loop has come round", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		g.start("b", def("job", 0, 4, ""))
		release := g.hangs(1)
		a.Offer(offering(hanging))
		require.Equal(t, "b", g.led())
		defer g.server.Partition("b")()
		time.Sleep(2 * ttl)
		synctest.Wait()
		_, taken := g.get(g.keys.Present())
		require.False(t, taken)
		release()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		e, _ := g.get(g.keys.Present())
		assert.Equal(t, a.session(), e.Owner)
	})
	bubble(t, "one that is stuck and is named all the same hands the office on", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		b := g.start("b", def("job", 0, 4, ""))
		g.start("c", def("job", 0, 4, ""))
		defer g.hangs(1)()
		a.Offer(offering(hanging))
		require.Equal(t, "b", g.led())
		e, _ := g.get(g.keys.Present())
		present, err := record.Decode[record.Present](e.Value)
		require.NoError(t, err)
		require.Equal(t, a.incarnation(), present.Successors[0])
		require.NoError(t, b.Drain(t.Context()))
		assert.Equal(t, "c", g.led())
	})
	bubble(t, "if every leader gets stuck, each has its turn", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		g.start("b", def("job", 0, 4, ""))
		g.start("c", def("job", 0, 4, ""))
		defer g.hangs(2)()
		a.Offer(offering(hanging))
		require.Equal(t, "b", g.led())
		assert.Equal(t, "c", g.led())
		assert.NotEmpty(t, g.owners("stuck"))
	})
	bubble(t, "one that is alone stays in office, and goes on when its strategy returns", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		release := g.hangs(1)
		a.Offer(offering(hanging))
		require.Equal(t, "a", g.led())
		term := g.leader()
		release()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.NotEmpty(t, g.owners("stuck"))
		assert.Equal(t, term, g.leader())
		assert.Equal(t, 1, a.log.count("level=ERROR"), "said once")
	})
	bubble(t, "one that is stuck leaves in good order", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		g.start("b", def("job", 0, 4, ""))
		defer g.hangs(1)()
		a.Offer(offering(hanging))
		synctest.Wait()
		a.goes()
		assert.Equal(t, "b", g.led())
	})
	bubble(t, "one that is stuck and loses its session joins again, and does not stand", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		release := g.hangs(1)
		a.Offer(offering(hanging))
		synctest.Wait()
		old := a.incarnation()
		g.server.Expire("a")
		assert.Empty(t, g.led())
		assert.NotEqual(t, old, a.incarnation())
		release()
		assert.Equal(t, "a", g.led())
		assert.NotEmpty(t, g.owners("stuck"))
	})
	bubble(t, "a leader whose writes are refused for another reason than a conflict resigns", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		g.start("b", def("job", 0, 4, ""))
		full := fmt.Errorf("no room here: %w", registry.ErrQuota)
		a.reg.instead(func(txn registry.Txn) error {
			if len(txn.Then) > 0 && below(g.keys.Plans())(txn.Then[0].Key) {
				return full
			}
			return nil
		})
		a.Offer(offering(def("more", 0, 1, "")))
		require.Equal(t, "b", g.led())
		assert.Equal(t, 1, a.log.count("busy with the writing of plans, and last failed: no room here"))
		assert.NotEmpty(t, g.owners("more"))
	})
	bubble(t, "a leader whose writes conflict for however long does not", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		g.start("b", def("job", 0, 4, ""))
		a.reg.instead(func(txn registry.Txn) error {
			if len(txn.Then) > 0 && below(g.keys.Plans())(txn.Then[0].Key) {
				return &registry.ConflictError{Index: 1}
			}
			return nil
		})
		a.Offer(offering(def("more", 0, 1, "")))
		assert.Equal(t, "a", g.led())
		assert.Zero(t, a.log.count("level=ERROR"))
	})
	bubble(t, "a leader at rest does not, nor one whose strategies take their time", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 4, ""))
		g.start("b", def("job", 0, 4, ""))
		release := g.hangs(1)
		a.Offer(offering(hanging))
		time.Sleep(leastPatience - time.Second)
		release()
		until(5)
		assert.Equal(t, "a", g.inOffice())
		assert.Zero(t, a.log.count("level=ERROR"))
	})
}

func TestProgress(t *testing.T) {
	began := time.Now()
	p := progress{since: began}
	t.Run("is stuck when it has come to nothing for longer than patience allows", func(t *testing.T) {
		_, stuck := p.stuck(began.Add(time.Second), time.Second)
		assert.False(t, stuck)
		why, stuck := p.stuck(began.Add(time.Second+1), time.Second)
		assert.True(t, stuck)
		assert.Equal(t, "for 1s it has been busy with nothing", why)
	})
	t.Run("says what the loop is busy with, and how it last failed", func(t *testing.T) {
		p := progress{since: began}
		p.do("the writing", "plans")
		p.fail(context.DeadlineExceeded)
		why, _ := p.stuck(began.Add(time.Minute), time.Second)
		assert.Equal(t, "for 1m0s it has been busy with the writing of plans, and last failed: context deadline exceeded", why)
	})
	t.Run("is not stuck while it rests, nor anew at once when it begins", func(t *testing.T) {
		p := progress{since: began.Add(-time.Hour), err: errors.New("once")}
		p.rest()
		_, stuck := p.stuck(began, time.Second)
		assert.False(t, stuck)
		p.begin()
		_, stuck = p.stuck(time.Now(), time.Second)
		assert.False(t, stuck)
	})
	t.Run("counts a conflict as an answer", func(t *testing.T) {
		p := progress{since: began.Add(-time.Hour)}
		p.fail(fmt.Errorf("name: %w", &registry.ConflictError{}))
		_, stuck := p.stuck(time.Now(), time.Minute)
		assert.False(t, stuck)
	})
}
