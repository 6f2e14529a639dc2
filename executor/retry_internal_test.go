package executor

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRetryError_ADaemonIsAsNewOnceItHasRunForTheLongestDelay(t *testing.T) {
	p := &program{always: true}
	p.Tracking, p.Retry = TrackRuns, retryFieldOf(Retry{Max: -1, MaxInterval: time.Minute, Jitter: -1})
	delayAfter := func(took time.Duration) time.Duration {
		retry, ok := asRetry(p.retryError(t.Context(), &Run{RunInfo: RunInfo{Retries: 3}}, took, errors.New("cause")))
		assert.True(t, ok)
		return retry.In
	}
	assert.Equal(t, 8*time.Second, delayAfter(time.Minute-1))
	assert.Equal(t, time.Second, delayAfter(time.Minute))
}
