package executor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

func TestStatus(t *testing.T) {
	bubble(t, "has the schedule as text, and the next fire", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 2, takes(0))
		until(1)
		st, err := a.Operator().Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, minute(1), st.PerShard[1].LastFire)
		assert.Equal(t, minute(2), st.NextFire)
		s, err := schedule.Parse(st.Schedule)
		require.NoError(t, err)
		assert.Equal(t, f.job(2, takes(0)).Schedule, s)
	})
	bubble(t, "from outside the fleet has the next fire if Compile is given", func(t *testing.T, f *fleet) {
		f.start("a", executor.Options{}, 2, takes(0))
		st, err := f.operator().Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Zero(t, st.NextFire)
		st, err = f.operator().WithCompiler(executor.Compile).Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, minute(1), st.NextFire)
	})
}

func TestStatus_Failing(t *testing.T) {
	// Jobs whose watermark passes the failed run before another run has begun.
	for name, change := range map[string]func(*executor.Job){
		"of a fixed delay":                     func(j *executor.Job) { j.Schedule = schedule.FixedDelay(5 * time.Second) },
		"of a job that skips what it overlaps": func(j *executor.Job) { j.OnOverlap = executor.SkipOverlapping },
		"of a job that skips what it missed":   func(j *executor.Job) { j.OnMisfire = executor.SkipMissed },
	} {
		bubble(t, name, func(t *testing.T, f *fleet) {
			handle := func(context.Context, *executor.Run) error {
				time.Sleep(7*time.Second + 123456*time.Nanosecond) // instants are no whole milliseconds
				return errors.New("no")
			}
			job := f.job(1, handle)
			job.Schedule = schedule.Every(5 * time.Second)
			change(&job)
			e := f.executor("a", executor.Options{}, 1, handle)
			require.NoError(t, e.Register(job))
			require.NoError(t, e.Start(t.Context()))
			time.Sleep(time.Until(minute(3).Add(100 * time.Millisecond)))
			for range 60 {
				time.Sleep(time.Second)
				synctest.Wait()
				st, err := e.Operator().Status(t.Context(), "job")
				require.NoError(t, err)
				if len(st.Failing) == 0 && !(job.Schedule.CountsEnds() && e.Stats().Jobs["job"].Running > 0) {
					t.Fatalf("not failing at %v: %v running, failures %+v", time.Now(), e.Stats().Jobs["job"].Running, st.Failures)
				}
			}
		})
	}
}
