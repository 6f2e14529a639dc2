package executor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
)

func TestPause(t *testing.T) {
	bubble(t, "does not stop a claimed run that waits for a worker", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{Workers: 1}, 2, takes(10*time.Second))
		until(1)
		require.NoError(t, a.Operator().Pause(t.Context(), "job"))
		require.Len(t, f.began(1), 1)
		until(2)
		assert.Equal(t, map[int][]string{0: {"a1"}, 1: {"a1"}}, f.began(1))
		assert.Empty(t, f.began(2))
	})
	bubble(t, "leaves a fire that was due before to the misfire policy, which decides at the resume", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 1, takes(90*time.Second))
		until(2) // the run of minute 1 still goes on
		require.NoError(t, a.Operator().Pause(t.Context(), "job"))
		until(4)
		require.Empty(t, f.began(2))
		require.NoError(t, a.Operator().Resume(t.Context(), "job"))
		time.Sleep(time.Second)
		assert.Equal(t, map[int][]string{0: {"a1"}}, f.began(2))
		until(6)
		assert.Empty(t, f.began(3), "it came due during the pause")
		assert.Empty(t, f.began(4), "it came due during the pause")
	})
}
