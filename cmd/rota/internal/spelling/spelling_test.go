package spelling

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNearest(t *testing.T) {
	names := []string{"schedule", "every", "shards", "param"}
	for word, want := range map[string]string{
		"shedule": "schedule", "evry": "every", "shard": "shards", "params": "param", "every": "every", "colour": "", "x": "", "": "",
	} {
		assert.Equal(t, want, Nearest(word, names), word)
	}
}
