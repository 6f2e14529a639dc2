package membertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TakeCommits returns the transactions that have been applied since the last call.
func (g *Group) TakeCommits() []memory.Commit {
	return slices.DeleteFunc(g.Server.Log(), func(c memory.Commit) bool { return c.Err != nil })
}

// CountMoves returns the number of moves of shards between instances of different names since the
// last TakeCommits. had are the shards by the names of their owners at that time.
func (g *Group) CountMoves(had map[string]string) (moves int) {
	owner := map[int]string{}
	for name, text := range had {
		var set shardset.Set
		require.NoError(g.T, set.UnmarshalText([]byte(text)))
		for s := range set.All() {
			owner[s] = name
		}
	}
	for _, c := range g.TakeCommits() {
		for _, op := range c.Then {
			if op.Key != g.Keys.Plan("job") {
				continue
			}
			p, err := record.DecodePlan(op.Value)
			require.NoError(g.T, err)
			for inc, set := range p.Owners {
				name := inc[:1]
				for s := range set.All() {
					if owner[s] != name {
						owner[s] = name
						moves++
					}
				}
			}
		}
	}
	return moves
}

// CountClaimCommits returns the number of commits since the last TakeCommits that wrote claims.
func (g *Group) CountClaimCommits() int {
	n := 0
	for _, c := range g.TakeCommits() {
		for _, op := range c.Then {
			if strings.Contains(string(op.Key), "/claims/") {
				n++
				break
			}
		}
	}
	return n
}

// CountRuns returns the number of runs by shard.
func CountRuns(runs []claimer.Run) map[int]int {
	out := map[int]int{}
	for _, r := range runs {
		out[r.Shard]++
	}
	return out
}

// SumRuns adds up counts of runs by shard.
func SumRuns(all ...map[int]int) map[int]int {
	out := map[int]int{}
	for _, m := range all {
		for s := range maps.Keys(m) {
			out[s] += m[s]
		}
	}
	return out
}

// OncePerShard returns the counts of one run of each of n shards.
func OncePerShard(n int) map[int]int {
	out := map[int]int{}
	for s := range n {
		out[s] = 1
	}
	return out
}

// RestartEach restarts one member after another, each with an absence of five seconds, and checks
// that each of 20 shards runs each fire once.
func (g *Group) RestartEach() {
	all := map[string]map[int]int{} // by fire
	collect := func(w *Worker) {
		for _, r := range w.TakeRuns() {
			assert.Equal(g.T, 1, r.Attempt)
			if all[r.Fire.String()] == nil {
				all[r.Fire.String()] = map[int]int{}
			}
			all[r.Fire.String()][r.Shard]++
		}
	}
	for i, w := range append([]*Worker(nil), g.Members...) {
		time.Sleep(time.Until(coordtest.BubbleStart().Add(time.Duration(i+1)*time.Minute + 57*time.Second))) // a fire comes due during the absence
		w.Shutdown()
		collect(w)
		time.Sleep(5 * time.Second)
		g.StartOn(fmt.Sprint(w.Instance(), " again"), w.Instance(), coordtest.Def("job", 0, 20, ""))
	}
	SleepToMinute(7)
	for _, w := range g.Members {
		collect(w)
	}
	assert.Len(g.T, all, 7)
	for fire, ran := range all {
		assert.Equal(g.T, OncePerShard(20), ran, fire)
	}
}

// RequireHealed requires that each member owns two shards, that their own records exist, and that
// all four shards run.
func (g *Group) RequireHealed(a, b *Worker) {
	g.T.Helper()
	require.Equal(g.T, map[string]int{"a": 2, "b": 2}, g.CountOwned("job"))
	for _, w := range []*Worker{a, b} {
		instance, member := g.OwnKeys(w)
		_, ok := g.GetRecord(instance)
		require.True(g.T, ok, instance)
		_, ok = g.GetRecord(member)
		require.True(g.T, ok, member)
	}
	a.TakeRuns()
	b.TakeRuns()
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Equal(g.T, OncePerShard(4), SumRuns(CountRuns(a.TakeRuns()), CountRuns(b.TakeRuns())))
}

// RequireEachRuns requires that each of four shards runs once in the next minute.
func (g *Group) RequireEachRuns(a, b *Worker) {
	g.T.Helper()
	a.TakeRuns()
	b.TakeRuns()
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Equal(g.T, OncePerShard(4), SumRuns(CountRuns(a.TakeRuns()), CountRuns(b.TakeRuns())))
}
