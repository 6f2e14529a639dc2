package rotatest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
)

func TestStopSchedule(t *testing.T) {
	t.Run("is no loss of fires, and triggers are waited for", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			e := f.Start("a", every(time.Hour, 2, takes(time.Minute)))
			f.NextFire("job")
			f.Sleep(10 * time.Minute)
			require.NoError(f.T(), e.Operator().StopSchedule(f.T().Context(), "job"))
			f.Sleep(5 * time.Hour)
			ran := len(f.Runs("job"))
			_, err := e.Trigger(f.T().Context(), "job", executor.Trigger{})
			require.NoError(f.T(), err)
			f.Settle()
			assert.Len(f.T(), f.Runs("job"), ran+2)
			require.NoError(f.T(), e.Operator().Resume(f.T().Context(), "job"))
			f.Sleep(time.Hour)
			assert.Len(f.T(), f.Runs("job"), ran+4)
		})
	})
}
