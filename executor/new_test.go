package executor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/executor"
)

func TestNew(t *testing.T) {
	t.Run("refuses a nil registry", func(t *testing.T) {
		_, err := executor.New(nil, "test", executor.Options{})
		assert.EqualError(t, err, "new executor: registry is nil")
	})
}
