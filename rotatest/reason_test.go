package rotatest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
)

func TestReason(t *testing.T) {
	t.Run("of a triggered run that a crash has made again is Failover, and it has the trigger's number and parameter", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Hour, 2, takes(time.Minute))
			job.Param = "of the job"
			f.Start("a", job)
			f.Start("b", job)
			n := f.Trigger("job", executor.Trigger{Param: "of the trigger"})
			f.Crash("a")
			f.Settle()
			runs := f.Runs("job")
			require.Len(t, runs, 3)
			for i, want := range []executor.Reason{executor.Triggered, executor.Triggered, executor.Failover} {
				assert.Equal(t, want, runs[i].Reason)
				assert.Equal(t, n, runs[i].Trigger)
				assert.Equal(t, "of the trigger", runs[i].Param)
			}
			assert.Equal(t, 2, runs[2].Attempt)
		})
	})
	t.Run("of a triggered run that a crash has made again minutes later is the same", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(24*time.Hour, 2, takes(time.Minute))
			job.Param = "of the job"
			f.Start("a", job)
			f.Start("b")
			n := f.Trigger("job", executor.Trigger{Param: "of the trigger"})
			f.Crash("a")
			f.Sleep(5 * time.Minute)
			f.Register("b", job)
			f.Settle()
			runs := f.Runs("job")
			require.Len(t, runs, 4)
			for _, r := range runs[2:] {
				assert.Equal(t, executor.Failover, r.Reason)
				assert.Equal(t, n, r.Trigger)
				assert.Equal(t, "of the trigger", r.Param)
			}
		})
	})
}
