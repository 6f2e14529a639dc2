package cost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestCPU_DoesNotCountWaiting(t *testing.T) {
	assert.Less(t, CPU(func() { <-time.After(100 * time.Millisecond) }), 80*time.Millisecond)
}
