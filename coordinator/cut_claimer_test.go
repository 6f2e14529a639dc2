package coordinator

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

func TestLedger_Start(t *testing.T) {
	bubble(t, "is by the plan that the claim rests on, though that has gone by the time of the reply", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		a.reg.after(writing(below(g.keys.ClaimsOf(a.incarnation())), func() {
			g.write(g.keys.Plan("job"), fmt.Sprintf(`{"format":%d}`, record.Format+1)) // which stays
			time.Sleep(time.Second)
		}))
		until(2)
		runs := a.began()
		require.Len(t, runs, 1)
		assert.Equal(t, 1, runs[0].Shards)
		assert.NotNil(t, runs[0].Program)
	})
	bubble(t, "of a shard that is to move by the time of the reply says so", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(time.Hour), def("job", 0, 4, ""))
		b := g.start("b", def("other", 0, 1, ""))
		a.reg.after(writing(below(g.keys.ClaimsOf(a.incarnation())), func() {
			b.Offer(offering(def("job", 0, 4, "")))
			time.Sleep(time.Second)
		}))
		until(2)
		assert.Equal(t, "2-3", g.plan("job").Frozen.String())
		assert.ElementsMatch(t, []int{2, 3}, a.asked())
	})
	bubble(t, "waits while the session is suspended", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		var heal func()
		a.reg.after(writing(below(g.keys.ClaimsOf(a.incarnation())), func() {
			heal = g.server.Partition("a")
			time.Sleep(time.Millisecond)
		}))
		until(1)
		assert.Empty(t, a.began())
		heal()
		synctest.Wait()
		assert.Equal(t, once(1), shards(a.began()))
		until(2)
		assert.Equal(t, once(1), shards(a.began()))
	})
}

func TestLedger_Suspended(t *testing.T) {
	bubble(t, "nothing is claimed; then what fell due is, once", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		before := a.incarnation()
		time.Sleep(57 * time.Second)
		heal := g.server.Partition("a")
		until(1)
		assert.Empty(t, a.began())
		heal()
		synctest.Wait()
		assert.Equal(t, once(2), shards(a.began()))
		assert.Equal(t, before, a.incarnation())
	})
}

func TestLedger_Conflicts(t *testing.T) {
	bubble(t, "are retried at most once for each commit of the plan", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		release := g.server.HoldWatch("a") // its plan is old from now on
		g.server.Record()
		e, _ := g.get(g.keys.Plan("job"))
		g.put(g.keys.Plan("job"), string(e.Value))
		until(3)
		refused := 0
		for _, c := range g.server.Log() {
			if c.Err != nil && c.Client == "a" {
				refused++
			}
		}
		assert.Equal(t, 1, refused, "claims at 1:00 and at 2:00")
		assert.Empty(t, a.began())
		release()
		synctest.Wait()
		assert.Len(t, a.began(), 1)
	})
	bubble(t, "of one job do not keep the others that were claimed with it", func(t *testing.T, g *group) {
		a := g.start("a", def("x", 0, 1, ""), def("y", 0, 1, ""), def("z", 0, 1, ""))
		defer g.server.HoldWatch("a")()
		e, _ := g.get(g.keys.Plan("y"))
		g.put(g.keys.Plan("y"), string(e.Value))
		until(1)
		var jobs []string
		for _, r := range a.began() {
			jobs = append(jobs, r.Job)
		}
		assert.ElementsMatch(t, []string{"x", "z"}, jobs)
	})
}

func TestLedger_UnknownOutcomes(t *testing.T) {
	for name, lose := range map[string]func(*group){
		"a claim whose reply is lost is started once":     func(g *group) { g.server.LoseReply("a", 1) },
		"a claim that is lost is made again, and started": func(g *group) { g.server.LoseRequest("a", 1) },
	} {
		bubble(t, name, func(t *testing.T, g *group) {
			a := g.start("a", def("job", 0, 2, ""))
			time.Sleep(57 * time.Second)
			lose(g)
			until(1)
			assert.Equal(t, once(2), shards(a.began()))
			until(2)
			assert.Equal(t, once(2), shards(a.began()))
		})
	}
}

func TestLedger_AnotherHand(t *testing.T) {
	bubble(t, "on its claims ends the incarnation, whose runs hear that its session is over", func(t *testing.T, g *group) {
		cause := make(chan error, 1)
		a := g.startWorking("a", func(ctx context.Context, r Run) error {
			if r.Job == "job" && r.Attempt == 1 && r.Fire.Equal(bubbleBegan().Add(time.Minute)) {
				<-ctx.Done()
				cause <- context.Cause(ctx)
			}
			return nil
		}, def("job", 0, 1, ""), def("other", 0, 1, ""))
		before := a.incarnation()
		until(1)
		key := g.keys.Claims(before, "other")
		e, ok := g.get(key)
		require.True(t, ok)
		g.put(key, string(e.Value))
		until(3)
		assert.NotEqual(t, before, a.incarnation())
		select {
		case err := <-cause:
			assert.ErrorIs(t, err, registry.ErrSessionLost)
		default:
			assert.Fail(t, "the run goes on")
		}
	})
}
