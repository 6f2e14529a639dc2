package planning

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// A move lasts as long as the runs that it waits for, so a leader decides again in the middle.
func TestPlan_MoveInParts(t *testing.T) {
	runAll := func(w *world, job string) {
		for inc, shards := range w.Plan(job).Owners {
			w.startRuns(inc, job, shards, coordtest.Fire(1, 1))
		}
	}
	end := func(w *world, job string, shard int) {
		for inc, shards := range w.Plan(job).Owners {
			if shards.Has(shard) {
				w.claim(inc, job, func(c *record.Claims) { c.Running = c.Running.Without(shardset.Of(shard)) })
			}
		}
	}
	t.Run("continues with the remaining frozen shards, and freezes no others", func(t *testing.T) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 4, 0, "")
		w.Settle()
		runAll(w, "job")
		b := w.Join("b", "job")
		w.editMember(b, func(m *record.Member) { m.Weight = 3 })
		w.Settle()
		require.Equal(t, "1-3", w.Plan("job").Frozen.String())
		for _, shard := range []int{1, 3} {
			end(w, "job", shard)
		}
		w.Settle()
		assert.Equal(t, map[string]string{a: "0,2", b: "1,3"}, w.owners("job"))
		assert.Equal(t, "2", w.Plan("job").Frozen.String())
	})
	t.Run("does the same beside shards that wait for the return of their owner", func(t *testing.T) {
		w := NewWorld(t)
		a, b := w.Join("a", "job"), w.Join("b", "job")
		w.Define("job", 8, 0, "")
		w.Settle()
		runAll(w, "job")
		w.editMember(a, func(m *record.Member) { m.RestartGrace = record.Duration(time.Hour) })
		w.expire(a)
		w.View.Absences = map[string]time.Duration{a: time.Second}
		c := w.Join("c", "job")
		w.editMember(c, func(m *record.Member) { m.Weight = 3 })
		w.Settle()
		require.Equal(t, "5-7", w.Plan("job").Frozen.String())
		for _, shard := range []int{5, 7} {
			end(w, "job", shard)
		}
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-3", b: "4,6", c: "5,7"}, w.owners("job"))
		assert.Equal(t, "6", w.Plan("job").Frozen.String())
	})
	t.Run("does the same in whatever order the runs end", func(t *testing.T) {
		for seed := range uint64(300) {
			rng := rand.New(rand.NewPCG(seed, 0))
			w := NewWorld(t)
			weighted := rng.IntN(2) == 0
			add := func(i int) {
				inc := w.Join(fmt.Sprint("m", i), "job")
				if weighted {
					w.editMember(inc, func(m *record.Member) { m.Weight = 1 + rng.IntN(4) })
				}
			}
			members := 1 + rng.IntN(4)
			for i := range members {
				add(i)
			}
			w.Define("job", 1+rng.IntN(12), 0, "")
			w.Settle()
			runAll(w, "job")
			for i := range 1 + rng.IntN(2) {
				add(members + i)
			}
			if rng.IntN(3) == 0 {
				w.editMember("m0.m0", func(m *record.Member) { m.Blocked = map[string]shardset.Set{"job": shardset.Of(0)} })
			}
			w.Settle()
			frozen := w.Plan("job").Frozen
			for !w.Plan("job").Frozen.IsZero() {
				more := w.Plan("job").Frozen.Minus(frozen)
				require.True(t, more.IsZero(), "seed %d: %s are frozen during the move of %s", seed, more, frozen)
				waiting := slices.Collect(w.Plan("job").Frozen.All())
				rng.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
				for _, shard := range waiting[:1+rng.IntN(len(waiting))] {
					end(w, "job", shard)
				}
				w.Settle()
			}
		}
	})
}
