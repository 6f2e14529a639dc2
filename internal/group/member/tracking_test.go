package member_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
)

func TestTrackClaims(t *testing.T) {
	membertest.RunBubble(t, "cost one commit for each fire, which also records the ends of the fire before", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		g.Server.Record()
		for n := range 5 {
			membertest.SleepToMinute(n + 1)
			time.Sleep(30 * time.Second)
			assert.Equal(t, membertest.OncePerShard(4), membertest.CountRuns(a.TakeRuns()))
			assert.Equal(t, 1, g.CountClaimCommits())
			claims := g.ReadClaims(a.Incarnation(), "job")
			assert.Equal(t, "0-3", claims.Running.Shards().String())
			assert.Equal(t, record.Counts{Claimed: uint64(4 * (n + 1)), Succeeded: uint64(4 * n)}, claims.Counts)
		}
	})
	membertest.RunBubble(t, "claim a fire that came due during a run after the end of the run", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(90*time.Second), coordtest.Def("job", 0, 1, coordtest.ClaimsOnly))
		membertest.SleepToMinute(2)
		require.Len(t, a.TakeRuns(), 1)
		time.Sleep(30 * time.Second)
		runs := a.TakeRuns()
		require.Len(t, runs, 1)
		assert.Equal(t, coordtest.BubbleStart().Add(2*time.Minute), runs[0].Fire.UTC())
	})
	membertest.RunBubble(t, "give up a shard whose run has ended, at the cost of one commit", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		membertest.SleepToMinute(1)
		g.Server.Record()
		b := g.Start("b", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.ReadOwners("job"))
		assert.Equal(t, 1, g.CountClaimCommits())
		assert.Empty(t, g.ReadClaims(a.Incarnation(), "job").Running)
		a.TakeRuns()
		membertest.SleepToMinute(2)
		assert.Equal(t, membertest.OncePerShard(4), membertest.SumRuns(membertest.CountRuns(a.TakeRuns()), membertest.CountRuns(b.TakeRuns())))
	})
	membertest.RunBubble(t, "keep a shard whose function has not returned", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(30*time.Second), coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		membertest.SleepToMinute(1)
		g.Start("b", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		assert.Equal(t, map[string]string{"a": "0-3"}, g.ReadOwners("job"))
		assert.Equal(t, "2-3", g.ReadPlan("job").Frozen.String())
		assert.ElementsMatch(t, []int{2, 3}, a.YieldedShards())
		time.Sleep(30 * time.Second)
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.ReadOwners("job"))
	})
	membertest.RunBubble(t, "keep a shard of an owner that drains until its function has returned", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(30*time.Second), coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		b := g.StartWorking("b", membertest.WorkFor(30*time.Second), coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		membertest.SleepToMinute(1)
		require.NoError(t, a.Drain(t.Context()))
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string]string{"a": "0", "b": "1"}, g.ReadOwners("job"))
		time.Sleep(30 * time.Second)
		assert.Equal(t, map[string]string{"b": "0-1"}, g.ReadOwners("job"))
		a.TakeRuns()
		b.TakeRuns()
		membertest.SleepToMinute(2)
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(b.TakeRuns()))
		assert.Zero(t, g.SumCounts("job").Unknown)
	})
	membertest.RunBubble(t, "do not start while their owner has not observed a move, and none is lost or duplicated", func(t *testing.T, g *membertest.Group) {
		g.Start("c", coordtest.Def("other", 0, 1, `,"start_paused":true`)) // it leads
		a := g.Start("a", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		membertest.SleepToMinute(3)
		require.Len(t, a.TakeRuns(), 12)
		release := g.Server.HoldWatch("a")
		b := g.Start("b", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		membertest.SleepToMinute(4)
		assert.Equal(t, "2-3", g.ReadPlan("job").Frozen.String())
		assert.Equal(t, map[string]string{"a": "0-3"}, g.ReadOwners("job"), "the ends are not recorded")
		assert.Empty(t, a.TakeRuns(), "a claim has the condition of a plan that was replaced")
		release()
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.ReadOwners("job"))
		assert.Equal(t, membertest.OncePerShard(4), membertest.SumRuns(membertest.CountRuns(a.TakeRuns()), membertest.CountRuns(b.TakeRuns())))
		membertest.SleepToMinute(5)
		assert.Equal(t, membertest.OncePerShard(4), membertest.SumRuns(membertest.CountRuns(a.TakeRuns()), membertest.CountRuns(b.TakeRuns())))
	})
	membertest.RunBubble(t, "leave nothing on record when their owner drains", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		b := g.Start("b", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		membertest.SleepToMinute(1)
		a.Shutdown()
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.ReadOwners("job"))
		assert.Zero(t, g.SumCounts("job").Unknown)
		assert.EqualValues(t, 2, g.ReadPlan("job").Counts.Succeeded)
		membertest.SleepToMinute(2)
		assert.Equal(t, membertest.OncePerShard(4), membertest.CountRuns(b.TakeRuns()[2:]))
	})
	membertest.RunBubble(t, "are counted as unknown after a crash, and not made again, even if the job wants re-runs", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, `,"on_crash":"rerun elsewhere"`+coordtest.ClaimsOnly))
		b := g.Start("b", coordtest.Def("job", 0, 2, `,"on_crash":"rerun elsewhere"`+coordtest.ClaimsOnly))
		membertest.SleepToMinute(1)
		require.Equal(t, membertest.OncePerShard(2), membertest.SumRuns(membertest.CountRuns(a.TakeRuns()), membertest.CountRuns(b.TakeRuns())))
		defer g.Server.Partition("a")()
		membertest.SleepToMinute(2)
		assert.Equal(t, map[string]string{"b": "0-1"}, g.ReadOwners("job"))
		runs := b.TakeRuns()
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(runs))
		for _, r := range runs {
			assert.Equal(t, 1, r.Attempt)
		}
		counts := g.ReadPlan("job").Counts
		assert.EqualValues(t, 1, counts.Unknown)
		assert.Zero(t, counts.Lost)
	})
	membertest.RunBubble(t, "are counted as unknown when the awaited instance returns", func(t *testing.T, g *membertest.Group) {
		g.Grace = time.Minute
		a := g.Start("a", coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		g.Start("b", coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		membertest.SleepToMinute(1)
		g.Server.Expire("a")
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string]string{"a": "0", "b": "1"}, g.ReadOwners("job"))
		assert.EqualValues(t, 1, g.ReadPlan("job").Counts.Unknown)
		a.TakeRuns()
		membertest.SleepToMinute(2)
		assert.Len(t, a.TakeRuns(), 1)
	})
	membertest.RunBubble(t, "leave nothing on record of a job that is paused", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		membertest.SleepToMinute(1)
		require.NotEmpty(t, g.ReadClaims(a.Incarnation(), "job").Running)
		require.NoError(t, a.Pause(t.Context(), "job"))
		time.Sleep(time.Second)
		assert.Empty(t, g.ReadClaims(a.Incarnation(), "job").Running)
		assert.Equal(t, record.Counts{Claimed: 2, Succeeded: 2}, g.SumCounts("job"))
	})
	membertest.RunBubble(t, "of a trigger end at once, so that it is cleared", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		_, err := a.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(a.TakeRuns()))
		assert.Empty(t, g.ReadClaims(a.Incarnation(), "job").Running)
		time.Sleep(time.Minute)
		assert.Empty(t, g.ReadPlan("job").Triggers)
	})
	membertest.RunBubble(t, "end when their disabled shard skips fires", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		membertest.SleepToMinute(1)
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0, 1}}))
		membertest.SleepToMinute(3)
		assert.Len(t, a.TakeRuns(), 2)
		assert.Empty(t, g.ReadClaims(a.Incarnation(), "job").Running)
		assert.Equal(t, record.Counts{Claimed: 2, Succeeded: 2, Skipped: 4}, g.SumCounts("job"))
	})
}

func TestTracking_Changes(t *testing.T) {
	membertest.RunBubble(t, "while the job runs neither lose nor duplicate a fire, also with another number of shards", func(t *testing.T, g *membertest.Group) {
		a, b := g.Start("a", coordtest.Def("job", 0, 2, "")), g.Start("b", coordtest.Def("job", 0, 2, ""))
		fires := map[time.Time]map[int]int{}
		levels := []string{"", coordtest.ClaimsOnly}
		for n := 1; n < 20; n++ {
			membertest.SleepToMinute(n)
			if n%3 == 0 {
				next := membertest.DefinitionsByName(coordtest.Def("job", n, 2+n%2, levels[n/3%2]))
				a.Offer(next)
				b.Offer(next)
			}
			for _, r := range append(a.TakeRuns(), b.TakeRuns()...) {
				if fires[r.Fire] == nil {
					fires[r.Fire] = map[int]int{}
				}
				fires[r.Fire][r.Shard]++
				assert.Equal(t, 1, r.Attempt)
			}
		}
		assert.Len(t, fires, 19)
		for fire, ran := range fires {
			assert.Contains(t, []map[int]int{membertest.OncePerShard(2), membertest.OncePerShard(3)}, ran, fire)
		}
		assert.Len(t, g.ReadPlan("job").Epochs, 1)
		assert.Zero(t, g.SumCounts("job").Unknown+g.SumCounts("job").Lost)
	})
	membertest.RunBubble(t, "after a crash make runs again that were claimed before the change, and count later ones", func(t *testing.T, g *membertest.Group) {
		long := func(ctx context.Context, r claimer.Run) error {
			if r.Attempt == 1 {
				<-ctx.Done()
			}
			return context.Cause(ctx)
		}
		a := g.StartWorking("a", long, coordtest.Def("job", 0, 1, ""))
		membertest.SleepToMinute(1)
		a.Offer(membertest.DefinitionsByName(coordtest.Def("job", 1, 2, coordtest.ClaimsOnly)))
		membertest.SleepToMinute(2) // shard 0 still runs as claimed before the change, shard 1 is claimed after it
		require.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(a.TakeRuns()))
		g.Server.Expire("a")
		time.Sleep(5 * time.Second)
		runs := a.TakeRuns()
		require.Len(t, runs, 2)
		assert.Equal(t, 2, runs[0].Attempt)
		assert.Equal(t, coordtest.BubbleStart().Add(time.Minute), runs[0].Fire.UTC())
		assert.Equal(t, 1, runs[1].Attempt, "a pending fire of shard 0")
		assert.EqualValues(t, 1, g.ReadPlan("job").Counts.Unknown)
		assert.Zero(t, g.ReadPlan("job").Counts.Lost)
	})
}
