package claimer

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/shardset"
)

func TestBlockedShards(t *testing.T) {
	t.Run("are those that ran when the incarnation began, until their functions return", func(t *testing.T) {
		unblocked := 0
		b := BlockedShards{OnUnblocked: func() { unblocked++ }}
		b.addRunning("job", shardset.Of(1, 3))
		b.addRunning("job", shardset.Of(5))
		b.BeginIncarnation()
		b.addRunning("job", shardset.Of(7))
		b.removeRunning("job", 7)
		b.removeRunning("job", 3)
		assert.Equal(t, shardset.Of(1, 5), b.getBlocked("job"))
		assert.Equal(t, 1, unblocked)
		b.removeRunning("job", 1)
		b.removeRunning("job", 5)
		assert.Nil(t, b.CopyBlocked())
		assert.Empty(t, b.Running)
	})
	t.Run("leave the set of a claim unchanged", func(t *testing.T) {
		claimed := shardset.Of(1, 3, 5, 7)
		var b BlockedShards
		b.addRunning("job", claimed)
		b.removeRunning("job", 5)
		assert.Equal(t, shardset.Of(1, 3, 5, 7), claimed)
	})
}
