package rotatest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

func TestSetClock(t *testing.T) {
	// of returns how many runs an instance has made since an instant.
	of := func(f *Fleet, instance string, since time.Time) (n int) {
		for _, r := range f.Runs("job") {
			if r.Instance == instance && r.Start.After(since) {
				n++
			}
		}
		return n
	}
	begin := func(f *Fleet, instances ...string) {
		for _, i := range instances {
			f.Start(i, every(time.Minute, 6, takes(time.Second)))
		}
	}
	for name, by := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run("an instance of three that is too far "+name+" makes no runs until it is right again, and none is lost", func(t *testing.T) {
			Run(t, func(f *Fleet) {
				begin(f, "a", "b", "c")
				f.SetClock("c", by)
				time.Sleep(time.Minute)
				wrong := time.Now()
				time.Sleep(10 * time.Minute)
				assert.Zero(t, of(f, "c", wrong))
				assert.Equal(t, 30, of(f, "a", wrong))
				f.SetClock("c", 0)
				time.Sleep(time.Minute)
				right := time.Now()
				time.Sleep(10 * time.Minute)
				assert.Equal(t, 20, of(f, "c", right))
				f.Settle()
			})
		})
	}
	t.Run("one that starts with a clock too far ahead makes no runs", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.SetClock("c", time.Hour)
			begin(f, "a", "b", "c")
			time.Sleep(10 * time.Minute)
			assert.Zero(t, of(f, "c", time.Time{}))
			f.Settle()
		})
	})
	t.Run("one within the limit makes its runs early, by so much", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.SetClock("a", 2*time.Second)
			begin(f, "a")
			time.Sleep(90 * time.Second)
			runs := f.Runs("job")
			assert.Len(t, runs, 6)
			assert.Equal(t, -2*time.Second, runs[0].Start.Sub(runs[0].FireTime))
			f.Settle()
		})
	})
	t.Run("it goes on from the clock of the options", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Options.Clock = func() time.Time { return time.Now().Add(-time.Second) }
			f.Options.MaxClockSkew = -1
			f.SetClock("a", 3*time.Second)
			f.Start("a", executor.Job{Name: "job", Schedule: schedule.Every(time.Minute), Shards: 1, Handler: takes(0)})
			time.Sleep(90 * time.Second)
			assert.Equal(t, -2*time.Second, f.Runs("job")[0].Start.Sub(f.Runs("job")[0].FireTime))
			f.Settle()
		})
	})
}

func TestSetClock_RightAgain(t *testing.T) {
	const wrong = 3 * time.Hour
	// waits checks that nothing runs twice: the shards wait for the fires that were claimed ahead
	// of their time, and then the runs of ten minutes are made.
	waits := func(t *testing.T, f *Fleet) {
		t.Helper()
		time.Sleep(time.Minute)
		since := time.Now()
		time.Sleep(10 * time.Minute)
		assert.Empty(t, runsSince(f, since))
		time.Sleep(wrong)
		since = time.Now()
		time.Sleep(10 * time.Minute)
		ids := map[string]bool{}
		for _, r := range f.Runs("job") {
			assert.False(t, ids[r.ID], "%s is there twice", r.ID)
			ids[r.ID] = true
		}
		goesOn(t, runsSince(f, since))
		f.Settle()
	}
	for level, of := range map[executor.Tracking]string{executor.TrackRuns: "runs", executor.TrackClaims: "claims"} {
		t.Run("one that was alone with a clock far ahead waits when it is right, tracking "+of, func(t *testing.T) {
			Run(t, func(f *Fleet) {
				f.SetClock("a", wrong)
				job := every(time.Minute, 2, takes(time.Second))
				job.Tracking = level
				f.Start("a", job)
				time.Sleep(5 * time.Minute)
				f.SetClock("a", 0)
				waits(t, f)
			})
		})
	}
	t.Run("so does the next, where it has crashed with that clock", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.SetClock("a", wrong)
			f.Start("a", every(time.Minute, 2, takes(time.Second)))
			time.Sleep(5*time.Minute + 500*time.Millisecond)
			f.Crash("a")
			f.Start("b", every(time.Minute, 2, takes(time.Second)))
			time.Sleep(time.Minute)
			waits(t, f)
		})
	})
	t.Run("so do two that differed", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.SetClock("a", wrong)
			f.Start("a", every(time.Minute, 2, takes(time.Second)))
			f.Start("b", every(time.Minute, 2, takes(time.Second)))
			time.Sleep(5 * time.Minute)
			f.SetClock("a", 0)
			waits(t, f)
		})
	})
}

func TestSetClock_Reset(t *testing.T) {
	t.Run("a job that waits because a clock was wrong goes on after a reset, and runs the same fires again", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.SetClock("a", 5*time.Minute)
			e := f.Start("a", every(time.Minute, 2, takes(time.Second)))
			time.Sleep(5*time.Minute + 30*time.Second)
			f.SetClock("a", 0)
			time.Sleep(time.Minute)
			require.NoError(t, e.Operator().Reset(f.T().Context(), "job"))
			time.Sleep(10 * time.Second)
			since := time.Now()
			time.Sleep(10 * time.Minute)
			goesOn(t, runsSince(f, since))
			ids, twice := map[string]bool{}, 0
			for _, r := range f.Runs("job") {
				if ids[r.ID] {
					twice++
				}
				ids[r.ID] = true
			}
			assert.Equal(t, 8, twice)
			f.Settle()
		})
	})
}

func runsSince(f *Fleet, since time.Time) []Record {
	return slices.DeleteFunc(f.Runs("job"), func(r Record) bool { return r.Start.Before(since) })
}

// goesOn checks that these are the runs of ten minutes, each in its time.
func goesOn(t *testing.T, runs []Record) {
	t.Helper()
	assert.Len(t, runs, 20)
	for _, r := range runs {
		assert.Less(t, r.Start.Sub(r.FireTime).Abs(), time.Second)
		assert.Equal(t, 1, r.Attempt)
		assert.Equal(t, executor.Scheduled, r.Reason)
	}
}
