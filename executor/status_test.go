package executor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

func TestStatus(t *testing.T) {
	bubble(t, "has the schedule as text, and the next fire", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 2, takes(0))
		until(1)
		st, err := a.Status(t.Context(), "job")
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
