package record

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestActs(t *testing.T) {
	t.Run("keep the last ones, oldest first", func(t *testing.T) {
		var acts Acts
		for i := range MaxActs + 3 {
			acts = acts.With(Act{What: fmt.Sprint(i)})
		}
		require.Len(t, acts, MaxActs)
		assert.Equal(t, "3", acts[0].What)
		assert.Equal(t, fmt.Sprint(MaxActs+2), acts[MaxActs-1].What)
	})
	t.Run("do not change the ones that they were made of", func(t *testing.T) {
		acts := append(make(Acts, 0, 4), Act{What: "a"})
		one, other := acts.With(Act{What: "b"}), acts.With(Act{What: "c"})
		assert.Equal(t, "b", one[1].What)
		assert.Equal(t, "c", other[1].What)
	})
	t.Run("leave room in the record, whatever their texts", func(t *testing.T) {
		long := strings.Repeat("日\x00", 1000)
		c := &Control{Job: "settle"}
		for range MaxActs {
			c.Acts = c.Acts.With(Act{At: 1, By: long, Reason: long, What: long})
		}
		b, err := marshal(c)
		require.NoError(t, err)
		assert.Less(t, len(b), 32<<10)
	})
	t.Run("and a retirement survive a round trip", func(t *testing.T) {
		text := `{"job":"settle","retiring":{"at":"1970-01-01T00:16:40Z","by":"kim","reason":"left","what":"retire"},"novelty":1}`
		c, err := DecodeControl([]byte(text))
		require.NoError(t, err)
		b, err := Encode(c)
		require.NoError(t, err)
		assert.Equal(t, text, string(b))
	})
	t.Run("and a pause with an end survive a round trip", func(t *testing.T) {
		text := `{"job":"settle","paused":true,"paused_until":"1970-01-01T00:16:40Z","held_by":{"at":"1970-01-01T00:16:40Z","by":"kim","reason":"move","what":"pause"},` +
			`"acts":[{"at":"1970-01-01T00:16:40Z","what":"reset"}],"novelty":1}`
		c, err := DecodeControl([]byte(text))
		require.NoError(t, err)
		b, err := Encode(c)
		require.NoError(t, err)
		assert.Equal(t, text, string(b))
	})
}

func TestControl_WithoutPause(t *testing.T) {
	c := &Control{Job: "settle", Paused: true, Hold: Hold{Until: 5, HeldBy: &Act{What: "pause"}}, LastTrigger: 3}
	after := c.WithoutPause(7)
	assert.True(t, c.Paused, "the receiver is unchanged")
	assert.False(t, after.Paused)
	assert.Equal(t, Hold{}, after.Hold)
	assert.EqualValues(t, 3, after.LastTrigger)
	require.Len(t, after.Acts, 1)
	assert.Equal(t, ByLeader, after.Acts[0].By)
}
