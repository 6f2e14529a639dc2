package skew

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAheadOf(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	assert.Zero(t, AheadOf(at(5), at(5), at(5)))
	assert.Zero(t, AheadOf(at(5), at(1), at(9)), "the commit took its time")
	assert.Equal(t, 3*time.Second, AheadOf(at(2), at(5), at(9)))
	assert.Equal(t, -3*time.Second, AheadOf(at(12), at(5), at(9)))
}
