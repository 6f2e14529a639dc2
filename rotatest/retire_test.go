package rotatest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// The leader deletes several retired jobs in one commit, which keeps the promises that Run judges.
func TestRun_OfRetiredJobs(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		ok := executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })
		names := []string{"a", "b", "c"}
		var jobs []executor.Job
		for _, name := range names {
			jobs = append(jobs, executor.Job{Name: name, Schedule: schedule.Every(time.Minute), Handler: ok})
		}
		old := f.Start("old", jobs...)
		f.Start("new", executor.Job{Name: "stays", Schedule: schedule.Every(time.Minute), Handler: ok})
		f.Sleep(3 * time.Minute)
		op, err := operator.New(f.Server().Client("op"), rotatest.Namespace, "")
		require.NoError(f.T(), err)
		require.NoError(f.T(), op.Retire(f.T().Context(), names...))
		require.NoError(f.T(), old.Withdraw(f.T().Context(), names...))
		f.Sleep(2 * time.Minute)
		left, err := op.JobNames(f.T().Context())
		require.NoError(f.T(), err)
		assert.Equal(f.T(), []string{"stays"}, left)
		f.Register("old", jobs...)
		f.Sleep(2 * time.Minute)
		assert.NotEmpty(f.T(), f.Runs("b"))
	})
}
