package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRing_PrefersTheOwnersRecordOfARunToTheLeaders(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	run := func(id string, how Outcome) Run {
		return Run{Namespace: "billing", Group: "default", Job: "settle", Fire: at, ID: id, Instance: "a", Outcome: how}
	}
	g := NewRing(2)
	kept := func(runs ...Run) (out []string) {
		require.NoError(t, g.Write(t.Context(), Batch{Runs: runs}))
		all, err := g.Reader("billing", "").Runs(t.Context(), "settle", at, 0)
		require.NoError(t, err)
		for _, r := range all {
			out = append(out, r.ID+" "+string(r.Outcome))
		}
		return out
	}
	assert.Equal(t, []string{"1 crashed"}, kept(run("1", Crashed), run("1", Crashed)))
	assert.Equal(t, []string{"1 succeeded", "2 failed"}, kept(run("2", Failed), run("1", Succeeded)))
	assert.Equal(t, []string{"1 succeeded", "2 failed"}, kept(run("1", Crashed), run("2", Succeeded)))
	assert.Equal(t, []string{"2 failed", "3 crashed"}, kept(run("3", Crashed)), "the oldest is dropped")
	assert.Equal(t, []string{"2 failed", "3 session lost"}, kept(run("3", LostSession)))
	assert.Equal(t, []string{"1 crashed", "3 session lost"}, kept(run("1", Crashed)))
}

func TestRing_CountsShardsByTheirLastRun(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	g := NewRing(100)
	add := func(fire, shard, attempt int, trigger uint64, how Outcome) {
		r := Run{
			Namespace: "billing", Group: "default", Job: "settle", Fire: at.Add(time.Duration(fire) * time.Second), Trigger: trigger, Shard: shard, Attempt: attempt, Instance: "a",
			ID: fmt.Sprintf("%d/%d/%d/%d", fire, shard, trigger, attempt), Outcome: how,
		}
		require.NoError(t, g.Write(t.Context(), Batch{Runs: []Run{r}}))
	}
	add(0, 0, 1, 0, Succeeded)
	add(0, 1, 2, 0, Succeeded) // the records of attempts may arrive in any order
	add(0, 1, 1, 0, Failed)
	add(0, 2, 1, 0, Crashed)
	add(0, 3, 1, 0, "of a later version")
	add(0, 3, 1, 12, Succeeded) // an operator's retry is a fire of its own
	add(0, 4, 1, 0, Succeeded)
	add(1, 0, 1, 0, TimedOut)
	add(9, 0, 1, 0, Failed)
	cells := func(q CellsQuery) (out []string) {
		q.Job, q.Since, q.Until = "settle", at, at.Add(time.Second)
		found, err := g.Reader("billing", "").Cells(t.Context(), q)
		require.NoError(t, err)
		for _, c := range found {
			out = append(out, fmt.Sprintf("%d #%d from %d: %d %s at %d", c.Fire.Second(), c.Trigger, c.FirstShard, c.Shards, c.Outcome, c.Attempt))
		}
		return out
	}
	assert.Equal(t, []string{
		"0 #0 from 0: 1 succeeded at 1", "0 #0 from 1: 1 succeeded at 2", "0 #0 from 2: 1 crashed at 1", "0 #0 from 3: 1 failed at 1", "0 #0 from 4: 1 succeeded at 1",
		"0 #12 from 3: 1 succeeded at 1", "1 #0 from 0: 1 timed out at 1",
	}, cells(CellsQuery{EndShard: 10}))
	assert.Equal(t, []string{
		"0 #0 from 0: 1 crashed at 1", "0 #0 from 0: 1 succeeded at 1", "0 #0 from 0: 1 succeeded at 2", "0 #0 from 3: 1 failed at 1", "0 #0 from 3: 1 succeeded at 1",
		"0 #12 from 3: 1 succeeded at 1", "1 #0 from 0: 1 timed out at 1",
	}, cells(CellsQuery{EndShard: 10, Width: 3}))
	assert.Equal(t, []string{"0 #0 from 1: 1 crashed at 1", "0 #0 from 1: 1 failed at 1", "0 #0 from 1: 1 succeeded at 2", "0 #12 from 1: 1 succeeded at 1"},
		cells(CellsQuery{FirstShard: 1, EndShard: 4, Width: 100}))
	assert.Empty(t, cells(CellsQuery{}))
}

// A number in a cell is that of an attempt and an outcome, and of no other pair.
func TestCell_HasItsLastRun(t *testing.T) {
	for _, attempt := range []int{math.MinInt32, -1, 0, 1, 2, math.MaxInt32} {
		for i, outcome := range cellOutcomes {
			n := lastRunOf(&Run{Attempt: attempt, Outcome: outcome})
			var c Cell
			c.setLastRun(n)
			assert.Equal(t, Cell{Attempt: attempt, Outcome: outcome}, c)
			if i > 0 {
				assert.Equal(t, n-1, lastRunOf(&Run{Attempt: attempt, Outcome: cellOutcomes[i-1]}))
			}
			if attempt < math.MaxInt32 {
				assert.Less(t, n, lastRunOf(&Run{Attempt: attempt + 1, Outcome: Succeeded}), "a higher attempt counts more")
			}
		}
	}
	assert.LessOrEqual(t, len(cellOutcomes), cellOutcomeBase)
}

func TestRing_LatestFires(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	g := NewRing(100)
	for n := range 5 {
		for _, job := range []string{"settle", "export"} {
			f := Fire{Namespace: "billing", Group: "default", Job: job, Fire: at.Add(time.Duration(n) * time.Second), Instance: "a", OK: int64(n)}
			require.NoError(t, g.Write(t.Context(), Batch{Fires: []Fire{f}}))
		}
	}
	latest, err := g.Reader("billing", "").LatestFires(t.Context(), []string{"settle", "none", "export", "settle"}, 2)
	require.NoError(t, err)
	require.Len(t, latest, 2)
	for _, job := range []string{"settle", "export"} {
		require.Len(t, latest[job], 2)
		assert.EqualValues(t, []int64{4, 3}, []int64{latest[job][0].OK, latest[job][1].OK})
	}
}

func TestRing_SumsTheLatestFires(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const size, records = 200, 1000
	g := NewRing(size)
	var kept []Fire
	for i := range records {
		f := Fire{
			Namespace: "billing", Group: "default", Job: fmt.Sprintf("job-%d", random.IntN(5)), Instance: fmt.Sprintf("i-%d", random.IntN(3)),
			Fire: at.Add(time.Duration(i/10-random.IntN(20)) * time.Second), Trigger: random.Uint64N(2), Part: uint64(i), OK: 1 + random.Int64N(9),
		}
		require.NoError(t, g.Write(t.Context(), Batch{Fires: []Fire{f, f}}))
		kept = append(kept, f)
	}
	kept = kept[records-size:]
	for n := range 6 {
		q := FiresQuery{Job: fmt.Sprintf("job-%d", n), Limit: 1 + random.IntN(30), ByInstance: random.IntN(2) == 0}
		sums := map[fireKey]int64{}
		for i := range kept {
			key := firePartOf(&kept[i]).fireKey
			if !q.ByInstance {
				key.instance = ""
			}
			if key.job == q.Job {
				sums[key] += kept[i].OK
			}
		}
		var want []Fire
		for key, ok := range sums {
			want = append(want, Fire{
				Namespace: "billing", Group: "default", Job: q.Job, Fire: time.UnixMicro(key.fire).UTC(), Trigger: key.trigger, Instance: key.instance, OK: ok,
			})
		}
		sortFires(want)
		got, err := g.Reader("billing", "").Fires(t.Context(), q)
		require.NoError(t, err)
		assert.Equal(t, want[:min(len(want), q.Limit)], got, q)
	}
	assert.Len(t, g.fireKeys, size)
}

// BenchmarkRing_LatestFires reads what a page of a fleet shows: the last fires of each of a hundred jobs.
func BenchmarkRing_LatestFires(b *testing.B) {
	const size, jobs = 100_000, 100
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	g := NewRing(size)
	var names []string
	for i := range size {
		f := Fire{Namespace: "billing", Group: "default", Job: fmt.Sprintf("job-%d", i%jobs), Instance: "a", Fire: at.Add(time.Duration(i/jobs) * time.Second), Part: 1, OK: 1}
		_ = g.Write(b.Context(), Batch{Fires: []Fire{f}})
		if i < jobs {
			names = append(names, f.Job)
		}
	}
	for b.Loop() {
		_, _ = g.Reader("billing", "").LatestFires(b.Context(), names, 60)
	}
}
