package member_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/test/long"
)

func TestUnoffered(t *testing.T) {
	// removed has a and b offer a job, withdraw it for the duration away, and offer it again. It returns
	// the runs of the next ten seconds, and those of the ten minutes after that.
	removed := func(t *testing.T, g *membertest.Group, away time.Duration, meanwhile func(a, b *membertest.Worker)) (atOnce, later []claimer.Run) {
		job, other := coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 2, `,"start_paused":true`)
		a, b := g.Start("a", job, other), g.Start("b", job, other)
		time.Sleep(90 * time.Second)
		a.Withdraw("job")
		b.Withdraw("job")
		time.Sleep(10 * time.Second)
		assert.Equal(t, planning.UnofferedProblem, g.ReadPlan("job").Problem)
		meanwhile(a, b)
		time.Sleep(away)
		all := func() (runs []claimer.Run) {
			for _, w := range g.Members {
				for _, r := range w.TakeRuns() {
					if r.Job == "job" {
						runs = append(runs, r)
					}
				}
			}
			return runs
		}
		all()
		last := g.Members[len(g.Members)-1]
		last.Offer(membertest.DefinitionsByName(job))
		time.Sleep(10 * time.Second)
		assert.Empty(t, g.ReadPlan("job").Problem)
		atOnce = all()
		time.Sleep(10 * time.Minute)
		return atOnce, all()
	}
	nothing := func(a, b *membertest.Worker) {}
	membertest.RunBubble(t, "a job that is offered again after days has no pending fires", func(t *testing.T, g *membertest.Group) {
		atOnce, later := removed(t, g, long.Pick[time.Duration](2, 30)*24*time.Hour, nothing)
		assert.Empty(t, atOnce)
		assert.Len(t, later, 20)
		for _, r := range later {
			assert.False(t, r.Missed)
		}
	})
	membertest.RunBubble(t, "after 30 minutes the misfire policy applies", func(t *testing.T, g *membertest.Group) {
		atOnce, later := removed(t, g, 30*time.Minute, nothing)
		assert.Len(t, atOnce, 2)
		assert.Len(t, later, 20)
	})
	membertest.RunBubble(t, "the next leader counts from the same instant", func(t *testing.T, g *membertest.Group) {
		atOnce, _ := removed(t, g, 30*time.Minute, func(a, b *membertest.Worker) {
			time.Sleep(40 * time.Minute)
			led := g.ReadLeader().Session
			for _, w := range []*membertest.Worker{a, b} {
				if w.Session() == led {
					w.Shutdown()
				}
			}
		})
		assert.Empty(t, atOnce)
	})
	membertest.RunBubble(t, "while the whole fleet is down, the job does not count as unoffered", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		time.Sleep(90 * time.Second)
		a.Shutdown()
		time.Sleep(30 * 24 * time.Hour)
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		time.Sleep(10 * time.Second)
		assert.Len(t, b.TakeRuns(), 2)
	})
}
