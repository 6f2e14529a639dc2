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
	"github.com/rota-dev/rota/registry"
)

func TestMember_SessionLost(t *testing.T) {
	membertest.RunBubble(t, "is followed by a new incarnation, and its runs are made again with a higher fence", func(t *testing.T, g *membertest.Group) {
		causes := make(chan error, 2)
		a := g.StartWorking("a", func(ctx context.Context, r claimer.Run) error {
			if r.Attempt > 1 || r.Fire.After(coordtest.BubbleStart().Add(time.Minute)) {
				return nil
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return context.Cause(ctx)
		}, coordtest.Def("job", 0, 2, ""))
		before := a.Incarnation()
		membertest.SleepToMinute(1)
		first := a.TakeRuns()
		require.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(first))
		g.Server.Expire("a")
		time.Sleep(5 * time.Second)
		assert.NotEqual(t, before, a.Incarnation())
		for range 2 {
			assert.ErrorIs(t, <-causes, registry.ErrSessionLost)
		}
		again := a.TakeRuns()
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(again))
		for _, r := range again {
			assert.Equal(t, 2, r.Attempt)
			assert.Equal(t, first[0].Fire, r.Fire)
			assert.Greater(t, r.Fence, first[0].Fence)
			assert.Equal(t, a.Session(), r.Session)
		}
		_, left := g.GetRecord(g.Keys.Member(before))
		assert.False(t, left, "the old incarnation is reaped")
	})
	membertest.RunBubble(t, "keeps its shards blocked until their functions have returned", func(t *testing.T, g *membertest.Group) {
		release := make(chan struct{})
		a := g.StartWorking("a", func(_ context.Context, r claimer.Run) error {
			if r.Attempt == 1 && r.Shard == 1 && r.Fire.Equal(coordtest.BubbleStart().Add(time.Minute)) {
				<-release // ignores the end of its context
			}
			return nil
		}, coordtest.Def("job", 0, 2, ""))
		membertest.SleepToMinute(1)
		require.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(a.TakeRuns()))
		time.Sleep(time.Second)
		g.Server.Expire("a")
		membertest.SleepToMinute(3)
		assert.Equal(t, map[int]int{0: 2}, membertest.CountRuns(a.TakeRuns()))
		assert.Equal(t, map[string]string{"a": "0"}, g.ReadOwners("job"))
		close(release)
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0-1"}, g.ReadOwners("job"))
		runs := a.TakeRuns()
		require.Len(t, runs, 2)
		assert.Equal(t, 2, runs[0].Attempt, "the pending re-run comes first")
		assert.Equal(t, membertest.OncePerShard(0), membertest.CountRuns(selectFire(runs, 2)))
		assert.Len(t, selectFire(runs, 3), 1)
		membertest.SleepToMinute(4)
		assert.Equal(t, map[int]int{0: 1, 1: 1}, membertest.CountRuns(selectFire(a.TakeRuns(), 4)))
	})
	membertest.RunBubble(t, "moves blocked shards to other instances", func(t *testing.T, g *membertest.Group) {
		release := make(chan struct{})
		defer close(release)
		a := g.StartWorking("a", func(_ context.Context, r claimer.Run) error {
			if r.Attempt == 1 {
				<-release
			}
			return nil
		}, coordtest.Def("job", 0, 1, ""))
		membertest.SleepToMinute(1)
		require.Equal(t, map[string]string{"a": "0"}, g.ReadOwners("job"))
		g.Server.Expire("a")
		b := g.Start("b", coordtest.Def("job", 0, 1, ""))
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string]string{"b": "0"}, g.ReadOwners("job"))
		runs := b.TakeRuns()
		require.Len(t, runs, 1)
		assert.Equal(t, 2, runs[0].Attempt)
		assert.Len(t, a.TakeRuns(), 1)
	})
	membertest.RunBubble(t, "a late claim by the old incarnation is refused", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		old := a.Incarnation()
		var release, heal func()
		claiming := membertest.IsBelow(g.Keys.ClaimsOf(old))
		a.Reg.BeforeTxn(membertest.OnFirstWrite(claiming, func() { release = g.Server.HoldCommit("a") }))
		a.Reg.AfterTxn(membertest.OnFirstWrite(claiming, func() { heal = g.Server.Partition("a") }))
		membertest.SleepToMinute(1)
		assert.Empty(t, a.TakeRuns())
		b.TakeRuns()
		time.Sleep(membertest.TTL + time.Second)
		assert.Equal(t, map[string]string{"b": "0-1"}, g.ReadOwners("job"))
		assert.Equal(t, membertest.OncePerShard(1), membertest.CountRuns(b.TakeRuns()), "a had not claimed this fire")
		g.Server.Record()
		release()
		late := g.Server.Log()
		require.Len(t, late, 1)
		assert.Equal(t, "a", late[0].Client)
		require.ErrorIs(t, late[0].Err, registry.ErrConflict)
		_, ok := g.GetRecord(g.Keys.Claims(old, "job"))
		assert.False(t, ok)
		heal()
		membertest.SleepToMinute(2)
		assert.Empty(t, selectFire(append(a.TakeRuns(), b.TakeRuns()...), 1))
	})
	membertest.RunBubble(t, "of all instances loses no fire and no run", func(t *testing.T, g *membertest.Group) {
		work := func(ctx context.Context, r claimer.Run) error {
			if r.Attempt == 1 && r.Fire.Equal(coordtest.BubbleStart().Add(time.Minute)) {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}
		a := g.StartWorking("a", work, coordtest.Def("job", 0, 4, ""))
		b := g.StartWorking("b", work, coordtest.Def("job", 0, 4, ""))
		membertest.SleepToMinute(1)
		require.Equal(t, membertest.OncePerShard(4), membertest.SumRuns(membertest.CountRuns(a.TakeRuns()), membertest.CountRuns(b.TakeRuns())))
		g.Server.Expire("a")
		g.Server.Expire("b")
		time.Sleep(10 * time.Second)
		again := append(a.TakeRuns(), b.TakeRuns()...)
		assert.Equal(t, membertest.OncePerShard(4), membertest.CountRuns(again))
		for _, r := range again {
			assert.Equal(t, 2, r.Attempt)
		}
		membertest.SleepToMinute(2)
		assert.Equal(t, membertest.OncePerShard(4), membertest.SumRuns(membertest.CountRuns(a.TakeRuns()), membertest.CountRuns(b.TakeRuns())))
	})
	membertest.RunBubble(t, "counts the runs that a job does not want to be made again", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(time.Hour), coordtest.Def("job", 0, 2, `,"on_crash":"count as failed"`))
		membertest.SleepToMinute(1)
		require.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(a.TakeRuns()))
		g.Server.Expire("a")
		time.Sleep(5 * time.Second)
		assert.Empty(t, a.TakeRuns())
		assert.EqualValues(t, 2, g.ReadPlan("job").Counts.Lost)
	})
	membertest.RunBubble(t, "during a move of a shard neither loses nor duplicates a run", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(20*time.Second), coordtest.Def("job", 0, 2, ""))
		membertest.SleepToMinute(1)
		require.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(a.TakeRuns()))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		require.Equal(t, "1", g.ReadPlan("job").Frozen.String())
		g.Server.Expire("a")
		time.Sleep(5 * time.Second)
		again := append(a.TakeRuns(), b.TakeRuns()...)
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(again))
		assert.True(t, g.ReadPlan("job").Frozen.IsZero())
		membertest.SleepToMinute(2)
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(selectFire(append(a.TakeRuns(), b.TakeRuns()...), 2)))
	})
}

func TestMember_StoreFull(t *testing.T) {
	full := func(is func(registry.Key) bool) func(registry.Txn) error {
		return func(txn registry.Txn) error {
			for _, op := range txn.Then {
				if is(op.Key) {
					return registry.ErrQuota
				}
			}
			return nil
		}
	}
	membertest.RunBubble(t, "keeps runs going, and publishes offers later", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(100*time.Second), coordtest.Def("job", 0, 1, ""))
		before := a.Incarnation()
		membertest.SleepToMinute(1)
		require.Len(t, a.TakeRuns(), 1)
		a.Reg.ReplaceTxn(full(membertest.IsBelow(g.Keys.Members())))
		a.Offer(membertest.DefinitionsByName(coordtest.Def("other", 0, 1, "")))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, a.AwaitJoined(ctx), context.DeadlineExceeded)
		a.Reg.ReplaceTxn(nil)
		membertest.SleepToMinute(2)
		assert.Equal(t, before, a.Incarnation())
		assert.Equal(t, map[string]string{"a": "0"}, g.ReadOwners("other"))
		membertest.SleepToMinute(4)
		assert.EqualValues(t, 1, g.ReadClaims(before, "job").Counts.Succeeded)
	})
	membertest.RunBubble(t, "keeps the member going without its new definition", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		before := a.Incarnation()
		a.Reg.ReplaceTxn(full(membertest.IsBelow(g.Keys.Jobs())))
		a.Offer(membertest.DefinitionsByName(coordtest.Def("other", 0, 1, "")))
		membertest.SleepToMinute(1)
		assert.Equal(t, membertest.OncePerShard(1), membertest.CountRuns(a.TakeRuns()))
		a.Reg.ReplaceTxn(nil)
		membertest.SleepToMinute(2)
		assert.Equal(t, before, a.Incarnation())
		assert.Equal(t, map[string]string{"a": "0"}, g.ReadOwners("other"))
	})
	membertest.RunBubble(t, "delays claims until there is room", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		a.Reg.ReplaceTxn(full(membertest.IsBelow(g.Keys.ClaimsOf(a.Incarnation()))))
		membertest.SleepToMinute(1)
		assert.Empty(t, a.TakeRuns())
		a.Reg.ReplaceTxn(nil)
		time.Sleep(2 * time.Second)
		assert.Equal(t, membertest.OncePerShard(1), membertest.CountRuns(a.TakeRuns()))
	})
	membertest.RunBubble(t, "delays a new incarnation until there is room", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		a.Reg.ReplaceTxn(full(membertest.IsBelow(g.Keys.Members())))
		g.Server.Expire("a")
		time.Sleep(30 * time.Second)
		a.Reg.ReplaceTxn(nil)
		membertest.SleepToMinute(2)
		assert.NotEmpty(t, a.TakeRuns())
	})
}

// selectFire returns the runs of the fire at the n-th minute.
func selectFire(runs []claimer.Run, n int) []claimer.Run {
	var out []claimer.Run
	for _, r := range runs {
		if r.Fire.Equal(coordtest.BubbleStart().Add(time.Duration(n) * time.Minute)) {
			out = append(out, r)
		}
	}
	return out
}
