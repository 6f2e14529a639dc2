package coordinator

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMember_Weight(t *testing.T) {
	holding(t, "is told to the group, and shards are dealt by it", func(t *testing.T, h *holders) {
		leaveA := h.joinAs(Config{Instance: "a", Shards: 4})
		leaveB := h.joinAs(Config{Instance: "b", Shards: 4, Weight: 3})
		assert.Equal(t, map[string]string{"a": "0", "b": "1-3"}, h.now())
		assert.NoError(t, leaveA())
		assert.NoError(t, leaveB())
	})
}
