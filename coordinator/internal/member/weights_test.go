package member

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator/internal/planning"
)

func TestNewMember_Weight(t *testing.T) {
	for _, weight := range []int{-1, planning.MaxWeight + 1} {
		_, err := New(nil, Options{Namespace: "test", Weight: weight})
		assert.ErrorContains(t, err, "weight is ")
		assert.ErrorContains(t, err, ", not between 0 and 1000")
	}
}
