package member_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
)

func TestMember_RestartGrace(t *testing.T) {
	membertest.RunBubble(t, "lets a rolling restart move no shard and lose no fire", func(t *testing.T, g *membertest.Group) {
		g.Grace = 30 * time.Second
		had := g.StartFive()
		g.RestartEach()
		assert.Equal(t, had, g.ReadOwners("job"))
		assert.Zero(t, g.CountMoves(had))
	})
	membertest.RunBubble(t, "is off by default: a rolling restart moves the shards of each member away and back", func(t *testing.T, g *membertest.Group) {
		had := g.StartFive()
		g.RestartEach()
		assert.Equal(t, 5*2*20/5, g.CountMoves(had))
	})
	membertest.RunBubble(t, "ends: the shards of an instance that does not return move", func(t *testing.T, g *membertest.Group) {
		g.Grace = 30 * time.Second
		had := g.StartFive()
		g.Members[3].Shutdown()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		assert.Equal(t, had, g.ReadOwners("job"))
		assert.Zero(t, g.CountMoves(had))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Len(t, g.ReadOwners("job"), 4)
		assert.Equal(t, 20/5, g.CountMoves(had))
	})
	membertest.RunBubble(t, "counts from the end of a drain", func(t *testing.T, g *membertest.Group) {
		g.Grace = 30 * time.Second
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		b := g.StartWorking("b", membertest.WorkFor(20*time.Second), coordtest.Def("job", 0, 4, ""))
		had := g.ReadOwners("job")
		membertest.SleepToMinute(1)
		b.Shutdown()
		require.Equal(t, 80*time.Second, time.Since(coordtest.BubbleStart()), "the drain took 20 s")
		time.Sleep(25 * time.Second)
		synctest.Wait()
		assert.Equal(t, had, g.ReadOwners("job"))
	})
	membertest.RunBubble(t, "does not keep idle shards at a draining instance whose handler does not return", func(t *testing.T, g *membertest.Group) {
		g.Grace = 30 * time.Second
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		b := g.StartWorking("b", func(ctx context.Context, r claimer.Run) error {
			if r.Shard == 3 {
				return membertest.WorkFor(10*time.Minute)(ctx, r)
			}
			return nil
		}, coordtest.Def("job", 0, 4, ""))
		membertest.SleepToMinute(1)
		require.NoError(t, b.Drain(t.Context()))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, map[string]string{"a": "0-2", "b": "3"}, g.ReadOwners("job"))
	})
	membertest.RunBubble(t, "returns the unfinished runs of a crash to the instance when it comes back", func(t *testing.T, g *membertest.Group) {
		g.Grace = 30 * time.Second
		a := g.StartWorking("a", membertest.WorkFor(20*time.Second), coordtest.Def("job", 0, 4, ""))
		b := g.StartWorking("b", membertest.WorkFor(20*time.Second), coordtest.Def("job", 0, 4, ""))
		had := g.ReadOwners("job")
		membertest.SleepToMinute(1)
		require.Len(t, a.TakeRuns(), 2)
		require.Len(t, b.TakeRuns(), 2)
		defer g.Server.Partition("b")()
		back := g.StartOn("b again", "b", coordtest.Def("job", 0, 4, ""))
		assert.Equal(t, had, g.ReadOwners("job"))
		for _, r := range back.TakeRuns() {
			assert.Equal(t, 2, r.Attempt)
			assert.Contains(t, []int{2, 3}, r.Shard)
		}
		membertest.SleepToMinute(2)
		assert.Equal(t, map[int]int{2: 1, 3: 1}, membertest.CountRuns(back.TakeRuns()))
		assert.Equal(t, map[int]int{0: 1, 1: 1}, membertest.CountRuns(a.TakeRuns()))
	})
	membertest.RunBubble(t, "starts again with the next leader", func(t *testing.T, g *membertest.Group) {
		g.Grace = 30 * time.Second
		g.StartFive()
		g.Members[4].Shutdown()
		time.Sleep(20 * time.Second)
		leader := g.Members[0]
		require.Equal(t, leader.Incarnation(), g.ReadLeader().Incarnation)
		leader.Shutdown()
		g.StartOn("a again", "a", coordtest.Def("job", 0, 20, ""))
		time.Sleep(27 * time.Second)
		synctest.Wait()
		assert.Len(t, g.ReadOwners("job"), 5)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Len(t, g.ReadOwners("job"), 4)
		assert.NotContains(t, g.ReadOwners("job"), "e")
	})
}
