package rotatest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/executor"
)

// claimed is a job of which only claims are tracked.
func claimed(each time.Duration, shards int, h executor.HandlerFunc) executor.Job {
	j := every(each, shards, h)
	j.Tracking = executor.TrackClaims
	return j
}

func TestTrackClaims(t *testing.T) {
	t.Run("a fleet settles when handlers have returned, though no record says so", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", claimed(time.Hour, 4, takes(10*time.Minute)))
			fire := f.NextFire("job")
			f.Settle()
			assert.WithinDuration(t, fire.Add(10*time.Minute), time.Now(), time.Minute)
		})
	})

	t.Run("the next fire begins on shards whose record has the one before", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", claimed(time.Hour, 4, takes(time.Minute)))
			for n := range 3 {
				f.NextFire("job")
				assert.Len(t, f.Runs("job"), 4*(n+1))
			}
		})
	})

	t.Run("what a crash ended is not made again, and nothing is judged as lost", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := claimed(time.Hour, 4, takes(time.Minute))
			f.Start("a", job)
			f.Start("b", job)
			f.NextFire("job")
			f.Crash("a")
			f.Settle()
			f.NextFire("job")
			f.Settle()
			assert.Equal(t, map[string]int{"b": 4}, shares(f))
			runs := f.Runs("job")
			assert.Len(t, runs, 8)
			for _, r := range runs {
				assert.Equal(t, 1, r.Attempt)
			}
		})
	})

	t.Run("what came due while nobody was there goes by the misfire policy", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := claimed(time.Hour, 1, takes(time.Minute))
			job.OnMisfire = executor.RunAll(10)
			f.Start("a", job)
			f.NextFire("job")
			f.Crash("a")
			f.Sleep(3 * time.Hour)
			f.Start("b", job)
			f.Settle()
			runs := f.Runs("job")
			if assert.Len(t, runs, 4) {
				for n, r := range runs {
					assert.Equal(t, runs[0].FireTime.Add(time.Duration(n)*time.Hour), r.FireTime)
				}
				assert.Equal(t, executor.Misfire, runs[1].Reason)
			}
		})
	})

	t.Run("a drain leaves nothing untold", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := claimed(time.Hour, 2, takes(time.Minute))
			f.Start("a", job)
			f.Start("b", job)
			f.NextFire("job")
			f.Stop("a")
			f.Settle()
			assert.Equal(t, map[string]int{"b": 2}, shares(f))
			assert.Zero(t, f.model.named("job")[0].plan.Counts.Unknown)
			f.NextFire("job")
			assert.Len(t, f.Runs("job"), 4)
		})
	})

	t.Run("moves wait for runs, and lose and double none", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := claimed(time.Hour, 4, takes(10*time.Minute))
			f.Start("a", job)
			f.NextFire("job")
			f.Start("b", job)
			assert.Equal(t, map[string]int{"a": 4}, shares(f), "those that move are running")
			f.Settle()
			assert.Equal(t, map[string]int{"a": 2, "b": 2}, shares(f))
			f.NextFire("job")
			f.Stop("a")
			f.NextFire("job")
			f.Settle()
			assert.Len(t, f.Runs("job"), 12)
			assert.Equal(t, map[string]int{"b": 4}, shares(f))
		})
	})

	t.Run("a trigger is run by all shards", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", claimed(time.Hour, 4, takes(time.Minute)))
			f.Trigger("job", executor.Trigger{})
			f.Settle()
			runs := f.Runs("job")
			assert.Len(t, runs, 4)
			for _, r := range runs {
				assert.Equal(t, executor.Triggered, r.Reason)
			}
		})
	})
}
