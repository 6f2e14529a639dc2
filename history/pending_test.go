package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// runOf returns a run of job "settle" that took so many milliseconds.
func runOf(fire, shard, took int, how Outcome) Run {
	at := start.Add(time.Duration(fire) * time.Second)
	return Run{
		Namespace: "billing", Group: "default", ID: fmt.Sprintf("settle/%d/%s/1", shard, at.Format(time.RFC3339)), Job: "settle", Fire: at, Shard: shard,
		Shards: 64, Attempt: 1, Reason: "scheduled", Instance: "a", Fence: uint64(fire + 1), Started: at.Add(5 * time.Millisecond),
		Ended: at.Add(time.Duration(5+took) * time.Millisecond), Outcome: how,
	}
}

func newTestPending(limit int, keep Keep) *pending { return newPending(limit, keep, time.Second, 100) }

// takeAll returns the records of p.
func takeAll(p *pending) (fires []Fire, runs []Run) {
	for _, rec := range p.take(time.Time{}, 1<<30, true) {
		if rec.fire != nil {
			fires = append(fires, *rec.fire)
		} else {
			runs = append(runs, *rec.run)
		}
	}
	return fires, runs
}

func TestPending_SumsUpAFire(t *testing.T) {
	p := newTestPending(100, KeepFires)
	p.addRun(runOf(0, 0, 10, Succeeded), start)
	p.addRun(runOf(0, 1, 30, Failed), start)
	p.addRun(runOf(0, 2, 20, TimedOut), start)
	p.addRun(runOf(0, 3, 20, Panicked), start)
	p.addRun(runOf(0, 4, 20, HandedBack), start)
	p.addRun(runOf(0, 5, 20, LostSession), start)
	p.addRun(runOf(0, 6, 20, Abandoned), start)
	again := runOf(0, 1, 40, Succeeded)
	again.Attempt, again.Started = 2, again.Started.Add(time.Millisecond)
	p.addRun(again, start)
	crashed := runOf(0, 7, 0, Crashed)
	crashed.Started, crashed.Shards = time.Time{}, 0
	p.addRun(crashed, start)
	p.addFire(Fire{Namespace: "billing", Group: "default", Job: "settle", Instance: "a", Fire: start, Skipped: 3}, start)
	for _, minutes := range []time.Duration{5, 9, 2} {
		p.addFire(Fire{Namespace: "billing", Group: "default", Job: "settle", Instance: "a", Fire: start, Skipped: 1, SkippedFrom: start.Add(-minutes * time.Minute)}, start)
	}
	fires, runs := takeAll(p)
	require.Empty(t, runs)
	require.Equal(t, []Fire{{
		Namespace: "billing", Group: "default", Job: "settle", Fire: start, Instance: "a", Part: 101, Shards: 64,
		OK: 2, Failed: 3, Unfinished: 3, Crashed: 1, Skipped: 6, SkippedFrom: start.Add(-9 * time.Minute), Repeated: 1,
		FirstStart: start.Add(5 * time.Millisecond), LastEnd: start.Add(45 * time.Millisecond), MaxLate: 5 * time.Millisecond,
		MaxDuration: 39 * time.Millisecond, SumDuration: 179 * time.Millisecond,
	}}, fires)
}

func TestPending_KeepsRunsByTheirWorth(t *testing.T) {
	for keep, want := range map[Keep][]string{
		KeepNotable: {"1 failed", "2 handed back", "3 succeeded, attempt 2", "7 succeeded", "8 succeeded", "9 succeeded"},
		KeepAll: {
			"1 failed", "2 handed back", "3 succeeded, attempt 2", "4 succeeded", "5 succeeded", "6 succeeded", "7 succeeded", "8 succeeded", "9 succeeded",
		},
		KeepFires: nil,
	} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			p := newTestPending(100, keep)
			p.addRun(runOf(0, 1, 1, Failed), start)
			p.addRun(runOf(0, 2, 1, HandedBack), start)
			again := runOf(0, 3, 1, Succeeded)
			again.Attempt = 2
			p.addRun(again, start)
			for shard := 4; shard < 10; shard++ {
				p.addRun(runOf(0, shard, 10*shard, Succeeded), start)
			}
			_, runs := takeAll(p)
			var got []string
			sortByShard(runs)
			for _, r := range runs {
				text := fmt.Sprintf("%d %s", r.Shard, r.Outcome)
				if r.Attempt > 1 {
					text += fmt.Sprintf(", attempt %d", r.Attempt)
				}
				got = append(got, text)
			}
			require.Equal(t, want, got)
		})
	}
}

func TestPending_RemembersTheSlowestRunsOfAFire(t *testing.T) {
	p := newTestPending(100, KeepNotable)
	for shard := range 3 {
		p.addRun(runOf(0, shard, 100, Succeeded), start)
	}
	fires, runs := takeAll(p)
	require.Len(t, fires, 1)
	require.Len(t, runs, 3)
	p.addRun(runOf(0, 3, 50, Succeeded), start)
	p.addRun(runOf(0, 4, 200, Succeeded), start)
	fires, runs = takeAll(p)
	require.Len(t, fires, 1)
	require.EqualValues(t, 2, fires[0].OK, "a record of a fire counts runs that the one before it lacks")
	require.Len(t, runs, 1)
	require.Equal(t, 4, runs[0].Shard)
}

func TestPending_ForgetsFires(t *testing.T) {
	p := newTestPending(100, KeepNotable)
	for fire := range knownFires + 500 {
		p.addRun(runOf(fire, 0, 1, Succeeded), start)
		takeAll(p)
	}
	require.Len(t, p.fires, knownFires)
	require.Equal(t, knownFires, p.idle.Len())
}

func TestPending_DropsTheLeastImportant(t *testing.T) {
	p := newTestPending(4, KeepNotable)
	p.addRun(runOf(0, 0, 1, Succeeded), start)
	p.addRun(runOf(1, 0, 1, Failed), start)
	require.Equal(t, 4, p.size())

	p.addRun(runOf(2, 0, 1, Succeeded), start)
	require.Equal(t, Dropped{Folded: 2}, p.dropped, "runs that succeeded, before fires")
	p.addRun(runOf(3, 0, 1, Failed), start)
	require.Equal(t, Dropped{Folded: 2, Fires: 2, Runs: 2}, p.dropped, "fires without a failure, before others")
	p.addRun(runOf(4, 0, 1, Failed), start)
	require.Equal(t, Dropped{Folded: 2, Fires: 4, Runs: 4}, p.dropped, "fires, before failed runs")
	for fire := 5; fire < 9; fire++ {
		p.addRun(runOf(fire, 0, 1, Failed), start)
	}
	require.Equal(t, Dropped{Folded: 2, Fires: 9, Runs: 9, Failures: 3}, p.dropped)
	fires, runs := takeAll(p)
	require.Empty(t, fires)
	require.Len(t, runs, 4)
	require.Equal(t, start.Add(8*time.Second), runs[3].Fire, "the oldest failed runs are dropped")
}

func TestPending_TakesWhatIsDue(t *testing.T) {
	p := newTestPending(100, KeepNotable)
	require.Zero(t, p.nextDue())
	p.addRun(runOf(0, 0, 1, Succeeded), start)
	p.addRun(runOf(1, 0, 1, Failed), start.Add(time.Second))
	require.Equal(t, start.Add(time.Second), p.nextDue())
	require.Empty(t, p.take(start.Add(999*time.Millisecond), 10, false))
	require.Len(t, p.take(start.Add(time.Second), 10, false), 2)
	taken := p.take(start.Add(2*time.Second), 1, false)
	require.Len(t, taken, 1)
	require.NotNil(t, taken[0].run, "failed runs come first")
	require.Len(t, p.take(start, 10, true), 1)
	require.Zero(t, p.size())
}

func TestPending_TakesEverythingWhenCrowded(t *testing.T) {
	p := newTestPending(100, KeepFires)
	for fire := range 49 {
		p.addRun(runOf(fire, 0, 1, Succeeded), start)
	}
	require.Empty(t, p.take(start, 10, false))
	p.addRun(runOf(49, 0, 1, Succeeded), start)
	require.Len(t, p.take(start, 10, false), 10)
}

// Each run is counted once, for random orders of adding, taking and dropping.
func TestPending_CountsEachRunOnce(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		limit := 1 + rnd.IntN(40)
		p := newTestPending(limit, Keep(rnd.IntN(3)))
		var sum Fire
		parts, ids := map[uint64]bool{}, map[string]bool{}
		added, failures := int64(0), int64(0)
		take := func(n int, all bool) {
			for _, rec := range p.take(start.Add(time.Duration(rnd.IntN(60))*time.Second), n, all) {
				if rec.fire != nil {
					require.False(t, parts[rec.fire.Part], "seed %d", seed)
					parts[rec.fire.Part] = true
					sum.merge(rec.fire)
					continue
				}
				require.False(t, ids[rec.run.ID], "seed %d: %s twice", seed, rec.run.ID)
				ids[rec.run.ID] = true
				if rec.run.Outcome.IsFailure() {
					failures--
				}
			}
		}
		for i := range 500 {
			how := []Outcome{Succeeded, Succeeded, Succeeded, Failed, HandedBack}[rnd.IntN(5)]
			r := runOf(rnd.IntN(20), i, rnd.IntN(50), how)
			p.addRun(r, start.Add(time.Duration(i)*100*time.Millisecond))
			added++
			if how == Failed && p.keep != KeepFires {
				failures++
			}
			require.LessOrEqual(t, p.size(), limit)
			if rnd.IntN(10) == 0 {
				take(rnd.IntN(20), false)
			}
		}
		take(1<<30, true)
		require.Equal(t, added, sum.Runs()+p.dropped.Runs, "seed %d", seed)
		require.Equal(t, failures, p.dropped.Failures, "seed %d", seed)
		require.Zero(t, p.size())
		require.Zero(t, p.nextDue())
	}
}

func TestPending_AddsTheEndOfAFire(t *testing.T) {
	p := newTestPending(2, KeepFires)
	end := Fire{Namespace: "billing", Group: "default", Job: "settle", Instance: "b", Fire: start, Shards: 64, Ended: start.Add(time.Minute), FailedShards: 2, SkippedShards: 1}
	p.addFire(end, start)
	again := end
	again.Ended = start.Add(time.Second)
	p.addFire(again, start)
	p.addRun(runOf(1, 0, 10, Succeeded), start)
	p.addRun(runOf(2, 0, 10, Succeeded), start)
	require.EqualValues(t, 1, p.dropped.Fires, "a fire that succeeded is dropped before one that failed, though no run of it failed here")
	fires, _ := takeAll(p)
	require.Len(t, fires, 2)
	end.Part = fires[0].Part
	require.Equal(t, end, fires[0], "two reports of one end are one")
}
