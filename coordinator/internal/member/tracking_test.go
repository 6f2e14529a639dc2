package member_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/member"
	"github.com/rota-dev/rota/coordinator/internal/membertest"
	"github.com/rota-dev/rota/internal/record"
)

func TestTrackClaims(t *testing.T) {
	membertest.Bubble(t, "write a fire down in one commit, with which go the ends of the one before", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		g.Server.Record()
		for n := range 5 {
			membertest.Until(n + 1)
			time.Sleep(30 * time.Second)
			assert.Equal(t, membertest.Once(4), membertest.Shards(a.Began()))
			assert.Equal(t, 1, g.ClaimWrites())
			claims := g.Claims(a.Incarnation(), "job")
			assert.Equal(t, "0-3", claims.Running.Shards().String())
			assert.Equal(t, record.Counts{Claimed: uint64(4 * (n + 1)), Succeeded: uint64(4 * n)}, claims.Counts)
		}
	})
	membertest.Bubble(t, "claim what came due during a run when that has ended", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.Takes(90*time.Second), coordtest.Def("job", 0, 1, coordtest.ClaimsOnly))
		membertest.Until(2)
		require.Len(t, a.Began(), 1)
		time.Sleep(30 * time.Second)
		runs := a.Began()
		require.Len(t, runs, 1)
		assert.Equal(t, coordtest.BubbleBegan().Add(2*time.Minute), runs[0].Fire.UTC())
	})
	membertest.Bubble(t, "let a shard go whose run has ended, for one commit more", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		membertest.Until(1)
		g.Server.Record()
		b := g.Start("b", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.Owners("job"))
		assert.Equal(t, 1, g.ClaimWrites())
		assert.Empty(t, g.Claims(a.Incarnation(), "job").Running)
		a.Began()
		membertest.Until(2)
		assert.Equal(t, membertest.Once(4), membertest.Merged(membertest.Shards(a.Began()), membertest.Shards(b.Began())))
	})
	membertest.Bubble(t, "keep a shard whose function has not returned", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.Takes(30*time.Second), coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		membertest.Until(1)
		g.Start("b", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		assert.Equal(t, map[string]string{"a": "0-3"}, g.Owners("job"))
		assert.Equal(t, "2-3", g.Plan("job").Frozen.String())
		assert.ElementsMatch(t, []int{2, 3}, a.Asked())
		time.Sleep(30 * time.Second)
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.Owners("job"))
	})
	membertest.Bubble(t, "keep a shard of an owner that drains until its function has returned", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.Takes(30*time.Second), coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		b := g.StartWorking("b", membertest.Takes(30*time.Second), coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		membertest.Until(1)
		require.NoError(t, a.Drain(t.Context()))
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string]string{"a": "0", "b": "1"}, g.Owners("job"))
		time.Sleep(30 * time.Second)
		assert.Equal(t, map[string]string{"b": "0-1"}, g.Owners("job"))
		a.Began()
		b.Began()
		membertest.Until(2)
		assert.Equal(t, membertest.Once(2), membertest.Shards(b.Began()))
		assert.Zero(t, g.Counts("job").Unknown)
	})
	membertest.Bubble(t, "do not begin while their owner has not observed a move, and none is lost or doubled", func(t *testing.T, g *membertest.Group) {
		g.Start("c", coordtest.Def("other", 0, 1, `,"start_paused":true`)) // it leads
		a := g.Start("a", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		membertest.Until(3)
		require.Len(t, a.Began(), 12)
		release := g.Server.HoldWatch("a")
		b := g.Start("b", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		membertest.Until(4)
		assert.Equal(t, "2-3", g.Plan("job").Frozen.String())
		assert.Equal(t, map[string]string{"a": "0-3"}, g.Owners("job"), "the ends are not on record")
		assert.Empty(t, a.Began(), "a claim names the plan that was replaced")
		release()
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, g.Owners("job"))
		assert.Equal(t, membertest.Once(4), membertest.Merged(membertest.Shards(a.Began()), membertest.Shards(b.Began())))
		membertest.Until(5)
		assert.Equal(t, membertest.Once(4), membertest.Merged(membertest.Shards(a.Began()), membertest.Shards(b.Began())))
	})
	membertest.Bubble(t, "leave nothing on record when their owner drains", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		b := g.Start("b", coordtest.Def("job", 0, 4, coordtest.ClaimsOnly))
		membertest.Until(1)
		a.Shutdown()
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-3"}, g.Owners("job"))
		assert.Zero(t, g.Counts("job").Unknown)
		assert.EqualValues(t, 2, g.Plan("job").Counts.Succeeded)
		membertest.Until(2)
		assert.Equal(t, membertest.Once(4), membertest.Shards(b.Began()[2:]))
	})
	membertest.Bubble(t, "are counted as unknown after a crash, and not made again, whatever the job wants", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, `,"on_crash":"rerun elsewhere"`+coordtest.ClaimsOnly))
		b := g.Start("b", coordtest.Def("job", 0, 2, `,"on_crash":"rerun elsewhere"`+coordtest.ClaimsOnly))
		membertest.Until(1)
		require.Equal(t, membertest.Once(2), membertest.Merged(membertest.Shards(a.Began()), membertest.Shards(b.Began())))
		defer g.Server.Partition("a")()
		membertest.Until(2)
		assert.Equal(t, map[string]string{"b": "0-1"}, g.Owners("job"))
		runs := b.Began()
		assert.Equal(t, membertest.Once(2), membertest.Shards(runs))
		for _, r := range runs {
			assert.Equal(t, 1, r.Attempt)
		}
		counts := g.Plan("job").Counts
		assert.EqualValues(t, 1, counts.Unknown)
		assert.Zero(t, counts.Lost)
	})
	membertest.Bubble(t, "are counted as unknown when who was waited for is back", func(t *testing.T, g *membertest.Group) {
		g.Grace = time.Minute
		a := g.Start("a", coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		g.Start("b", coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		membertest.Until(1)
		g.Server.Expire("a")
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string]string{"a": "0", "b": "1"}, g.Owners("job"))
		assert.EqualValues(t, 1, g.Plan("job").Counts.Unknown)
		a.Began()
		membertest.Until(2)
		assert.Len(t, a.Began(), 1)
	})
	membertest.Bubble(t, "leave nothing on record of a job that is paused", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		membertest.Until(1)
		require.NotEmpty(t, g.Claims(a.Incarnation(), "job").Running)
		require.NoError(t, a.Pause(t.Context(), "job"))
		time.Sleep(time.Second)
		assert.Empty(t, g.Claims(a.Incarnation(), "job").Running)
		assert.Equal(t, record.Counts{Claimed: 2, Succeeded: 2}, g.Counts("job"))
	})
	membertest.Bubble(t, "of a trigger end at once, so that it is cleared", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		_, err := a.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.Equal(t, membertest.Once(2), membertest.Shards(a.Began()))
		assert.Empty(t, g.Claims(a.Incarnation(), "job").Running)
		time.Sleep(time.Minute)
		assert.Empty(t, g.Plan("job").Triggers)
	})
	membertest.Bubble(t, "end with the fires that their shard passes over when it is disabled", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, coordtest.ClaimsOnly))
		membertest.Until(1)
		require.NoError(t, a.Disable(t.Context(), coordinator.Scope{Job: "job", Shards: []int{0, 1}}))
		membertest.Until(3)
		assert.Len(t, a.Began(), 2)
		assert.Empty(t, g.Claims(a.Incarnation(), "job").Running)
		assert.Equal(t, record.Counts{Claimed: 2, Succeeded: 2, Skipped: 4}, g.Counts("job"))
	})
}

func TestTracking_Changes(t *testing.T) {
	membertest.Bubble(t, "while the job runs: no fire is lost or doubled, and the total may change as well", func(t *testing.T, g *membertest.Group) {
		a, b := g.Start("a", coordtest.Def("job", 0, 2, "")), g.Start("b", coordtest.Def("job", 0, 2, ""))
		fires := map[time.Time]map[int]int{}
		levels := []string{"", coordtest.ClaimsOnly}
		for n := 1; n < 20; n++ {
			membertest.Until(n)
			if n%3 == 0 {
				next := membertest.Offering(coordtest.Def("job", n, 2+n%2, levels[n/3%2]))
				a.Offer(next)
				b.Offer(next)
			}
			for _, r := range append(a.Began(), b.Began()...) {
				if fires[r.Fire] == nil {
					fires[r.Fire] = map[int]int{}
				}
				fires[r.Fire][r.Shard]++
				assert.Equal(t, 1, r.Attempt)
			}
		}
		assert.Len(t, fires, 19)
		for fire, ran := range fires {
			assert.Contains(t, []map[int]int{membertest.Once(2), membertest.Once(3)}, ran, fire)
		}
		assert.Len(t, g.Plan("job").Epochs, 1)
		assert.Zero(t, g.Counts("job").Unknown+g.Counts("job").Lost)
	})
	membertest.Bubble(t, "at an instant: a run is made again after a crash if it was claimed before, and else counted", func(t *testing.T, g *membertest.Group) {
		long := func(ctx context.Context, r member.Run) error {
			if r.Attempt == 1 {
				<-ctx.Done()
			}
			return context.Cause(ctx)
		}
		a := g.StartWorking("a", long, coordtest.Def("job", 0, 1, ""))
		membertest.Until(1)
		a.Offer(membertest.Offering(coordtest.Def("job", 1, 2, coordtest.ClaimsOnly)))
		membertest.Until(2) // shard 0 runs as it was claimed, shard 1 is new
		require.Equal(t, membertest.Once(2), membertest.Shards(a.Began()))
		g.Server.Expire("a")
		time.Sleep(5 * time.Second)
		runs := a.Began()
		require.Len(t, runs, 2)
		assert.Equal(t, 2, runs[0].Attempt)
		assert.Equal(t, coordtest.BubbleBegan().Add(time.Minute), runs[0].Fire.UTC())
		assert.Equal(t, 1, runs[1].Attempt, "the fire that shard 0 owed")
		assert.EqualValues(t, 1, g.Plan("job").Counts.Unknown)
		assert.Zero(t, g.Plan("job").Counts.Lost)
	})
}
