package rotatest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/schedule"
)

func TestUnoffered(t *testing.T) {
	// offersAgain withdraws a job from a and b for some time, and returns the runs that are made in the
	// first half hour after a offers it again.
	offersAgain := func(t *testing.T, f *Fleet, away time.Duration) []Record {
		t.Helper()
		job := executor.Job{Name: "job", Schedule: schedule.Every(time.Hour), Shards: 2, Handler: takes(time.Second)}
		other := executor.Job{Name: "other", Schedule: schedule.Every(time.Hour), Shards: 1, Handler: takes(0)}
		a, b := f.Start("a", job, other), f.Start("b", job, other)
		f.NextFire("job")
		f.Sleep(time.Minute)
		require.NoError(t, a.Withdraw(f.T().Context(), "job"))
		require.NoError(t, b.Withdraw(f.T().Context(), "job"))
		f.Sleep(time.Minute)
		st, err := b.Operator().Status(f.T().Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, "no live instance offers the job", st.Problem)
		f.Sleep(away - time.Minute)
		since := time.Now()
		f.Register("a", job)
		f.Sleep(30 * time.Minute)
		runs := runsSince(f, since)
		f.NextFire("job")
		f.Settle()
		assert.Len(t, runsSince(f, since), len(runs)+2, "the next fire comes in its time")
		return runs
	}
	t.Run("a job that is offered again after days makes up for nothing", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			assert.Empty(t, offersAgain(t, f, long.Pick[time.Duration](2, 30)*24*time.Hour+10*time.Minute))
		})
	})
	t.Run("within an hour it makes up for what it missed, as its misfire policy says", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			runs := offersAgain(t, f, coordinator.MaxUnoffered-time.Second)
			assert.Len(t, runs, 2)
			for _, r := range runs {
				assert.Equal(t, executor.Misfire, r.Reason)
			}
		})
	})
}
