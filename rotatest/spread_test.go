package rotatest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

const spreadShards = 24

// spreadJob fires each two minutes and spreads its runs, of a second each, over a minute.
func spreadJob() executor.Job {
	return executor.Job{
		Name: "job", Schedule: schedule.Every(2 * time.Minute).Spread(time.Minute), Shards: spreadShards,
		Handler: executor.HandlerFunc(func(ctx context.Context, _ *executor.Run) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}),
	}
}

// spreadRuns returns the runs of one fire by shard, and fails if a shard has none or several that have
// ended without an error.
func spreadRuns(f *Fleet, fire time.Time) map[int][]Record {
	runs, ended := map[int][]Record{}, map[int]int{}
	for _, r := range f.Runs("job") {
		if r.Start = r.Start.UTC(); r.FireTime.Equal(fire) {
			if runs[r.Shard] = append(runs[r.Shard], r); r.Err == nil && !r.End.IsZero() {
				ended[r.Shard]++
			}
		}
	}
	for shard := range spreadShards {
		assert.Equal(f.T(), 1, ended[shard], "runs of shard %d that ended well", shard)
	}
	return runs
}

func TestSpread(t *testing.T) {
	run := func(name string, f func(f *Fleet, job executor.Job)) {
		t.Run(name, func(t *testing.T) { Run(t, func(fleet *Fleet) { f(fleet, spreadJob()) }) })
	}
	offset := func(shard int) time.Duration { return spreadJob().Schedule.Offset("job", shard) }
	// requireAtOffset fails unless the last run of each shard began at its offset.
	requireAtOffset := func(f *Fleet, fire time.Time, runs map[int][]Record) {
		for shard, all := range runs {
			last := all[len(all)-1]
			require.Equal(f.T(), fire.Add(offset(shard)), last.Start, last)
		}
	}

	run("begins the run of each shard at its offset after the fire", func(f *Fleet, job executor.Job) {
		f.Start("a", job)
		f.Start("b", job)
		for range 2 {
			fire := f.NextFire("job")
			f.Sleep(70 * time.Second)
			runs := spreadRuns(f, fire)
			requireAtOffset(f, fire, runs)
			for _, all := range runs {
				require.Len(f.T(), all, 1)
				require.Equal(f.T(), executor.Scheduled, all[0].Reason)
			}
		}
	})
	run("hands waiting runs back at a drain, and each begins elsewhere at the same offset", func(f *Fleet, job executor.Job) {
		claimed, handedBack := map[string]bool{}, 0
		f.Options.Observer = executor.Observer{
			RunClaimed: func(e executor.RunClaimed) { claimed[e.Run.ID] = true },
			RunEnded: func(e executor.RunEnded) {
				if delete(claimed, e.Run.ID); e.Outcome == executor.HandedBack {
					handedBack++
				}
			},
		}
		f.Start("a", job)
		f.Options.Observer = executor.Observer{}
		f.Start("b", job)
		fire := f.NextFire("job")
		f.Sleep(20 * time.Second)
		began := time.Now()
		f.Stop("a")
		require.Less(f.T(), time.Since(began), 3*time.Second, "a drain does not wait for offsets")
		f.Sleep(70 * time.Second)
		runs, moved := spreadRuns(f, fire), 0
		requireAtOffset(f, fire, runs)
		for _, all := range runs {
			require.Len(f.T(), all, 1)
			if r := all[0]; r.Attempt == 2 {
				moved++
				require.Equal(f.T(), executor.Failover, r.Reason)
				require.Equal(f.T(), "b", r.Instance)
			}
		}
		require.Greater(f.T(), moved, 3)
		require.Empty(f.T(), claimed, "each claimed run is observed to end")
		require.Equal(f.T(), moved, handedBack)
	})
	for name, change := range map[string]func(*executor.Job){
		"CountAsFailed": func(j *executor.Job) { j.OnCrash = executor.CountAsFailed },
		"TrackClaims":   func(j *executor.Job) { j.Tracking = executor.TrackClaims },
	} {
		run("begins waiting runs at a drain if they cannot be handed back: "+name, func(f *Fleet, job executor.Job) {
			change(&job)
			ex := f.Start("a", job)
			f.Start("b", job)
			fire := f.NextFire("job")
			f.Sleep(20 * time.Second)
			stopped := time.Now().UTC()
			f.Stop("a")
			f.Sleep(70 * time.Second)
			early := 0
			for shard, all := range spreadRuns(f, fire) {
				require.Len(f.T(), all, 1)
				want := fire.Add(offset(shard))
				if r := all[0]; r.Instance == "a" && want.After(stopped) {
					early++
					want = stopped
				}
				require.Equal(f.T(), want, all[0].Start)
			}
			require.Greater(f.T(), early, 3)
			st, err := ex.Operator().Status(f.T().Context(), "job")
			require.NoError(f.T(), err)
			require.Zero(f.T(), st.Counts.Failed)
		})
	}
	run("loses and doubles no run when an instance crashes", func(f *Fleet, job executor.Job) {
		f.Start("a", job)
		f.Start("b", job)
		fire := f.NextFire("job")
		f.Sleep(20 * time.Second)
		crashed := time.Now()
		f.Crash("a")
		f.Sleep(90 * time.Second)
		var atOnce, atOffset int
		for shard, all := range spreadRuns(f, fire) {
			last, want := all[len(all)-1], fire.Add(offset(shard))
			switch {
			case last.Attempt == 1:
				require.Equal(f.T(), want, last.Start)
			case last.Start.Equal(want):
				atOffset++
			default:
				atOnce++
				require.True(f.T(), last.Start.After(want) && last.Start.Before(crashed.Add(15*time.Second)), last)
			}
		}
		require.NotZero(f.T(), atOnce, "their instants had passed when the session expired")
		require.NotZero(f.T(), atOffset)
	})
	run("hands the waiting runs of shards that move to their next owner", func(f *Fleet, job executor.Job) {
		f.Start("a", job)
		fire := f.NextFire("job")
		f.Sleep(20 * time.Second)
		f.Start("b", job)
		f.Sleep(5 * time.Second)
		owned := 0
		for incarnation, shards := range plan(f).Owners {
			if instance, _ := splitIncarnation(incarnation); instance == "b" {
				owned = shards.Len()
			}
		}
		require.Equal(f.T(), spreadShards/2, owned, "a move does not wait for offsets")
		f.Sleep(70 * time.Second)
		runs, moved := spreadRuns(f, fire), 0
		requireAtOffset(f, fire, runs)
		for _, all := range runs {
			require.Len(f.T(), all, 1)
			if all[0].Instance == "b" {
				moved++
				require.Equal(f.T(), 2, all[0].Attempt)
			}
		}
		require.Greater(f.T(), moved, 3)
	})
	run("drops the waiting runs of a lost session, and runs each once", func(f *Fleet, job executor.Job) {
		job.MaxAttempts = 10
		ex := f.Start("a", job)
		fire := f.NextFire("job")
		f.Sleep(20 * time.Second)
		heal := f.Partition("a")
		f.Sleep(15 * time.Second)
		require.Empty(f.T(), ex.Waiting(), "the session is lost")
		heal()
		f.Sleep(80 * time.Second)
		runs := map[int][]Record{}
		for _, r := range f.Runs("job") {
			require.False(f.T(), r.Start.Before(fire.Add(offset(r.Shard))), r)
			runs[r.Shard] = append(runs[r.Shard], r)
		}
		require.Len(f.T(), runs, spreadShards)
		later := 0
		for shard, all := range runs {
			if offset(shard) < 40*time.Second { // ran before, or in a session that could not record its end
				continue
			}
			later++
			require.Len(f.T(), all, 1)
			require.Equal(f.T(), 2, all[0].Attempt)
			require.Equal(f.T(), fire.Add(offset(shard)), all[0].Start.UTC())
		}
		require.Greater(f.T(), later, 3)
	})
	run("begins triggers, late claims and re-runs whose instant has passed at once", func(f *Fleet, job executor.Job) {
		f.Start("a", job)
		f.Sleep(time.Second)
		now := time.Now().UTC()
		f.Trigger("job", executor.Trigger{})
		f.Sleep(5 * time.Second)
		runs := f.Runs("job")
		require.Len(f.T(), runs, spreadShards)
		for _, r := range runs {
			require.Equal(f.T(), executor.Triggered, r.Reason)
			require.Equal(f.T(), now, r.Start.UTC())
		}
		f.Stop("a")
		fire := now.Truncate(2 * time.Minute).Add(2 * time.Minute)
		f.SleepUntil(fire.Add(30 * time.Second)) // nobody claims the fire before
		f.Start("b", job)
		f.Sleep(60 * time.Second)
		for shard, all := range spreadRuns(f, fire) {
			require.Len(f.T(), all, 1)
			if want := fire.Add(offset(shard)); want.After(fire.Add(40 * time.Second)) {
				require.Equal(f.T(), want, all[0].Start)
			} else {
				require.True(f.T(), all[0].Start.Before(fire.Add(45*time.Second)), all[0])
			}
			require.Equal(f.T(), executor.Misfire, all[0].Reason)
		}
	})
	run("hands back the waiting run of a disabled shard, which begins when the shard is enabled", func(f *Fleet, job executor.Job) {
		ex := f.Start("a", job)
		fire := f.NextFire("job")
		f.Sleep(time.Second)
		last := 0
		for shard := range spreadShards {
			if offset(shard) > offset(last) {
				last = shard
			}
		}
		one := operator.Scope{Job: "job", Shards: []int{last}}
		require.NoError(f.T(), ex.Operator().Disable(f.T().Context(), one))
		f.Sleep(80 * time.Second)
		for _, r := range f.Runs("job") {
			require.NotEqual(f.T(), last, r.Shard)
		}
		enabled := time.Now()
		require.NoError(f.T(), ex.Operator().Enable(f.T().Context(), one))
		f.Sleep(5 * time.Second)
		all := spreadRuns(f, fire)[last]
		require.Len(f.T(), all, 1)
		require.Equal(f.T(), 2, all[0].Attempt)
		require.Less(f.T(), all[0].Start.Sub(enabled), time.Second)
	})
	run("hands back the waiting runs of a paused job, which begin when the job is resumed", func(f *Fleet, job executor.Job) {
		ex := f.Start("a", job)
		fire := f.NextFire("job")
		f.Sleep(20 * time.Second)
		require.NoError(f.T(), ex.Operator().Pause(f.T().Context(), "job"))
		paused := time.Now()
		f.Sleep(50 * time.Second)
		before := len(f.Runs("job"))
		for _, r := range f.Runs("job") {
			require.False(f.T(), r.Start.After(paused), r)
		}
		require.Less(f.T(), before, spreadShards)
		require.NoError(f.T(), ex.Operator().Resume(f.T().Context(), "job"))
		f.Sleep(20 * time.Second)
		spreadRuns(f, fire)
	})
	run("lets a run wait for its offset though a new definition comes into force", func(f *Fleet, job executor.Job) {
		f.Start("a", job)
		fire := f.NextFire("job")
		job.Revision, job.Schedule = 1, schedule.Every(3*time.Minute)
		f.Register("a", job)
		f.Sleep(70 * time.Second)
		runs := spreadRuns(f, fire)
		requireAtOffset(f, fire, runs)
		for _, all := range runs {
			require.Len(f.T(), all, 1)
			require.Equal(f.T(), 1, all[0].Attempt)
		}
	})
	run("takes no worker while a run waits, and reports it", func(f *Fleet, job executor.Job) {
		f.Options.Workers = 1
		short := executor.Job{Name: "short", Schedule: schedule.Every(2 * time.Minute), Handler: job.Handler}
		ex := f.Start("a", job, short)
		fire := f.NextFire("job")
		runs := f.Runs("short")
		require.Len(f.T(), runs, 1)
		require.Equal(f.T(), fire, runs[0].Start.UTC())
		for range 3 {
			var later []int
			for shard := range spreadShards {
				if fire.Add(offset(shard)).After(time.Now()) {
					later = append(later, shard)
				}
			}
			require.Equal(f.T(), operator.Waiting{Shards: later, Since: fire, Behind: "Spread of this job"}, ex.Waiting()["job"])
			f.Sleep(17 * time.Second)
		}
		st, err := ex.Operator().Status(f.T().Context(), "job")
		require.NoError(f.T(), err)
		for _, i := range st.Members {
			require.Empty(f.T(), i.Waiting.Shards, "they do not wait for a worker")
		}
	})
}
