package past

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
)

// fleet is a made-up past of a job, and what a recorder keeps of it.
type fleet struct {
	shards int
	fires  []time.Time
	truth  map[time.Time][]State // by shard; OK stands for Unkept too
	ring   *history.Ring
}

// newFleet records fires with random ends of runs. Odds is one in how many runs does not just succeed.
func newFleet(t *testing.T, rnd *rand.Rand, shards, fires, odds int, keep history.Keep, skips bool) *fleet {
	f := &fleet{shards: shards, truth: map[time.Time][]State{}, ring: history.NewRing(1_000_000)}
	rec := history.New(f.ring, history.Options{Namespace: "billing", Keep: keep, Queue: 1_000_000, Logger: slog.New(slog.DiscardHandler)})
	for n := range fires {
		fire := start.Add(time.Duration(n) * time.Minute)
		f.fires = append(f.fires, fire)
		f.truth[fire] = make([]State, shards)
		for shard := range shards {
			f.truth[fire][shard] = f.record(rec, rnd, fire, shard, odds, skips)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, rec.Shutdown(ctx))
	require.Zero(t, rec.Stats().Dropped)
	return f
}

func (f *fleet) record(rec *history.Recorder, rnd *rand.Rand, fire time.Time, shard, odds int, skips bool) State {
	instance := fmt.Sprint("web-", shard%3)
	run := func(attempt int, how history.Outcome) State {
		began := fire.Add(time.Duration(attempt)*time.Second + time.Duration(rnd.IntN(100))*time.Millisecond)
		r := history.Run{
			Job: "settle", Fire: fire, Shard: shard, Shards: f.shards, Attempt: attempt, Reason: "scheduled", Instance: instance, Started: began,
			ID: fmt.Sprintf("billing/default/settle/%d/%s/%d", shard, fire.Format(time.RFC3339), attempt), Ended: began.Add(time.Duration(rnd.IntN(900)) * time.Millisecond), Outcome: how,
		}
		if how != history.Succeeded {
			r.Error, r.Output = "ledger is locked", "output of the run"
		}
		if how == history.Crashed {
			r.Started, r.Shards = time.Time{}, 0
		}
		rec.Add(r)
		return stateOf(how, attempt)
	}
	if rnd.IntN(odds) > 0 {
		return run(1, history.Succeeded)
	}
	switch n := rnd.IntN(6); {
	case n == 0 && skips:
		rec.AddSkipped(history.Fire{Job: "settle", Fire: fire, Instance: instance, Skipped: 1, SkippedBy: history.Skips{Disabled: 1}})
		return Skipped
	case n <= 1:
		return run(1, history.Failed)
	case n == 2:
		return run(1, history.Crashed)
	case n == 3:
		run(1, history.Crashed)
		return run(2, history.Succeeded)
	case n == 4:
		run(1, history.Failed)
		return run(2, history.Succeeded)
	}
	return run(1, history.HandedBack)
}

func (f *fleet) status() *operator.Status {
	st := &operator.Status{Job: "settle", Shards: f.shards, Schedule: "every 1m"}
	for shard := range f.shards {
		st.PerShard = append(st.PerShard, operator.ShardStatus{Shard: shard, LastFire: f.fires[len(f.fires)-1], Attempt: 1})
	}
	return st
}

func (f *fleet) reader() history.Reader { return f.ring.Reader("billing", "") }

// requireTrue checks that a state is what happened, or that it is not claimed to be known.
func requireTrue(t *testing.T, truth, shown State, text string) {
	switch {
	case shown == Unknown, shown == truth, shown == Unkept && (truth == OK || truth == Repeated):
	default:
		t.Fatalf("%s: shown as %v, but it was %v", text, shown, truth)
	}
}

// Whatever a history keeps, no grid and no page claims what did not happen.
func TestModels_ClaimOnlyWhatHappened(t *testing.T) {
	for seed := range uint64(120) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		keep := []history.Keep{history.KeepNotable, history.KeepAll, history.KeepFires}[seed%3]
		skips := seed%2 == 0
		f := newFleet(t, rnd, 1+rnd.IntN(90), 1+rnd.IntN(5), 1+rnd.IntN(20), keep, skips)
		t.Run(fmt.Sprintf("seed %d, keep %d", seed, keep), func(t *testing.T) {
			of := Range{0, -1}
			if rnd.IntN(2) == 0 {
				of = Range{rnd.IntN(f.shards), f.shards}
			}
			g, err := ReadGrid(t.Context(), f.reader(), f.status(), GridQuery{Of: of})
			require.NoError(t, err)
			require.Len(t, g.Fires, len(f.fires))
			unknown := 0
			for j, row := range g.Rows {
				for i := range g.Fires {
					c := g.Cells[j][i]
					truth := f.truth[g.Fires[i].Fire][row.First : row.Last+1]
					require.Equal(t, row.Len(), c.Counts.sum(), "each shard counts once")
					unknown += c.Counts[Unknown]
					for s := range States {
						if s := State(s); s != Unknown && s != Unkept && s != OK {
							require.LessOrEqual(t, c.Counts[s], countOf(truth, s), "row %v of fire %d: %v", row, i, s)
						}
					}
					require.LessOrEqual(t, c.Counts[OK], countOf(truth, OK))
					require.LessOrEqual(t, c.Counts[OK]+c.Counts[Repeated]+c.Counts[Unkept], countOf(truth, OK)+countOf(truth, Repeated))
				}
			}
			if keep != history.KeepFires && !skips {
				require.Zero(t, unknown, "the counts leave one explanation")
			}
			for _, fire := range f.fires {
				page, found, err := ReadFire(t.Context(), f.reader(), f.status(), FireQuery{Job: "settle", Fire: fire, Reveal: true, Now: start.Add(time.Hour)})
				require.NoError(t, err)
				require.True(t, found)
				require.Equal(t, min(f.shards, ShardsOnPage), len(page.Rows))
				worst := page.Rows[0].State
				for _, row := range page.Rows {
					requireTrue(t, f.truth[fire][row.Shard], row.State, fmt.Sprintf("fire %v, shard %d", fire, row.Shard))
					require.LessOrEqual(t, row.State, worst, "the worst first")
					worst = row.State
				}
			}
		})
	}
}

func countOf(states []State, s State) (n int) {
	for _, is := range states {
		if is == s {
			n++
		}
	}
	return n
}

func TestReadFire_Pages(t *testing.T) {
	f := newFleet(t, rand.New(rand.NewPCG(1, 1)), 250, 1, 10, history.KeepNotable, false)
	var shards []int
	for from := 0; from < 300; from += ShardsOnPage {
		page, found, err := ReadFire(t.Context(), f.reader(), f.status(), FireQuery{Job: "settle", Fire: f.fires[0], From: from})
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, 250, page.Number)
		for _, row := range page.Rows {
			shards = append(shards, row.Shard)
		}
	}
	slices.Sort(shards)
	require.Len(t, slices.Compact(shards), 250, "each shard is on one page")
	page, _, err := ReadFire(t.Context(), f.reader(), f.status(), FireQuery{Job: "settle", Fire: f.fires[0], From: 5000})
	require.NoError(t, err)
	require.Empty(t, page.Rows)
}

func TestReadFire_DoesNotKnowEveryInstant(t *testing.T) {
	f := newFleet(t, rand.New(rand.NewPCG(1, 1)), 3, 1, 10, history.KeepNotable, false)
	for _, q := range []FireQuery{{Job: "settle", Fire: start.Add(-time.Hour)}, {Job: "none", Fire: start}, {Job: "settle", Trigger: 12}} {
		for _, r := range []history.Reader{f.reader(), nil} {
			st := f.status()
			if q.Job == "none" {
				st = &operator.Status{Job: "none"}
			}
			_, found, err := ReadFire(t.Context(), r, st, q)
			require.NoError(t, err)
			require.False(t, found, "%+v", q)
			_, found, err = ReadRun(t.Context(), r, st, q, 0)
			require.NoError(t, err)
			require.False(t, found, "%+v", q)
		}
	}
	for shard, found := range map[int]bool{-1: false, 0: true, 2: true, 3: false} {
		_, got, err := ReadRun(t.Context(), f.reader(), f.status(), FireQuery{Job: "settle", Fire: start}, shard)
		require.NoError(t, err)
		require.Equal(t, found, got, "shard %d", shard)
	}
}

func TestTexts_NeedTheRoleReveal(t *testing.T) {
	f := newFleet(t, rand.New(rand.NewPCG(3, 3)), 40, 1, 2, history.KeepNotable, false)
	for _, reveal := range []bool{false, true} {
		page, _, err := ReadFire(t.Context(), f.reader(), f.status(), FireQuery{Job: "settle", Fire: f.fires[0], Reveal: reveal})
		require.NoError(t, err)
		texts, hidden := 0, 0
		for _, row := range page.Rows {
			run, _, err := ReadRun(t.Context(), f.reader(), f.status(), FireQuery{Job: "settle", Fire: f.fires[0], Reveal: reveal}, row.Shard)
			require.NoError(t, err)
			require.Equal(t, row.State, run.State)
			for _, try := range slices.Concat(row.Tries, run.Tries) {
				texts += len(try.Error) + len(try.Output)
				if try.Hidden {
					hidden++
				}
			}
		}
		require.Equal(t, reveal, texts > 0)
		require.Equal(t, reveal, hidden == 0)
	}
}

// The grid of 10,000 shards with as many runs as a history keeps of a job.
func BenchmarkReadGrid(b *testing.B) {
	const shards = 10_000
	g := history.NewRing(50_000)
	var batch history.Batch
	for n := range MaxFires {
		fire := start.Add(time.Duration(n) * time.Minute)
		batch.Fires = append(batch.Fires, history.Fire{Namespace: "billing", Group: "default", Job: "settle", Fire: fire, Instance: "a", Shards: shards, OK: shards - 800, Failed: 800})
		for i := range 800 {
			batch.Runs = append(batch.Runs, history.Run{Namespace: "billing", Group: "default", Job: "settle", Fire: fire, ID: fmt.Sprint(n, i), Instance: "a", Shard: i * 12, Shards: shards, Attempt: 1, Outcome: history.Failed})
		}
	}
	if err := g.Write(b.Context(), batch); err != nil {
		b.Fatal(err)
	}
	f := &fleet{shards: shards, fires: []time.Time{start}}
	st, r := f.status(), g.Reader("billing", "")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadGrid(b.Context(), r, st, GridQuery{Of: Range{0, -1}}); err != nil {
			b.Fatal(err)
		}
	}
}
