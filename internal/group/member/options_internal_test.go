package member

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/registry/memory"
)

func TestNew_Labels(t *testing.T) {
	_, err := New(memory.New().Client("a"), Options{Namespace: "test", Labels: map[string]string{"": "x", "zone": "\n"}})
	assert.ErrorContains(t, err, "labels: an empty key")
	assert.ErrorContains(t, err, `the value of "zone" has a control character`)
}

func TestNew_Weight(t *testing.T) {
	for _, weight := range []int{-1, planning.MaxWeight + 1} {
		_, err := New(nil, Options{Namespace: "test", Weight: weight})
		assert.ErrorContains(t, err, "weight is ")
		assert.ErrorContains(t, err, ", not between 0 and 1000")
	}
}

func TestNew_RestartGrace(t *testing.T) {
	for rule, o := range map[string]Options{
		"not between 0 and 1h0m0s": {Instance: "a", RestartGrace: -1},
		"is 1h0m1s, not between":   {Instance: "a", RestartGrace: time.Hour + time.Second},
		"requires a name":          {RestartGrace: time.Second},
	} {
		o.Namespace = "test"
		_, err := New(nil, o)
		assert.ErrorContains(t, err, rule)
	}
}
