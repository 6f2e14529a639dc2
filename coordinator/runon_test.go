package coordinator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestJoin_RunOn(t *testing.T) {
	t.Run("refuses invalid labels", func(t *testing.T) {
		err := Join(t.Context(), nil, Config{Namespace: "test", Shards: 1, RunOn: map[string]string{"": ""}, Own: func(context.Context, Owned) error { return nil }})
		assert.ErrorContains(t, err, "join: RunOn: an empty key")
	})
	holding(t, "has those own shards who have the labels, by the highest revision", func(t *testing.T, h *holders) {
		in := func(name, zone string, revision int, wanted string) func() error {
			return h.joinAs(Config{
				Instance: name, Shards: 4, Revision: revision, Labels: map[string]string{"zone": zone}, RunOn: map[string]string{"zone": wanted},
			})
		}
		leaveA := in("a", "east", 1, "east")
		leaveB := in("b", "west", 1, "east")
		assert.Equal(t, map[string]string{"a": "0-3"}, h.now())
		leaveC := in("c", "west", 2, "west")
		time.Sleep(time.Minute)
		var owned shardset.Set
		for name, text := range h.now() { // who gets which depends on which call returned first
			var has shardset.Set
			require.NoError(t, has.UnmarshalText([]byte(text)))
			assert.Contains(t, []string{"b", "c"}, name)
			assert.Equal(t, 2, has.Len(), name)
			owned = owned.Union(has)
		}
		assert.Equal(t, "0-3", owned.String())
		for _, err := range h.why("a") {
			assert.ErrorIs(t, err, claimer.ErrMoving)
		}
		assert.NoError(t, leaveB())
		assert.NoError(t, leaveC())
		time.Sleep(time.Second)
		assert.Empty(t, h.now(), "nobody is there who may")
		assert.NoError(t, leaveA())
	})
}
