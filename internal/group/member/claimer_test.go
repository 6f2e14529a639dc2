package member_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

func TestClaimer_Start(t *testing.T) {
	membertest.RunBubble(t, "uses the plan on which the claim rests, even if it is unreadable when the reply arrives", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		a.Reg.AfterTxn(membertest.OnFirstWrite(membertest.IsBelow(g.Keys.ClaimsOf(a.Incarnation())), func() {
			g.WriteRecord(g.Keys.Plan("job"), fmt.Sprintf(`{"format":%d}`, record.Format+1)) // unreadable, so the leader leaves it
			time.Sleep(time.Second)
		}))
		membertest.SleepToMinute(2)
		runs := a.TakeRuns()
		require.Len(t, runs, 1)
		assert.Equal(t, 1, runs[0].Shards)
		assert.NotNil(t, runs[0].Program)
	})
	membertest.RunBubble(t, "asks a run to yield if its shard is frozen when the reply arrives", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(time.Hour), coordtest.Def("job", 0, 4, ""))
		b := g.Start("b", coordtest.Def("other", 0, 1, ""))
		a.Reg.AfterTxn(membertest.OnFirstWrite(membertest.IsBelow(g.Keys.ClaimsOf(a.Incarnation())), func() {
			b.Offer(membertest.DefinitionsByName(coordtest.Def("job", 0, 4, "")))
			time.Sleep(time.Second)
		}))
		membertest.SleepToMinute(2)
		assert.Equal(t, "2-3", g.ReadPlan("job").Frozen.String())
		assert.ElementsMatch(t, []int{2, 3}, a.YieldedShards())
	})
	membertest.RunBubble(t, "waits while the session is suspended", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		var heal func()
		a.Reg.AfterTxn(membertest.OnFirstWrite(membertest.IsBelow(g.Keys.ClaimsOf(a.Incarnation())), func() {
			heal = g.Server.Partition("a")
			time.Sleep(time.Millisecond)
		}))
		membertest.SleepToMinute(1)
		assert.Empty(t, a.TakeRuns())
		heal()
		synctest.Wait()
		assert.Equal(t, membertest.OncePerShard(1), membertest.CountRuns(a.TakeRuns()))
		membertest.SleepToMinute(2)
		assert.Equal(t, membertest.OncePerShard(1), membertest.CountRuns(a.TakeRuns()))
	})
}

func TestClaimer_Suspended(t *testing.T) {
	membertest.RunBubble(t, "nothing is claimed; afterwards each due fire is claimed once", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		before := a.Incarnation()
		time.Sleep(57 * time.Second)
		heal := g.Server.Partition("a")
		membertest.SleepToMinute(1)
		assert.Empty(t, a.TakeRuns())
		heal()
		synctest.Wait()
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(a.TakeRuns()))
		assert.Equal(t, before, a.Incarnation())
	})
}

func TestClaimer_Conflicts(t *testing.T) {
	membertest.RunBubble(t, "are retried at most once for each commit of the plan", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		release := g.Server.HoldWatch("a") // it no longer observes new plans
		g.Server.Record()
		e, _ := g.GetRecord(g.Keys.Plan("job"))
		g.PutRecord(g.Keys.Plan("job"), string(e.Value))
		membertest.SleepToMinute(3)
		refused := 0
		for _, c := range g.Server.Log() {
			if c.Err != nil && c.Client == "a" {
				refused++
			}
		}
		assert.Equal(t, 1, refused, "of the claims at 1:00 and at 2:00")
		assert.Empty(t, a.TakeRuns())
		release()
		synctest.Wait()
		assert.Len(t, a.TakeRuns(), 1)
	})
	membertest.RunBubble(t, "of one job do not delay other jobs of the transaction", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("x", 0, 1, ""), coordtest.Def("y", 0, 1, ""), coordtest.Def("z", 0, 1, ""))
		defer g.Server.HoldWatch("a")()
		e, _ := g.GetRecord(g.Keys.Plan("y"))
		g.PutRecord(g.Keys.Plan("y"), string(e.Value))
		membertest.SleepToMinute(1)
		var jobs []string
		for _, r := range a.TakeRuns() {
			jobs = append(jobs, r.Job)
		}
		assert.ElementsMatch(t, []string{"x", "z"}, jobs)
	})
}

func TestClaimer_UnknownOutcomes(t *testing.T) {
	for name, lose := range map[string]func(*membertest.Group){
		"a claim whose reply is lost is started once":     func(g *membertest.Group) { g.Server.LoseReply("a", 1) },
		"a claim that is lost is made again, and started": func(g *membertest.Group) { g.Server.LoseRequest("a", 1) },
	} {
		membertest.RunBubble(t, name, func(t *testing.T, g *membertest.Group) {
			a := g.Start("a", coordtest.Def("job", 0, 2, ""))
			time.Sleep(57 * time.Second)
			lose(g)
			membertest.SleepToMinute(1)
			assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(a.TakeRuns()))
			membertest.SleepToMinute(2)
			assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(a.TakeRuns()))
		})
	}
}

func TestClaimer_RecordEdit(t *testing.T) {
	membertest.RunBubble(t, "that changes its claims ends the incarnation and the contexts of its runs", func(t *testing.T, g *membertest.Group) {
		cause := make(chan error, 1)
		a := g.StartWorking("a", func(ctx context.Context, r claimer.Run) error {
			if r.Job == "job" && r.Attempt == 1 && r.Fire.Equal(coordtest.BubbleStart().Add(time.Minute)) {
				<-ctx.Done()
				cause <- context.Cause(ctx)
			}
			return nil
		}, coordtest.Def("job", 0, 1, ""), coordtest.Def("other", 0, 1, ""))
		before := a.Incarnation()
		membertest.SleepToMinute(1)
		key := g.Keys.Claims(before, "other")
		e, ok := g.GetRecord(key)
		require.True(t, ok)
		g.PutRecord(key, string(e.Value))
		membertest.SleepToMinute(3)
		assert.NotEqual(t, before, a.Incarnation())
		select {
		case err := <-cause:
			assert.ErrorIs(t, err, registry.ErrSessionLost)
		default:
			assert.Fail(t, "the run continues")
		}
	})
}
