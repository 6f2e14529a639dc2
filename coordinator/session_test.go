package coordinator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestMember_SessionLost(t *testing.T) {
	bubble(t, "joins again as a new incarnation, and what it ran is run again with a higher fence", func(t *testing.T, g *group) {
		causes := make(chan error, 2)
		a := g.startWorking("a", func(ctx context.Context, r Run) error {
			if r.Attempt > 1 || r.Fire.After(bubbleBegan().Add(time.Minute)) {
				return nil
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return context.Cause(ctx)
		}, def("job", 0, 2, ""))
		before := a.incarnation()
		until(1)
		first := a.began()
		require.Equal(t, once(2), shards(first))
		g.server.Expire("a")
		time.Sleep(5 * time.Second)
		assert.NotEqual(t, before, a.incarnation())
		for range 2 {
			assert.ErrorIs(t, <-causes, registry.ErrSessionLost)
		}
		again := a.began()
		assert.Equal(t, once(2), shards(again))
		for _, r := range again {
			assert.Equal(t, 2, r.Attempt)
			assert.Equal(t, first[0].Fire, r.Fire)
			assert.Greater(t, r.Fence, first[0].Fence)
			assert.Equal(t, a.session(), r.Session)
		}
		_, left := g.get(g.keys.Member(before))
		assert.False(t, left, "the old incarnation is buried")
	})
	bubble(t, "does not get its old shards back before their old functions have returned", func(t *testing.T, g *group) {
		release := make(chan struct{})
		a := g.startWorking("a", func(_ context.Context, r Run) error {
			if r.Attempt == 1 && r.Shard == 1 && r.Fire.Equal(bubbleBegan().Add(time.Minute)) {
				<-release // whatever its context says
			}
			return nil
		}, def("job", 0, 2, ""))
		until(1)
		require.Equal(t, once(2), shards(a.began()))
		time.Sleep(time.Second)
		g.server.Expire("a")
		until(3)
		assert.Equal(t, map[int]int{0: 2}, shards(a.began()))
		assert.Equal(t, map[string]string{"a": "0"}, g.owners("job"))
		close(release)
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0-1"}, g.owners("job"))
		runs := a.began()
		require.Len(t, runs, 2)
		assert.Equal(t, 2, runs[0].Attempt, "the pending re-run comes first")
		assert.Equal(t, once(0), shards(onlyFire(runs, 2)))
		assert.Len(t, onlyFire(runs, 3), 1)
		until(4)
		assert.Equal(t, map[int]int{0: 1, 1: 1}, shards(onlyFire(a.began(), 4)))
	})
	bubble(t, "hands its blocked shards to others", func(t *testing.T, g *group) {
		release := make(chan struct{})
		defer close(release)
		a := g.startWorking("a", func(_ context.Context, r Run) error {
			if r.Attempt == 1 {
				<-release
			}
			return nil
		}, def("job", 0, 1, ""))
		until(1)
		require.Equal(t, map[string]string{"a": "0"}, g.owners("job"))
		g.server.Expire("a")
		b := g.start("b", def("job", 0, 1, ""))
		time.Sleep(5 * time.Second)
		assert.Equal(t, map[string]string{"b": "0"}, g.owners("job"))
		runs := b.began()
		require.Len(t, runs, 1)
		assert.Equal(t, 2, runs[0].Attempt)
		assert.Len(t, a.began(), 1)
	})
	bubble(t, "a late claim of the old incarnation is refused", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		b := g.start("b", def("job", 0, 2, ""))
		old := a.incarnation()
		var release, heal func()
		claiming := below(g.keys.ClaimsOf(old))
		a.reg.before(writing(claiming, func() { release = g.server.HoldCommit("a") }))
		a.reg.after(writing(claiming, func() { heal = g.server.Partition("a") }))
		until(1)
		assert.Empty(t, a.began())
		b.began()
		time.Sleep(ttl + time.Second)
		assert.Equal(t, map[string]string{"b": "0-1"}, g.owners("job"))
		assert.Equal(t, once(1), shards(b.began()), "the fire that a had not claimed")
		g.server.Record()
		release()
		late := g.server.Log()
		require.Len(t, late, 1)
		assert.Equal(t, "a", late[0].Client)
		require.ErrorIs(t, late[0].Err, registry.ErrConflict)
		_, ok := g.get(g.keys.Claims(old, "job"))
		assert.False(t, ok)
		heal()
		until(2)
		assert.Empty(t, onlyFire(append(a.began(), b.began()...), 1))
	})
	bubble(t, "of the whole fleet loses no fire and no run", func(t *testing.T, g *group) {
		work := func(ctx context.Context, r Run) error {
			if r.Attempt == 1 && r.Fire.Equal(bubbleBegan().Add(time.Minute)) {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}
		a := g.startWorking("a", work, def("job", 0, 4, ""))
		b := g.startWorking("b", work, def("job", 0, 4, ""))
		until(1)
		require.Equal(t, once(4), merged(shards(a.began()), shards(b.began())))
		g.server.Expire("a")
		g.server.Expire("b")
		time.Sleep(10 * time.Second)
		again := append(a.began(), b.began()...)
		assert.Equal(t, once(4), shards(again))
		for _, r := range again {
			assert.Equal(t, 2, r.Attempt)
		}
		until(2)
		assert.Equal(t, once(4), merged(shards(a.began()), shards(b.began())))
	})
	bubble(t, "counts what a job does not want to be run again", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(time.Hour), def("job", 0, 2, `,"on_crash":"count as failed"`))
		until(1)
		require.Equal(t, once(2), shards(a.began()))
		g.server.Expire("a")
		time.Sleep(5 * time.Second)
		assert.Empty(t, a.began())
		assert.EqualValues(t, 2, g.plan("job").Counts.Lost)
	})
	bubble(t, "during the hand-over of a shard neither loses nor doubles it", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(20*time.Second), def("job", 0, 2, ""))
		until(1)
		require.Equal(t, once(2), shards(a.began()))
		b := g.start("b", def("job", 0, 2, ""))
		require.Equal(t, "1", g.plan("job").Frozen.String())
		g.server.Expire("a")
		time.Sleep(5 * time.Second)
		again := append(a.began(), b.began()...)
		assert.Equal(t, once(2), shards(again))
		assert.True(t, g.plan("job").Frozen.IsZero())
		until(2)
		assert.Equal(t, once(2), shards(onlyFire(append(a.began(), b.began()...), 2)))
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
	bubble(t, "goes on with what runs, and tells what it offers later", func(t *testing.T, g *group) {
		a := g.startWorking("a", takes(100*time.Second), def("job", 0, 1, ""))
		before := a.incarnation()
		until(1)
		require.Len(t, a.began(), 1)
		a.reg.instead(full(below(g.keys.Members())))
		a.Offer(offering(def("other", 0, 1, "")))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, a.AwaitJoined(ctx), context.DeadlineExceeded)
		a.reg.instead(nil)
		until(2)
		assert.Equal(t, before, a.incarnation())
		assert.Equal(t, map[string]string{"a": "0"}, g.owners("other"))
		until(4)
		assert.EqualValues(t, 1, g.claims(before, "job").Counts.Succeeded)
	})
	bubble(t, "goes on when it cannot store a definition", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		before := a.incarnation()
		a.reg.instead(full(below(g.keys.Jobs())))
		a.Offer(offering(def("other", 0, 1, "")))
		until(1)
		assert.Equal(t, once(1), shards(a.began()))
		a.reg.instead(nil)
		until(2)
		assert.Equal(t, before, a.incarnation())
		assert.Equal(t, map[string]string{"a": "0"}, g.owners("other"))
	})
	bubble(t, "claims when there is room again", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		a.reg.instead(full(below(g.keys.ClaimsOf(a.incarnation()))))
		until(1)
		assert.Empty(t, a.began())
		a.reg.instead(nil)
		time.Sleep(2 * time.Second)
		assert.Equal(t, once(1), shards(a.began()))
	})
	bubble(t, "does not end when it has to join again", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		a.reg.instead(full(below(g.keys.Members())))
		g.server.Expire("a")
		time.Sleep(30 * time.Second)
		a.reg.instead(nil)
		until(2)
		assert.NotEmpty(t, a.began())
	})
}

// onlyFire returns those of runs that are of the n-th minute.
func onlyFire(runs []Run, n int) []Run {
	var out []Run
	for _, r := range runs {
		if r.Fire.Equal(bubbleBegan().Add(time.Duration(n) * time.Minute)) {
			out = append(out, r)
		}
	}
	return out
}
