package count

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOf(t *testing.T) {
	assert.Equal(t, "0 jobs", Of(0, "job"))
	assert.Equal(t, "1 job", Of(1, "job"))
	assert.Equal(t, "2 jobs", Of(2, "job"))
}
