package coordinator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// A move takes as long as the runs in its way, so a leader decides again while it has been made in
// part.
func TestPlan_MoveInParts(t *testing.T) {
	runAll := func(w *world, job string) {
		for inc, shards := range w.plan(job).Owners {
			w.running(inc, job, shards, fire(1, 1))
		}
	}
	end := func(w *world, job string, shard int) {
		for inc, shards := range w.plan(job).Owners {
			if shards.Has(shard) {
				w.claim(inc, job, func(c *record.Claims) { c.Running = c.Running.Without(shardset.Of(shard)) })
			}
		}
	}
	t.Run("goes on with the shards that are frozen when some of them have moved, and freezes no others", func(t *testing.T) {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 4, 0, "")
		w.settle()
		runAll(w, "job")
		b := w.member("b", "job")
		w.change(b, func(m *record.Member) { m.Weight = 3 })
		w.settle()
		require.Equal(t, "1-3", w.plan("job").Frozen.String())
		for _, shard := range []int{1, 3} {
			end(w, "job", shard)
		}
		w.settle()
		assert.Equal(t, map[string]string{a: "0,2", b: "1,3"}, w.owners("job"))
		assert.Equal(t, "2", w.plan("job").Frozen.String())
	})
	t.Run("does so beside shards that wait for the return of their owner", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.member("a", "job"), w.member("b", "job")
		w.define("job", 8, 0, "")
		w.settle()
		runAll(w, "job")
		w.change(a, func(m *record.Member) { m.RestartGrace = record.Duration(time.Hour) })
		w.kill(a)
		w.v.away = map[string]time.Duration{a: time.Second}
		c := w.member("c", "job")
		w.change(c, func(m *record.Member) { m.Weight = 3 })
		w.settle()
		require.Equal(t, "5-7", w.plan("job").Frozen.String())
		for _, shard := range []int{5, 7} {
			end(w, "job", shard)
		}
		w.settle()
		assert.Equal(t, map[string]string{a: "0-3", b: "4,6", c: "5,7"}, w.owners("job"))
		assert.Equal(t, "6", w.plan("job").Frozen.String())
	})
	t.Run("does so in whatever order the runs end", func(t *testing.T) {
		for seed := range uint64(300) {
			rng := rand.New(rand.NewPCG(seed, 0))
			w := newWorld(t)
			weighted := rng.IntN(2) == 0
			add := func(i int) {
				inc := w.member(fmt.Sprint("m", i), "job")
				if weighted {
					w.change(inc, func(m *record.Member) { m.Weight = 1 + rng.IntN(4) })
				}
			}
			members := 1 + rng.IntN(4)
			for i := range members {
				add(i)
			}
			w.define("job", 1+rng.IntN(12), 0, "")
			w.settle()
			runAll(w, "job")
			for i := range 1 + rng.IntN(2) {
				add(members + i)
			}
			if rng.IntN(3) == 0 {
				w.change("m0.m0", func(m *record.Member) { m.Blocked = map[string]shardset.Set{"job": shardset.Of(0)} })
			}
			w.settle()
			frozen := w.plan("job").Frozen
			for !w.plan("job").Frozen.IsZero() {
				more := w.plan("job").Frozen.Minus(frozen)
				require.True(t, more.IsZero(), "seed %d: %s are frozen during the move of %s", seed, more, frozen)
				waiting := slices.Collect(w.plan("job").Frozen.All())
				rng.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
				for _, shard := range waiting[:1+rng.IntN(len(waiting))] {
					end(w, "job", shard)
				}
				w.settle()
			}
		}
	})
}

func TestBalance_GivesAwayFrozenShardsFirst(t *testing.T) {
	members := []balanceMember{{id: "a"}, {id: "b"}}
	job := balanceJob{owners: []string{"a", "a", "a", "b"}, candidates: []int{0, 1}, frozen: shardset.Of(0)}
	assert.Equal(t, [][]string{{"b", "a", "a", "b"}}, balance([]balanceJob{job}, members))
	job.blocked = map[string]shardset.Set{"b": shardset.Of(2)}
	assert.Equal(t, [][]string{{"b", "a", "a", "b"}}, balance([]balanceJob{job}, members))
	job.blocked = map[string]shardset.Set{"b": shardset.Of(0)}
	assert.Equal(t, [][]string{{"a", "a", "b", "b"}}, balance([]balanceJob{job}, members))
}
