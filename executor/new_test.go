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

func TestTrigger(t *testing.T) {
	bubble(t, "refuses an empty list of shards", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 2, takes(0))
		_, err := a.Trigger(t.Context(), "job", executor.Trigger{Shards: []int{}})
		assert.ErrorContains(t, err, "no shard is named; nil means all")
	})
}
