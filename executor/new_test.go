package executor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/executor"
)

func TestNew(t *testing.T) {
	t.Run("refuses a nil registry", func(t *testing.T) {
		_, err := executor.New(nil, "test", executor.Options{})
		assert.EqualError(t, err, "new executor: registry is nil")
	})
	t.Run("reports all problems of its arguments together", func(t *testing.T) {
		_, err := executor.New(nil, "a//b", executor.Options{
			Instance: "a/b", Host: "\n", SessionTTL: -1, RestartGrace: 2 * time.Hour, Workers: -2, Weight: -3,
			Labels: map[string]string{"": "x"}, Strategies: map[string]strategy.Func{"sticky": nil},
		})
		require.Error(t, err)
		for _, problem := range []string{
			"registry is nil", "a//b", "instance: ", "host: ", "SessionTTL is -1ns", "restart grace is 2h0m0s",
			"Workers is -2", "weight is -3", "labels: ", `strategy "sticky" is nil`,
		} {
			assert.ErrorContains(t, err, problem)
		}
		assert.Len(t, strings.Split(err.Error(), "\n"), 10)
	})
}

func TestTrigger(t *testing.T) {
	bubble(t, "refuses an empty list of shards", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 2, takes(0))
		_, err := a.Trigger(t.Context(), "job", executor.Trigger{Shards: []int{}})
		assert.ErrorContains(t, err, "no shard is named; nil means all")
	})
}
