package provision

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetry(t *testing.T) {
	failure := errors.New("failure")
	t.Run("retries until success", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tries, start := 0, time.Now()
			require.NoError(t, retry(t.Context(), func() error {
				if tries++; tries < 3 {
					return failure
				}
				return nil
			}))
			require.Equal(t, 3, tries)
			require.Equal(t, firstPause+2*firstPause, time.Since(start))
		})
	})
	t.Run("returns the last error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			require.ErrorIs(t, retry(t.Context(), func() error { tries++; return failure }), failure)
			require.Equal(t, attempts, tries)
		})
	})
}

func TestRunCommand_FailsWithTheOutput(t *testing.T) {
	err := runCommand(t.Context(), t.TempDir(), []string{"WHAT=output"}, "sh", "-c", "echo the $WHAT; exit 3")
	require.ErrorContains(t, err, "exit status 3")
	require.ErrorContains(t, err, "the output")
}
