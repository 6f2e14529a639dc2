package registry_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/registry"
)

func TestRetryable(t *testing.T) {
	assert.False(t, registry.Retryable(nil))
	lasting := []error{
		registry.ErrConflict, registry.ErrSessionLost, registry.ErrClosed, registry.ErrPermission, registry.ErrUnauthenticated, registry.ErrQuota,
		registry.ErrInvalidKey, registry.ErrInvalidTxn, registry.ErrTooLarge,
	}
	for _, passing := range []error{registry.ErrUnavailable, registry.ErrNotApplied, registry.ErrUnknownOutcome} {
		assert.True(t, registry.Retryable(fmt.Errorf("get a: %w", passing)), passing)
		for _, last := range lasting {
			assert.False(t, registry.Retryable(last), last)
			assert.False(t, registry.Retryable(fmt.Errorf("get a: %w: %w", passing, last)), "%v and %v", passing, last)
		}
	}
}
