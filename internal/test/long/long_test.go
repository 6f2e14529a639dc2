package long_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/test/long"
)

func TestPick(t *testing.T) {
	t.Setenv(long.Variable, "")
	assert.Equal(t, 1, long.Pick(1, 2))
	t.Setenv(long.Variable, "1")
	assert.Equal(t, 2, long.Pick(1, 2))
}
